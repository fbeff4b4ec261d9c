"""Check that the Triton kernels give correct results on a device before a model uses them.

A kernel that cannot be compiled raises an error; one that is compiled wrongly would train a wrong model
without any. So each kernel computes a small example, which is compared with plain PyTorch. Layers are checked
in the sizes of the model, so that the checked kernel is the one in use, and also with a dropout so rare that
nothing is dropped: kernels with dropout are compiled separately.
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
    EmbeddingWeights,
    Kernels,
    Layer,
    LayerConfig,
    LayerWeights,
    plain_embed,
    plain_layer,
)
from sapbert.gpu.rows import PADDING

_HEAD_SIZES = (16, 32, 64, 128)
"""Blocks of a Triton kernel are powers of two, and a matrix unit needs at least 16."""
_ROWS, _NAME_LENGTH, _PICK_EVERY = 3, 9, 5
"""Rows of the example, tokens per name in it, and distance between the picked tokens."""
_WORDS = 11
"""Number of different words in the example; the first is padding."""
_RARE_DROPOUT = 2.0**-30
"""A dropout rate at which no element of the example is dropped."""
_TOLERANCE = 0.03
"""Relative error by norm. Rounding to bfloat16 gives up to 0.016, a missing bias 0.2, mixed-up names 0.1."""
log = logging.getLogger(__name__)

Prepared = TypeVar("Prepared")


class LayerSizes(NamedTuple):
    """Sizes of the layers of a model."""

    heads: int
    dim: int
    intermediate: int
    """Dimensions between the two linear maps of the feed-forward block."""
    width: int
    """Tokens per row."""


def select_kernels(model: PreTrainedModel, *, width: int) -> Kernels:
    """Return the Triton kernels if they work for this model on its device, else the PyTorch functions."""
    config = model.config
    sizes = LayerSizes(config.num_attention_heads, config.hidden_size, config.intermediate_size, width)
    return kernels_for_sizes(model.device, sizes)


@cache
def kernels_for_sizes(device: torch.device, sizes: LayerSizes) -> Kernels:
    """Return the kernels for these sizes on a device; they are checked once per process."""
    if device.type != "cuda" or sizes.dim // sizes.heads not in _HEAD_SIZES:
        return PLAIN
    return verified_or_fallback("Triton kernels", partial(_triton_kernels, device, sizes), PLAIN)


def verified_or_fallback(
    what: str, prepare: Callable[[], Prepared], fallback: Prepared, *, fallback_name: str = "PyTorch"
) -> Prepared:
    """Return what `prepare` makes and checks; if that fails, log a warning and return `fallback`."""
    try:
        # The caller may be in inference mode, in which gradients cannot be checked.
        with torch.inference_mode(mode=False), torch.enable_grad():
            return prepare()
    except Exception as error:  # noqa: BLE001 - compilers and drivers raise errors of any type
        reason = str(error).partition("\n")[0]
        log.warning("%s unavailable (%s); falling back to %s", what, reason, fallback_name)
        return fallback


def check_close(actual: Sequence[Tensor], expected: Sequence[Tensor], *, tolerance: float) -> None:
    """Raise `ArithmeticError` if the relative error of a tensor, by norm, exceeds `tolerance`."""
    for ours, reference in zip(actual, expected, strict=True):
        error = ((ours.double() - reference.double()).norm() / reference.double().norm()).item()
        # Written so that NaN fails too.
        if not error <= tolerance:
            raise ArithmeticError(f"relative error {error:.2g} exceeds {tolerance:.2g}")


def _triton_kernels(device: torch.device, sizes: LayerSizes) -> Kernels:
    from sapbert.gpu.kernels.embedding import fused_embed
    from sapbert.gpu.kernels.layer import fused_layer

    check_embed(fused_embed, device, sizes)
    check_layer(fused_layer, device, sizes)
    return Kernels(fused_embed, fused_layer)


def check_embed(
    embed: Embed, device: torch.device, sizes: LayerSizes, *, dtype: torch.dtype = torch.bfloat16
) -> None:
    """Compare embeddings and their gradients with PyTorch; raise `ArithmeticError` if they differ."""
    heads, dim, _, width = sizes
    tokens = torch.arange(_ROWS * width, dtype=torch.int32, device=device)
    ids, positions = tokens % _WORDS, tokens % _NAME_LENGTH
    seed = torch.ones(1, dtype=torch.int64, device=device)
    rng = torch.Generator().manual_seed(0)
    *weights, output_gradient = (
        torch.randn(*size, generator=rng).to(device)
        for size in ((_WORDS, dim), (_NAME_LENGTH + 1, dim), (2, dim), (dim,), (dim,), (len(tokens), dim))
    )

    def compute(
        function: Embed, seed: Tensor | None, config: LayerConfig, dtype: torch.dtype
    ) -> list[Tensor]:
        """Return the embeddings and the gradients of all weights."""
        leaves = [tensor.clone().requires_grad_() for tensor in weights]
        tables = EmbeddingWeights((leaves[0], leaves[1], leaves[2], leaves[3], leaves[4]), 1, 0)
        output = function(ids, positions, seed, tables, config, dtype)
        return [output, *torch.autograd.grad(output, leaves, output_gradient.to(dtype))]

    exact, rare = (LayerConfig(heads, width, 1e-12, dropout, 0.0) for dropout in (0.0, _RARE_DROPOUT))
    expected = compute(plain_embed, None, exact, torch.float32)
    for drop_seed, config in ((seed, rare), (None, exact)):
        check_close(compute(embed, drop_seed, config, dtype), expected, tolerance=_TOLERANCE)


def check_layer(
    layer: Layer, device: torch.device, sizes: LayerSizes, *, dtype: torch.dtype = torch.bfloat16
) -> None:
    """Compare layers with PyTorch, with gradients and for inference; raise if they differ."""
    heads, _, _, width = sizes
    names = torch.arange(_ROWS * width, dtype=torch.int32, device=device)
    names.div_(_NAME_LENGTH, rounding_mode="floor")
    names[width - _NAME_LENGTH : width] = PADDING
    picks = torch.arange(0, len(names), _PICK_EVERY, dtype=torch.int32, device=device)
    # From 1, as seed 0 and position 0 hash to 0, which is dropped at any rate.
    seeds = torch.arange(1, 1 + SEEDS, device=device)
    inputs = [tensor.to(device, dtype) for tensor in _example(len(names), sizes)]
    float_inputs = [tensor.float() for tensor in inputs]
    exact = LayerConfig(heads, width, 1e-12, 0.0, 0.0)
    rare = LayerConfig(heads, width, 1e-12, _RARE_DROPOUT, _RARE_DROPOUT)
    for picked, drop_seeds, config in ((None, seeds, rare), (picks, None, exact)):
        expected = _with_gradients(plain_layer, float_inputs, names, picked, None, exact)
        actual = _with_gradients(layer, inputs, names, picked, drop_seeds, config)
        check_close(actual, expected, tolerance=_TOLERANCE)
    with torch.no_grad():
        inferred = layer(inputs[0].clone(), names, picks, None, _layer_weights(inputs), exact)
    check_close([inferred], expected[:1], tolerance=_TOLERANCE)


def _with_gradients(
    layer: Layer,
    inputs: Sequence[Tensor],
    names: Tensor,
    picks: Tensor | None,
    seeds: Tensor | None,
    config: LayerConfig,
) -> list[Tensor]:
    """Return the output of a layer and the gradients of all inputs."""
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    output = layer(leaves[0], names, picks, seeds, _layer_weights(leaves), config)
    return [output, *torch.autograd.grad(output, leaves, inputs[0][: len(output)])]


def _example(tokens: int, sizes: LayerSizes) -> list[Tensor]:
    """Return tokens and weights from a separate generator, so that the run's generator does not change."""
    rng = torch.Generator().manual_seed(0)
    _, dim, intermediate, _ = sizes
    maps = [(3 * dim, dim), (dim, dim), (dim,), (intermediate, dim), (dim, intermediate), (dim,)]
    tensors = [torch.randn(tokens, dim, generator=rng)]
    for size in maps:
        scale = size[1] ** -0.5 if len(size) > 1 else 1.0
        tensors += [torch.randn(size, generator=rng) * scale, torch.randn(size[0], generator=rng)]
    return tensors


def _layer_weights(inputs: Sequence[Tensor]) -> LayerWeights:
    return LayerWeights(*zip(inputs[1::2], inputs[2::2], strict=True))
