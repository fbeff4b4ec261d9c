from __future__ import annotations

from pathlib import Path

import pytest

from sapbert.training.metrics import Metrics, read_metrics


@pytest.mark.parametrize(("done", "kept"), [(0, []), (1, [0, 1]), (2, [0, 1, 2]), (3, [0, 1, 2, 3])])
def test_a_resumed_run_has_every_row_once(tmp_path: Path, done: int, kept: list[int]) -> None:
    file = tmp_path / "metrics.jsonl"
    with Metrics(file, done=0) as metrics:
        for step in range(4):
            metrics.add(step, {"loss": 1.0})
        metrics.add(3, {"at the end": 1.0})

    with Metrics(file, done=done):
        assert [row["step"] for row in read_metrics(file)] == kept
        assert all("loss" in row for row in read_metrics(file))
