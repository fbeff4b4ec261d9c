"""Encode names without padding: all tokens of a batch in one row, each name attending to itself alone.

A name has eight tokens on average and the longest of a batch twenty-five, so two of three tokens in a padded
rectangle are padding. All layers but attention treat each token alone; so the model is given one long
sequence whose positions begin anew with every name, and attention, which transformers lets us replace, keeps
the names apart. Vectors and gradients are those of a rectangle.

Attention costs little, and how to lay it out depends on the device: on a CPU names of one length are attended
together, without mask or padding; a GPU would wait for so many small calls and takes one padded rectangle.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel

from sapbert.gpu.transfer import to_device
from sapbert.tokens.batching import TokenRows
from sapbert.tokens.pooling import Pooling, pool

_ATTENTION = "sapbert-packed"
_FAMILIES = ("bert", "roberta", "xlm-roberta")
"""Encoders that take positions as given and leave all else about attention to the replaced function. MPNet
adds a bias by distance and ModernBERT looks at neighbours only in most layers."""


def supports_packing(model: PreTrainedModel) -> bool:
    """Tell whether this encoder can read several names in one sequence."""
    return model.config.model_type in _FAMILIES


@dataclass(frozen=True, slots=True)
class PackedNames:
    """Names in one row of tokens, longest first; in the grid each has a padded row, in the order given."""

    ids: Tensor
    """Token ids.  # (tokens,)"""
    positions: Tensor
    """Place of each token in its name.  # (tokens,)"""
    spans: list[tuple[int, int]]
    """Number and length of the names of each length, in the order of tokens."""
    starts: Tensor
    """Where the first token of each name lies in the row.  # (names,)"""
    real: Tensor
    """False for padding.  # (names, longest)"""
    special: Tensor
    """True for padding and for what the tokenizer added.  # (names, longest)"""
    places: Tensor
    """Where each token of the row lies in the flattened grid.  # (tokens,)"""

    @classmethod
    def of(cls, tokens: TokenRows, rows: NDArray[np.int64], device: torch.device) -> PackedNames:
        """Lay some names end to end."""
        lengths = tokens.lengths[rows]
        order = np.argsort(-lengths, kind="stable")
        ends = np.cumsum(lengths[order])
        starts = np.empty_like(ends)
        starts[order] = ends - lengths[order]
        name = np.repeat(order, lengths[order])  # (tokens,)
        position = np.arange(len(name)) - starts[name]
        source = tokens.offsets[rows][name] + position
        width = int(lengths.max(initial=0))
        column = np.arange(width)
        real = column < lengths[:, None]
        places = name * width + position
        special = np.ones(real.shape, np.bool_)
        special.reshape(-1)[places] = tokens.special[source]
        sizes, counts = np.unique(-lengths, return_counts=True)
        return cls(
            to_device(tokens.ids[source], device),
            to_device(position, device),
            list(zip(counts.tolist(), (-sizes).tolist(), strict=True)),
            to_device(starts, device),
            to_device(real, device),
            to_device(special, device),
            to_device(places, device),
        )

    def encode(self, model: PreTrainedModel, pooling: Pooling) -> Tensor:
        """Return one vector a name, not normalised.  # (names, dim)"""
        table = model.get_submodule("embeddings.position_embeddings")
        assert isinstance(table, nn.Embedding)
        # RoBERTa and its kin count positions from the one after the padding's.
        first = 0 if table.padding_idx is None else table.padding_idx + 1
        with _packed_attention(model):
            output: Tensor = model(
                input_ids=self.ids[None], position_ids=self.positions[None] + first, packed=self
            ).last_hidden_state[0]  # (tokens, dim)
        # [CLS] is all that its pooling looks at, and a rectangle of vectors is large.
        if pooling is Pooling.CLS:
            return output.float().index_select(0, self.starts)
        return pool(self._in_grid(output.float()), self.real, self.special, pooling)

    def attend_by_length(self, heads: tuple[Tensor, ...], dropout: float, scaling: float) -> Tensor:
        """Attend within names, those of one length at a time.  # 3 x (tokens, heads, dim) -> same"""
        sizes = [names * length for names, length in self.spans]
        parts = zip(self.spans, *(tensor.split(sizes) for tensor in heads), strict=True)
        return torch.cat(
            [
                _attend([part.unflatten(0, span) for part in three], None, dropout, scaling).flatten(0, 1)
                for span, *three in parts
            ]
        )

    def attend_in_grid(self, heads: tuple[Tensor, ...], dropout: float, scaling: float) -> Tensor:
        """Attend within names, all in one padded rectangle.  # 3 x (tokens, heads, dim) -> same"""
        padded = [self._in_grid(tensor) for tensor in heads]  # (names, longest, heads, dim)
        found = _attend(padded, self.real[:, None, None], dropout, scaling)
        return found.flatten(0, 1).index_select(0, self.places)

    def _in_grid(self, tensor: Tensor) -> Tensor:
        """Give each name a row, with zeros for padding.  # (tokens, ...) -> (names, longest, ...)"""
        # Tokens are put in their places: were they looked up, all padding would look up one token, and a GPU
        # adds the gradients of one token one after the other, which takes longer than all layers.
        empty = tensor.new_zeros(self.real.numel(), *tensor.shape[1:])
        return empty.index_copy(0, self.places, tensor).view(*self.real.shape, *tensor.shape[1:])


def _attend(heads: list[Tensor], mask: Tensor | None, dropout: float, scaling: float) -> Tensor:
    """Attend within each row.  # 3 x (names, tokens, heads, dim) -> same"""
    query, key, value = (tensor.transpose(1, 2) for tensor in heads)
    found = scaled_dot_product_attention(query, key, value, mask, dropout_p=dropout, scale=scaling)
    return found.transpose(1, 2)


def _attention(
    _module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _mask: None,
    *,
    dropout: float,
    scaling: float,
    packed: PackedNames,
    **_options: object,
) -> tuple[Tensor, None]:
    """What transformers calls in each layer, with one batch of one sequence.  # (1, heads, tokens, dim)"""
    heads = tuple(tensor[0].transpose(0, 1) for tensor in (query, key, value))
    attend = packed.attend_by_length if query.device.type == "cpu" else packed.attend_in_grid
    return attend(heads, dropout, scaling)[None], None


@contextmanager
def _packed_attention(model: PreTrainedModel) -> Iterator[None]:
    """Let a model attend to packed names; elsewhere it goes on as it was, for it is also measured."""
    AttentionInterface.register(_ATTENTION, _attention)
    before = model.config._attn_implementation  # noqa: SLF001 - the public setter walks all modules, each step
    model.config._attn_implementation = _ATTENTION  # noqa: SLF001
    try:
        yield
    finally:
        model.config._attn_implementation = before  # noqa: SLF001
