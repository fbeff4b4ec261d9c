"""Choose how the tokens of many names are arranged for an encoder, and run its forward pass.

This is the one place that makes the choice; training and encoding both use it. All layouts give the same
vectors:

- `ROWS`: several names per row of 64 tokens (`gpu.rows`). Only for a plain BERT in bfloat16 on a GPU,
  where it needs a tenth of the kernel launches.
- `PACKED`: all names in one sequence without padding (`packing`). For training BERT families.
- `PADDED`: rectangles of names of similar length. Works for every encoder.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from sapbert.encoder.packing import PackedNames, supports_packing
from sapbert.gpu.bert import RowEncoder, RowTensors, supports_rows
from sapbert.gpu.rows import Rows
from sapbert.gpu.transfer import to_device
from sapbert.tokens.batching import PaddedBatch, TokenRows, plan_batches
from sapbert.tokens.pooling import Pooling, pool


class Layout(StrEnum):
    """How the tokens of a batch are arranged."""

    ROWS = "rows"
    PACKED = "packed"
    PADDED = "padded"


class BatchLimits(NamedTuple):
    """The largest rectangle that is encoded at once."""

    tokens: int
    """Tokens, padding included."""
    names: int


def choose_layout(
    model: PreTrainedModel,
    *,
    pooling: Pooling,
    max_length: int,
    dtype: torch.dtype | None,
    gradient: bool,
) -> Layout:
    """Return the fastest layout for this model on its device; `gradient` says whether it is being trained."""
    if (
        dtype is torch.bfloat16
        and model.device.type == "cuda"
        and (not gradient or all(parameter.requires_grad for parameter in model.parameters()))
        and supports_rows(model, pooling, max_length)
    ):
        return Layout.ROWS
    # Mean over all tokens counts padding, which packed names do not have.
    if gradient and pooling is not Pooling.MEAN_ALL and supports_packing(model):
        return Layout.PACKED
    return Layout.PADDED


def inference_limits(device: torch.device) -> BatchLimits:
    """Return the batch limits for encoding without gradient."""
    return BatchLimits(tokens=1_024 if device.type == "cpu" else 65_536, names=8_192)


def training_limits(device: torch.device) -> BatchLimits:
    """Return the batch limits for encoding with gradient.

    A CPU takes as long for a padded token as for a real one, so names of similar length are encoded together.
    A GPU is faster with one large rectangle.
    """
    return BatchLimits(tokens=2_048 if device.type == "cpu" else sys.maxsize, names=sys.maxsize)


def encode_padded(
    model: PreTrainedModel,
    tokens: TokenRows,
    limits: BatchLimits,
    *,
    pad_id: int,
    pooling: Pooling,
    max_length: int,
    dtype: torch.dtype | None,
) -> Tensor:
    """Return one vector per name, not normalized, computed in padded rectangles.  # (names, dim)"""
    # Mean over all tokens counts padding, so the amount of padding must not depend on the batch.
    width = max_length if pooling is Pooling.MEAN_ALL else None
    lengths = tokens.lengths if width is None else np.full(len(tokens.lengths), width)
    groups = plan_batches(lengths, tokens=limits.tokens, rows=limits.names)
    if not groups:
        return torch.empty((0, model.config.hidden_size), device=model.device)
    parts = [
        _encode_rectangle(model, tokens.pad(group, pad_id=pad_id, width=width), pooling, dtype)
        for group in groups
    ]
    return torch.cat(parts)[to_device(np.argsort(np.concatenate(groups)), model.device)]


def _encode_rectangle(
    model: PreTrainedModel, batch: PaddedBatch, pooling: Pooling, dtype: torch.dtype | None
) -> Tensor:
    ids, attention, special = (
        to_device(part, model.device) for part in (batch.ids, batch.attention, batch.special)
    )  # (names, tokens)
    with torch.autocast(model.device.type, dtype=dtype, enabled=dtype is not None):
        hidden = model(input_ids=ids, attention_mask=attention.long()).last_hidden_state
    return pool(hidden.float(), attention, special, pooling)  # (names, dim)


class TrainingForward:
    """Turns tokens into unit vectors that a gradient can be taken of, optionally in mixed precision.

    With `Layout.ROWS` take the gradient of one call before the next call: each call copies the current
    weights into the same bfloat16 buffers.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        pad_id: int,
        pooling: Pooling,
        max_length: int,
        dtype: torch.dtype | None,
    ) -> None:
        self._model, self._pad_id, self._pooling = model, pad_id, pooling
        self._max_length, self._dtype = max_length, dtype
        self.layout = choose_layout(model, pooling=pooling, max_length=max_length, dtype=dtype, gradient=True)

    def __call__(self, tokens: TokenRows) -> Tensor:
        """Return one unit vector per name.  # (names, dim)"""
        match self.layout:
            case Layout.ROWS:
                vectors = self._encode_rows(tokens)
            case Layout.PACKED:
                vectors = self._encode_packed(tokens)
            case Layout.PADDED:
                vectors = encode_padded(
                    self._model,
                    tokens,
                    training_limits(self._model.device),
                    pad_id=self._pad_id,
                    pooling=self._pooling,
                    max_length=self._max_length,
                    dtype=self._dtype,
                )
        return functional.normalize(vectors, dim=-1)

    def _encode_rows(self, tokens: TokenRows) -> Tensor:
        self._row_encoder.refresh()
        rows = Rows.of(tokens, self._pooling, pad_id=self._pad_id, width=self._row_encoder.width)
        return self._row_encoder(RowTensors.of(rows, self._model.device))

    @cached_property
    def _row_encoder(self) -> RowEncoder:
        return RowEncoder.fastest(self._model, self._pooling, dtype=torch.bfloat16)

    def _encode_packed(self, tokens: TokenRows) -> Tensor:
        device, every = self._model.device, np.arange(len(tokens.lengths))
        with torch.autocast(device.type, dtype=self._dtype, enabled=self._dtype is not None):
            return PackedNames.of(tokens, every, device).encode(self._model, self._pooling)
