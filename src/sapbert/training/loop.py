"""The training loop that all methods share: steps, metrics, checkpoints, Ctrl-C.

The method is an `objective.Objective`: self-alignment (`alignment.trainer`), BioSyn (`biosyn.trainer`), the
reranker (`reranking.trainer`) or the flash encoder (`flash.trainer`). Checkpoints are in `checkpoints`.

During a run its checkpoints and `metrics.jsonl` are in the folder `MODEL.run`. At the end the complete model
folder appears at MODEL, with the metrics inside, and the run folder is removed.
"""

from __future__ import annotations

import logging
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Self

import numpy as np
import torch

from sapbert.artifacts import create, refuse_occupied
from sapbert.gpu.random_state import seed_generators
from sapbert.protocols import Encoder
from sapbert.resumable import locked_run, refuse_interrupted, run_folder
from sapbert.training.checkpoints import Checkpoints
from sapbert.training.delayed_metrics import DelayedMetrics
from sapbert.training.distributed import any_process, process_group, sum_gradients, wait_for_all, world
from sapbert.training.metrics import Metrics, read_metrics, write_metrics
from sapbert.training.objective import LEARNING_RATE_FACTOR, Objective, StepReport, TrainingStep
from sapbert.training.settings import LoopSettings

METRICS = "metrics.jsonl"
log = logging.getLogger(__name__)
OnStep = Callable[[int, int, Mapping[str, float]], None]
"""Called with the number of steps done, the number of all steps, and the metrics of the step."""
Evaluate = Callable[[Encoder], Mapping[str, float]]
"""Measures the current encoder; returns metrics by name. Every process calls it."""
_Row = tuple[int, Mapping[str, float]]


def ignore_step(_done: int, _total: int, _figures: Mapping[str, float]) -> None:
    """Do nothing; the default `OnStep`."""


def run_training(
    start: Callable[[], Objective],
    target: Path,
    settings: LoopSettings,
    *,
    device: torch.device,
    resume: bool,
    overwrite: bool,
    on_step: OnStep,
    kind: str | None = None,
) -> None:
    """Train the objective that `start` returns and write the model, with all metrics, to `target`.

    With `resume`, continue from the newest complete checkpoint of the interrupted run for `target`. An
    artifact of another `kind` at `target` is refused before training.
    """
    folder = run_folder(target)
    with ExitStack() as stack:
        stack.enter_context(process_group(device))
        interruption = stack.enter_context(_Interruption())
        first = world()[0] == 0
        if first:
            stack.enter_context(locked_run(target))
            refuse_occupied(target, overwrite=overwrite, kind=kind)
            refuse_interrupted(folder, resume=resume, overwrite=overwrite)
        objective = start()
        if first and folder.exists() and not resume:
            # Only after the new run has loaded all its inputs without an error.
            shutil.rmtree(folder)
        wait_for_all()
        run = _Run.of(objective, settings, device)
        with Checkpoints(folder, keep=settings.keep, in_background=device.type == "cuda") as checkpoints:
            done = run.restore(checkpoints.newest(objective.described))
            if first and resume and not done:
                log.warning("%s contains no checkpoint; starting at step 0", folder)
            with Metrics(folder / METRICS, done=done) if first else nullcontext() as metrics:
                run.loop(done, checkpoints, metrics, interruption, on_step)
                figures = objective.finish()
                if figures and metrics is not None:
                    metrics.add(objective.total, figures)
            if first:
                measured = read_metrics(folder / METRICS)
                with create(target, overwrite=overwrite) as draft:
                    write_metrics(draft.path / METRICS, measured)
                    objective.write(draft, measured)
        if first:
            shutil.rmtree(folder)
        wait_for_all()


@dataclass(frozen=True, slots=True)
class _Run:
    """An objective with its optimizer."""

    objective: Objective
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    settings: LoopSettings
    device: torch.device

    @classmethod
    def of(cls, objective: Objective, settings: LoopSettings, device: torch.device) -> Self:
        """Create the optimizer."""
        scaler = torch.amp.GradScaler(device.type, enabled=settings.scales_loss)
        return cls(objective, objective.optimizer(), scaler, settings, device)

    def loop(
        self,
        done: int,
        checkpoints: Checkpoints,
        metrics: Metrics | None,
        interruption: _Interruption,
        on_step: OnStep,
    ) -> None:
        """Train from step `done` to the last; only the first process has metrics, reports and saves."""
        objective = self.objective
        report = _reporter(metrics, on_step, objective.total)
        if done == 0:
            report([(0, objective.measure(0))])
        delayed = DelayedMetrics(self.device, objective.names_per_step)
        # Once and after each `measure`, not in each step, where it would take a tenth of the time on a GPU.
        objective.module.train()
        for step in objective.steps(done, self.optimizer):
            delayed.add(done + 1, self._learning_rate(done), self._take(step, done))
            done += 1
            last = done == objective.total
            measure = last or done % objective.evaluate_every == 0
            save = last or done % self.settings.checkpoint_every == 0
            rows = delayed.read(wait=measure or save)
            if measure:
                rows[-1][1].update(objective.measure(done))
                objective.module.train()
            report(rows)
            stop = any_process(interruption.requested)
            if save or stop:
                report(delayed.read(wait=True))
                if metrics is not None:
                    checkpoints.save(done, self.state(), objective.described)
            if stop and not last:
                raise KeyboardInterrupt
            if measure or save:
                delayed.restart_clock()

    def _take(self, step: TrainingStep, done: int) -> StepReport:
        """Compute the gradients of one step and update the parameters."""
        # Dropout depends only on the step and the process, so a resumed run needs no random state.
        rank, _ = world()
        seed = int(np.random.SeedSequence([self.settings.seed, done, rank]).generate_state(1)[0])
        seed_generators(seed, self.device)
        for group in self.optimizer.param_groups:
            group["lr"] = self._learning_rate(done) * group[LEARNING_RATE_FACTOR]
        parameters = self.objective.module.parameters
        self.optimizer.zero_grad(set_to_none=True)
        report = step.backward(self.scaler.scale)
        sum_gradients(parameters())
        if self.settings.max_gradient_norm is not None:
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(parameters(), self.settings.max_gradient_norm)
        if self.scaler.is_enabled():
            # Calls `optimizer.step()` unless a gradient overflowed.
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            step.update(self.optimizer)
        return report

    def _learning_rate(self, done: int) -> float:
        """Return the learning rate of the next step: rising during warm-up, then constant or falling to 0."""
        total = self.objective.total
        warmup = self.settings.warmup * total
        if done < warmup:
            return self.settings.learning_rate * (done + 1) / warmup
        if self.settings.schedule == "constant":
            return self.settings.learning_rate
        return self.settings.learning_rate * (total - done) / (total - warmup)

    def state(self) -> dict[str, Any]:
        """Return everything the next step depends on, except frozen weights, which the base has."""
        module = self.objective.module
        frozen = {name for name, value in module.named_parameters() if not value.requires_grad}
        weights = module.state_dict()
        return {
            "model": {name: value for name, value in weights.items() if name not in frozen},
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "objective": self.objective.state(),
        }

    def restore(self, checkpoint: tuple[int, dict[str, Any]] | None) -> int:
        """Restore a checkpoint; return the number of steps done."""
        if checkpoint is None:
            return 0
        done, state = checkpoint
        module = self.objective.module
        module.load_state_dict({**module.state_dict(), **state["model"]})
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.objective.restore(state["objective"])
        return done


class _Interruption:
    """Turns Ctrl-C or SIGTERM into a request to stop after this step; a second one stops at once.

    Schedulers of clusters send SIGTERM before a time limit.
    """

    def __init__(self) -> None:
        self.requested = False

    def __enter__(self) -> Self:
        self._before = {
            number: signal.signal(number, self._request) for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _request(self, _number: int, _frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


def _reporter(metrics: Metrics | None, on_step: OnStep, total: int) -> Callable[[Sequence[_Row]], None]:
    """Return a function that writes and reports the metrics of steps; without `metrics` it does nothing."""

    def report(rows: Sequence[_Row]) -> None:
        if metrics is not None:
            for step, figures in rows:
                metrics.add(step, figures)
                on_step(step, total, figures)

    return report
