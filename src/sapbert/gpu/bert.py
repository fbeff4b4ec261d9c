"""BERT and related encoders for several names per row, written for few kernel launches on a GPU.

The modules of transformers read values of each input, which makes the CPU wait; cast each weight at each use;
and multiply query, key and value one by one. Here weights are copied once per step to the precision of the
computation, query, key and value in one matrix, and the last layer computes its feed-forward block only for
the tokens that are needed. The model itself stays unchanged: its own parameters are trained, measured and
saved.

Embeddings are looked up in float32: hundreds of names share [CLS], and bfloat16 could not sum their
gradients. Hidden states are in the given precision; sums inside LayerNorm and softmax are in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from sapbert.gpu.layers import SEEDS, EmbeddingWeights, Kernels, LayerConfig, LayerWeights
from sapbert.gpu.rows import WIDTH, Rows
from sapbert.gpu.transfer import to_device
from sapbert.gpu.verify import select_kernels
from sapbert.tokens.pooling import Pooling

_FAMILIES = ("bert", "roberta", "xlm-roberta")
_EMBEDDINGS = ("word_embeddings", "position_embeddings", "token_type_embeddings", "LayerNorm")
_MAPS = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm",
)
_JOINED = 3
"""Number of the first `_MAPS` that are joined in one matrix."""


def supports_rows(model: PreTrainedModel, pooling: Pooling, max_length: int) -> bool:
    """Return whether `RowEncoder` fits: a BERT without added parameters, and names that fit in a row."""
    config = model.config
    if (
        max_length > WIDTH
        or config.model_type not in _FAMILIES
        or config.hidden_act != "gelu"
        or pooling is Pooling.MEAN_ALL
    ):
        return False
    if getattr(config, "is_decoder", False):
        return False
    numbers = range(config.num_hidden_layers)
    maps = [f"encoder.layer.{number}.{name}" for number in numbers for name in _MAPS]
    expected = {f"{name}.{part}" for name in ("embeddings.LayerNorm", *maps) for part in ("weight", "bias")}
    expected |= {f"embeddings.{name}.weight" for name in _EMBEDDINGS[:3]}
    return {name for name, _ in model.named_parameters()} == expected


Gradients = dict[nn.Parameter, Tensor]


class RowTensors(NamedTuple):
    """`Rows` on a device."""

    ids: Tensor
    positions: Tensor
    names: Tensor
    picks: Tensor
    weights: Tensor

    @classmethod
    def of(cls, rows: Rows, device: torch.device) -> RowTensors:
        """Copy rows to a device, without waiting for the work queued there."""
        return cls.within(to_device(rows.packed, device), rows.tokens)

    @classmethod
    def within(cls, packed: Tensor, tokens: int) -> RowTensors:
        """Return views of the parts of `Rows.packed`."""
        ids, positions, names, weights = packed[: 4 * tokens].view(4, tokens)
        return cls(ids, positions, names, packed[4 * tokens :], weights.view(torch.float32))


class RowEncoder:
    """The forward pass of a model over rows. `refresh` copies the model's current weights.

    Gradients are taken with respect to `leaves`. After `backward()` hooks add them to the model's parameters;
    after `torch.autograd.grad`, `gradients` and `trained` assign them to the parameters.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        pooling: Pooling,
        *,
        width: int,
        dtype: torch.dtype,
        kernels: Kernels,
    ) -> None:
        """Compute in `dtype` with `kernels`."""
        self.model = model
        self._picks = pooling in (Pooling.CLS, Pooling.FIRST)
        self.width, self.dtype, self._kernels = width, dtype, kernels
        self._layers: list[LayerWeights] = []
        self._parts: list[tuple[nn.Parameter, Tensor, slice]] = []
        for module in model.get_submodule("encoder.layer").children():
            self._layers.append(self._copy_layer(module))

    @classmethod
    def fastest(cls, model: PreTrainedModel, pooling: Pooling, *, dtype: torch.dtype) -> RowEncoder:
        """Compute with Triton kernels if they work for the model on its device."""
        return cls(model, pooling, width=WIDTH, dtype=dtype, kernels=select_kernels(model, width=WIDTH))

    def refresh(self) -> None:
        """Copy the current weights of the model."""
        with torch.no_grad():
            copies = [copy[rows] for _, copy, rows in self._parts]
            torch._foreach_copy_(copies, [parameter.detach() for parameter, _, _ in self._parts])

    @property
    def leaves(self) -> list[Tensor]:
        """Tensors that gradients are taken of: the copies, and the embeddings, which are not copied."""
        copies = [tensor for layer in self._layers for pair in layer for tensor in pair]
        return [*copies, *self.model.get_submodule("embeddings").parameters()]

    def gradients(self, leaf_gradients: Sequence[Tensor], into: Gradients) -> Gradients:
        """Return the gradient of each parameter from those of `leaves`; writes those of copies to `into`."""
        trained = self.trained(leaf_gradients)
        copied = {parameter: gradient for parameter, gradient, copy in trained if copy is not None}
        torch._foreach_copy_([into[parameter] for parameter in copied], list(copied.values()))
        return into | {parameter: gradient for parameter, gradient, copy in trained if copy is None}

    def trained(self, leaf_gradients: Sequence[Tensor]) -> list[tuple[nn.Parameter, Tensor, Tensor | None]]:
        """Return each parameter with its gradient, given those of `leaves`, and its copy if it has one."""
        by_leaf = {id(leaf): gradient for leaf, gradient in zip(self.leaves, leaf_gradients, strict=True)}
        embeddings = self.model.get_submodule("embeddings").parameters()
        return [
            *(
                (parameter, by_leaf[id(copy)][rows], copy.detach()[rows])
                for parameter, copy, rows in self._parts
            ),
            *((parameter, by_leaf[id(parameter)], None) for parameter in embeddings),
        ]

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self._layers)

    def buffers(self) -> Gradients:
        """Allocate gradients of the copied parameters, in full precision."""
        return {parameter: torch.empty_like(parameter) for parameter, _, _ in self._parts}

    def __call__(self, rows: RowTensors, on_gradients: Callable[[int], None] | None = None) -> Tensor:
        """Return one vector per name, not normalized; in training mode with dropout.  # (names, dim)

        In the backward pass `on_gradients` is called with the number of each layer whose gradients are
        complete, the last layer first.
        """
        config = self.model.config
        training = self.model.training
        layer_config = LayerConfig(
            config.num_attention_heads,
            self.width,
            config.layer_norm_eps,
            config.hidden_dropout_prob if training else 0.0,
            config.attention_probs_dropout_prob if training else 0.0,
        )
        last = len(self._layers) - 1
        seeds = _draw_seeds(last + 2, rows.ids.device) if training else [None] * (last + 2)
        embed, compute = self._kernels
        tables = self._embedding_weights()
        hidden = embed(rows.ids, rows.positions, seeds[-1], tables, layer_config, self.dtype)
        for number, layer in enumerate(self._layers):
            picks = rows.picks if self._picks and number == last else None
            if on_gradients is not None:
                hidden.register_hook(lambda _, number=number: on_gradients(number))
            hidden = compute(hidden, rows.names, picks, seeds[number], layer, layer_config)  # (tokens, dim)
        return hidden.float() if self._picks else _mean(hidden, rows)

    def _copy_layer(self, layer: nn.Module) -> LayerWeights:
        maps = [layer.get_submodule(name) for name in _MAPS]
        groups = [maps[:_JOINED], *([single] for single in maps[_JOINED:])]
        return LayerWeights(*((self._join(group, "weight"), self._join(group, "bias")) for group in groups))

    def _join(self, maps: Sequence[nn.Module], part: str) -> Tensor:
        """Allocate one tensor for the weights of some maps, one below the other."""
        parameters = [module.get_parameter(part) for module in maps]
        first = parameters[0]
        size = sum(len(parameter) for parameter in parameters)
        copy = torch.empty(size, *first.shape[1:], dtype=self.dtype, device=first.device)
        copy.requires_grad_(first.requires_grad)
        if copy.requires_grad:
            copy.register_post_accumulate_grad_hook(partial(_add_to_parameters, parameters))
        end = 0
        for parameter in parameters:
            self._parts.append((parameter, copy, slice(end, end := end + len(parameter))))
        return copy

    def _embedding_weights(self) -> EmbeddingWeights:
        embeddings = self.model.get_submodule("embeddings")
        word, position = (embeddings.get_submodule(name) for name in _EMBEDDINGS[:2])
        assert isinstance(word, nn.Embedding)
        assert isinstance(position, nn.Embedding)
        norm = embeddings.get_submodule("LayerNorm")
        token_type = embeddings.get_parameter("token_type_embeddings.weight")
        gain, shift = norm.get_parameter("weight"), norm.get_parameter("bias")
        return EmbeddingWeights(
            (word.weight, position.weight, token_type, gain, shift),
            # RoBERTa models count positions from the one after the padding position.
            0 if position.padding_idx is None else position.padding_idx + 1,
            -1 if word.padding_idx is None else word.padding_idx,
        )


def _add_to_parameters(parameters: Sequence[nn.Parameter], copy: Tensor) -> None:
    """Add the gradient of a copy to the gradients of the parameters it was copied from."""
    assert copy.grad is not None
    parts = copy.grad.split([len(parameter) for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        gradient = part.to(parameter.dtype)
        parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
    copy.grad = None


def _draw_seeds(count: int, device: torch.device) -> Sequence[Tensor]:
    """Draw dropout seeds, one group per layer and the last for the embeddings."""
    return torch.randint(2**31, (count, SEEDS), device=device).unbind()


def _mean(hidden: Tensor, rows: RowTensors) -> Tensor:
    """Return the weighted sum of the tokens of each name.  # (tokens, dim) -> (names, dim)"""
    # Padding has weight 0, so it may be added to any name.
    total = hidden.new_zeros(len(rows.picks), hidden.shape[1], dtype=torch.float32)
    return total.index_add(0, rows.names.clamp(min=0), hidden.float() * rows.weights[:, None])
