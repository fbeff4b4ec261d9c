"""Reads what steps found some steps late, so that a GPU always has the next ones at hand.

To read a figure is to wait until the device has computed it. A loop that reads each step's loss before it
sends off the next leaves a fast GPU idle meanwhile; so the newest reports stay unread until some steps after
them are under way: some, as the loop may have to wait for the thread that prepares names. Figures set off for
the CPU as soon as they are there, for a copy asked for later would queue behind the next step. On a CPU
nothing runs ahead, and nothing is kept.
"""

from __future__ import annotations

import math
from time import perf_counter

import torch

from sapbert.errors import TrainingError
from sapbert.training.alignment.step import StepReport

_BEHIND = 3
"""Steps that a GPU is given before their figures are read."""


class Unread:
    """The reports of the newest steps."""

    def __init__(self, device: torch.device, names_a_step: int) -> None:
        self._behind = 0 if device.type == "cpu" else _BEHIND
        self._names = names_a_step
        self._waiting: list[tuple[int, float, _Arriving]] = []
        self._since = perf_counter()

    def add(self, step: int, learning_rate: float, report: StepReport) -> None:
        """Keep what step number `step` found."""
        self._waiting.append((step, learning_rate, _Arriving(report)))

    def read(self, *, to_the_last: bool) -> list[tuple[int, dict[str, float]]]:
        """Return the figures of steps not read yet; only `to_the_last` waits for the newest step.

        A loss that is no number stops the run. So read to the last before a checkpoint is written.
        """
        keep = 0 if to_the_last else self._behind
        cut = max(len(self._waiting) - keep, 0)
        reading, self._waiting = self._waiting[:cut], self._waiting[cut:]
        rows = [(step, _figures(step, rate, arriving.wait())) for step, rate, arriving in reading]
        if rows:
            now = perf_counter()
            speed = self._names * len(rows) / (now - self._since)
            self._since = now
            for _, figures in rows:
                figures["names_per_second"] = speed
        return rows

    def restart_clock(self) -> None:
        """Leave what was done between steps out of their speed."""
        self._since = perf_counter()


class _Arriving:
    """A report on its way to the CPU."""

    def __init__(self, report: StepReport) -> None:
        figures = torch.stack(
            [figure.double() for figure in (report.loss, report.positives, report.negatives)]
        )
        self._figures = figures.to("cpu", non_blocking=True)
        self._sent = torch.cuda.Event() if figures.is_cuda else None
        if self._sent is not None:
            self._sent.record()

    def wait(self) -> list[float]:
        """Return loss, positives and negatives."""
        if self._sent is not None:
            self._sent.synchronize()
        found: list[float] = self._figures.tolist()
        return found


def _figures(step: int, learning_rate: float, report: list[float]) -> dict[str, float]:
    loss, positives, negatives = report
    if not math.isfinite(loss):
        raise TrainingError(
            f"the loss is {loss} at step {step}; the checkpoints before it are kept: "
            "try a lower learning rate, or bf16 instead of fp16"
        )
    return {
        "loss": loss,
        "positives": int(positives),
        "negatives": int(negatives),
        "learning_rate": learning_rate,
    }
