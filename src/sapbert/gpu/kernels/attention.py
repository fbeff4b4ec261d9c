"""Attention within names that share rows, in Triton.

With torch operations it is ten kernels per layer, each of which moves (rows, heads, width, width) numbers
through memory, which takes longer than the matrix products. Here one program computes one head of one row:
its scores (64 x 64) never leave the chip, and the attention weights are recomputed for the gradient.

Dropout is a hash of a seed and the index of a score: the backward pass must drop what the forward pass
dropped, and with a seed on the device each replay of a CUDA graph drops others.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sapbert.gpu.kernels.elementwise import dropout_factors

_FOUR_WARPS_WIDTH = 64
"""Rows up to this width use four warps, wider ones eight."""
_REGISTERS = 160
"""Maximum per thread, so that three programs fit on a multiprocessor."""


@triton.jit
def _attention_weights(query, key, name, scale):
    """Softmax over the tokens of the same name.  # (width, width)"""
    scores = tl.dot(query, tl.trans(key)) * scale
    scores = tl.where(name[:, None] == name[None, :], scores, -float("inf"))
    powers = tl.exp(scores - tl.max(scores, 1)[:, None])
    return powers / tl.sum(powers, 1)[:, None]


@triton.jit
def _factors(seeds, program, limit, factor, WIDTH: tl.constexpr):  # noqa: N803 - Triton's convention for constants
    """Return the dropout factor of each attention weight.  # (width, width)"""
    row = tl.arange(0, WIDTH)
    index = (program * WIDTH + row[:, None]) * WIDTH + row[None, :]
    return dropout_factors(tl.load(seeds).to(tl.uint32), index, limit, factor)


@triton.jit
def _biased(product, bias, at, column):
    """Load a matrix product and add its bias."""
    value = tl.load(product + at)
    biased = value.to(tl.float32) + tl.load(bias + column).to(tl.float32)[None, :]
    return biased.to(value.dtype)


@triton.jit
def _forward(
    qkv,
    bias,
    names,
    seeds,
    out,
    scale,
    limit,
    factor,
    DIM: tl.constexpr,  # noqa: N803 - Triton's convention for constants
    HEAD: tl.constexpr,  # noqa: N803
    WIDTH: tl.constexpr,  # noqa: N803
    DROPS: tl.constexpr,  # noqa: N803
):
    row, head = tl.program_id(0), tl.program_id(1)
    token, column = row * WIDTH + tl.arange(0, WIDTH), head * HEAD + tl.arange(0, HEAD)
    at = token[:, None] * (3 * DIM) + column[None, :]
    query, key = _biased(qkv, bias, at, column), _biased(qkv + DIM, bias + DIM, at, column)
    value = _biased(qkv + 2 * DIM, bias + 2 * DIM, at, column)
    weights = _attention_weights(query, key, tl.load(names + token), scale)
    if DROPS:
        weights = weights * _factors(seeds, row * (DIM // HEAD) + head, limit, factor, WIDTH)
    attended = tl.dot(weights.to(value.dtype), value)
    tl.store(out + token[:, None] * DIM + column[None, :], attended.to(value.dtype))


@triton.jit
def _backward(
    gradient,
    qkv,
    bias,
    names,
    seeds,
    out,
    sums,
    scale,
    limit,
    factor,
    DIM: tl.constexpr,  # noqa: N803
    HEAD: tl.constexpr,  # noqa: N803
    WIDTH: tl.constexpr,  # noqa: N803
    DROPS: tl.constexpr,  # noqa: N803
):
    row, head = tl.program_id(0), tl.program_id(1)
    token, column = row * WIDTH + tl.arange(0, WIDTH), head * HEAD + tl.arange(0, HEAD)
    at = token[:, None] * (3 * DIM) + column[None, :]
    query, key = _biased(qkv, bias, at, column), _biased(qkv + DIM, bias + DIM, at, column)
    value = _biased(qkv + 2 * DIM, bias + 2 * DIM, at, column)
    of_output = tl.load(gradient + token[:, None] * DIM + column[None, :])
    weights = _attention_weights(query, key, tl.load(names + token), scale)
    of_weights = tl.dot(of_output, tl.trans(value))
    dropped = weights
    if DROPS:
        factors = _factors(seeds, row * (DIM // HEAD) + head, limit, factor, WIDTH)
        dropped, of_weights = weights * factors, of_weights * factors
    of_value = tl.dot(tl.trans(dropped.to(value.dtype)), of_output)
    tl.store(out + at + 2 * DIM, of_value.to(value.dtype))
    tl.atomic_add(sums + 2 * DIM + column, tl.sum(of_value, 0), sem="relaxed")
    scores = weights * (of_weights - tl.sum(weights * of_weights, 1)[:, None]) * scale
    scores = scores.to(value.dtype)
    of_query = tl.dot(scores, key)
    tl.store(out + at, of_query.to(value.dtype))
    tl.atomic_add(sums + column, tl.sum(of_query, 0), sem="relaxed")
    of_key = tl.dot(tl.trans(scores), query)
    # The key's bias has no gradient: it shifts all scores of a token equally, which the softmax cancels.
    tl.store(out + at + DIM, of_key.to(value.dtype))


def attend(
    qkv: Tensor,
    bias: Tensor,
    names: Tensor,
    seed: Tensor | None,
    *,
    heads: int,
    width: int,
    dropout: float,
) -> Tensor:
    """Add a bias and attend within names.  # (tokens, 3 dim), (3 dim,), (tokens,) -> (tokens, dim)"""
    dim = qkv.shape[1] // 3
    out = qkv.new_empty(len(qkv), dim)
    arguments = (qkv, bias, names, names if seed is None else seed, out)
    _forward[(len(qkv) // width, heads)](*arguments, **_options(dim, heads, width, dropout))
    return out


def attend_gradient(
    gradient: Tensor,
    qkv: Tensor,
    bias: Tensor,
    names: Tensor,
    seed: Tensor | None,
    sums: Tensor,
    *,
    heads: int,
    width: int,
    dropout: float,
) -> Tensor:
    """Return the gradient of `qkv`, and add that of its bias to `sums` (3 dim,).  # (tokens, 3 dim)"""
    out = torch.empty_like(qkv)
    arguments = (gradient, qkv, bias, names, names if seed is None else seed, out, sums)
    options = _options(qkv.shape[1] // 3, heads, width, dropout)
    _backward[(len(qkv) // width, heads)](*arguments, **options)
    return out


def _options(dim: int, heads: int, width: int, dropout: float) -> dict[str, Any]:
    return {
        "scale": (dim // heads) ** -0.5,
        "limit": int(dropout * 2**32),
        "factor": 1 / (1 - dropout),
        "DIM": dim,
        "HEAD": dim // heads,
        "WIDTH": width,
        "DROPS": dropout > 0,
        "num_warps": 4 if width <= _FOUR_WARPS_WIDTH else 8,
        "maxnreg": _REGISTERS,
    }
