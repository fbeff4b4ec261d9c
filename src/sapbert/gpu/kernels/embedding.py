"""The embeddings of BERT in one Triton kernel per direction: look up, add, normalize, apply dropout.

With torch's compiler it takes four times as long, mostly to draw random numbers for dropout. Embeddings are
looked up again for the gradient instead of storing their sums. Gradients are added to their rows in full
precision, since hundreds of names share [CLS].
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sapbert.gpu.kernels.elementwise import dropout_factors, dropout_options
from sapbert.gpu.layers import EmbeddingWeights, LayerConfig

_TILES = 8
"""Tokens per program of the gradient, as each program adds to the sums once."""


def fused_embed(
    ids: Tensor,
    positions: Tensor,
    seed: Tensor | None,
    tables: EmbeddingWeights,
    config: LayerConfig,
    dtype: torch.dtype,
) -> Tensor:
    """Compute embeddings; implements `layers.Embed`."""
    inputs = ids, positions, seed, config, dtype, tables.first_position, tables.padding
    hidden: Tensor = _Embed.apply(*inputs, *tables.weights)  # type: ignore[no-untyped-call]
    return hidden


@triton.jit
def _embedding_sum(word, position, token_type, word_id, place, column, inside, DIM: tl.constexpr):  # noqa: N803
    """Return the sum of the embeddings of a token.  # (block,)"""
    total = tl.load(word + word_id.to(tl.int64) * DIM + column, inside, 0.0)
    total += tl.load(position + place * DIM + column, inside, 0.0)
    return total + tl.load(token_type + column, inside, 0.0)


@triton.jit
def _forward(
    ids,
    positions,
    word,
    position,
    token_type,
    gain,
    shift,
    seed,
    out,
    stats,
    tokens,
    first,
    epsilon,
    limit,
    factor,
    DIM: tl.constexpr,  # noqa: N803 - Triton's convention for constants
    BLOCK: tl.constexpr,  # noqa: N803
    DROPS: tl.constexpr,  # noqa: N803
):
    token, column = tl.program_id(0), tl.arange(0, BLOCK)
    inside = column < DIM
    word_id, place = tl.load(ids + token), tl.load(positions + token) + first
    added = _embedding_sum(word, position, token_type, word_id, place, column, inside, DIM)
    mean = tl.sum(added, 0) / DIM
    centered = tl.where(inside, added - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centered * centered, 0) / DIM + epsilon)
    normalized = centered * scale * tl.load(gain + column, inside, 0.0) + tl.load(shift + column, inside, 0.0)
    at = token * DIM + column
    if DROPS:
        normalized *= dropout_factors(tl.load(seed).to(tl.uint32), at, limit, factor)
    tl.store(out + at, normalized.to(out.dtype.element_ty), inside)
    tl.store(stats + token, mean)
    tl.store(stats + tokens + token, scale)


@triton.jit
def _backward(
    gradient,
    ids,
    positions,
    word,
    position,
    token_type,
    gain,
    stats,
    seed,
    of_word,
    of_position,
    sums,
    tokens,
    first,
    padding,
    limit,
    factor,
    DIM: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
    TILES: tl.constexpr,  # noqa: N803
    DROPS: tl.constexpr,  # noqa: N803
):
    column = tl.arange(0, BLOCK)
    inside = column < DIM
    weight = tl.load(gain + column, inside, 0.0)
    of_token_type = tl.zeros((BLOCK,), tl.float32)
    of_gain = tl.zeros((BLOCK,), tl.float32)
    of_shift = tl.zeros((BLOCK,), tl.float32)
    for tile in range(TILES):
        token = tl.program_id(0) * TILES + tile
        here = inside & (token < tokens)
        word_id = tl.load(ids + token, token < tokens, 0)
        place = tl.load(positions + token, token < tokens, 0) + first
        added = _embedding_sum(word, position, token_type, word_id, place, column, here, DIM)
        mean = tl.load(stats + token, token < tokens, 0.0)
        scale = tl.load(stats + tokens + token, token < tokens, 0.0)
        at = token * DIM + column
        grad_out = tl.load(gradient + at, here, 0.0).to(tl.float32)
        if DROPS:
            grad_out *= dropout_factors(tl.load(seed).to(tl.uint32), at, limit, factor)
        normed = tl.where(here, (added - mean) * scale, 0.0)
        weighted = grad_out * weight
        projection = tl.sum(weighted * normed, 0) / DIM
        grad_in = (weighted - tl.sum(weighted, 0) / DIM - normed * projection) * scale
        to_word = of_word + word_id.to(tl.int64) * DIM + column
        tl.atomic_add(to_word, grad_in, here & (word_id != padding), sem="relaxed")
        tl.atomic_add(of_position + place * DIM + column, grad_in, here, sem="relaxed")
        of_token_type += tl.where(here, grad_in, 0.0)
        of_gain += grad_out * normed
        of_shift += grad_out
    tl.atomic_add(sums + column, of_token_type, inside, sem="relaxed")
    tl.atomic_add(sums + DIM + column, of_gain, inside, sem="relaxed")
    tl.atomic_add(sums + 2 * DIM + column, of_shift, inside, sem="relaxed")


class _Embed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        ids: Tensor,
        positions: Tensor,
        seed: Tensor | None,
        config: LayerConfig,
        dtype: torch.dtype,
        first: int,
        padding: int,
        *weights: Tensor,
    ) -> Tensor:
        tokens, dim = len(ids), weights[0].shape[1]
        out = torch.empty(tokens, dim, dtype=dtype, device=ids.device)
        stats = torch.empty(2, tokens, dtype=torch.float32, device=ids.device)
        options = {**dropout_options(dim, config.hidden_dropout), "epsilon": config.epsilon, "num_warps": 1}
        arguments = ids, positions, *weights, ids if seed is None else seed, out, stats, tokens, first
        _forward[(tokens,)](*arguments, **options)
        ctx.settings = config.hidden_dropout, first, padding
        ctx.save_for_backward(ids, positions, seed, stats, *weights)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        ids, positions, seed, stats, word, position, token_type, gain, _shift = ctx.saved_tensors
        dropout, first, padding = ctx.settings
        tokens, dim = len(ids), word.shape[1]
        of_word, of_position, of_token_type = (
            torch.zeros_like(table) for table in (word, position, token_type)
        )
        sums = torch.zeros(3, dim, device=ids.device)
        arguments = word, position, token_type, gain, stats, ids if seed is None else seed
        outputs = of_word, of_position, sums, tokens, first, padding
        options = {**dropout_options(dim, dropout), "TILES": _TILES, "num_warps": 2}
        grid = (triton.cdiv(tokens, _TILES),)
        _backward[grid](gradients[0].contiguous(), ids, positions, *arguments, *outputs, **options)
        of_token_type[0] = sums[0]
        return *[None] * 7, of_word, of_position, of_token_type, sums[1], sums[2]
