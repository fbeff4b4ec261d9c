from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from sapbert.gpu.packed_batch import PackedBatch
from sapbert.gpu.rows import Rows

CPU = torch.device("cpu")


@given(row_count=st.integers(1, 90), pairs=st.integers(1, 40))
def test_parts_of_a_packed_batch_are_unchanged_and_aligned(row_count: int, pairs: int) -> None:
    """Kernels compiled for addresses at multiples of 16 bytes fail on others."""
    rng, tokens, names = np.random.default_rng(row_count), 64 * row_count, 2 * pairs
    rows = Rows(rng.integers(0, 2**31, 4 * tokens + names, np.int32), tokens, 64)
    labels, shared = rng.integers(0, 99, names, np.int32), rng.random((names, names)) < 0.5
    batch = PackedBatch.of(rows, labels, shared, CPU)
    row_tensors, actual_labels, actual_shared = batch.parts(batch.packed)

    for name, part in row_tensors._asdict().items():
        np.testing.assert_array_equal(part.view(torch.int32), getattr(rows, name).view(np.int32))
    np.testing.assert_array_equal(actual_labels, labels)
    np.testing.assert_array_equal(actual_shared, shared)
    for part in (*row_tensors, actual_labels, actual_shared):
        assert (part.data_ptr() - batch.packed.data_ptr()) % 128 == 0
