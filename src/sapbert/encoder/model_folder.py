"""The folder of a trained encoder: a Hugging Face model that sentence-transformers opens too.

Beside weights, tokenizer and configuration lie `sapbert.json`, which says how the encoder was trained to be
used (pooling, longest name and, where it was learned, the weight of spelling), and the files that make
sentence-transformers do the same. It knows only two of our poolings, cls and mean. With another one those
files are left out: they could only be wrong.

An encoder with adapters is its base, which has a place of its own, and what `adapter/` holds. Its folder has
no weights, and config.json names a kind of model that is ours: a program that knows nothing of our adapters
must not open it as if it were the base.

Reading needs no torch.
"""

from __future__ import annotations

import inspect
import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sapbert.artifacts import MANIFEST
from sapbert.errors import ArtifactError
from sapbert.tokens.pooling import Pooling

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

OWN_FILE = "sapbert.json"
POOLING_FILE = "1_Pooling/config.json"
LENGTH_FILE = "sentence_bert_config.json"
MODULES_FILE = "modules.json"
ADAPTER_FOLDER = "adapter"
SPARSE_WEIGHT = "sparse_weight"
_FLAGS = {Pooling.CLS: "pooling_mode_cls_token", Pooling.MEAN: "pooling_mode_mean_tokens"}
"""What sentence-transformers calls the poolings it shares with us."""
_MODULES = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}

logger = logging.getLogger(__name__)


def save_model(
    folder: Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    pooling: Pooling,
    max_length: int,
    card: str,
    sparse_weight: float = 0.0,
) -> None:
    """Write an encoder, how it is used, and its model card to `folder`, which is made if needed.

    Of an encoder with adapters these alone are written, with the name of its base. `sparse_weight` is what
    spelling counts beside its vectors, where that was learned with it.
    """
    from sapbert.encoder.adapters import reduction_of, save_adapters

    folder.mkdir(parents=True, exist_ok=True)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        # Both are left over from the last call, and would be obeyed by whoever opens tokenizer.json.
        backend.no_truncation()
        backend.no_padding()
    own: dict[str, Any] = {"pooling": pooling.value, "max_length": max_length}
    _write_json(folder / OWN_FILE, {**own, SPARSE_WEIGHT: sparse_weight} if sparse_weight else own)
    (folder / "README.md").write_text(card, encoding="utf-8")
    (folder / MODULES_FILE).unlink(missing_ok=True)
    with quiet():
        tokenizer.save_pretrained(folder)
    if reduction_of(model) is not None:
        save_adapters(model, folder / ADAPTER_FOLDER)
        _write_json(folder / "config.json", {"model_type": "sapbert-adapter"})
        return
    with quiet():
        model.save_pretrained(folder)
    if pooling in _FLAGS:
        _write_sentence_transformers(folder, model, pooling, max_length)
    else:
        logger.warning("%s: sentence-transformers has no %s pooling, so no %s", folder, pooling, MODULES_FILE)


def adapters_in(folder: Path) -> Path | None:
    """Return where the adapters of the model in `folder` are, None where it is an ordinary model."""
    adapters = folder / ADAPTER_FOLDER
    return adapters if (adapters / MANIFEST).is_file() else None


def _write_sentence_transformers(
    folder: Path, model: PreTrainedModel, pooling: Pooling, max_length: int
) -> None:
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{name}"}
        for number, (name, path) in enumerate(_MODULES.items())
    ]
    _write_json(folder / MODULES_FILE, modules)
    flags = {flag: choice is pooling for choice, flag in _FLAGS.items()}
    (folder / POOLING_FILE).parent.mkdir(exist_ok=True)
    _write_json(folder / POOLING_FILE, {"word_embedding_dimension": model.config.hidden_size, **flags})
    length = {"max_seq_length": max_length, "do_lower_case": False}
    # Else it would invent a pooler, and report random weights in a model that has none.
    extra = pooler_options(type(model))
    _write_json(folder / LENGTH_FILE, {**length, "model_args": extra} if extra else length)
    _write_json(folder / "config_sentence_transformers.json", {"similarity_fn_name": "cosine"})


def read_pooling(folder: Path) -> tuple[Pooling | None, int | None]:
    """Read how the encoder in `folder` is used: its pooling and longest name, None where it does not say."""
    return stored_pooling(folder), stored_max_length(folder)


def stored_pooling(folder: Path) -> Pooling | None:
    """Read the pooling from our own file, else from that of sentence-transformers."""
    own = _read_json(folder / OWN_FILE)
    if "pooling" in own:
        if own["pooling"] in list(Pooling):
            return Pooling(own["pooling"])
        raise ArtifactError(
            f"{folder / OWN_FILE}: unknown pooling {own['pooling']!r}, expected one of {', '.join(Pooling)}"
        )
    foreign = _read_json(folder / POOLING_FILE)
    if not foreign:
        return None
    modes = _modes(foreign)
    for pooling in _FLAGS:
        if modes == [pooling.value]:
            return pooling
    raise ArtifactError(
        f"{folder / POOLING_FILE}: pools by {' and '.join(modes)}, which is not supported; "
        f"choose a pooling: {', '.join(Pooling)}"
    )


def stored_max_length(folder: Path) -> int | None:
    """Read how many tokens of a name count, from our own file, else from that of sentence-transformers."""
    for file, key in ((OWN_FILE, "max_length"), (LENGTH_FILE, "max_seq_length")):
        length = _read_json(folder / file).get(key)
        if length is not None:
            if not isinstance(length, int) or length < 1:
                raise ArtifactError(f"{folder / file}: {key} is {length!r}, expected a number of tokens")
            return length
    return None


def stored_sparse_weight(folder: Path) -> float:
    """Read what spelling counts beside the vectors of the encoder in `folder`; 0 where it does not say."""
    weight = _read_json(folder / OWN_FILE).get(SPARSE_WEIGHT, 0.0)
    if not isinstance(weight, int | float) or not 0 <= weight < math.inf:
        raise ArtifactError(
            f"{folder / OWN_FILE}: {SPARSE_WEIGHT} is {weight!r}, expected a number from 0 on"
        )
    return float(weight)


def pooler_options(model_class: Callable[..., object]) -> dict[str, bool]:
    """Return what keeps a model class from adding a pooler head, which no pooling of ours uses."""
    known = inspect.signature(model_class).parameters
    return {"add_pooling_layer": False} if "add_pooling_layer" in known else {}


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' progress bars and its reports of expected things off the terminal."""
    from transformers.utils import logging as messages

    level, bars = messages.get_verbosity(), messages.is_progress_bar_enabled()
    messages.set_verbosity(logging.ERROR)
    messages.disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    try:
        yield
    finally:
        messages.set_verbosity(level)
        if bars:
            messages.enable_progress_bar()  # type: ignore[no-untyped-call]  # as above


def _modes(config: Mapping[str, Any]) -> list[str]:
    """Name the poolings in a file of sentence-transformers, of whichever version."""
    mode = config.get("pooling_mode")
    if mode is not None:
        return [mode] if isinstance(mode, str) else list(mode)
    prefix = "pooling_mode_"
    flags = [key.removeprefix(prefix) for key, value in config.items() if key.startswith(prefix) and value]
    return [flag.removesuffix("_tokens").removesuffix("_token") for flag in flags] or ["mean"]


def _read_json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ArtifactError(f"{file} is damaged: {error}") from error
    if not isinstance(content, dict):
        raise ArtifactError(f"{file} is damaged: expected a JSON object")
    return content


def _write_json(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
