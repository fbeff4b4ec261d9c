"""Operations between the matrix products of a layer, in Triton, each with its gradient.

With torch or its compiler these take a third of a step. Dropout draws ten rounds of a generator per number
where a hash is enough; the columns of gradients are summed in separate passes, seven per layer; erf is
computed to the last bit of a float32 that is then rounded to bfloat16. Here a bias is added where the product
is read next, so the kernel that computes the gradient of the product also sums that of the bias.

Computations are in float32; results have the type of the inputs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS, _WARPS = 1, 1
"""Tokens and warps per program of the layer norm."""
_SUMMED_ROWS, _SUMMED_TILES, _SUMMED_WARPS, _SUMMED_STAGES = 2, 6, 2, 1
"""For its gradient: tokens per tile, tiles per program (each program adds to the sums once), warps and
stages."""
_TOKENS, _COLUMNS = 4, 1024
"""Tokens and columns per program of GELU."""
_BACK_TOKENS, _BACK_COLUMNS, _TILES, _BACK_WARPS, _BACK_STAGES = 2, 1024, 8, 4, 2
"""For its gradient: tokens and columns per tile, tiles per program, warps and stages."""


@triton.jit
def dropout_factors(seed, index, limit, factor):
    """Return the factor of each number: 0 if it is dropped."""
    # The finalizer of MurmurHash3 without its last step, which mixes lower bits: eight operations, where
    # Triton's generator needs a hundred. Compared as an integer, since conversion to float would cost as much
    # again.
    mixed = (index.to(tl.uint32) * 0x9E3779B1) ^ seed
    mixed = (mixed ^ (mixed >> 16)) * 0x85EBCA6B
    mixed = (mixed ^ (mixed >> 13)) * 0xC2B2AE35
    return tl.where(mixed < limit.to(tl.uint32), 0.0, factor)


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
    DIM: tl.constexpr,  # noqa: N803 - Triton's convention for constants
    BLOCK: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
    DROPS: tl.constexpr,  # noqa: N803
    RESIDUAL: tl.constexpr,  # noqa: N803
):
    token, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    inside = column < DIM
    at, here = token[:, None] * DIM + column[None, :], (token < tokens)[:, None] & inside[None, :]
    # Without `RESIDUAL` the product already contains the residual, and no gradient needs the sum.
    added = tl.load(product + at, here, 0.0).to(tl.float32)
    added += tl.load(bias + column, inside, 0.0).to(tl.float32)[None, :]
    if DROPS:
        added *= dropout_factors(tl.load(seeds).to(tl.uint32), at, limit, factor)
    if RESIDUAL:
        added += tl.load(residual + at, here, 0.0).to(tl.float32)
    # Rounded as it is stored for the gradient.
    added = added.to(out.dtype.element_ty).to(tl.float32)
    mean = tl.sum(added, 1) / DIM
    centered = tl.where(inside[None, :], added - mean[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(centered * centered, 1) / DIM + epsilon)
    normalized = centered * scale[:, None] * tl.load(gain + column, inside, 0.0).to(tl.float32)[None, :]
    normalized += tl.load(shift + column, inside, 0.0).to(tl.float32)[None, :]
    tl.store(out + at, normalized.to(out.dtype.element_ty), here)
    if RESIDUAL:
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
    STAGES: tl.constexpr,  # noqa: N803
    DROPS: tl.constexpr,  # noqa: N803
):
    column = tl.arange(0, BLOCK)
    inside = column < DIM
    weight = tl.load(gain + column, inside, 0.0).to(tl.float32)
    of_bias = tl.zeros((ROWS, BLOCK), tl.float32)
    of_gain = tl.zeros((ROWS, BLOCK), tl.float32)
    of_shift = tl.zeros((ROWS, BLOCK), tl.float32)
    for tile in tl.range(TILES, num_stages=STAGES):
        token = (tl.program_id(0) * TILES + tile) * ROWS + tl.arange(0, ROWS)
        at, here = token[:, None] * DIM + column[None, :], (token < tokens)[:, None] & inside[None, :]
        mean, scale = (
            tl.load(stats + token, token < tokens, 0.0),
            tl.load(stats + tokens + token, token < tokens, 0.0),
        )
        grad_out = tl.load(gradient + at, here, 0.0).to(tl.float32)
        normed = (tl.load(total + at, here, 0.0).to(tl.float32) - mean[:, None]) * scale[:, None]
        normed = tl.where(here, normed, 0.0)
        weighted = grad_out * weight[None, :]
        projection = tl.sum(weighted * normed, 1) / DIM
        mean_weighted = (tl.sum(weighted, 1) / DIM)[:, None]
        grad_in = (weighted - mean_weighted - normed * projection[:, None]) * scale[:, None]
        tl.store(out + at, grad_in.to(out.dtype.element_ty), here)
        if DROPS:
            grad_in *= dropout_factors(tl.load(seeds).to(tl.uint32), at, limit, factor)
            tl.store(dropped + at, grad_in.to(out.dtype.element_ty), here)
        of_bias += tl.where(here, grad_in, 0.0)
        of_gain += grad_out * normed
        of_shift += grad_out
    # Summed across threads only once.
    tl.atomic_add(sums + column, tl.sum(of_bias, 0), inside, sem="relaxed")
    tl.atomic_add(sums + DIM + column, tl.sum(of_gain, 0), inside, sem="relaxed")
    tl.atomic_add(sums + 2 * DIM + column, tl.sum(of_shift, 0), inside, sem="relaxed")


@triton.jit
def _normal(value):
    """Return density and cumulative distribution of the normal distribution (Abramowitz, Stegun 7.1.26)."""
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
    _, cumulative = _normal(value)
    tl.store(out + at, (value * cumulative).to(out.dtype.element_ty), here)


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
    STAGES: tl.constexpr,  # noqa: N803
):
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < WIDE
    added = tl.load(bias + column, inside, 0.0).to(tl.float32)[None, :]
    of_bias = tl.zeros((ROWS, COLUMNS), tl.float32)
    for tile in tl.range(TILES, num_stages=STAGES):
        token = (tl.program_id(0) * TILES + tile) * ROWS + tl.arange(0, ROWS)
        at, here = token[:, None] * WIDE + column[None, :], (token < tokens)[:, None] & inside[None, :]
        value = tl.load(product + at, here, 0.0).to(tl.float32) + added
        density, cumulative = _normal(value)
        grad_in = tl.load(gradient + at, here, 0.0).to(tl.float32) * (cumulative + value * density)
        tl.store(gradient + at, grad_in.to(gradient.dtype.element_ty), here)
        of_bias += grad_in
    tl.atomic_add(sums + column, tl.sum(of_bias, 0), inside, sem="relaxed")


class Normed(NamedTuple):
    """Output of `add_norm`, and what its gradient needs."""

    out: Tensor
    total: Tensor
    """The sum that was normalized."""
    stats: Tensor
    """Mean and scale of the sum.  # (2, tokens)"""


def add_norm(
    product: Tensor,
    bias: Tensor,
    residual: Tensor,
    norm: tuple[Tensor, Tensor],
    seed: Tensor | None,
    *,
    epsilon: float,
    dropout: float,
) -> Normed:
    """Add a bias, apply dropout, add the residual, normalize.  # (tokens, dim), ... -> (tokens, dim)"""
    out, total = torch.empty_like(product), torch.empty_like(product)
    stats = torch.empty(2, len(product), dtype=torch.float32, device=product.device)
    arguments = product, bias, residual, *norm, bias if seed is None else seed, out, total, stats
    _norm(*arguments, epsilon=epsilon, dropout=dropout, with_residual=True)
    return Normed(out, total, stats)


def norm_in_place(total: Tensor, bias: Tensor, norm: tuple[Tensor, Tensor], *, epsilon: float) -> Tensor:
    """Add a bias and normalize in place, without gradient.  # (tokens, dim), ... -> (tokens, dim)"""
    _norm(
        total,
        bias,
        total,
        *norm,
        bias,
        total,
        total,
        total,
        epsilon=epsilon,
        dropout=0.0,
        with_residual=False,
    )
    return total


def _norm(product: Tensor, *others: Tensor, epsilon: float, dropout: float, with_residual: bool) -> None:
    tokens, dim = product.shape
    options = {**dropout_options(dim, dropout), "ROWS": _ROWS, "RESIDUAL": with_residual, "num_warps": _WARPS}
    grid = (triton.cdiv(tokens, _ROWS),)
    _norm_forward[grid](product, *others, tokens, epsilon, **options)


def add_norm_gradient(
    gradient: Tensor, normed: Normed, gain: Tensor, seed: Tensor | None, sums: Tensor, *, dropout: float
) -> tuple[Tensor, Tensor]:
    """Return the gradients of residual and product; add those of bias, gain and shift to `sums` (3 dim,)."""
    tokens, dim = gradient.shape
    out = torch.empty_like(gradient)
    product = torch.empty_like(gradient) if dropout else out
    shape = {"ROWS": _SUMMED_ROWS, "TILES": _SUMMED_TILES, "STAGES": _SUMMED_STAGES}
    options = {**dropout_options(dim, dropout), **shape, "num_warps": _SUMMED_WARPS}
    arguments = (normed.total, normed.stats, gain, gain if seed is None else seed, out, product, sums, tokens)
    _norm_backward[(triton.cdiv(tokens, _SUMMED_ROWS * _SUMMED_TILES),)](gradient, *arguments, **options)
    return out, product


def gelu(product: Tensor, bias: Tensor) -> Tensor:
    """Add a bias and apply GELU.  # (tokens, wide), (wide,) -> (tokens, wide)"""
    tokens, wide = product.shape
    out = torch.empty_like(product)
    grid = triton.cdiv(tokens, _TOKENS), triton.cdiv(wide, _COLUMNS)
    _gelu_forward[grid](product, bias, out, tokens, WIDE=wide, ROWS=_TOKENS, COLUMNS=_COLUMNS)
    return out


def gelu_gradient(gradient: Tensor, product: Tensor, bias: Tensor, sums: Tensor) -> Tensor:
    """Replace `gradient` by that of the product, in place; add that of the bias to `sums` (wide,)."""
    tokens, wide = product.shape
    grid = triton.cdiv(tokens, _BACK_TOKENS * _TILES), triton.cdiv(wide, _BACK_COLUMNS)
    shape = {"WIDE": wide, "ROWS": _BACK_TOKENS, "COLUMNS": _BACK_COLUMNS, "TILES": _TILES}
    options = {"STAGES": _BACK_STAGES, "num_warps": _BACK_WARPS}
    _gelu_backward[grid](gradient, product, bias, sums, tokens, **shape, **options)
    return gradient


def dropout_options(dim: int, dropout: float) -> dict[str, Any]:
    """Return the options for dropout and size of kernels over rows of `dim` numbers."""
    return {
        "limit": int(dropout * 2**32),
        "factor": 1 / (1 - dropout),
        "DIM": dim,
        "BLOCK": triton.next_power_of_2(dim),
        "DROPS": dropout > 0,
    }
