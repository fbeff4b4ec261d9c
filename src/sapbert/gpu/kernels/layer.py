"""One layer of BERT as matrix products and four Triton kernels, with an explicit backward pass.

The backward pass is explicit because autograd would sum the two gradients of a residual in a separate pass;
here the matrix product adds to the existing gradient. A bias is added by the kernel after its product, and
the gradient of that kernel sums the gradient of the bias (`elementwise`). Without gradient, GELU is part of
the matrix product, in the tanh approximation, which differs from erf by less than the rounding of bfloat16.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from sapbert.gpu.kernels.attention import attend, attend_gradient
from sapbert.gpu.kernels.elementwise import (
    Normed,
    add_norm,
    add_norm_gradient,
    gelu,
    gelu_gradient,
    norm_in_place,
)
from sapbert.gpu.layers import LayerConfig, LayerWeights

_MAPS = len(LayerWeights._fields)


def fused_layer(
    hidden: Tensor,
    names: Tensor,
    picks: Tensor | None,
    seeds: Tensor | None,
    weights: LayerWeights,
    config: LayerConfig,
) -> Tensor:
    """Compute a layer; implements `layers.Layer`."""
    if seeds is None and not torch.is_grad_enabled():
        return _inference(hidden, names, picks, weights, config)
    flat = (tensor for pair in weights for tensor in pair)
    output: Tensor = _Layer.apply(hidden, names, picks, seeds, config, *flat)  # type: ignore[no-untyped-call]
    return output


def _inference(
    hidden: Tensor, names: Tensor, picks: Tensor | None, weights: LayerWeights, config: LayerConfig
) -> Tensor:
    """Compute a layer without gradient in place of `hidden`, as a copy of the residual would cost time."""
    attended = attend(hidden @ weights.qkv[0].T, weights.qkv[1], names, None, **_attention_options(config))
    if picks is not None:
        hidden, attended = hidden.index_select(0, picks), attended.index_select(0, picks)
    norming = partial(norm_in_place, epsilon=config.epsilon)
    hidden = norming(
        hidden.addmm_(attended, weights.attention_output[0].T),
        weights.attention_output[1],
        weights.attention_norm,
    )
    active = torch._addmm_activation(weights.up[1], hidden, weights.up[0].T, use_gelu=True)  # noqa: SLF001
    return norming(hidden.addmm_(active, weights.down[0].T), weights.down[1], weights.output_norm)


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        names: Tensor,
        picks: Tensor | None,
        seeds: Tensor | None,
        config: LayerConfig,
        *flat: Tensor,
    ) -> Tensor:
        weights = _weights(flat)
        norming: dict[str, Any] = {"epsilon": config.epsilon, "dropout": config.hidden_dropout}
        qkv = hidden @ weights.qkv[0].T
        attended = attend(qkv, weights.qkv[1], names, _seed(seeds, 0), **_attention_options(config))
        residual = hidden
        if picks is not None:
            residual, attended = hidden.index_select(0, picks), attended.index_select(0, picks)
        product, bias = attended @ weights.attention_output[0].T, weights.attention_output[1]
        first = add_norm(product, bias, residual, weights.attention_norm, _seed(seeds, 1), **norming)
        up = first.out @ weights.up[0].T
        active = gelu(up, weights.up[1])
        product, bias = active @ weights.down[0].T, weights.down[1]
        second = add_norm(product, bias, first.out, weights.output_norm, _seed(seeds, 2), **norming)
        ctx.config = config
        kept = (hidden, names, picks, seeds, qkv, attended, *first, up, active, second.total, second.stats)
        ctx.save_for_backward(*kept, *flat)
        return second.out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        config: LayerConfig = ctx.config
        saved = ctx.saved_tensors
        hidden, names, picks, seeds, qkv, attended, *kept = saved[: -2 * _MAPS]
        first, (up, active), second = Normed(*kept[:3]), kept[3:5], Normed(kept[0], *kept[5:])
        weights = _weights(saved[-2 * _MAPS :])
        dim, wide = hidden.shape[1], up.shape[1]
        sums = hidden.new_zeros(9 * dim + wide, dtype=torch.float32)
        of_second, of_up, of_first, of_qkv = sums.split((3 * dim, wide, 3 * dim, 3 * dim))
        norming = partial(add_norm_gradient, dropout=config.hidden_dropout)

        gradient, gain = gradients[0].contiguous(), weights.output_norm[0]
        residual, product = norming(gradient, second, gain, _seed(seeds, 2), of_second)
        down_weight = product.T @ active
        product = gelu_gradient(product @ weights.down[0], up, weights.up[1], of_up)
        up_weight = product.T @ first.out
        gradient, gain = residual.addmm_(product, weights.up[0]), weights.attention_norm[0]
        residual, product = norming(gradient, first, gain, _seed(seeds, 1), of_first)
        output_weight = product.T @ attended
        gradient = product @ weights.attention_output[0]
        if picks is not None:
            residual, gradient = (
                _scatter_picks(tensor, picks, len(hidden)) for tensor in (residual, gradient)
            )
        seed, bias = _seed(seeds, 0), weights.qkv[1]
        product = attend_gradient(gradient, qkv, bias, names, seed, of_qkv, **_attention_options(config))
        qkv_weight = product.T @ hidden
        weight_gradients = _flat(sums.to(hidden.dtype), qkv_weight, output_weight, up_weight, down_weight)
        return residual.addmm_(product, weights.qkv[0]), None, None, None, None, *weight_gradients


def _flat(sums: Tensor, qkv: Tensor, output: Tensor, up: Tensor, down: Tensor) -> list[Tensor]:
    """Return all gradients in the order of `LayerWeights`; `sums` has those of biases and norms."""
    dim, wide = len(output), len(up)
    sizes = (dim, dim, dim, wide, dim, dim, dim, 3 * dim)
    bias_2, gain_2, shift_2, bias_up, bias_1, gain_1, shift_1, bias_qkv = sums.split(sizes)
    return [qkv, bias_qkv, output, bias_1, gain_1, shift_1, up, bias_up, down, bias_2, gain_2, shift_2]


def _weights(flat: tuple[Tensor, ...]) -> LayerWeights:
    return LayerWeights(*zip(flat[::2], flat[1::2], strict=True))


def _attention_options(config: LayerConfig) -> dict[str, Any]:
    return {"heads": config.heads, "width": config.width, "dropout": config.attention_dropout}


def _seed(seeds: Tensor | None, place: int) -> Tensor | None:
    return None if seeds is None else seeds[place : place + 1]


def _scatter_picks(picked: Tensor, picks: Tensor, tokens: int) -> Tensor:
    """Return rows of all tokens, zero for those not picked.  # (picks, dim) -> (tokens, dim)"""
    return picked.new_zeros(tokens, picked.shape[1]).index_copy_(0, picks.long(), picked)
