"""Whether kernels of our own serve on a device: they compute a small example there, held against plain torch.

A kernel that cannot be compiled says so; one that is compiled to something wrong would train a wrong model
without a word. A layer is tried in the sizes that it is used in, so that what is tried is what is used, and
also with a dropout so rare that nothing is dropped: kernels that drop out are others than those that do not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from sapbert.gpu.layers import (
    PLAIN,
    SEEDS,
    Embed,
    Kernels,
    Layer,
    Shape,
    Tables,
    Weights,
    plain_embed,
    plain_layer,
)
from sapbert.gpu.rows import PADDING

_HEADS = (16, 32, 64, 128)
"""What a kernel lays out on the chip is a power of two, and at least what a matrix unit takes."""
_ROWS, _NAME, _APART = 3, 9, 5
"""Rows of the example, tokens of a name in it, and every which token is picked."""
_WORDS = 11
"""That tokens of the example are of; the first of them is padding."""
_RARELY = 2.0**-30
"""A dropout by which none of the numbers of the example is dropped."""
_TOLERANCE = 0.03
"""By norm: rounding to bfloat16 puts the plain way up to 0.016 off, a bias left out 0.2, mixed names 0.1."""
log = logging.getLogger(__name__)

Proven = TypeVar("Proven")


class Sizes(NamedTuple):
    """Of a layer that is tried."""

    heads: int
    dim: int
    wide: int
    """Dimensions between the two maps of its second half."""
    width: int
    """Tokens of a row."""


def kernels_of(model: PreTrainedModel, *, width: int) -> Kernels:
    """Return the fastest way to compute a model where it is; it is tried, and told, once."""
    config = model.config
    sizes = Sizes(config.num_attention_heads, config.hidden_size, config.intermediate_size, width)
    return kernels_for(model.device, sizes)


@cache
def kernels_for(device: torch.device, sizes: Sizes) -> Kernels:
    """Return the fastest way to compute models of these sizes on a device."""
    if device.type != "cuda" or sizes.dim // sizes.heads not in _HEADS:
        return PLAIN
    return proven("layers", partial(_fused, device, sizes), PLAIN)


def proven(what: str, prepare: Callable[[], Proven], plain: Proven) -> Proven:
    """Return what `prepare` makes and tries; where that fails, say so and return what goes the plain way."""
    try:
        # Whoever asks may be about to infer, where no gradient can be tried.
        with torch.inference_mode(mode=False), torch.enable_grad():
            return prepare()
    except Exception as error:  # noqa: BLE001 - in whatever way a compiler or a driver fails
        told = str(error).partition("\n")[0]
        log.warning("%s have no kernels here (%s); going the plain way", what, told)
        return plain


def hold(found: Sequence[Tensor], expected: Sequence[Tensor], *, tolerance: float) -> None:
    """Refuse tensors that are further from those expected, by norm, than a share of these."""
    for ours, plain in zip(found, expected, strict=True):
        apart = ((ours.double() - plain.double()).norm() / plain.double().norm()).item()
        # Asked so that what is no number is refused too.
        if not apart <= tolerance:
            raise ArithmeticError(f"they are {apart:.2g} off, where rounding is {tolerance:.2g}")


def _fused(device: torch.device, sizes: Sizes) -> Kernels:
    from sapbert.gpu.kernels.embedding import fused_embed
    from sapbert.gpu.kernels.layer import fused_layer

    try_embed(fused_embed, device, sizes)
    try_layer(fused_layer, device, sizes)
    return Kernels(fused_embed, fused_layer)


def try_embed(
    embed: Embed, device: torch.device, sizes: Sizes, *, dtype: torch.dtype = torch.bfloat16
) -> None:
    """Look tokens up, with their gradients, and refuse them where they are wrong."""
    heads, dim, _, width = sizes
    tokens = torch.arange(_ROWS * width, dtype=torch.int32, device=device)
    ids, positions, seed = tokens % _WORDS, tokens % _NAME, torch.ones(1, dtype=torch.int64, device=device)
    rng = torch.Generator().manual_seed(0)
    *weights, given = (
        torch.randn(*size, generator=rng).to(device)
        for size in ((_WORDS, dim), (_NAME + 1, dim), (2, dim), (dim,), (dim,), (len(tokens), dim))
    )

    def computed(way: Embed, drawn: Tensor | None, shape: Shape, kind: torch.dtype) -> list[Tensor]:
        """What stands for tokens, and the gradient of all tables."""
        leaves = [tensor.clone().requires_grad_() for tensor in weights]
        tables = Tables((leaves[0], leaves[1], leaves[2], leaves[3], leaves[4]), 1, 0)
        found = way(ids, positions, drawn, tables, shape, kind)
        return [found, *torch.autograd.grad(found, leaves, given.to(kind))]

    plain, rarely = (Shape(heads, width, 1e-12, dropout, 0.0) for dropout in (0.0, _RARELY))
    expected = computed(plain_embed, None, plain, torch.float32)
    for drawn, shape in ((seed, rarely), (None, plain)):
        hold(computed(embed, drawn, shape, dtype), expected, tolerance=_TOLERANCE)


def try_layer(
    layer: Layer, device: torch.device, sizes: Sizes, *, dtype: torch.dtype = torch.bfloat16
) -> None:
    """Compute layers with their gradients, and one as it is inferred; refuse them where they are wrong."""
    heads, _, _, width = sizes
    names = torch.arange(_ROWS * width, dtype=torch.int32, device=device).div_(_NAME, rounding_mode="floor")
    names[width - _NAME : width] = PADDING
    picks = torch.arange(0, len(names), _APART, dtype=torch.int32, device=device)
    # From 1, as the hash of 0 by 0 is 0, which is dropped however rare that is.
    seeds = torch.arange(1, 1 + SEEDS, device=device)
    inputs = [tensor.to(device, dtype) for tensor in _inputs(len(names), sizes)]
    exact = [tensor.float() for tensor in inputs]
    plain = Shape(heads, width, 1e-12, 0.0, 0.0)
    rarely = Shape(heads, width, 1e-12, _RARELY, _RARELY)
    for picked, drawn, shape in ((None, seeds, rarely), (picks, None, plain)):
        expected = _with_gradients(plain_layer, exact, names, picked, None, plain)
        found = _with_gradients(layer, inputs, names, picked, drawn, shape)
        hold(found, expected, tolerance=_TOLERANCE)
    with torch.no_grad():
        inferred = layer(inputs[0].clone(), names, picks, None, _weights(inputs), plain)
    hold([inferred], expected[:1], tolerance=_TOLERANCE)


def _with_gradients(
    layer: Layer,
    inputs: Sequence[Tensor],
    names: Tensor,
    picks: Tensor | None,
    seeds: Tensor | None,
    shape: Shape,
) -> list[Tensor]:
    """Return what a layer gives, and the gradient of all that goes in."""
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    found = layer(leaves[0], names, picks, seeds, _weights(leaves), shape)
    return [found, *torch.autograd.grad(found, leaves, inputs[0][: len(found)])]


def _inputs(tokens: int, sizes: Sizes) -> list[Tensor]:
    """Make tokens and weights; by a generator of their own, so that a run's is left as it was."""
    rng = torch.Generator().manual_seed(0)
    _, dim, wide, _ = sizes
    maps = [(3 * dim, dim), (dim, dim), (dim,), (wide, dim), (dim, wide), (dim,)]
    found = [torch.randn(tokens, dim, generator=rng)]
    for size in maps:
        scale = size[1] ** -0.5 if len(size) > 1 else 1.0
        found += [torch.randn(size, generator=rng) * scale, torch.randn(size[0], generator=rng)]
    return found


def _weights(inputs: Sequence[Tensor]) -> Weights:
    return Weights(*zip(inputs[1::2], inputs[2::2], strict=True))
