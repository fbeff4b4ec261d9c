"""Encode names with any Hugging Face encoder, in torch.

Names are sorted by length and batched under a token budget (`tokens.batching`), so the vector of a name must
not depend on the other names of its batch. That is why mean-all-tokens pads every name to the maximum length,
as the reference code does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sapbert.artifacts import fingerprint_of
from sapbert.encoder.forward import Layout, TrainingForward, choose_layout, encode_padded, inference_limits
from sapbert.encoder.loading import load_encoder, max_input_tokens, settings_folder
from sapbert.encoder.model_folder import stored_max_length, stored_pooling, stored_sparse_weight
from sapbert.errors import ConfigError
from sapbert.gpu.bert import RowEncoder
from sapbert.gpu.stream import RowStream, processes_for
from sapbert.tokens.batching import OnProgress, TokenRows, encode_distinct
from sapbert.tokens.pooling import Pooling
from sapbert.tokens.tokenizer import tokenize_names, valid_texts

DEFAULT_MAX_LENGTH = 64
"""Maximum tokens per name if neither the caller nor the model folder sets it."""
_WINDOW = 16_384
"""Names tokenized and sorted together: enough to fill batches, few enough to bound memory."""
_VECTOR_SETTINGS = (
    "model_type",
    "num_attention_heads",
    "hidden_act",
    "hidden_activation",
    "layer_norm_eps",
    "norm_eps",
)
"""Settings of the model that change vectors without changing weights. A digest of all settings would change
with the version of transformers."""


def tokenize(tokenizer: PreTrainedTokenizerBase, names: Sequence[str], *, max_length: int) -> TokenRows:
    """Return the tokens of each name, with special tokens, truncated to `max_length`."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        texts = valid_texts(names)
        encoded = tokenizer(texts, truncation=True, max_length=max_length, return_special_tokens_mask=True)
        return TokenRows.of(encoded["input_ids"], encoded["special_tokens_mask"])
    # Calling it through transformers is single-threaded and too slow for a GPU.
    set_truncation(tokenizer, max_length)
    return tokenize_names(backend, names)


def set_truncation(tokenizer: PreTrainedTokenizerBase, max_length: int) -> None:
    """Make the fast tokenizer truncate names and not pad them; no other thread may be using it."""
    backend = tokenizer.backend_tokenizer
    backend.enable_truncation(max_length, direction=tokenizer.truncation_side)
    backend.no_padding()


class TransformerEncoder:
    """Encodes names as unit vectors; implements `protocols.Encoder`.

    It encodes on the device of its model. A model in training mode is put in evaluation mode while encoding.
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
        """Use the first `max_length` tokens of a name, and compute in `dtype`.

        With `torch.bfloat16`, matrix products are in half precision: on a GPU many times faster for a BERT
        (`gpu.stream`). Vectors differ in the third digit and stay comparable, so the fingerprint is the same.
        """
        least, limit = tokenizer.num_special_tokens_to_add() + 1, max_input_tokens(model)
        if max_length < least or (limit is not None and max_length > limit):
            span = f"at least {least}" if limit is None else f"from {least} to {limit}"
            raise ConfigError(f"max_length for this encoder is {span} tokens, got {max_length}")
        self.model = model
        self.tokenizer = tokenizer
        self.pooling = pooling
        self.max_length = max_length
        self.sparse_weight = sparse_weight
        """Weight of the n-gram score relative to the dense score, if it was learned with the encoder."""
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
        """Load an encoder from a folder or the hub.

        Pooling and maximum length default to those in the folder, else to cls and `DEFAULT_MAX_LENGTH`. The
        device defaults to the GPU if there is one.
        """
        model, tokenizer = load_encoder(name_or_path)
        folder = settings_folder(name_or_path)
        if pooling is None:
            pooling = stored_pooling(folder) or Pooling.CLS
        if max_length is None:
            stored, limit = stored_max_length(folder) or DEFAULT_MAX_LENGTH, max_input_tokens(model)
            max_length = stored if limit is None else min(stored, limit)
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
        """Digest of weights, tokenizer, pooling and maximum length; computed on each call."""
        config = self.model.config
        parts = {name: str(getattr(config, name)) for name in _VECTOR_SETTINGS if hasattr(config, name)}
        parts |= {"pooling": self.pooling.value, "max_length": str(self.max_length)}
        parts |= {"weights": _weights_digest(self.model), "tokenizer": _tokenizer_digest(self.tokenizer)}
        return fingerprint_of(parts)

    def encode(self, names: Sequence[str], *, on_progress: OnProgress | None = None) -> NDArray[np.float32]:
        """Return one unit vector per name, in the order given.  # (names, dimension)

        Repeated names are computed once; an empty name has a vector too.
        """
        with _evaluation_mode(self.model), torch.inference_mode():
            return encode_distinct(
                names,
                self._stream(len(names)) or partial(map, self._encode_window),
                dimension=self.dimension,
                window=_WINDOW,
                on_progress=on_progress,
            )

    def training_forward(self, dtype: torch.dtype | None) -> TrainingForward:
        """Return the forward pass with gradient that trains this encoder; a `dtype` means mixed precision."""
        return TrainingForward(
            self.model,
            pad_id=self.tokenizer.pad_token_id,
            pooling=self.pooling,
            max_length=self.max_length,
            dtype=dtype,
        )

    def _stream(self, names: int) -> RowStream | None:
        """Return what encodes names in rows if that is the layout for this model and device."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        layout = choose_layout(
            self.model,
            pooling=self.pooling,
            max_length=self.max_length,
            dtype=self._dtype,
            gradient=False,
        )
        if backend is None or layout is not Layout.ROWS:
            return None
        encode = RowEncoder.fastest(self.model, self.pooling, dtype=self._dtype)
        set_truncation(self.tokenizer, self.max_length)
        pad_id, processes = self.tokenizer.pad_token_id, processes_for(names)
        return RowStream(encode, backend, self.pooling, pad_id=pad_id, processes=processes)

    def _encode_window(self, names: list[str]) -> NDArray[np.float32]:
        """Encode distinct names in padded rectangles.  # (names, dimension)"""
        # Vectors stay on the device until the window is done, so that a GPU never waits for a copy.
        vectors = encode_padded(
            self.model,
            tokenize(self.tokenizer, names, max_length=self.max_length),
            inference_limits(self.model.device),
            pad_id=self.tokenizer.pad_token_id,
            pooling=self.pooling,
            max_length=self.max_length,
            dtype=None if self._dtype is torch.float32 else self._dtype,
        )
        window: NDArray[np.float32] = nn.functional.normalize(vectors).cpu().numpy()
        return window


@contextmanager
def _evaluation_mode(model: PreTrainedModel) -> Iterator[None]:
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
    # Truncation and padding are left over from the last call.
    kept = {key: value for key, value in content.items() if key not in ("truncation", "padding")}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
