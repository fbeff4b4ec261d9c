"""What lies before the first layer of BERT in one kernel each way, in Triton: look up, add, normalise, drop.

Left to torch's compiler it takes four times as long, most of it to draw for dropout. Embeddings are looked
up again for the gradient, instead of keeping their sums; gradients are added where their rows are, in full
precision, since hundreds of names share [CLS]. Loaded only where a GPU is used.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sapbert.gpu.kernels.elementwise import dropping, kept
from sapbert.gpu.layers import EmbeddingWeights, LayerConfig

_TILES = 8
"""Tokens that a program takes the gradient of, as each program adds to the sums once."""


def fused_embed(
    ids: Tensor,
    positions: Tensor,
    seed: Tensor | None,
    tables: EmbeddingWeights,
    config: LayerConfig,
    dtype: torch.dtype,
) -> Tensor:
    """Embed tokens; fits `layers.Embed`."""
    given = ids, positions, seed, config, dtype, tables.first_position, tables.padding
    found: Tensor = _Embed.apply(*given, *tables.weights)  # type: ignore[no-untyped-call]
    return found


@triton.jit
def _looked_up(word, position, kind, identity, place, column, inside, DIM: tl.constexpr):  # noqa: N803
    """Add up what stands for a token.  # (block,)"""
    found = tl.load(word + identity.to(tl.int64) * DIM + column, inside, 0.0)
    return found + tl.load(position + place * DIM + column, inside, 0.0) + tl.load(kind + column, inside, 0.0)


@triton.jit
def _forward(
    ids,
    positions,
    word,
    position,
    kind,
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
    DIM: tl.constexpr,  # noqa: N803 - Triton's way to write what is known when a kernel is made
    BLOCK: tl.constexpr,  # noqa: N803
    DROPS: tl.constexpr,  # noqa: N803
):
    token, column = tl.program_id(0), tl.arange(0, BLOCK)
    inside = column < DIM
    identity, place = tl.load(ids + token), tl.load(positions + token) + first
    added = _looked_up(word, position, kind, identity, place, column, inside, DIM)
    mean = tl.sum(added, 0) / DIM
    apart = tl.where(inside, added - mean, 0.0)
    scale = tl.rsqrt(tl.sum(apart * apart, 0) / DIM + epsilon)
    found = apart * scale * tl.load(gain + column, inside, 0.0) + tl.load(shift + column, inside, 0.0)
    at = token * DIM + column
    if DROPS:
        found *= kept(tl.load(seed).to(tl.uint32), at, limit, factor)
    tl.store(out + at, found.to(out.dtype.element_ty), inside)
    tl.store(stats + token, mean)
    tl.store(stats + tokens + token, scale)


@triton.jit
def _backward(
    gradient,
    ids,
    positions,
    word,
    position,
    kind,
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
    of_kind = tl.zeros((BLOCK,), tl.float32)
    of_gain = tl.zeros((BLOCK,), tl.float32)
    of_shift = tl.zeros((BLOCK,), tl.float32)
    for tile in range(TILES):
        token = tl.program_id(0) * TILES + tile
        here = inside & (token < tokens)
        identity = tl.load(ids + token, token < tokens, 0)
        place = tl.load(positions + token, token < tokens, 0) + first
        added = _looked_up(word, position, kind, identity, place, column, here, DIM)
        mean = tl.load(stats + token, token < tokens, 0.0)
        scale = tl.load(stats + tokens + token, token < tokens, 0.0)
        at = token * DIM + column
        given = tl.load(gradient + at, here, 0.0).to(tl.float32)
        if DROPS:
            given *= kept(tl.load(seed).to(tl.uint32), at, limit, factor)
        normed = tl.where(here, (added - mean) * scale, 0.0)
        weighed = given * weight
        along = tl.sum(weighed * normed, 0) / DIM
        found = (weighed - tl.sum(weighed, 0) / DIM - normed * along) * scale
        to_word = of_word + identity.to(tl.int64) * DIM + column
        tl.atomic_add(to_word, found, here & (identity != padding), sem="relaxed")
        tl.atomic_add(of_position + place * DIM + column, found, here, sem="relaxed")
        of_kind += tl.where(here, found, 0.0)
        of_gain += given * normed
        of_shift += given
    tl.atomic_add(sums + column, of_kind, inside, sem="relaxed")
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
        options = {**dropping(dim, config.hidden_dropout), "epsilon": config.epsilon, "num_warps": 1}
        arguments = ids, positions, *weights, ids if seed is None else seed, out, stats, tokens, first
        _forward[(tokens,)](*arguments, **options)
        ctx.settings = config.hidden_dropout, first, padding
        ctx.save_for_backward(ids, positions, seed, stats, *weights)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        ids, positions, seed, stats, word, position, kind, gain, _shift = ctx.saved_tensors
        dropout, first, padding = ctx.settings
        tokens, dim = len(ids), word.shape[1]
        of_word, of_position, of_kind = (torch.zeros_like(table) for table in (word, position, kind))
        sums = torch.zeros(3, dim, device=ids.device)
        arguments = word, position, kind, gain, stats, ids if seed is None else seed
        found = of_word, of_position, sums, tokens, first, padding
        options = {**dropping(dim, dropout), "TILES": _TILES, "num_warps": 2}
        grid = (triton.cdiv(tokens, _TILES),)
        _backward[grid](gradients[0].contiguous(), ids, positions, *arguments, *found, **options)
        of_kind[0] = sums[0]
        return *[None] * 7, of_word, of_position, of_kind, sums[1], sums[2]
