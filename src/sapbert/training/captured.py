"""One training step as a graph that a GPU replays: the gradient of `step`, without waits or launches.

A step of BERT-base is some thousand kernels of a few microseconds, and the CPU takes longer to launch most
of them than the GPU to run them. So all of it, from copying weights to bfloat16 to the gradient of every
parameter, is captured once for each number of rows that names may take, and then replayed. Numbers of rows
are rounded up to a multiple of a few; a batch that needs another number than any before gets a graph of its
own, so no name is ever dropped. A replay draws from the generator's seed of the moment, so dropout depends on
the step alone, as it does elsewhere. The optimizer's step is taken in the graph too (`update`), unless
gradients are clipped, which needs all of them first.

Graphs are taken where they serve: bfloat16 on one GPU, a plain BERT trained whole, a loss that need not list
its pairs. All else goes the plain way, and so does a run whose first step cannot be captured, which says so.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sapbert.encoder.bert import Gradients, RowEncoder, RowTensors, can_lay
from sapbert.encoder.layers import layer_for
from sapbert.encoder.pooling import Pooling
from sapbert.encoder.rows import WIDTH, Rows
from sapbert.encoder.transfer import sendable
from sapbert.encoder.transformer import TransformerEncoder
from sapbert.training.batches import Batch
from sapbert.training.gather import world
from sapbert.training.losses import waits
from sapbert.training.settings import TrainSettings
from sapbert.training.step import Scale, Step, StepReport, random_state, replayed

if TYPE_CHECKING:
    from sapbert.training.update import Update

_ROWS_APART = 4
"""Numbers of rows are multiples of this: few graphs, and a hundred tokens of padding on average."""
_WORTH_COMPILING = 5_000
"""Steps from which compiling, half a minute, is won back."""
_WARMING = 2
"""Times a step is computed before it is captured, so that libraries have made what they keep."""
_TOGETHER = 32
"""Parts of what is sent begin at a multiple of so many numbers: what a GPU reads at once."""
log = logging.getLogger(__name__)

Found = TypeVar("Found")
_Found = tuple[Gradients, StepReport]
_Run = Callable[[], _Found]
_Compute = Callable[[], tuple[Sequence[Tensor], StepReport]]
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
    if not _can_capture(plain, encoder, settings):
        return plain
    updating = settings.clip is None
    tries = [(True, updating), (False, updating), (False, False)]
    captured: list[_Way] = [
        partial(_captured, plain, encoder, compiled=compiled, updating=updating)
        for compiled, updating in tries[steps < _WORTH_COMPILING :]
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
    heads = encoder.model.config.num_attention_heads
    encode = RowEncoder(
        encoder.model,
        encoder.pooling,
        width=WIDTH,
        dtype=torch.bfloat16,
        layer=layer_for(plain.device, head=encoder.dimension // heads),
        compiled=compiled,
    )
    taken = CapturedStep(
        encode, plain, pooling=encoder.pooling, pad_id=encoder.tokenizer.pad_token_id, compiled=compiled
    )
    if updating and optimizer is not None:
        taken.trained_by(optimizer)
    return taken


def _can_capture(plain: Step, encoder: TransformerEncoder, settings: TrainSettings) -> bool:
    return (
        plain.device.type == "cuda"
        and settings.precision == "bf16"
        and plain.chunk is None
        and not waits(plain.loss)
        and world()[1] == 1
        and encoder.max_length <= WIDTH
        and can_lay(encoder.model, encoder.pooling)
        and all(parameter.requires_grad for parameter in encoder.model.parameters())
    )


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


@dataclass(frozen=True, slots=True)
class _Sheet:
    """A batch in one array that can be sent at once, and what tells its parts."""

    packed: Tensor
    """Rows, labels and which names share a concept."""
    tokens: int
    names: int

    @classmethod
    def of(cls, rows: Rows, batch: Batch, device: torch.device) -> _Sheet:
        """Write a batch down; names are both sides of pairs, so four of the last part fill a number."""
        parts = rows.packed, batch.labels, batch.share.reshape(-1).view(np.int32)
        spare = np.zeros(_TOGETHER, np.int32)
        packed = np.concatenate([piece for part in parts for piece in (part, spare[: _spare(len(part))])])
        return cls(sendable(packed, device), rows.tokens, len(batch.labels))

    def parts(self, packed: Tensor) -> tuple[RowTensors, Tensor, Tensor]:
        """See the parts of a sheet: rows, labels and share."""
        sizes = 4 * self.tokens + self.names, self.names, self.names**2 // 4
        padded = packed.split([size + _spare(size) for size in sizes])
        laid, labels, share = (part[:size] for part, size in zip(padded, sizes, strict=True))
        return (
            RowTensors.within(laid, self.tokens),
            labels,
            share.view(torch.uint8).view(torch.bool).view(self.names, self.names),
        )


def _spare(size: int) -> int:
    """Numbers after a part of a sheet, so that the next begins where a kernel can read several at once."""
    return -size % _TOGETHER


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What computes batches of one shape, and where it reads them."""

    packed: Tensor
    run: _Run


class CapturedStep:
    """Computes the gradient of one batch; on a CPU, where nothing can be captured, by the same code."""

    def __init__(
        self,
        encode: RowEncoder,
        plain: Step,
        *,
        pooling: Pooling,
        pad_id: int,
        compiled: bool,
        rows_apart: int = _ROWS_APART,
    ) -> None:
        """Compute the objective of `plain`, compiled if so asked."""
        self._objective = torch.compile(plain.objective, fullgraph=True) if compiled else plain.objective
        self._encode, self._plain = encode, plain
        self._pooling, self._pad_id, self._rows_apart = pooling, pad_id, rows_apart
        self.prepared: dict[tuple[int, int], _Prepared] = {}
        """By number of rows and of names."""
        self._pool: Any = None
        self._update: Update | None = None

    def trained_by(self, optimizer: torch.optim.Optimizer) -> None:
        """Take the optimizer's steps from now on; it must be AdamW over all parameters alike."""
        from sapbert.training.update import Update

        assert isinstance(optimizer, torch.optim.AdamW)
        self._update = Update(optimizer, self._encode)

    def prepare(self, batch: Batch) -> Callable[[Scale], StepReport]:
        """Lay the batch into rows; returns what sets the gradient of every parameter."""
        rows = Rows.of(
            batch.tokens,
            self._pooling,
            pad_id=self._pad_id,
            width=self._encode.width,
            multiple=self._rows_apart,
        )
        return partial(self._take, _Sheet.of(rows, batch, self._plain.device))

    def _take(self, sheet: _Sheet, _scale: Scale) -> StepReport:
        """Set the gradients; bfloat16 needs no scale."""
        shape = sheet.tokens // self._encode.width, sheet.names
        prepared = self.prepared.get(shape)
        if prepared is None:
            prepared = self.prepared[shape] = self._make(sheet)
        else:
            prepared.packed.copy_(sheet.packed, non_blocking=True)
        if self._update is not None:
            self._update.begin()
        gradients, report = prepared.run()
        for parameter, gradient in gradients.items():
            parameter.grad = gradient
        return report

    def _make(self, sheet: _Sheet) -> _Prepared:
        device = self._plain.device
        packed = sheet.packed.to(device, non_blocking=True, copy=True)
        rows, labels, share = sheet.parts(packed)

        def compute() -> tuple[Sequence[Tensor], StepReport]:
            vectors = functional.normalize(self._encode(rows), dim=-1)
            objective, report = self._objective(vectors, labels, share)
            return torch.autograd.grad(objective, self._encode.leaves), report

        if self._update is None:
            return _Prepared(packed, self._with_gradients(compute))
        return _Prepared(packed, self._with_update(compute, self._update))

    def _with_gradients(self, compute: _Compute) -> _Run:
        """Leave the gradient of each parameter."""

        def whole() -> _Found:
            self._encode.refresh()
            found, report = compute()
            return self._encode.gradients(found, self._buffers), report

        if self._plain.device.type != "cuda":
            return whole
        graph, found = self._captured(whole, whole)
        return partial(_replay, graph, whole, found)

    def _with_update(self, compute: _Compute, update: Update) -> _Run:
        """Leave the parameters changed, and no gradients."""
        self._encode.refresh()
        tables = update.tables()

        def whole() -> tuple[Sequence[Tensor], StepReport]:
            found, report = compute()
            if self._plain.device.type != "cuda":
                update.fill(tables, found)
            update.take(tables)
            return found, report

        if self._plain.device.type != "cuda":
            return lambda: ({}, whole()[1])
        graph, (found, report) = self._captured(compute, whole)
        # Gradients lie where they lay when the graph was captured.
        update.fill(tables, found)
        return partial(_replay, graph, whole, ({}, report))

    @cached_property
    def _buffers(self) -> Gradients:
        return self._encode.buffers()

    def _captured(
        self, warm: Callable[[], object], whole: Callable[[], Found]
    ) -> tuple[torch.cuda.CUDAGraph, Found]:
        """Make a graph of what is computed; graphs share their memory, as one runs at a time."""
        device = self._plain.device
        graph, aside = torch.cuda.CUDAGraph(), torch.cuda.Stream(device)
        with replayed(random_state(device), device):
            aside.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(aside):
                for _ in range(_WARMING):
                    warm()
            torch.cuda.current_stream(device).wait_stream(aside)
            # Of this thread alone: another pins memory for the next batches meanwhile.
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                found = whole()
        self._pool = graph.pool()
        return graph, found


def _replay(graph: torch.cuda.CUDAGraph, _whole: Callable[[], object], found: _Found) -> _Found:
    """Compute again what `_whole` did: kept, since it holds what a graph reads and does not keep itself."""
    graph.replay()
    return found
