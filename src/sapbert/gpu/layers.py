"""Embeddings and layers of BERT for several names per row, in plain PyTorch, which runs on any device.

A row contains several names, and a token attends only to tokens of its own name. Here the scores of a whole
row are computed and those across names masked. On a GPU, Triton kernels with the same signatures replace
these functions (`kernels.embedding`, `kernels.layer`) if they pass their check (`verify`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

SEEDS = 3
"""Dropout seeds per layer: attention weights, attention output, and feed-forward output."""


class LayerWeights(NamedTuple):
    """Weight and bias of each map of a layer."""

    qkv: tuple[Tensor, Tensor]
    """Query, key and value in one matrix."""
    attention_output: tuple[Tensor, Tensor]
    attention_norm: tuple[Tensor, Tensor]
    up: tuple[Tensor, Tensor]
    down: tuple[Tensor, Tensor]
    output_norm: tuple[Tensor, Tensor]


@dataclass(frozen=True, slots=True)
class LayerConfig:
    """Settings that all layers of a model share."""

    heads: int
    width: int
    """Tokens per row."""
    epsilon: float
    hidden_dropout: float
    attention_dropout: float


class EmbeddingWeights(NamedTuple):
    """Weights of the embeddings."""

    weights: tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
    """Words, positions, token types, and gain and shift of the layer norm."""
    first_position: int
    """Row of the first position."""
    padding: int
    """The word without a gradient, or -1."""


class Embed(Protocol):
    """Computes the embeddings."""

    def __call__(
        self,
        ids: Tensor,
        positions: Tensor,
        seed: Tensor | None,
        tables: EmbeddingWeights,
        config: LayerConfig,
        dtype: torch.dtype,
    ) -> Tensor:
        """Return the embedding of each token in `dtype`; dropout may use the first number of `seed`.

        # (tokens,), (tokens,) -> (tokens, dim)
        """
        ...


class Layer(Protocol):
    """Computes a layer."""

    def __call__(
        self,
        hidden: Tensor,
        names: Tensor,
        picks: Tensor | None,
        seeds: Tensor | None,
        weights: LayerWeights,
        config: LayerConfig,
    ) -> Tensor:
        """Return the output of the layer for all tokens, or only for the tokens `picks`.

        `names` is the number of the name of each token. `seeds` (3,) are for dropout, None without dropout.
        Without gradient `hidden` may be overwritten.
        # (tokens, dim), (tokens,), (picks,) -> (tokens or picks, dim)
        """
        ...


class Kernels(NamedTuple):
    """The functions a model is computed with."""

    embed: Embed
    layer: Layer


def plain_embed(
    ids: Tensor,
    positions: Tensor,
    seed: Tensor | None,  # noqa: ARG001 - torch's dropout uses its own generator
    tables: EmbeddingWeights,
    config: LayerConfig,
    dtype: torch.dtype,
) -> Tensor:
    """Compute embeddings with PyTorch operations; implements `Embed`."""
    word, position, token_type, *norm = tables.weights
    hidden = functional.embedding(ids, word, tables.padding if tables.padding >= 0 else None)
    hidden = hidden + functional.embedding(positions + tables.first_position, position) + token_type[0]
    normed = layer_norm(hidden, (norm[0], norm[1]), config.epsilon)
    return dropout(normed, config.hidden_dropout).to(dtype)


def plain_layer(
    hidden: Tensor,
    names: Tensor,
    picks: Tensor | None,
    seeds: Tensor | None,  # noqa: ARG001 - torch's dropout uses its own generator
    weights: LayerWeights,
    config: LayerConfig,
) -> Tensor:
    """Compute a layer with PyTorch operations; implements `Layer`."""
    attended = plain_attention(functional.linear(hidden, *weights.qkv), names, config)
    if picks is not None:
        hidden, attended = hidden.index_select(0, picks), attended.index_select(0, picks)
    attended = dropout(functional.linear(attended, *weights.attention_output), config.hidden_dropout)
    middle = layer_norm(hidden + attended, weights.attention_norm, config.epsilon)
    output = functional.linear(functional.gelu(functional.linear(middle, *weights.up)), *weights.down)
    output = dropout(output, config.hidden_dropout)
    return layer_norm(middle + output, weights.output_norm, config.epsilon)


PLAIN = Kernels(plain_embed, plain_layer)


def plain_attention(qkv: Tensor, names: Tensor, config: LayerConfig) -> Tensor:
    """Attend within names by a masked softmax over rows.  # (tokens, 3 dim), (tokens,) -> (tokens, dim)"""
    parts = qkv.view(-1, config.width, 3, config.heads, qkv.shape[1] // 3 // config.heads)
    query, key, value = parts.permute(2, 0, 3, 1, 4)  # (rows, heads, width, head)
    name = names.view(-1, 1, config.width)
    same = (name.transpose(1, 2) == name)[:, None]  # (rows, 1, width, width)
    scores = (query @ key.transpose(2, 3)) * key.shape[-1] ** -0.5
    weights = dropout(scores.masked_fill(~same, -inf).softmax(-1), config.attention_dropout)
    attended: Tensor = weights @ value
    return attended.transpose(1, 2).reshape(len(qkv), -1)


def dropout(tensor: Tensor, rate: float) -> Tensor:
    """Apply dropout; a rate of 0 draws no random numbers."""
    return functional.dropout(tensor, rate) if rate else tensor


def layer_norm(hidden: Tensor, norm: tuple[Tensor, Tensor], epsilon: float) -> Tensor:
    """Normalize each token."""
    return functional.layer_norm(hidden, hidden.shape[-1:], *norm, epsilon)
