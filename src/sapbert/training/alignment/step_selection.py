"""Which way the steps of a run are computed: as graphs that a GPU replays where these serve, else plainly.

Graphs serve for bfloat16 on one GPU, a plain BERT trained whole, and a loss that need not list its pairs. A
run whose first step cannot be captured goes on without what failed, and says so.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import torch

from sapbert.encoder.transformer import TransformerEncoder
from sapbert.gpu.bert import RowEncoder
from sapbert.training.alignment.batches import Batch
from sapbert.training.alignment.cuda_graph import CapturedStep
from sapbert.training.alignment.losses import waits
from sapbert.training.alignment.step import Scale, Step, StepReport
from sapbert.training.distributed import world
from sapbert.training.settings import TrainSettings

_WORTH_COMPILING = 5_000
"""Steps from which compiling, half a minute, is won back."""
log = logging.getLogger(__name__)

_Way = Callable[[torch.optim.Optimizer | None], "TakeStep"]


class TakeStep(Protocol):
    """A way to compute steps."""

    def trained_by(self, optimizer: torch.optim.Optimizer) -> None:
        """Be told what will step after each step."""
        ...

    def prepare(self, batch: Batch) -> Callable[[Scale], StepReport]:
        """Return what adds the gradient of the batch to the parameters; called ahead of time, in a thread."""
        ...


def fastest(plain: Step, encoder: TransformerEncoder, settings: TrainSettings, *, steps: int) -> TakeStep:
    """Return what computes the steps of a run: `plain`, or the same as graphs where that can be."""
    if not _can_capture(plain):
        return plain
    updating = settings.clip is None
    tries = [(True, updating), (False, updating), (False, False)]
    captured: list[_Way] = [
        partial(_captured, plain, encoder, compiled=compiled, updating=updating)
        for compiled, updating in dict.fromkeys(tries[steps < _WORTH_COMPILING :])
    ]
    return _FirstThatWorks([*captured, lambda _optimizer: plain])


def _captured(
    plain: Step,
    encoder: TransformerEncoder,
    optimizer: torch.optim.Optimizer | None,
    *,
    compiled: bool,
    updating: bool,
) -> TakeStep:
    encode = RowEncoder.fastest(encoder.model, encoder.pooling, dtype=torch.bfloat16)
    taken = CapturedStep(
        encode, plain, pooling=encoder.pooling, pad_id=encoder.tokenizer.pad_token_id, compiled=compiled
    )
    if updating and optimizer is not None:
        taken.trained_by(optimizer)
    return taken


def _can_capture(plain: Step) -> bool:
    return plain.encode.lays and plain.chunk is None and not waits(plain.loss) and world()[1] == 1


class _FirstThatWorks:
    """Ways to compute steps, best first; a way is left for good where its first step fails."""

    def __init__(self, ways: Sequence[_Way]) -> None:
        self._ways = deque(ways)
        self._step: TakeStep | None = None
        self._optimizer: torch.optim.Optimizer | None = None

    def trained_by(self, optimizer: torch.optim.Optimizer) -> None:
        """Let the way that is taken know."""
        self._optimizer = optimizer

    def prepare(self, batch: Batch) -> Callable[[Scale], StepReport]:
        """Return what takes the step, prepared once the way is known."""
        return partial(self._first, batch) if self._step is None else self._step.prepare(batch)

    def _first(self, batch: Batch, scale: Scale) -> StepReport:
        while self._step is None:
            way = self._ways.popleft()
            try:
                step = way(self._optimizer)
                report = step.prepare(batch)(scale)
            except Exception as error:
                if not self._ways:
                    raise
                # Compilers and drivers fail in whatever way they like, and a plain step needs neither.
                told = str(error).partition("\n")[0]
                log.warning("steps cannot be captured or compiled here (%s); trying without", told)
            else:
                self._step = step
                return report
        return self._step.prepare(batch)(scale)
