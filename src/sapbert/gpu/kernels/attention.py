"""Attention within names that share rows, in Triton, which comes with torch where there is a GPU.

Written out as torch's operations it is ten kernels a layer that each pass (rows, heads, width, width) numbers
through memory, which takes longer than the products. Here one program takes one head of one row: its scores
(64 x 64) never leave the chip, and the chances are computed again for the gradient.

Dropout is drawn from a hash of a seed and the place of a score: what forward dropped, backward must drop too,
and a seed that lies on the device lets a captured graph drop others with each replay.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sapbert.gpu.kernels.elementwise import kept

_WIDE = 64
"""Rows up to this width keep four warps busy."""
_REGISTERS = 160
"""Of a thread at most, so that three programs have room beside each other."""


@triton.jit
def _chances(query, key, name, scale):
    """Softmax over the tokens of the same name.  # (width, width)"""
    scores = tl.dot(query, tl.trans(key)) * scale
    scores = tl.where(name[:, None] == name[None, :], scores, -float("inf"))
    powers = tl.exp(scores - tl.max(scores, 1)[:, None])
    return powers / tl.sum(powers, 1)[:, None]


@triton.jit
def _factors(seeds, program, limit, factor, WIDTH: tl.constexpr):  # noqa: N803 - Triton's way to write
    """What each chance is multiplied with.  # (width, width)"""
    row = tl.arange(0, WIDTH)
    place = (program * WIDTH + row[:, None]) * WIDTH + row[None, :]
    return kept(tl.load(seeds).to(tl.uint32), place, limit, factor)


@triton.jit
def _biased(product, bias, at, column):
    """Read a product with its bias."""
    found = tl.load(product + at)
    added = found.to(tl.float32) + tl.load(bias + column).to(tl.float32)[None, :]
    return added.to(found.dtype)


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
    DIM: tl.constexpr,  # noqa: N803 - what is known when a kernel is made
    HEAD: tl.constexpr,  # noqa: N803
    WIDTH: tl.constexpr,  # noqa: N803
    DROPS: tl.constexpr,  # noqa: N803
):
    row, head = tl.program_id(0), tl.program_id(1)
    token, column = row * WIDTH + tl.arange(0, WIDTH), head * HEAD + tl.arange(0, HEAD)
    at = token[:, None] * (3 * DIM) + column[None, :]
    query, key = _biased(qkv, bias, at, column), _biased(qkv + DIM, bias + DIM, at, column)
    value = _biased(qkv + 2 * DIM, bias + 2 * DIM, at, column)
    chances = _chances(query, key, tl.load(names + token), scale)
    if DROPS:
        chances = chances * _factors(seeds, row * (DIM // HEAD) + head, limit, factor, WIDTH)
    found = tl.dot(chances.to(value.dtype), value)
    tl.store(out + token[:, None] * DIM + column[None, :], found.to(value.dtype))


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
    given = tl.load(gradient + token[:, None] * DIM + column[None, :])
    chances = _chances(query, key, tl.load(names + token), scale)
    wanted = tl.dot(given, tl.trans(value))
    dropped = chances
    if DROPS:
        factors = _factors(seeds, row * (DIM // HEAD) + head, limit, factor, WIDTH)
        dropped, wanted = chances * factors, wanted * factors
    of_value = tl.dot(tl.trans(dropped.to(value.dtype)), given)
    tl.store(out + at + 2 * DIM, of_value.to(value.dtype))
    tl.atomic_add(sums + 2 * DIM + column, tl.sum(of_value, 0), sem="relaxed")
    scores = chances * (wanted - tl.sum(chances * wanted, 1)[:, None]) * scale
    scores = scores.to(value.dtype)
    of_query = tl.dot(scores, key)
    tl.store(out + at, of_query.to(value.dtype))
    tl.atomic_add(sums + column, tl.sum(of_query, 0), sem="relaxed")
    of_key = tl.dot(tl.trans(scores), query)
    # Nothing for the key's bias: it shifts all scores of a token alike, which a softmax does not see.
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
        "num_warps": 4 if width <= _WIDE else 8,
        "maxnreg": _REGISTERS,
    }
