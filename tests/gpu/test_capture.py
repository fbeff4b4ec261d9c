"""What surrounds the capture of a CUDA graph; the capture itself needs a GPU."""

from __future__ import annotations

import gc

from sapbert.gpu.cuda_graph import _garbage_collection_paused


def test_no_garbage_is_collected_during_a_capture() -> None:
    with _garbage_collection_paused():
        assert not gc.isenabled()
    assert gc.isenabled()
