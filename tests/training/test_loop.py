"""The loop that all training methods share, with an objective of one weight."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from sapbert.artifacts import Draft
from sapbert.training import loop
from sapbert.training.loop import ignore_step, run_training
from sapbert.training.objective import LEARNING_RATE_FACTOR, Scale, StepReport, TrainingStep
from sapbert.training.settings import LoopSettings, TransformerSettings

STEPS = 6


class OneWeight:
    """An objective that records random numbers, learning rate and loss scale of each step."""

    total = STEPS
    names_per_step = 1
    evaluate_every = 100
    described: Mapping[str, Any] = {"objective": "one weight"}

    def __init__(self, *, overflow_at: int = -1, stop_at: int = -1) -> None:
        self.module = nn.Linear(1, 1, bias=False)
        self.random: list[tuple[float, ...]] = []
        self.rates: list[float] = []
        self.scales: list[float] = []
        self._overflow_at, self._stop_at = overflow_at, stop_at

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            [{"params": list(self.module.parameters()), LEARNING_RATE_FACTOR: 1.0}], lr=1.0
        )

    def steps(self, done: int, optimizer: torch.optim.Optimizer) -> Iterator[TrainingStep]:
        def step(number: int) -> Callable[[Scale], StepReport]:
            def backward(scale: Scale) -> StepReport:
                self.random.append(tuple(torch.rand(2).tolist()))
                self.rates.append(float(optimizer.param_groups[0]["lr"]))
                self.scales.append(float(scale(torch.tensor(1.0))))
                gradient = float("inf") if number == self._overflow_at else 0.0
                self.module.weight.grad = torch.full_like(self.module.weight, gradient)
                zero = torch.tensor(0.0)
                return StepReport(zero, zero, zero)

            return backward

        for number in range(done, STEPS):
            if number == self._stop_at:
                raise KeyboardInterrupt
            yield TrainingStep(step(number))

    def measure(self, done: int) -> Mapping[str, float]:
        del done
        return {}

    def finish(self) -> Mapping[str, float]:
        return {}

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        del state

    def write(self, draft: Draft, metrics: Sequence[Mapping[str, Any]]) -> None:
        del metrics
        draft.seal("model", settings={}, inputs={}, counts={})


def run(objective: OneWeight, target: Path, settings: LoopSettings, *, resume: bool = False) -> OneWeight:
    cpu = torch.device("cpu")
    run_training(
        lambda: objective, target, settings, device=cpu, resume=resume, overwrite=False, on_step=ignore_step
    )
    return objective


def test_random_numbers_depend_on_seed_step_and_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(OneWeight(), tmp_path / "first", LoopSettings()).random
    again = run(OneWeight(), tmp_path / "again", LoopSettings()).random
    other = run(OneWeight(), tmp_path / "other", LoopSettings(seed=34)).random
    monkeypatch.setattr(loop, "world", lambda: (1, 2))
    second_process = run(OneWeight(), tmp_path / "second", LoopSettings()).random

    assert first == again
    assert len({*first, *other, *second_process}) == 3 * STEPS


def test_the_learning_rate_rises_to_its_peak_from_the_first_step(tmp_path: Path) -> None:
    shaped = LoopSettings(learning_rate=0.3, warmup=0.5, schedule="linear")

    rates = run(OneWeight(), tmp_path / "model", shaped).rates

    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.3, 0.2, 0.1])


def test_a_resumed_run_keeps_the_scale_of_the_loss(tmp_path: Path) -> None:
    scaled = TransformerSettings(precision="fp16", checkpoint_every=2)
    whole = run(OneWeight(overflow_at=1), tmp_path / "whole", scaled).scales
    with pytest.raises(KeyboardInterrupt):
        run(OneWeight(overflow_at=1, stop_at=4), tmp_path / "model", scaled)

    resumed = run(OneWeight(), tmp_path / "model", scaled, resume=True).scales

    assert whole[1] == 2 * whole[2]  # halved by the overflow
    assert resumed == whole[4:]
