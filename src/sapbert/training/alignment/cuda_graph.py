"""One training step as a graph that a GPU replays: the gradient of `step`, without waits or launches.

A step of BERT-base is some thousand kernels of a few microseconds, and the CPU takes longer to launch most
of them than the GPU to run them. So all of it, from copying weights to bfloat16 to the gradient of every
parameter, is captured once for each number of rows that names may take, and then replayed. Numbers of rows
are rounded up to a multiple of a few; a batch that needs another number than any before gets a graph of its
own, so no name is ever dropped. A replay draws from the generator's seed of the moment, so dropout depends on
the step alone, as it does elsewhere. The optimizer's step is taken in the graph too (`update`), unless
gradients are clipped, which needs all of them first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from sapbert.gpu.bert import Gradients, RowEncoder
from sapbert.gpu.rows import Rows
from sapbert.gpu.verify import proven
from sapbert.tokens.pooling import Pooling
from sapbert.training.alignment.batches import Batch
from sapbert.training.alignment.packed_batch import Sheet
from sapbert.training.alignment.step import Scale, Step, StepReport, random_state, replayed

if TYPE_CHECKING:
    from sapbert.gpu.fused_adamw import Tables, Update

_ROWS_APART = 2
"""Numbers of rows are multiples of this: few graphs, and half a row of padding on average."""
_WARMING = 2
"""Times a step is computed before it is captured, so that libraries have made what they keep."""

Found = TypeVar("Found")
_Found = tuple[Gradients, StepReport]
_Run = Callable[[], _Found]
_OnGradients = Callable[[int], None]
_Compute = Callable[..., tuple[Sequence[Tensor], StepReport]]


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

    @property
    def updates(self) -> bool:
        """Whether the optimizer's steps are taken here."""
        return self._update is not None

    def trained_by(self, optimizer: torch.optim.Optimizer) -> None:
        """Take the optimizer's steps too, if it is AdamW over all parameters alike and its kernel serves."""
        self._update = proven("optimizers", partial(_update, optimizer, self._encode), None)

    def prepare(self, batch: Batch) -> Callable[[Scale], StepReport]:
        """Lay the batch into rows; returns what sets the gradient of every parameter."""
        rows = Rows.of(
            batch.tokens,
            self._pooling,
            pad_id=self._pad_id,
            width=self._encode.width,
            multiple=self._rows_apart,
        )
        return partial(self._take, Sheet.of(rows, batch, self._plain.device))

    def _take(self, sheet: Sheet, _scale: Scale) -> StepReport:
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

    def _make(self, sheet: Sheet) -> _Prepared:
        device = self._plain.device
        packed = sheet.packed.to(device, non_blocking=True, copy=True)
        rows, labels, share = sheet.parts(packed)

        def compute(on_gradients: _OnGradients | None = None) -> tuple[Sequence[Tensor], StepReport]:
            vectors = functional.normalize(self._encode(rows, on_gradients), dim=-1)
            objective, report = self._objective(vectors, labels, share)
            return torch.autograd.grad(objective, self._encode.leaves), report

        if self._update is None:
            return _Prepared(packed, self._with_gradients(compute))
        return _Prepared(packed, self._with_update(compute, self._update, rows.ids))

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

    def _with_update(self, compute: _Compute, update: Update, ids: Tensor) -> _Run:
        """Leave the parameters changed, and no gradients."""
        self._encode.refresh()
        tables = update.tables()
        if self._plain.device.type != "cuda":
            return lambda: ({}, self._updated_after(compute, update, tables, ids))

        def whole() -> tuple[Sequence[Tensor], StepReport]:
            # Beside what is computed of other layers: that waits for products, an update for memory.
            main, aside = self._main, self._aside

            def beside(take: Callable[..., None], what: Tensor | int) -> None:
                aside.wait_stream(main)
                with torch.cuda.stream(aside):
                    take(tables, what)

            beside(update.take_absent, ids)
            absent = aside.record_event()
            found, report = compute(partial(beside, update.take_layer))
            # Which words were present is written there.
            main.wait_event(absent)
            update.take_rest(tables)
            main.wait_stream(aside)
            return found, report

        graph, (found, report) = self._captured(compute, whole)
        # Gradients lie where they lay when the graph was captured.
        update.fill(tables, found)
        return partial(_replay, graph, whole, ({}, report))

    def _updated_after(self, compute: _Compute, update: Update, tables: Tables, ids: Tensor) -> StepReport:
        """Update once all gradients are found, which without a graph lie somewhere else each time."""
        found, report = compute()
        update.fill(tables, found)
        update.take_absent(tables, ids)
        for number in range(self._encode.layers):
            update.take_layer(tables, number)
        update.take_rest(tables)
        return report

    @cached_property
    def _main(self) -> torch.cuda.Stream:
        """Goes first where two could go on."""
        return torch.cuda.Stream(self._plain.device, priority=-1)

    @cached_property
    def _aside(self) -> torch.cuda.Stream:
        return torch.cuda.Stream(self._plain.device)

    @cached_property
    def _buffers(self) -> Gradients:
        return self._encode.buffers()

    def _captured(
        self, warm: Callable[[], object], whole: Callable[[], Found]
    ) -> tuple[torch.cuda.CUDAGraph, Found]:
        """Make a graph of what is computed; graphs share their memory, as one runs at a time."""
        device, graph, main = self._plain.device, torch.cuda.CUDAGraph(), self._main
        with replayed(random_state(device), device):
            main.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(main):
                for _ in range(_WARMING):
                    warm()
            torch.cuda.current_stream(device).wait_stream(main)
            # Of this thread alone: another pins memory for the next batches meanwhile.
            with torch.cuda.graph(graph, self._pool, main, capture_error_mode="thread_local"):
                found = whole()
        self._pool = graph.pool()
        return graph, found


def _replay(graph: torch.cuda.CUDAGraph, _whole: Callable[[], object], found: _Found) -> _Found:
    """Compute again what `_whole` did: kept, since it holds what a graph reads and does not keep itself."""
    graph.replay()
    return found


def _update(optimizer: torch.optim.Optimizer, encode: RowEncoder) -> Update | None:
    from sapbert.gpu.fused_adamw import Update

    return Update(optimizer, encode)
