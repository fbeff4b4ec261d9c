"""Encode names without padding: all tokens of a batch in one sequence, with attention limited to each name.

A name has eight tokens on average and the longest of a batch twenty-five, so two of three tokens in a padded
rectangle are padding. All layers except attention treat tokens independently. So the model gets one long
sequence whose positions restart with every name, and the attention function, which transformers allows to
replace, separates the names. Vectors and gradients equal those of a padded rectangle.

Attention itself costs little. On a CPU it runs on names of equal length at a time, without mask or padding.
On a GPU, where many small calls are slow, it runs on one padded rectangle.
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
"""Encoders that use the given positions and leave everything else to the attention function. MPNet adds a
bias by distance, and ModernBERT attends only to neighbours in most layers."""


def supports_packing(model: PreTrainedModel) -> bool:
    """Return whether this encoder can process several names in one sequence."""
    return model.config.model_type in _FAMILIES


@dataclass(frozen=True, slots=True)
class PackedNames:
    """Names in one sequence of tokens, longest first, and the index of each token in a padded grid."""

    ids: Tensor
    """Token ids.  # (tokens,)"""
    positions: Tensor
    """Position of each token in its name.  # (tokens,)"""
    spans: list[tuple[int, int]]
    """Number of names and length, for each length in the order of tokens."""
    starts: Tensor
    """Index of the first token of each name in the sequence.  # (names,)"""
    real: Tensor
    """False for padding.  # (names, longest)"""
    special: Tensor
    """True for padding and special tokens.  # (names, longest)"""
    grid_index: Tensor
    """Index of each token of the sequence in the flattened grid.  # (tokens,)"""

    @classmethod
    def of(cls, tokens: TokenRows, rows: NDArray[np.int64], device: torch.device) -> PackedNames:
        """Pack the names `rows` of `tokens`."""
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
        grid_index = name * width + position
        special = np.ones(real.shape, np.bool_)
        special.reshape(-1)[grid_index] = tokens.special[source]
        sizes, counts = np.unique(-lengths, return_counts=True)
        return cls(
            to_device(tokens.ids[source], device),
            to_device(position, device),
            list(zip(counts.tolist(), (-sizes).tolist(), strict=True)),
            to_device(starts, device),
            to_device(real, device),
            to_device(special, device),
            to_device(grid_index, device),
        )

    def encode(self, model: PreTrainedModel, pooling: Pooling) -> Tensor:
        """Return one vector per name, not normalized.  # (names, dim)"""
        table = model.get_submodule("embeddings.position_embeddings")
        assert isinstance(table, nn.Embedding)
        # RoBERTa models count positions from the one after the padding position.
        first = 0 if table.padding_idx is None else table.padding_idx + 1
        with _packed_attention(model):
            output: Tensor = model(
                input_ids=self.ids[None], position_ids=self.positions[None] + first, packed=self
            ).last_hidden_state[0]  # (tokens, dim)
        # CLS pooling needs no grid of all vectors, which is large.
        if pooling is Pooling.CLS:
            return output.float().index_select(0, self.starts)
        return pool(self._in_grid(output.float()), self.real, self.special, pooling)

    def attend_by_length(self, heads: tuple[Tensor, ...], dropout: float, scaling: float) -> Tensor:
        """Attend within names, for one length at a time.  # 3 x (tokens, heads, dim) -> same"""
        sizes = [names * length for names, length in self.spans]
        parts = zip(self.spans, *(tensor.split(sizes) for tensor in heads), strict=True)
        return torch.cat(
            [
                _attend([part.unflatten(0, span) for part in three], None, dropout, scaling).flatten(0, 1)
                for span, *three in parts
            ]
        )

    def attend_in_grid(self, heads: tuple[Tensor, ...], dropout: float, scaling: float) -> Tensor:
        """Attend within names, in one padded rectangle.  # 3 x (tokens, heads, dim) -> same"""
        padded = [self._in_grid(tensor) for tensor in heads]  # (names, longest, heads, dim)
        attended = _attend(padded, self.real[:, None, None], dropout, scaling)
        return attended.flatten(0, 1).index_select(0, self.grid_index)

    def _in_grid(self, tensor: Tensor) -> Tensor:
        """Return a grid with one row per name, zero for padding.  # (tokens, ...) -> (names, longest, ...)"""
        # Scattered instead of gathered: all padding would gather the same token, and a GPU sums the gradients
        # of one token sequentially, which takes longer than all layers.
        empty = tensor.new_zeros(self.real.numel(), *tensor.shape[1:])
        return empty.index_copy(0, self.grid_index, tensor).view(*self.real.shape, *tensor.shape[1:])


def _attend(heads: list[Tensor], mask: Tensor | None, dropout: float, scaling: float) -> Tensor:
    """Attend within each row.  # 3 x (names, tokens, heads, dim) -> same"""
    query, key, value = (tensor.transpose(1, 2) for tensor in heads)
    attended = scaled_dot_product_attention(query, key, value, mask, dropout_p=dropout, scale=scaling)
    return attended.transpose(1, 2)


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
    """The attention function of each layer, for a batch of one sequence.  # (1, heads, tokens, dim)"""
    heads = tuple(tensor[0].transpose(0, 1) for tensor in (query, key, value))
    attend = packed.attend_by_length if query.device.type == "cpu" else packed.attend_in_grid
    return attend(heads, dropout, scaling)[None], None


@contextmanager
def _packed_attention(model: PreTrainedModel) -> Iterator[None]:
    """Use packed attention in this block only; the model is also evaluated with its own attention."""
    AttentionInterface.register(_ATTENTION, _attention)
    before = model.config._attn_implementation  # noqa: SLF001 - the public setter visits all modules, in every step
    model.config._attn_implementation = _ATTENTION  # noqa: SLF001
    try:
        yield
    finally:
        model.config._attn_implementation = before  # noqa: SLF001
