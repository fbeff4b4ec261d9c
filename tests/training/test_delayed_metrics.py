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
from sapbert.training.alignment.step import StepReport
from sapbert.training.delayed_metrics import Unread
from sapbert.training.metrics import read_metrics
from tests.training.alignment.test_trainer import CPU, assert_same_model, settings
from tests.training.alignment.test_trainer import uninterrupted as uninterrupted

GPU = torch.device("cuda")
"""Only its name is looked at."""


def report(loss: float) -> StepReport:
    return StepReport(torch.tensor(loss), torch.tensor(7), torch.tensor(9))


def test_a_cpu_reads_each_step_at_once() -> None:
    unread = Unread(CPU, 16)
    unread.add(1, 0.1, report(0.5))
    [(step, figures)] = unread.read(to_the_last=False)

    assert step == 1
    assert figures.pop("names_per_second") > 0
    assert figures == {"loss": 0.5, "positives": 7, "negatives": 9, "learning_rate": 0.1}
    assert unread.read(to_the_last=True) == []


def test_a_gpu_reads_a_step_when_the_next_three_are_under_way() -> None:
    unread = Unread(GPU, 16)
    read = []
    for step in (1, 2, 3, 4, 5):
        unread.add(step, 0.1, report(step / 2))
        read.append([number for number, _ in unread.read(to_the_last=False)])
    read.append([number for number, _ in unread.read(to_the_last=True)])

    assert read == [[], [], [], [1], [2], [3, 4, 5]]


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_found_late_and_rightly_named(loss: float) -> None:
    unread = Unread(GPU, 16)
    for step in (4, 5, 6):
        unread.add(step, 0.1, report(loss))
        assert unread.read(to_the_last=False) == []
    unread.add(7, 0.1, report(loss))

    with pytest.raises(TrainingError, match="at step 4;"):
        unread.read(to_the_last=False)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the loop on a CPU read as late as on a GPU."""
    reads: Callable[[object, int], Unread] = lambda _device, names: Unread(GPU, names)  # noqa: E731
    monkeypatch.setattr(loop, "Unread", reads)


@pytest.mark.usefixtures("late")
def test_reading_late_changes_neither_the_model_nor_its_metrics(
    tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path, uninterrupted: Path
) -> None:
    trainer.train(tiny_pairs, str(tiny_base), tmp_path / "model", settings(), device=CPU)
    found, expected = (
        [{**row, "names_per_second": 0} for row in read_metrics(model / "metrics.jsonl")]
        for model in (tmp_path / "model", uninterrupted)
    )
    assert_same_model(tmp_path / "model", uninterrupted)
    assert found == expected


@pytest.mark.usefixtures("late")
def test_no_checkpoint_is_written_after_a_loss_that_is_no_number(
    tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path
) -> None:
    wild = settings(learning_rate=1e30, checkpoint_every=3, held_out=0)
    with pytest.raises(TrainingError, match="at step 2"):
        trainer.train(tiny_pairs, str(tiny_base), tmp_path / "model", wild, device=CPU)

    assert not list((tmp_path / "model.run").glob("step-*"))
    assert [row["step"] for row in read_metrics(tmp_path / "model.run" / "metrics.jsonl")] == [0]
