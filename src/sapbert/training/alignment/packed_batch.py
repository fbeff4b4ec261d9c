"""A batch in one array, sent to a GPU at once: names in rows, labels, and which names share a concept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sapbert.gpu.bert import RowTensors
from sapbert.gpu.rows import Rows
from sapbert.gpu.transfer import sendable
from sapbert.training.alignment.batches import Batch

_TOGETHER = 32
"""Parts begin at a multiple of so many numbers: kernels made for one that does fail where it does not."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """The array, and what tells its parts."""

    packed: Tensor
    tokens: int
    names: int

    @classmethod
    def of(cls, rows: Rows, batch: Batch, device: torch.device) -> Sheet:
        """Write a batch down; names are both sides of pairs, so four of the last part fill a number."""
        parts = rows.packed, batch.labels, batch.share.reshape(-1).view(np.int32)
        spare = np.zeros(_TOGETHER, np.int32)
        packed = np.concatenate([piece for part in parts for piece in (part, spare[: _spare(len(part))])])
        return cls(sendable(packed, device), rows.tokens, len(batch.labels))

    def parts(self, packed: Tensor) -> tuple[RowTensors, Tensor, Tensor]:
        """See the parts of an array like this one: rows, labels and share."""
        sizes = 4 * self.tokens + self.names, self.names, self.names**2 // 4
        padded = packed.split([size + _spare(size) for size in sizes])
        laid, labels, share = (part[:size] for part, size in zip(padded, sizes, strict=True))
        return (
            RowTensors.within(laid, self.tokens),
            labels,
            share.view(torch.uint8).view(torch.bool).view(self.names, self.names),
        )


def _spare(size: int) -> int:
    return -size % _TOGETHER
