"""One step of flash training: gather features, sum their rows, compute the loss, return the gradient by row.

All tensors of a step are on the device of the table. The gradient of a row of the table is the sum of the
gradients of the names that have the feature; sorting the features by row makes it the same operation as
summing the rows of a name.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from sapbert.pairs.artifact import Pairs
from sapbert.training.flash.batches import TrainingNames
from sapbert.training.flash.loss import ContrastiveLoss
from sapbert.training.objective import Scale, StepReport

_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class FlashStep:
    """Computes the loss of a batch and the gradient of the table."""

    table: nn.Parameter
    names: TrainingNames
    pairs: Pairs
    loss: ContrastiveLoss
    ids: Tensor
    """`names.features.ids` on the device."""
    teacher: NDArray[np.float16] | None = None
    """The teacher's vectors of the names of `pairs`."""

    def backward(self, rows: NDArray[np.int64], _scale: Scale) -> StepReport:
        """Set the gradient of the table for a batch: rows of left names, then of right names."""
        ids, offsets = self._features(rows)
        with torch.no_grad():
            sums = _sum_rows(self.table, ids, offsets)
            lengths = sums.norm(dim=1, keepdim=True).clamp_(min=_TINY)
            vectors = sums / lengths
            shared = self._shared(rows)
            loss, gradient = self.loss(vectors, shared, self._teacher_vectors(rows))
            gradient -= (gradient * vectors).sum(dim=1, keepdim=True) * vectors
            gradient /= lengths
            self.table.grad = _gradient_of_rows(self.table, ids, offsets, gradient)
            negatives = shared.numel() - shared.count_nonzero()
            return StepReport(loss, negatives.new_tensor(len(rows)), negatives)

    def _features(self, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return the features of a batch, and where those of each name start."""
        starts = self.names.features.offsets[rows]
        ends = np.cumsum(self.names.features.offsets[rows + 1] - starts)
        offsets = np.concatenate([np.zeros(1, np.int64), ends])
        places = np.arange(ends[-1]) + np.repeat(starts - offsets[:-1], np.diff(offsets))
        device = self.ids.device
        return self.ids[torch.from_numpy(places).to(device)].long(), torch.from_numpy(offsets).to(device)

    def _shared(self, rows: NDArray[np.int64]) -> Tensor:
        """Return which names share a concept, as `Pairs.share_concept` does.  # (names, names)"""
        originals, device = self.names.originals[rows], self.ids.device
        concepts = torch.from_numpy(self.pairs.concepts[originals]).to(device)
        shared = concepts[:, None] == concepts
        some, others = (
            torch.from_numpy(positions).to(device)
            for positions in self.pairs.share_concept_by_homonym(originals)
        )
        shared[some, others] = True
        shared[others, some] = True
        return shared

    def _teacher_vectors(self, rows: NDArray[np.int64]) -> Tensor | None:
        if self.teacher is None:
            return None
        vectors = torch.from_numpy(self.teacher[self.names.originals[rows]]).to(self.ids.device)
        return functional.normalize(vectors.float())


def _sum_rows(table: Tensor, ids: Tensor, offsets: Tensor) -> Tensor:
    """Return the sum of the table's rows in each span of `ids`.  # (spans, dimension)"""
    return functional.embedding_bag(ids, table, offsets, mode="sum", include_last_offset=True)


def _gradient_of_rows(table: Tensor, ids: Tensor, offsets: Tensor, gradient: Tensor) -> Tensor:
    """Return the gradient of the table, from that of the sums: a coalesced sparse tensor of the used rows."""
    names = torch.arange(len(gradient), device=ids.device)
    owners = torch.repeat_interleave(names, offsets.diff(), output_size=len(ids))
    ordered, order = ids.sort(stable=True)
    rows, counts = torch.unique_consecutive(ordered, return_counts=True)
    spans = functional.pad(counts.cumsum(dim=0), (1, 0))
    return torch.sparse_coo_tensor(
        rows[None],
        _sum_rows(gradient, owners[order], spans),
        table.shape,
        is_coalesced=True,
        check_invariants=False,
    )
