from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sapbert.errors import TrainingError
from sapbert.pairs.artifact import Pairs
from sapbert.training import loop
from sapbert.training.alignment import trainer
from sapbert.training.delayed_metrics import DelayedMetrics
from sapbert.training.metrics import read_metrics
from sapbert.training.objective import StepReport
from tests.training.alignment.test_trainer import CPU, assert_same_model, settings
from tests.training.alignment.test_trainer import uninterrupted as uninterrupted

GPU = torch.device("cuda")
"""Only its type is used."""


def report(loss: float) -> StepReport:
    return StepReport(torch.tensor(loss), torch.tensor(7), torch.tensor(9))


def test_on_a_cpu_each_step_is_read_at_once() -> None:
    delayed = DelayedMetrics(CPU, 16)
    delayed.add(1, 0.1, report(0.5))
    [(step, figures)] = delayed.read(wait=False)

    assert step == 1
    assert figures.pop("names_per_second") > 0
    assert figures == {"loss": 0.5, "positives": 7, "negatives": 9, "learning_rate": 0.1}
    assert delayed.read(wait=True) == []


def test_on_a_gpu_a_step_is_read_when_three_more_are_queued() -> None:
    delayed = DelayedMetrics(GPU, 16)
    read = []
    for step in (1, 2, 3, 4, 5):
        delayed.add(step, 0.1, report(step / 2))
        read.append([number for number, _ in delayed.read(wait=False)])
    read.append([number for number, _ in delayed.read(wait=True)])

    assert read == [[], [], [], [1], [2], [3, 4, 5]]


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_reported_with_its_step(loss: float) -> None:
    delayed = DelayedMetrics(GPU, 16)
    for step in (4, 5, 6):
        delayed.add(step, 0.1, report(loss))
        assert delayed.read(wait=False) == []
    delayed.add(7, 0.1, report(loss))

    with pytest.raises(TrainingError, match="at step 4;"):
        delayed.read(wait=False)


@pytest.fixture
def delayed_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the loop on a CPU delay metrics as on a GPU."""
    reads: Callable[[object, int], DelayedMetrics] = lambda _device, names: DelayedMetrics(GPU, names)  # noqa: E731
    monkeypatch.setattr(loop, "DelayedMetrics", reads)


@pytest.mark.usefixtures("delayed_on_cpu")
def test_delayed_metrics_change_neither_model_nor_metrics(
    tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path, uninterrupted: Path
) -> None:
    trainer.train(tiny_pairs, str(tiny_base), tmp_path / "model", settings(), device=CPU)
    found, expected = (
        [{**row, "names_per_second": 0} for row in read_metrics(model / "metrics.jsonl")]
        for model in (tmp_path / "model", uninterrupted)
    )
    assert_same_model(tmp_path / "model", uninterrupted)
    assert found == expected


@pytest.mark.usefixtures("delayed_on_cpu")
def test_no_checkpoint_is_written_after_a_loss_that_is_not_finite(
    tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path
) -> None:
    wild = settings(learning_rate=1e30, checkpoint_every=3, held_out=0)
    with pytest.raises(TrainingError, match="at step 2"):
        trainer.train(tiny_pairs, str(tiny_base), tmp_path / "model", wild, device=CPU)

    assert not list((tmp_path / "model.run").glob("step-*"))
    assert [row["step"] for row in read_metrics(tmp_path / "model.run" / "metrics.jsonl")] == [0]
