"""Read the figures of steps a few steps late, so that a GPU always has work queued.

Reading a figure waits until the device has computed it. A loop that reads each loss before it launches
the next step leaves a fast GPU idle meanwhile. So the newest reports stay unread until a few later steps are
queued: a few, as the loop may also wait for the thread that prepares names. Figures are copied to the CPU as
soon as they are computed; a copy requested later would queue behind the next step. On a CPU nothing is
delayed.
"""

from __future__ import annotations

import math
from time import perf_counter

import torch

from sapbert.errors import TrainingError
from sapbert.training.objective import StepReport

_DELAY = 3
"""Steps queued on a GPU before the figures of a step are read."""


class DelayedMetrics:
    """The reports of the newest steps."""

    def __init__(self, device: torch.device, names_per_step: int) -> None:
        self._delay = 0 if device.type == "cpu" else _DELAY
        self._names_per_step = names_per_step
        self._pending: list[tuple[int, float, _PendingCopy]] = []
        self._since = perf_counter()

    def add(self, step: int, learning_rate: float, report: StepReport) -> None:
        """Keep the report of step number `step`."""
        self._pending.append((step, learning_rate, _PendingCopy(report)))

    def read(self, *, wait: bool) -> list[tuple[int, dict[str, float]]]:
        """Return the figures of steps not read yet; with `wait` including the newest steps.

        A loss that is not finite raises `TrainingError`, so read with `wait` before writing a checkpoint.
        """
        keep = 0 if wait else self._delay
        cut = max(len(self._pending) - keep, 0)
        ready, self._pending = self._pending[:cut], self._pending[cut:]
        rows = [(step, _figures(step, rate, copy.wait())) for step, rate, copy in ready]
        if rows:
            now = perf_counter()
            speed = self._names_per_step * len(rows) / (now - self._since)
            self._since = now
            for _, figures in rows:
                figures["names_per_second"] = speed
        return rows

    def restart_clock(self) -> None:
        """Exclude the time since the last step from the reported speed."""
        self._since = perf_counter()


class _PendingCopy:
    """A report being copied to the CPU."""

    def __init__(self, report: StepReport) -> None:
        figures = torch.stack(
            [figure.double() for figure in (report.loss, report.positives, report.negatives)]
        )
        self._figures = figures.to("cpu", non_blocking=True)
        self._copied = torch.cuda.Event() if figures.is_cuda else None
        if self._copied is not None:
            self._copied.record()

    def wait(self) -> list[float]:
        """Return loss, positives and negatives."""
        if self._copied is not None:
            self._copied.synchronize()
        figures: list[float] = self._figures.tolist()
        return figures


def _figures(step: int, learning_rate: float, report: list[float]) -> dict[str, float]:
    loss, positives, negatives = report
    if not math.isfinite(loss):
        raise TrainingError(
            f"the loss is {loss} at step {step}; checkpoints from earlier steps are kept. "
            "Try a lower learning rate, or bf16 instead of fp16"
        )
    return {
        "loss": loss,
        "positives": int(positives),
        "negatives": int(negatives),
        "learning_rate": learning_rate,
    }
