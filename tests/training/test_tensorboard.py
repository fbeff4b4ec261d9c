from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from sapbert.errors import MissingExtraError
from sapbert.training.tensorboard import tensorboard


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the curves that TensorBoard would show."""
    reading = import_module("tensorboard.backend.event_processing.event_accumulator")
    events: Any = reading.EventAccumulator(str(folder))
    events.Reload()
    return {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }


def write(folder: Path, steps: Iterable[int], value: float) -> None:
    with tensorboard(folder) as on_step:
        for step in steps:
            on_step(step, 9, {"loss": value})


def test_tensorboard_reads_the_written_metrics(tmp_path: Path) -> None:
    with tensorboard(tmp_path) as on_step:
        on_step(0, 2, {"retrieval": 0.25})
        on_step(1, 2, {"loss": 2.0})
        on_step(2, 2, {"loss": 1.0, "retrieval": 0.5})

    assert curves(tmp_path) == {"loss": [(1, 2.0), (2, 1.0)], "retrieval": [(0, 0.25), (2, 0.5)]}


def test_a_resumed_run_replaces_the_steps_it_repeats(tmp_path: Path) -> None:
    write(tmp_path, (1, 2, 3), 2.0)
    write(tmp_path, (2, 3, 4), 1.0)
    assert curves(tmp_path) == {"loss": [(1, 2.0), (2, 1.0), (3, 1.0), (4, 1.0)]}


def test_a_process_without_metrics_writes_nothing(tmp_path: Path) -> None:
    write(tmp_path / "board", (), 0.0)
    assert list(tmp_path.iterdir()) == []


def test_without_tensorboard_the_extra_to_install_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingExtraError, match=r"sapbert\[tensorboard\]"), tensorboard(tmp_path):
        pass
