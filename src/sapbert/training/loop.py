"""The plain loop of every training: steps, figures, checkpoints, Ctrl-C. A newcomer reads it in one sitting.

What is learned is an `Objective`, of which the loop knows no more than that it has steps: self-alignment's is
in `trainer`, BioSyn's in `biosyn`. What survives a crash is in `checkpoints`.

While a run lasts, its checkpoints and `metrics.jsonl` lie in `MODEL.run`; when it ends, the model folder
appears whole at MODEL, with the metrics inside, and the run's folder is removed.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import nn

from sapbert.artifacts import Draft, create, refuse_occupied
from sapbert.protocols import Encoder
from sapbert.resumable import refuse_interrupted, run_folder
from sapbert.training.alignment.step import Scale, StepReport, seed_generators
from sapbert.training.checkpoints import Checkpoints
from sapbert.training.delayed_metrics import Unread
from sapbert.training.distributed import any_process, joined, sum_gradients, wait_for_all, world
from sapbert.training.metrics import Metrics, read_metrics, write_metrics
from sapbert.training.settings import LoopSettings

METRICS = "metrics.jsonl"
DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
"""What an encoder computes in while it is trained."""
RATE = "factor"
"""Key of a group of parameters: what of the learning rate it is given."""
OnStep = Callable[[int, int, Mapping[str, float]], None]
"""Told the steps done, all steps, and what was measured after the last."""
Evaluate = Callable[[Encoder], Mapping[str, float]]
"""Measures the encoder as it is now; returns figures by name. Every process calls it."""
_Row = tuple[int, Mapping[str, float]]


def ignore_step(_done: int, _total: int, _figures: Mapping[str, float]) -> None:
    """Report nothing."""


class Objective(Protocol):
    """What a run learns, and from what."""

    @property
    def module(self) -> nn.Module:
        """All that is trained."""
        ...

    @property
    def total(self) -> int:
        """Steps of the whole run."""
        ...

    @property
    def names_a_step(self) -> int:
        """Names that a step encodes, for the speed that is told."""
        ...

    @property
    def evaluate_every(self) -> int:
        """Steps between measurements."""
        ...

    @property
    def described(self) -> Mapping[str, Any]:
        """What two runs must share for one to go on with the checkpoints of the other."""
        ...

    def groups(self) -> list[dict[str, Any]]:
        """The parameters as an optimizer takes them, each group with its `RATE`."""
        ...

    def trained_by(self, optimizer: torch.optim.Optimizer) -> None:
        """Be told, before the first step, what will step after each: what has no gradient then is left."""
        ...

    def steps(self, done: int) -> Iterator[Callable[[Scale], StepReport]]:
        """Yield what computes each step from step `done` on: it adds the gradient to the parameters."""
        ...

    def measure(self, done: int) -> Mapping[str, float]:
        """Return figures after `done` steps."""
        ...

    def finish(self) -> Mapping[str, float]:
        """Do what is to be done after the last step; return what that measured. Every process calls it."""
        ...

    def state(self) -> dict[str, Any]:
        """All that the next step depends on, but for the parameters."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` returned."""
        ...

    def write(self, draft: Draft, metrics: Sequence[Mapping[str, Any]]) -> None:
        """Write the model and its card, which tells all that was measured, and seal it."""
        ...


def run_training(
    start: Callable[[], Objective],
    target: Path,
    settings: LoopSettings,
    *,
    device: torch.device,
    resume: bool,
    overwrite: bool,
    on_step: OnStep,
) -> None:
    """Train what `start` gives and write the model, with all that was measured, to `target`.

    With `resume`, go on from the newest whole checkpoint of the run that was to write `target`.
    """
    folder = run_folder(target)
    with joined(device), _Interruption() as interruption:
        first = world()[0] == 0
        if first:
            _refuse_occupied(target, folder, resume=resume, overwrite=overwrite)
        objective = start()
        if first and folder.exists() and not resume:
            # Not before all that the new run needs has been found in order.
            shutil.rmtree(folder)
        wait_for_all()
        run = _Run.of(objective, settings, device)
        with Checkpoints(folder, keep=settings.keep, beside=device.type == "cuda") as checkpoints:
            done = run.restore(checkpoints.newest(objective.described))
            with Metrics(folder / METRICS, after=done) if first else nullcontext() as metrics:
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
    """The moving parts of a run."""

    objective: Objective
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    settings: LoopSettings
    device: torch.device

    @classmethod
    def of(cls, objective: Objective, settings: LoopSettings, device: torch.device) -> Self:
        """Set everything up for the first step."""
        optimizer = torch.optim.AdamW(
            objective.groups(),
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            fused=device.type in ("cuda", "cpu"),
        )
        objective.trained_by(optimizer)
        scaler = torch.amp.GradScaler(device.type, enabled=settings.precision == "fp16")
        return cls(objective, optimizer, scaler, settings, device)

    def loop(
        self,
        done: int,
        checkpoints: Checkpoints,
        metrics: Metrics | None,
        interruption: _Interruption,
        on_step: OnStep,
    ) -> None:
        """Train from step `done` to the last; only the first process has metrics, and tells and saves."""
        objective = self.objective
        tell = _teller(metrics, on_step, objective.total)
        if done == 0:
            tell([(0, objective.measure(0))])
        unread = Unread(self.device, objective.names_a_step)
        # Not in each step, as it takes a tenth of a GPU's; encoders that encode return to it by themselves.
        objective.module.train()
        for take in objective.steps(done):
            unread.add(done + 1, self._learning_rate(done), self._take(take, done))
            done += 1
            last = done == objective.total
            measure = last or done % objective.evaluate_every == 0
            save = last or done % self.settings.checkpoint_every == 0
            rows = unread.read(to_the_last=measure or save)
            if measure:
                rows[-1][1].update(objective.measure(done))
                objective.module.train()
            tell(rows)
            stop = any_process(interruption.asked)
            if save or stop:
                tell(unread.read(to_the_last=True))
                if metrics is not None:
                    checkpoints.save(done, self.state(), objective.described)
            if stop and not last:
                raise KeyboardInterrupt
            if measure or save:
                unread.restart_clock()

    def _take(self, take: Callable[[Scale], StepReport], done: int) -> StepReport:
        """Take one step; returns what it found."""
        # Dropout depends on the step and the process alone, so a resumed run needs no random state.
        rank, _ = world()
        seed = int(np.random.SeedSequence([self.settings.seed, done, rank]).generate_state(1)[0])
        seed_generators(seed, self.device)
        for group in self.optimizer.param_groups:
            group["lr"] = self._learning_rate(done) * group[RATE]
        module = self.objective.module
        self.optimizer.zero_grad(set_to_none=True)
        report = take(self.scaler.scale)
        sum_gradients(module.parameters())
        if self.settings.clip is not None:
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(module.parameters(), self.settings.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return report

    def _learning_rate(self, done: int) -> float:
        """Rise over the warm-up, then stay or fall to nothing."""
        total = self.objective.total
        rising = self.settings.warmup * total
        if done < rising:
            return self.settings.learning_rate * (done + 1) / rising
        if self.settings.schedule == "constant":
            return self.settings.learning_rate
        return self.settings.learning_rate * (total - done) / (total - rising)

    def state(self) -> dict[str, Any]:
        """All that the next step depends on and the base does not have."""
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
        """Take up the state of a checkpoint; returns the steps done."""
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
    """Turns Ctrl-C into a request to stop after this step; a second one stops at once."""

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, *error: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


def _teller(metrics: Metrics | None, on_step: OnStep, total: int) -> Callable[[Sequence[_Row]], None]:
    """Make what writes and tells the figures of steps; nothing where there are no metrics."""

    def tell(rows: Sequence[_Row]) -> None:
        if metrics is not None:
            for step, figures in rows:
                metrics.add(step, figures)
                on_step(step, total, figures)

    return tell


def _refuse_occupied(target: Path, folder: Path, *, resume: bool, overwrite: bool) -> None:
    refuse_occupied(target, overwrite=overwrite)
    refuse_interrupted(folder, resume=resume, overwrite=overwrite)
