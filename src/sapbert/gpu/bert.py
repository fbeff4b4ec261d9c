"""BERT and its kin, written out for names in rows: what a GPU computes when nothing else holds it up.

transformers' own modules ask questions of each input that make the CPU wait, cast every weight at every use,
and multiply query, key and value one by one. Here the weights are copied once a step into the precision that
is computed in, query, key and value side by side, and the last layer goes beyond attention only for tokens
asked for. The model stays what it is: its own parameters are trained, measured and saved.

Embeddings are looked up in full precision: hundreds of names share [CLS], and bfloat16 could not add up their
gradients. What flows through the layers is in the given precision; sums inside LayerNorm and softmax are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from sapbert.gpu.layers import SEEDS, Kernels, Shape, Tables, Weights
from sapbert.gpu.rows import WIDTH, Rows
from sapbert.gpu.transfer import to_device
from sapbert.gpu.verify import kernels_of
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
"""The first of `_MAPS` that are one matrix here."""


def can_lay(model: PreTrainedModel, pooling: Pooling, max_length: int) -> bool:
    """Tell whether rows serve: a plain BERT with all its parameters and no others, and names that fit."""
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
        """Copy rows to a device, without waiting for what it has to do before."""
        return cls.within(to_device(rows.packed, device), rows.tokens)

    @classmethod
    def within(cls, packed: Tensor, tokens: int) -> RowTensors:
        """See the parts of what `Rows` has packed."""
        ids, positions, names, weights = packed[: 4 * tokens].view(4, tokens)
        return cls(ids, positions, names, packed[4 * tokens :], weights.view(torch.float32))


class RowEncoder:
    """A model's encoder over rows; `refresh` takes up what has changed in its weights.

    The gradient of what it gives can be taken of `leaves`; `backward` brings it to the model's parameters.
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
        """Compute in `dtype` by `kernels`."""
        self.model = model
        self._picks = pooling in (Pooling.CLS, Pooling.FIRST)
        self.width, self.dtype, self._kernels = width, dtype, kernels
        self._layers: list[Weights] = []
        self._parts: list[tuple[nn.Parameter, Tensor, slice]] = []
        for module in model.get_submodule("encoder.layer").children():
            self._layers.append(self._copy(module))

    @classmethod
    def fastest(cls, model: PreTrainedModel, pooling: Pooling, *, dtype: torch.dtype) -> RowEncoder:
        """Compute by kernels of our own, where they serve the model on its device."""
        return cls(model, pooling, width=WIDTH, dtype=dtype, kernels=kernels_of(model, width=WIDTH))

    def refresh(self) -> None:
        """Copy the weights of the model as they are now."""
        with torch.no_grad():
            copies = [copy[rows] for _, copy, rows in self._parts]
            torch._foreach_copy_(copies, [own.detach() for own, _, _ in self._parts])

    @property
    def leaves(self) -> list[Tensor]:
        """What a gradient is taken of: the copies, and the embeddings, which are not copied."""
        copies = [tensor for layer in self._layers for pair in layer for tensor in pair]
        return [*copies, *self.model.get_submodule("embeddings").parameters()]

    def gradients(self, found: Sequence[Tensor], into: Gradients) -> Gradients:
        """Return the gradient of each parameter, given those of `leaves`; those of copies are put `into`."""
        trained = self.trained(found)
        copied = {own: gradient for own, gradient, copy in trained if copy is not None}
        torch._foreach_copy_([into[own] for own in copied], list(copied.values()))
        return into | {own: gradient for own, gradient, copy in trained if copy is None}

    def trained(self, found: Sequence[Tensor]) -> list[tuple[nn.Parameter, Tensor, Tensor | None]]:
        """Return each parameter with its gradient and its copy, if it has one, given those of `leaves`."""
        of = {id(leaf): gradient for leaf, gradient in zip(self.leaves, found, strict=True)}
        embeddings = self.model.get_submodule("embeddings").parameters()
        return [
            *((own, of[id(copy)][rows], copy.detach()[rows]) for own, copy, rows in self._parts),
            *((own, of[id(own)], None) for own in embeddings),
        ]

    @property
    def layers(self) -> int:
        """How many there are."""
        return len(self._layers)

    def buffers(self) -> Gradients:
        """Make room for the gradients of what is copied, in full precision."""
        return {own: torch.empty_like(own) for own, _, _ in self._parts}

    def __call__(self, rows: RowTensors, on_gradients: Callable[[int], None] | None = None) -> Tensor:
        """Return one vector a name, not normalised; a model in training drops out.  # (names, dim)

        When a gradient is taken, `on_gradients` is told each layer, the last first, as its own are found.
        """
        config = self.model.config
        drops = self.model.training
        shape = Shape(
            config.num_attention_heads,
            self.width,
            config.layer_norm_eps,
            config.hidden_dropout_prob if drops else 0.0,
            config.attention_probs_dropout_prob if drops else 0.0,
        )
        last = len(self._layers) - 1
        seeds = _seeds(last + 2, rows.ids.device) if drops else [None] * (last + 2)
        embed, compute = self._kernels
        hidden = embed(rows.ids, rows.positions, seeds[-1], self._tables(), shape, self.dtype)
        for number, layer in enumerate(self._layers):
            picks = rows.picks if self._picks and number == last else None
            if on_gradients is not None:
                hidden.register_hook(lambda _, number=number: on_gradients(number))
            hidden = compute(hidden, rows.names, picks, seeds[number], layer, shape)  # (tokens, dim)
        return hidden.float() if self._picks else _mean(hidden, rows)

    def _copy(self, layer: nn.Module) -> Weights:
        maps = [layer.get_submodule(name) for name in _MAPS]
        joined = [maps[:_JOINED], *([single] for single in maps[_JOINED:])]
        return Weights(*((self._joined(group, "weight"), self._joined(group, "bias")) for group in joined))

    def _joined(self, maps: Sequence[nn.Module], part: str) -> Tensor:
        """Make room for the weights of some maps, one below the other."""
        own = [module.get_parameter(part) for module in maps]
        size = sum(len(parameter) for parameter in own)
        copy = torch.empty(size, *own[0].shape[1:], dtype=self.dtype, device=own[0].device)
        copy.requires_grad_(own[0].requires_grad)
        if copy.requires_grad:
            copy.register_post_accumulate_grad_hook(partial(_pass_on, own))
        end = 0
        for parameter in own:
            self._parts.append((parameter, copy, slice(end, end := end + len(parameter))))
        return copy

    def _tables(self) -> Tables:
        embeddings = self.model.get_submodule("embeddings")
        word, position = (embeddings.get_submodule(name) for name in _EMBEDDINGS[:2])
        assert isinstance(word, nn.Embedding)
        assert isinstance(position, nn.Embedding)
        norm = embeddings.get_submodule("LayerNorm")
        kind = embeddings.get_parameter("token_type_embeddings.weight")
        return Tables(
            (word.weight, position.weight, kind, norm.get_parameter("weight"), norm.get_parameter("bias")),
            # RoBERTa and its kin count positions from the one after the padding's.
            0 if position.padding_idx is None else position.padding_idx + 1,
            -1 if word.padding_idx is None else word.padding_idx,
        )


def _pass_on(own: Sequence[nn.Parameter], copy: Tensor) -> None:
    """Add the gradient of a copy to those of the parameters it was made of."""
    assert copy.grad is not None
    for parameter, part in zip(own, copy.grad.split([len(each) for each in own]), strict=True):
        found = part.to(parameter.dtype)
        parameter.grad = found if parameter.grad is None else parameter.grad + found
    copy.grad = None


def _seeds(places: int, device: torch.device) -> Sequence[Tensor]:
    """Draw what layers, and at last embeddings, drop by."""
    return torch.randint(2**31, (places, SEEDS), device=device).unbind()


def _mean(hidden: Tensor, rows: RowTensors) -> Tensor:
    """Add up the tokens of each name by their weights.  # (tokens, dim) -> (names, dim)"""
    # Padding weighs nothing, so it may go to any name.
    total = hidden.new_zeros(len(rows.picks), hidden.shape[1], dtype=torch.float32)
    return total.index_add(0, rows.names.clamp(min=0), hidden.float() * rows.weights[:, None])
