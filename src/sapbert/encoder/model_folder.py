"""The folder of a trained encoder: a Hugging Face model that sentence-transformers opens too.

Besides weights, tokenizer and configuration it contains `sapbert.json`, with the settings that the encoder
was trained with (pooling, maximum length and, if it was learned, the weight of the n-gram score), and the
files that make sentence-transformers use the same settings. sentence-transformers supports only cls and mean
pooling; with another pooling its files are left out, since they could only be wrong.

An encoder with adapters consists of its base, which is stored elsewhere, and the folder `adapter/`. The
folder then has no weights, and its config.json names a model type of our own, so that programs that do not
support our adapters do not open it as if it were the base.

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

SAPBERT_FILE = "sapbert.json"
POOLING_FILE = "1_Pooling/config.json"
LENGTH_FILE = "sentence_bert_config.json"
MODULES_FILE = "modules.json"
ADAPTER_FOLDER = "adapter"
SPARSE_WEIGHT = "sparse_weight"
_FLAGS = {Pooling.CLS: "pooling_mode_cls_token", Pooling.MEAN: "pooling_mode_mean_tokens"}
"""Poolings that sentence-transformers supports → their flags in its settings."""
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
    """Write an encoder, its settings and its model card to `folder`, which is created if needed.

    Of an encoder with adapters only the adapters are written, with the name of the base. `sparse_weight` is
    the weight of the n-gram score relative to the dense score, if it was learned with the encoder.
    """
    from sapbert.encoder.adapters import reduction_of, save_adapters

    folder.mkdir(parents=True, exist_ok=True)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        # Both are left over from the last call, and would be applied wherever tokenizer.json is opened.
        backend.no_truncation()
        backend.no_padding()
    settings: dict[str, Any] = {"pooling": pooling.value, "max_length": max_length}
    if sparse_weight:
        settings[SPARSE_WEIGHT] = sparse_weight
    _write_json(folder / SAPBERT_FILE, settings)
    (folder / "README.md").write_text(card, encoding="utf-8")
    (folder / MODULES_FILE).unlink(missing_ok=True)
    with quiet_transformers():
        tokenizer.save_pretrained(folder)
    if reduction_of(model) is not None:
        save_adapters(model, folder / ADAPTER_FOLDER)
        _write_json(folder / "config.json", {"model_type": "sapbert-adapter"})
        return
    with quiet_transformers():
        model.save_pretrained(folder)
    if pooling in _FLAGS:
        _write_sentence_transformers(folder, model, pooling, max_length)
    else:
        logger.warning("%s: sentence-transformers has no %s pooling, so no %s", folder, pooling, MODULES_FILE)


def adapters_in(folder: Path) -> Path | None:
    """Return the folder of the adapters of the model in `folder`, None if it has no adapters."""
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
    # Otherwise it would add a pooler with random weights and warn about them.
    extra = without_pooler(type(model))
    _write_json(folder / LENGTH_FILE, {**length, "model_args": extra} if extra else length)
    _write_json(folder / "config_sentence_transformers.json", {"similarity_fn_name": "cosine"})


def stored_pooling(folder: Path) -> Pooling | None:
    """Read the pooling from `sapbert.json`, else from the file of sentence-transformers; None if unknown."""
    settings = _read_json(folder / SAPBERT_FILE)
    if "pooling" in settings:
        if settings["pooling"] in list(Pooling):
            return Pooling(settings["pooling"])
        raise ArtifactError(
            f"{folder / SAPBERT_FILE}: unknown pooling {settings['pooling']!r}, "
            f"expected one of {', '.join(Pooling)}"
        )
    sentence_transformers = _read_json(folder / POOLING_FILE)
    if not sentence_transformers:
        return None
    modes = _modes(sentence_transformers)
    for pooling in _FLAGS:
        if modes == [pooling.value]:
            return pooling
    raise ArtifactError(
        f"{folder / POOLING_FILE}: pools by {' and '.join(modes)}, which is not supported; "
        f"choose a pooling: {', '.join(Pooling)}"
    )


def stored_max_length(folder: Path) -> int | None:
    """Read the maximum tokens per name from `sapbert.json`, else from the file of sentence-transformers."""
    for file, key in ((SAPBERT_FILE, "max_length"), (LENGTH_FILE, "max_seq_length")):
        length = _read_json(folder / file).get(key)
        if length is not None:
            if not isinstance(length, int) or length < 1:
                raise ArtifactError(f"{folder / file}: {key} is {length!r}, expected a number of tokens")
            return length
    return None


def stored_sparse_weight(folder: Path) -> float:
    """Read the weight of the n-gram score relative to the dense score; 0 if the folder has none."""
    weight = _read_json(folder / SAPBERT_FILE).get(SPARSE_WEIGHT, 0.0)
    if not isinstance(weight, int | float) or not 0 <= weight < math.inf:
        raise ArtifactError(
            f"{folder / SAPBERT_FILE}: {SPARSE_WEIGHT} is {weight!r}, expected a number of at least 0"
        )
    return float(weight)


def without_pooler(model_class: Callable[..., object]) -> dict[str, bool]:
    """Return the arguments that make a model class add no pooler head, which no pooling here uses."""
    known = inspect.signature(model_class).parameters
    return {"add_pooling_layer": False} if "add_pooling_layer" in known else {}


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence transformers' progress bars and warnings."""
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
    """Return the names of the poolings in a file of any version of sentence-transformers."""
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
