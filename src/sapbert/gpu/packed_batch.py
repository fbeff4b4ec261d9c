"""A batch of pairs in one array, copied to a GPU at once: names in rows, labels, and shared-concept mask."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sapbert.gpu.bert import RowTensors
from sapbert.gpu.rows import Rows
from sapbert.gpu.transfer import pinned

_ALIGNMENT = 32
"""Each part starts at a multiple of this many numbers (128 bytes): kernels compiled for aligned addresses
fail on others."""


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """The array and the sizes needed to split it into parts."""

    packed: Tensor
    tokens: int
    names: int

    @classmethod
    def of(
        cls,
        rows: Rows,
        labels: NDArray[np.int32],
        shared_concept: NDArray[np.bool_],
        device: torch.device,
    ) -> PackedBatch:
        """Pack a batch for copying to `device`.

        The number of names is even, both sides of each pair, so the mask fills whole int32 numbers.
        """
        parts = rows.packed, labels, shared_concept.reshape(-1).view(np.int32)
        zeros = np.zeros(_ALIGNMENT, np.int32)
        packed = np.concatenate([piece for part in parts for piece in (part, zeros[: _padding(len(part))])])
        return cls(pinned(packed, device), rows.tokens, len(labels))

    def parts(self, packed: Tensor) -> tuple[RowTensors, Tensor, Tensor]:
        """Return views of an array with this layout: rows, labels and shared-concept mask."""
        sizes = 4 * self.tokens + self.names, self.names, self.names**2 // 4
        padded = packed.split([size + _padding(size) for size in sizes])
        rows, labels, shared = (part[:size] for part, size in zip(padded, sizes, strict=True))
        return (
            RowTensors.within(rows, self.tokens),
            labels,
            shared.view(torch.uint8).view(torch.bool).view(self.names, self.names),
        )


def _padding(size: int) -> int:
    return -size % _ALIGNMENT
