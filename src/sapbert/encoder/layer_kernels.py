"""What lies between the matrix products of a layer, in Triton: one kernel a place and direction.

Left to torch or its compiler these take a third of a step. Dropout draws ten rounds of a generator for every
number where a hash does; a gradient's columns are added up by passes of their own, seven a layer; erf is
computed to the last bit of a float32 that is then rounded to bfloat16. Here a bias is added where the product
is read next, so the kernel that computes the product's gradient adds up the bias's on its way.

Numbers are computed in float32 and kept as they come. Loaded only where a GPU is used.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS = 4
"""Tokens that a program normalises."""
_SUMMED_ROWS, _SUMMED_TILES = 4, 5
"""The same for the gradient: at once, and times, as each program adds to the sums once."""
_TOKENS, _COLUMNS, _TILES = 8, 256, 8
"""A program of the activation takes so many tokens and columns; for the gradient so many times."""


@triton.jit
def kept(seed, place, limit, factor):
    """What each number is multiplied with: 0 where it is dropped."""
    # The finaliser of MurmurHash3: ten operations, where Triton's own generator takes a hundred.
    mixed = (place.to(tl.uint32) * 0x9E3779B1) ^ seed
    mixed = (mixed ^ (mixed >> 16)) * 0x85EBCA6B
    mixed = (mixed ^ (mixed >> 13)) * 0xC2B2AE35
    mixed = mixed ^ (mixed >> 16)
    return tl.where((mixed >> 8).to(tl.float32) < limit, 0.0, factor)


@triton.jit
def _norm_forward(
    product,
    bias,
    residual,
    gain,
    shift,
    seeds,
    out,
    total,
    stats,
    tokens,
    epsilon,
    limit,
    factor,
    DIM: tl.constexpr,  # noqa: N803 - Triton's way to write what is known when a kernel is made
    BLOCK: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
    DROPS: tl.constexpr,  # noqa: N803
    KEEPS: tl.constexpr,  # noqa: N803
):
    token, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    inside = column < DIM
    at, here = token[:, None] * DIM + column[None, :], (token < tokens)[:, None] & inside[None, :]
    added = tl.load(product + at, here, 0.0).to(tl.float32)
    added += tl.load(bias + column, inside, 0.0).to(tl.float32)[None, :]
    if DROPS:
        added *= kept(tl.load(seeds).to(tl.uint32), at, limit, factor)
    added += tl.load(residual + at, here, 0.0).to(tl.float32)
    # As it is kept for the gradient.
    added = added.to(out.dtype.element_ty).to(tl.float32)
    mean = tl.sum(added, 1) / DIM
    apart = tl.where(inside[None, :], added - mean[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(apart * apart, 1) / DIM + epsilon)
    found = apart * scale[:, None] * tl.load(gain + column, inside, 0.0).to(tl.float32)[None, :]
    found += tl.load(shift + column, inside, 0.0).to(tl.float32)[None, :]
    tl.store(out + at, found.to(out.dtype.element_ty), here)
    if KEEPS:
        tl.store(total + at, added.to(out.dtype.element_ty), here)
        tl.store(stats + token, mean, token < tokens)
        tl.store(stats + tokens + token, scale, token < tokens)


@triton.jit
def _norm_backward(
    gradient,
    total,
    stats,
    gain,
    seeds,
    out,
    dropped,
    sums,
    tokens,
    limit,
    factor,
    DIM: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
    TILES: tl.constexpr,  # noqa: N803
    DROPS: tl.constexpr,  # noqa: N803
):
    column = tl.arange(0, BLOCK)
    inside = column < DIM
    weight = tl.load(gain + column, inside, 0.0).to(tl.float32)
    of_bias = tl.zeros((BLOCK,), tl.float32)
    of_gain = tl.zeros((BLOCK,), tl.float32)
    of_shift = tl.zeros((BLOCK,), tl.float32)
    for tile in range(TILES):
        token = (tl.program_id(0) * TILES + tile) * ROWS + tl.arange(0, ROWS)
        at, here = token[:, None] * DIM + column[None, :], (token < tokens)[:, None] & inside[None, :]
        mean, scale = (
            tl.load(stats + token, token < tokens, 0.0),
            tl.load(stats + tokens + token, token < tokens, 0.0),
        )
        given = tl.load(gradient + at, here, 0.0).to(tl.float32)
        normed = (tl.load(total + at, here, 0.0).to(tl.float32) - mean[:, None]) * scale[:, None]
        normed = tl.where(here, normed, 0.0)
        weighed = given * weight[None, :]
        along = tl.sum(weighed * normed, 1) / DIM
        found = (weighed - (tl.sum(weighed, 1) / DIM)[:, None] - normed * along[:, None]) * scale[:, None]
        tl.store(out + at, found.to(out.dtype.element_ty), here)
        if DROPS:
            found *= kept(tl.load(seeds).to(tl.uint32), at, limit, factor)
            tl.store(dropped + at, found.to(out.dtype.element_ty), here)
        of_bias += tl.sum(tl.where(here, found, 0.0), 0)
        of_gain += tl.sum(given * normed, 0)
        of_shift += tl.sum(given, 0)
    tl.atomic_add(sums + column, of_bias, inside, sem="relaxed")
    tl.atomic_add(sums + DIM + column, of_gain, inside, sem="relaxed")
    tl.atomic_add(sums + 2 * DIM + column, of_shift, inside, sem="relaxed")


@triton.jit
def _bell(value):
    """The normal distribution's density, and its sum up to the value (Abramowitz and Stegun, 7.1.26)."""
    density = tl.exp(-0.5 * value * value)
    near = 1.0 / (1.0 + 0.23164189 * tl.abs(value))
    tail = near * (-0.284496736 + near * (1.421413741 + near * (-1.453152027 + near * 1.061405429)))
    tail = 0.5 * density * near * (0.254829592 + tail)
    return density * 0.3989422804, tl.where(value < 0, tail, 1.0 - tail)


@triton.jit
def _gelu_forward(
    product,
    bias,
    out,
    tokens,
    WIDE: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
    COLUMNS: tl.constexpr,  # noqa: N803
):
    token = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    at = token[:, None] * WIDE + column[None, :]
    here = (token < tokens)[:, None] & (column < WIDE)[None, :]
    value = tl.load(product + at, here, 0.0).to(tl.float32)
    value += tl.load(bias + column, column < WIDE, 0.0).to(tl.float32)[None, :]
    _, share = _bell(value)
    tl.store(out + at, (value * share).to(out.dtype.element_ty), here)


@triton.jit
def _gelu_backward(
    gradient,
    product,
    bias,
    sums,
    tokens,
    WIDE: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
    COLUMNS: tl.constexpr,  # noqa: N803
    TILES: tl.constexpr,  # noqa: N803
):
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < WIDE
    added = tl.load(bias + column, inside, 0.0).to(tl.float32)[None, :]
    of_bias = tl.zeros((COLUMNS,), tl.float32)
    for tile in range(TILES):
        token = (tl.program_id(0) * TILES + tile) * ROWS + tl.arange(0, ROWS)
        at, here = token[:, None] * WIDE + column[None, :], (token < tokens)[:, None] & inside[None, :]
        value = tl.load(product + at, here, 0.0).to(tl.float32) + added
        density, share = _bell(value)
        found = tl.load(gradient + at, here, 0.0).to(tl.float32) * (share + value * density)
        tl.store(gradient + at, found.to(gradient.dtype.element_ty), here)
        of_bias += tl.sum(found, 0)
    tl.atomic_add(sums + column, of_bias, inside, sem="relaxed")


class Normed(NamedTuple):
    """What `add_norm` found, and what its gradient needs."""

    out: Tensor
    total: Tensor
    """What was normalised."""
    stats: Tensor
    """Its mean and scale.  # (2, tokens)"""


def add_norm(
    product: Tensor,
    bias: Tensor,
    residual: Tensor,
    norm: tuple[Tensor, Tensor],
    seed: Tensor | None,
    *,
    epsilon: float,
    dropout: float,
    keeps: bool,
) -> Normed:
    """Add a bias, drop out, add the residual, normalise.  # (tokens, dim), ... -> (tokens, dim)"""
    tokens, dim = product.shape
    out = torch.empty_like(product)
    total = torch.empty_like(product) if keeps else out
    stats = torch.empty(2, tokens if keeps else 0, dtype=torch.float32, device=product.device)
    options = {**_dropping(dim, dropout), "ROWS": _ROWS, "KEEPS": keeps, "epsilon": epsilon, "num_warps": 4}
    arguments = (product, bias, residual, *norm, bias if seed is None else seed, out, total, stats, tokens)
    _norm_forward[(triton.cdiv(tokens, _ROWS),)](*arguments, **options)
    return Normed(out, total, stats)


def add_norm_gradient(
    gradient: Tensor, normed: Normed, gain: Tensor, seed: Tensor | None, sums: Tensor, *, dropout: float
) -> tuple[Tensor, Tensor]:
    """Return the gradients of residual and product; add those of bias, gain and shift to `sums` (3 dim,)."""
    tokens, dim = gradient.shape
    out = torch.empty_like(gradient)
    product = torch.empty_like(gradient) if dropout else out
    options = {**_dropping(dim, dropout), "ROWS": _SUMMED_ROWS, "TILES": _SUMMED_TILES, "num_warps": 8}
    arguments = (normed.total, normed.stats, gain, gain if seed is None else seed, out, product, sums, tokens)
    _norm_backward[(triton.cdiv(tokens, _SUMMED_ROWS * _SUMMED_TILES),)](gradient, *arguments, **options)
    return out, product


def gelu(product: Tensor, bias: Tensor) -> Tensor:
    """Add a bias and activate.  # (tokens, wide), (wide,) -> (tokens, wide)"""
    tokens, wide = product.shape
    out = torch.empty_like(product)
    grid = triton.cdiv(tokens, _TOKENS), triton.cdiv(wide, _COLUMNS)
    _gelu_forward[grid](product, bias, out, tokens, WIDE=wide, ROWS=_TOKENS, COLUMNS=_COLUMNS)
    return out


def gelu_gradient(gradient: Tensor, product: Tensor, bias: Tensor, sums: Tensor) -> Tensor:
    """Turn `gradient` into that of the product, in its place; add the bias's to `sums` (wide,)."""
    tokens, wide = product.shape
    grid = triton.cdiv(tokens, _TOKENS * _TILES), triton.cdiv(wide, _COLUMNS)
    shape = {"WIDE": wide, "ROWS": _TOKENS, "COLUMNS": _COLUMNS, "TILES": _TILES}
    _gelu_backward[grid](gradient, product, bias, sums, tokens, **shape)
    return gradient


def _dropping(dim: int, dropout: float) -> dict[str, Any]:
    return {
        "limit": dropout * 2.0**24,
        "factor": 1 / (1 - dropout),
        "DIM": dim,
        "BLOCK": triton.next_power_of_2(dim),
        "DROPS": dropout > 0,
    }
