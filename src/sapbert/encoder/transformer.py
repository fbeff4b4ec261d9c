"""Encode names with any Hugging Face encoder, in torch.

A checkpoint may lack a tokenizer or some weights, and transformers then goes on with an empty vocabulary or
random numbers. `load_encoder` refuses both: vectors would look like vectors and mean nothing.

Names are sorted by length and batched under a token budget (`tokens.batching`), so a name's vector must not
depend on its company; that is why mean-all-tokens pads every name to the full length, as the reference does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import snapshot_download
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import (
    MODEL_MAPPING,
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from sapbert.artifacts import fingerprint_of
from sapbert.encoder.adapters import base_of, load_adapters
from sapbert.encoder.model_folder import (
    LENGTH_FILE,
    OWN_FILE,
    POOLING_FILE,
    adapters_in,
    pooler_options,
    quiet,
    stored_max_length,
    stored_pooling,
    stored_sparse_weight,
)
from sapbert.errors import ArtifactError, ConfigError
from sapbert.gpu.bert import RowEncoder, can_lay
from sapbert.gpu.stream import RowStream, processes_for
from sapbert.tokens.batching import OnProgress, TokenRows, encode_distinct, plan_batches
from sapbert.tokens.pooling import Pooling, pool
from sapbert.tokens.tokenizer import readable, split

DEFAULT_MAX_LENGTH = 64
"""Tokens of a name that count where neither the caller nor the folder says."""
_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_WINDOW = 16_384
"""Names tokenized and sorted together: enough to fill batches, little enough to keep memory flat."""
_BATCH_TOKENS = {"cpu": 1_024}
_GPU_BATCH_TOKENS = 65_536
_BATCH_ROWS = 8_192
_SHAPING = (
    "model_type",
    "num_attention_heads",
    "hidden_act",
    "hidden_activation",
    "layer_norm_eps",
    "norm_eps",
)
"""Settings that change vectors while weights stay. All of them would change with transformers' version."""


def load_encoder(name_or_path: str | Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load an encoder and its tokenizer from a folder or, by id, from the Hugging Face hub.

    Weights are float32 whatever the checkpoint holds, and there is no pooler head. The model is on the CPU
    and in evaluation mode. Of a folder that holds adapters the base is loaded from where it was.
    """
    source = _locate(name_or_path)
    adapters = adapters_in(source) if isinstance(source, Path) else None
    with quiet():
        model = _load_model(source) if adapters is None else _load_adapted(source, adapters)
        tokenizer = _load_tokenizer(source)
    _check_fit(source, model, tokenizer)
    return model, tokenizer


def longest_input(model: PreTrainedModel) -> int | None:
    """Return how many tokens the encoder can read at once, None where positions set no limit."""
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    if isinstance(table, nn.Embedding):
        # RoBERTa and its kin count positions from the one after the padding's.
        return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)
    limit: int | None = getattr(model.config, "max_position_embeddings", None)
    return limit


def tokenize(tokenizer: PreTrainedTokenizerBase, names: Sequence[str], *, max_length: int) -> TokenRows:
    """Split names into tokens, special ones included, at most `max_length` each; the rest is cut off."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        texts = readable(names)
        encoded = tokenizer(texts, truncation=True, max_length=max_length, return_special_tokens_mask=True)
        return TokenRows.of(encoded["input_ids"], encoded["special_tokens_mask"])
    # The same through transformers is single-threaded around this call, and starves a GPU.
    cut_to(tokenizer, max_length)
    return split(backend, names)


def cut_to(tokenizer: PreTrainedTokenizerBase, max_length: int) -> None:
    """Let the tokenizer inside cut names and not pad them; no thread may be using it."""
    backend = tokenizer.backend_tokenizer
    backend.enable_truncation(max_length, direction=tokenizer.truncation_side)
    backend.no_padding()


class TransformerEncoder:
    """Turns names into unit vectors; fits `protocols.Encoder`.

    It encodes on the device its model is on. A model that is being trained may be given: it is put in
    evaluation mode while encoding.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        pooling: Pooling,
        max_length: int,
        dtype: torch.dtype = torch.float32,
        sparse_weight: float = 0.0,
    ) -> None:
        """Pool by `pooling`, read the first `max_length` tokens of a name, and compute in `dtype`.

        With `torch.bfloat16` matrix products are in half precision: on a GPU many times faster for a BERT
        (`gpu.stream`), and vectors differ in the third digit. They stay comparable, so the fingerprint is
        the same.
        """
        least, limit = tokenizer.num_special_tokens_to_add() + 1, longest_input(model)
        if max_length < least or (limit is not None and max_length > limit):
            span = f"at least {least}" if limit is None else f"from {least} to {limit}"
            raise ConfigError(f"max_length for this encoder is {span} tokens, got {max_length}")
        self.model = model
        self.tokenizer = tokenizer
        self.pooling = pooling
        self.max_length = max_length
        self.sparse_weight = sparse_weight
        """What spelling counts beside its vectors, where that was learned with it."""
        self._dtype = dtype

    @classmethod
    def open(
        cls,
        name_or_path: str | Path,
        *,
        pooling: Pooling | None = None,
        max_length: int | None = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> TransformerEncoder:
        """Load an encoder from a folder or the hub, as it was trained to be used unless told otherwise.

        Where the folder does not say, pooling is cls and `DEFAULT_MAX_LENGTH` tokens count. The device is
        the GPU if there is one.
        """
        model, tokenizer = load_encoder(name_or_path)
        folder = _settings_folder(name_or_path)
        if pooling is None:
            pooling = stored_pooling(folder) or Pooling.CLS
        if max_length is None:
            wanted, limit = stored_max_length(folder) or DEFAULT_MAX_LENGTH, longest_input(model)
            max_length = wanted if limit is None else min(wanted, limit)
        module: nn.Module = model
        module.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        return cls(
            model,
            tokenizer,
            pooling=pooling,
            max_length=max_length,
            dtype=dtype,
            sparse_weight=stored_sparse_weight(folder),
        )

    @property
    def dimension(self) -> int:
        """Length of one vector."""
        return int(self.model.config.hidden_size)

    @property
    def fingerprint(self) -> str:
        """Digest of weights, tokenizer, pooling and longest name; computed anew, as training changes it."""
        config = self.model.config
        parts = {name: str(getattr(config, name)) for name in _SHAPING if hasattr(config, name)}
        parts |= {"pooling": self.pooling.value, "max_length": str(self.max_length)}
        parts |= {"weights": _weights_digest(self.model), "tokenizer": _tokenizer_digest(self.tokenizer)}
        return fingerprint_of(parts)

    def encode(self, names: Sequence[str], *, on_progress: OnProgress | None = None) -> NDArray[np.float32]:
        """Return one unit vector a name, in the order given.  # (names, dimension)

        A name given several times is computed once; an empty name has a vector too.
        """
        with _evaluating(self.model), torch.inference_mode():
            return encode_distinct(
                names,
                self._stream(len(names)) or partial(map, self._encode_window),
                dimension=self.dimension,
                window=_WINDOW,
                on_progress=on_progress,
            )

    def _stream(self, names: int) -> RowStream | None:
        """What encodes names in rows, where bfloat16 is asked for and the model and its GPU can do that."""
        backend, device = getattr(self.tokenizer, "backend_tokenizer", None), self.model.device
        if device.type != "cuda" or self._dtype != torch.bfloat16 or backend is None:
            return None
        if not can_lay(self.model, self.pooling, self.max_length):
            return None
        encode = RowEncoder.fastest(self.model, self.pooling, dtype=self._dtype)
        cut_to(self.tokenizer, self.max_length)
        pad_id, processes = self.tokenizer.pad_token_id, processes_for(names)
        return RowStream(encode, backend, self.pooling, pad_id=pad_id, processes=processes)

    def _encode_window(self, names: list[str]) -> NDArray[np.float32]:
        """Encode distinct names.  # (names, dimension)"""
        tokens = tokenize(self.tokenizer, names, max_length=self.max_length)
        width = self.max_length if self.pooling is Pooling.MEAN_ALL else None
        lengths = tokens.lengths if width is None else np.full(len(names), width)
        device = self.model.device
        budget = _BATCH_TOKENS.get(device.type, _GPU_BATCH_TOKENS)
        vectors = torch.empty((len(names), self.dimension), device=device)
        for rows in plan_batches(lengths, tokens=budget, rows=_BATCH_ROWS):
            batch = tokens.pad(rows, pad_id=self.tokenizer.pad_token_id, width=width)
            ids, attention, special = (
                torch.from_numpy(part).to(device) for part in (batch.ids, batch.attention, batch.special)
            )  # (rows, tokens)
            with torch.autocast(device.type, self._dtype, enabled=self._dtype != torch.float32):
                hidden = self.model(input_ids=ids, attention_mask=attention.long()).last_hidden_state
            pooled = pool(hidden.float(), attention, special, self.pooling)  # (rows, dimension)
            # They stay on the device until the window is done, so that a GPU never waits for a copy.
            vectors[torch.from_numpy(rows).to(device)] = nn.functional.normalize(pooled)
        window: NDArray[np.float32] = vectors.cpu().numpy()
        return window


def _locate(name_or_path: str | Path) -> Path | str:
    """Return the folder, if it is one with a model in it, or the hub id."""
    path = Path(name_or_path).expanduser()
    if not path.exists():
        text = str(name_or_path)
        if isinstance(name_or_path, str) and text.count("/") <= 1 and not text.startswith(("/", ".", "~")):
            return text
        raise ArtifactError(f"{path}: no such folder")
    if not path.is_dir():
        raise ArtifactError(f"{path}: is a file, expected the folder of a Hugging Face model")
    if adapters_in(path) is not None:
        return path
    if not (path / "config.json").is_file():
        raise ArtifactError(f"{path}: no Hugging Face model: it has no config.json")
    if not any((path / name).is_file() for name in _WEIGHTS):
        raise ArtifactError(f"{path}: has no weights: expected {_WEIGHTS[0]} or {_WEIGHTS[2]}")
    return path


def _settings_folder(name_or_path: str | Path) -> Path:
    """Return a folder with what a loaded model says of its use, fetched from the hub where need be."""
    source = _locate(name_or_path)
    if isinstance(source, Path):
        return source
    return Path(snapshot_download(source, allow_patterns=[OWN_FILE, POOLING_FILE, LENGTH_FILE]))


def _load_config(source: Path | str) -> PreTrainedConfig:
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(source, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        if isinstance(source, str):
            raise ArtifactError(
                f"{source}: no such folder, and no such model on the Hugging Face hub or no way to reach it"
            ) from error
        raise ArtifactError(f"{source}: config.json is damaged or of an unknown kind of model") from error
    if config.is_encoder_decoder or type(config) not in MODEL_MAPPING:
        raise ArtifactError(f"{source}: a {config.model_type} model is not an encoder")
    return config


def model_class(config: PreTrainedConfig) -> Callable[..., object]:
    """Return what makes an encoder of a configuration."""
    found: Any = MODEL_MAPPING[type(config)]
    chosen: Callable[..., object] = found[0] if isinstance(found, tuple) else found
    return chosen


def _load_adapted(source: Path | str, adapters: Path) -> PreTrainedModel:
    base = base_of(adapters)
    try:
        model = _load_model(_locate(base))
    except ArtifactError as error:
        raise ArtifactError(f"{source} holds adapters only, and their base is not there: {error}") from error
    load_adapters(model, adapters)
    return model


def _load_model(source: Path | str) -> PreTrainedModel:
    config = _load_config(source)
    options = pooler_options(model_class(config))
    try:
        model, report = AutoModel.from_pretrained(
            source,
            config=config,
            dtype=torch.float32,
            trust_remote_code=False,
            output_loading_info=True,
            **options,
        )
    except Exception as error:  # a damaged pickle fails in whatever way its bytes lead to
        raise ArtifactError(
            f"{source}: its weights are missing, damaged or do not fit its config.json"
        ) from error
    missing = sorted(report["missing_keys"])
    if missing:
        raise ArtifactError(f"{source}: lacks {len(missing)} of the encoder's weights, such as {missing[0]}")
    loaded: PreTrainedModel = model
    return loaded


def _load_tokenizer(source: Path | str) -> PreTrainedTokenizerBase:
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except (OSError, ValueError, ImportError) as error:
        raise ArtifactError(f"{source}: has no tokenizer that can be read (tokenizer.json)") from error
    # Without its files transformers makes up a vocabulary of special tokens.
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise ArtifactError(f"{source}: has no tokenizer: expected tokenizer.json or a vocabulary file")
    return tokenizer


def _check_fit(source: Path | str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    if tokenizer.pad_token_id is None:
        raise ArtifactError(f"{source}: its tokenizer has no padding token, so it is not an encoder's")
    table = model.get_input_embeddings()
    highest = max(tokenizer.get_vocab().values())
    if isinstance(table, nn.Embedding) and highest >= table.num_embeddings:
        raise ArtifactError(
            f"{source}: the tokenizer has token {highest}, the encoder only {table.num_embeddings} tokens; "
            "are they of one model?"
        )


@contextmanager
def _evaluating(model: PreTrainedModel) -> Iterator[None]:
    training = model.training
    if training:
        model.train(mode=False)
    try:
        yield
    finally:
        if training:
            model.train(mode=True)


def _weights_digest(model: PreTrainedModel) -> str:
    digest = hashlib.sha256()
    weights: Mapping[str, Tensor] = model.state_dict()
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    content: dict[str, Any] = json.loads(backend.to_str()) if backend is not None else tokenizer.get_vocab()
    # Both are left over from the last call.
    kept = {key: value for key, value in content.items() if key not in ("truncation", "padding")}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
