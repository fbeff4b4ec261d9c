"""Embeddings and layers of BERT over names that share rows: the plain way, which runs anywhere.

A row holds several names, and a token may look at tokens of its own name only. The plain way computes the
scores of a whole row and drops those across names. On a GPU both are written out with kernels of our own
(`embedding_kernel`, `fused_layer`), where these serve (`kernels`); they take and give the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

SEEDS = 3
"""Places of a layer that drop out: chances, and what is added to its two sums."""


class Weights(NamedTuple):
    """Of one layer: weight and bias of each map, the first of which gives query, key and value."""

    qkv: tuple[Tensor, Tensor]
    joined: tuple[Tensor, Tensor]
    first_norm: tuple[Tensor, Tensor]
    up: tuple[Tensor, Tensor]
    down: tuple[Tensor, Tensor]
    second_norm: tuple[Tensor, Tensor]


@dataclass(frozen=True, slots=True)
class Shape:
    """What the layers of a model share."""

    heads: int
    width: int
    """Tokens of a row."""
    epsilon: float
    hidden_dropout: float
    attention_dropout: float


class Tables(NamedTuple):
    """What stands for tokens."""

    weights: tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
    """Of words, positions, kinds of input, and of what normalises: gain and shift."""
    first: int
    """The row of the first position."""
    padding: int
    """The word that learns nothing, or -1."""


class Embed(Protocol):
    """A way to look tokens up."""

    def __call__(
        self,
        ids: Tensor,
        positions: Tensor,
        seed: Tensor | None,
        tables: Tables,
        shape: Shape,
        dtype: torch.dtype,
    ) -> Tensor:
        """Return what stands for each token, in `dtype`; dropout may be drawn from the first of `seed`.

        # (tokens,), (tokens,) -> (tokens, dim)
        """
        ...


class Layer(Protocol):
    """A way to compute a layer."""

    def __call__(
        self,
        hidden: Tensor,
        names: Tensor,
        picks: Tensor | None,
        seeds: Tensor | None,
        weights: Weights,
        shape: Shape,
    ) -> Tensor:
        """Return what the layer gives for all tokens, or for some `picks` of them.

        `names` numbers the name of each token; `seeds` (3,) are what dropout may be drawn from, none where
        nothing is dropped. Where no gradient is asked for, `hidden` may be used up.
        # (tokens, dim), (tokens,), (picks,) -> (tokens or picks, dim)
        """
        ...


class Kernels(NamedTuple):
    """What a model is computed by."""

    embed: Embed
    layer: Layer


def plain_embed(
    ids: Tensor,
    positions: Tensor,
    seed: Tensor | None,  # noqa: ARG001 - torch's own dropout draws for itself
    tables: Tables,
    shape: Shape,
    dtype: torch.dtype,
) -> Tensor:
    """Embed tokens with torch's own operations; fits `Embed`."""
    word, position, kind, *norm = tables.weights
    found = functional.embedding(ids, word, tables.padding if tables.padding >= 0 else None)
    found = found + functional.embedding(positions + tables.first, position) + kind[0]
    return dropped(normed(found, (norm[0], norm[1]), shape.epsilon), shape.hidden_dropout).to(dtype)


def plain_layer(
    hidden: Tensor,
    names: Tensor,
    picks: Tensor | None,
    seeds: Tensor | None,  # noqa: ARG001 - torch's own dropout draws for itself
    weights: Weights,
    shape: Shape,
) -> Tensor:
    """Compute a layer with torch's own operations; fits `Layer`."""
    found = attend_plainly(functional.linear(hidden, *weights.qkv), names, shape)
    if picks is not None:
        hidden, found = hidden.index_select(0, picks), found.index_select(0, picks)
    found = dropped(functional.linear(found, *weights.joined), shape.hidden_dropout)
    middle = normed(hidden + found, weights.first_norm, shape.epsilon)
    found = functional.linear(functional.gelu(functional.linear(middle, *weights.up)), *weights.down)
    found = dropped(found, shape.hidden_dropout)
    return normed(middle + found, weights.second_norm, shape.epsilon)


PLAIN = Kernels(plain_embed, plain_layer)


def attend_plainly(qkv: Tensor, names: Tensor, shape: Shape) -> Tensor:
    """Attend within names by a softmax over whole rows.  # (tokens, 3 dim), (tokens,) -> (tokens, dim)"""
    parts = qkv.view(-1, shape.width, 3, shape.heads, qkv.shape[1] // 3 // shape.heads)
    query, key, value = parts.permute(2, 0, 3, 1, 4)  # (rows, heads, width, head)
    name = names.view(-1, 1, shape.width)
    same = (name.transpose(1, 2) == name)[:, None]  # (rows, 1, width, width)
    scores = (query @ key.transpose(2, 3)) * key.shape[-1] ** -0.5
    chances = dropped(scores.masked_fill(~same, -inf).softmax(-1), shape.attention_dropout)
    found: Tensor = chances @ value
    return found.transpose(1, 2).reshape(len(qkv), -1)


def dropped(tensor: Tensor, dropout: float) -> Tensor:
    """Drop numbers out; where none are to be dropped nothing is drawn."""
    return functional.dropout(tensor, dropout) if dropout else tensor


def normed(hidden: Tensor, norm: tuple[Tensor, Tensor], epsilon: float) -> Tensor:
    """Normalise each token."""
    return functional.layer_norm(hidden, hidden.shape[-1:], *norm, epsilon)
