"""The kernel of `encoder.attention`, in Triton, which comes with torch where there is a GPU.

One program takes one head of one row: its scores (64 x 64) never leave the chip. It is an operation of torch,
so that `torch.compile` passes around it, and is loaded only where a GPU is used.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_WIDE = 64
"""Rows up to this width keep four warps busy."""


@triton.jit
def _chances(query, key, name, scale):
    """Softmax over the tokens of the same name.  # (width, width)"""
    scores = tl.dot(query, tl.trans(key)) * scale
    scores = tl.where(name[:, None] == name[None, :], scores, -float("inf"))
    powers = tl.exp(scores - tl.max(scores, 1)[:, None])
    return powers / tl.sum(powers, 1)[:, None]


@triton.jit
def _kept(seed, program, limit, factor, WIDTH: tl.constexpr):  # noqa: N803
    """What each chance is multiplied with: 0 where it is dropped.  # (width, width)"""
    row = tl.arange(0, WIDTH)
    place = (program * WIDTH + row[:, None]) * WIDTH + row[None, :]
    # The finaliser of MurmurHash3: ten operations, where Triton's own generator takes a hundred.
    mixed = (place.to(tl.uint32) * 0x9E3779B1) ^ seed
    mixed = (mixed ^ (mixed >> 16)) * 0x85EBCA6B
    mixed = (mixed ^ (mixed >> 13)) * 0xC2B2AE35
    mixed = mixed ^ (mixed >> 16)
    return tl.where((mixed >> 8).to(tl.float32) < limit, 0.0, factor)


@triton.jit
def _forward(
    qkv,
    names,
    seeds,
    out,
    scale,
    limit,
    factor,
    DIM: tl.constexpr,  # noqa: N803 - Triton's way to write what is known when a kernel is made
    HEAD: tl.constexpr,  # noqa: N803
    WIDTH: tl.constexpr,  # noqa: N803
    DROPS: tl.constexpr,  # noqa: N803
):
    row, head = tl.program_id(0), tl.program_id(1)
    token, column = row * WIDTH + tl.arange(0, WIDTH), head * HEAD + tl.arange(0, HEAD)
    at = token[:, None] * (3 * DIM) + column[None, :]
    value = tl.load(qkv + at + 2 * DIM)
    chances = _chances(tl.load(qkv + at), tl.load(qkv + at + DIM), tl.load(names + token), scale)
    if DROPS:
        seed = tl.load(seeds).to(tl.uint32)
        chances = chances * _kept(seed, row * (DIM // HEAD) + head, limit, factor, WIDTH)
    found = tl.dot(chances.to(value.dtype), value)
    tl.store(out + token[:, None] * DIM + column[None, :], found.to(value.dtype))


@triton.jit
def _backward(
    gradient,
    qkv,
    names,
    seeds,
    out,
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
    query, key, value = tl.load(qkv + at), tl.load(qkv + at + DIM), tl.load(qkv + at + 2 * DIM)
    given = tl.load(gradient + token[:, None] * DIM + column[None, :])
    chances = _chances(query, key, tl.load(names + token), scale)
    wanted = tl.dot(given, tl.trans(value))
    kept = chances
    if DROPS:
        seed = tl.load(seeds).to(tl.uint32)
        factors = _kept(seed, row * (DIM // HEAD) + head, limit, factor, WIDTH)
        kept, wanted = chances * factors, wanted * factors
    tl.store(out + at + 2 * DIM, tl.dot(tl.trans(kept.to(value.dtype)), given).to(value.dtype))
    scores = chances * (wanted - tl.sum(chances * wanted, 1)[:, None]) * scale
    scores = scores.to(value.dtype)
    tl.store(out + at, tl.dot(scores, key).to(value.dtype))
    tl.store(out + at + DIM, tl.dot(tl.trans(scores), query).to(value.dtype))


def forward(qkv: Tensor, names: Tensor, seed: Tensor, heads: int, width: int, dropout: float) -> Tensor:
    """Attend within names.  # (tokens, 3 dim), (tokens,), (1,) -> (tokens, dim)"""
    dim = qkv.shape[1] // 3
    out = qkv.new_empty(len(qkv), dim)
    _forward[_grid(qkv, heads, width)](qkv, names, seed, out, **_options(dim, heads, width, dropout))
    return out


def backward(
    gradient: Tensor, qkv: Tensor, names: Tensor, seed: Tensor, heads: int, width: int, dropout: float
) -> Tensor:
    """Return the gradient of `qkv`.  # (tokens, dim), (tokens, 3 dim), (tokens,), (1,) -> (tokens, 3 dim)"""
    out = torch.empty_like(qkv)
    options = _options(qkv.shape[1] // 3, heads, width, dropout)
    _backward[_grid(qkv, heads, width)](gradient.contiguous(), qkv, names, seed, out, **options)
    return out


def _grid(qkv: Tensor, heads: int, width: int) -> tuple[int, int]:
    return len(qkv) // width, heads


def _options(dim: int, heads: int, width: int, dropout: float) -> dict[str, Any]:
    return {
        "scale": (dim // heads) ** -0.5,
        "limit": dropout * 2.0**24,
        "factor": 1 / (1 - dropout),
        "DIM": dim,
        "HEAD": dim // heads,
        "WIDTH": width,
        "DROPS": dropout > 0,
        "num_warps": 4 if width <= _WIDE else 8,
    }


_operation = torch.library.custom_op("sapbert::attend", forward, mutates_args=())
_gradient = torch.library.custom_op("sapbert::attend_gradient", backward, mutates_args=())


_operation.register_fake(lambda qkv, *_: qkv.new_empty(qkv.shape[0], qkv.shape[1] // 3))
_gradient.register_fake(lambda _gradient, qkv, *_: torch.empty_like(qkv))


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001 - torch names them
    ctx.save_for_backward(*inputs[:3])
    ctx.settings = inputs[3:]


def _differentiate(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    return _gradient(gradient, *ctx.saved_tensors, *ctx.settings), None, None, None, None, None


_operation.register_autograd(_differentiate, setup_context=_remember)


def attend_in_kernel(qkv: Tensor, names: Tensor, heads: int, width: int, dropout: float) -> Tensor:
    """Attend within names; fits `attention.Attend`."""
    seed = torch.randint(2**31, (1,), device=qkv.device) if dropout else names[:1].long()
    found: Tensor = _operation(qkv, names, seed, heads, width, dropout)
    return found
