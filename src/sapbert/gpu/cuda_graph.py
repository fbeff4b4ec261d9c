"""Training steps as CUDA graphs: loss, gradients and optimizer update in one replay.

A step of BERT-base is about a thousand kernels of a few microseconds each, and the CPU takes longer to launch
most of them than the GPU to run them. So the whole step, from copying weights to bfloat16 to the gradient of
every parameter, is captured once per number of rows and then replayed. The number of rows is rounded up to a
multiple of a small number; a batch with a new number of rows gets a new graph, so no name is ever dropped. A
replay draws from the current seed of the generator, so dropout depends on the step alone, as in a plain step.
The optimizer update is part of the graph too (`fused_adamw`), unless gradients are clipped, which needs all
of them first.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from sapbert.gpu.bert import Gradients, RowEncoder
from sapbert.gpu.packed_batch import PackedBatch
from sapbert.gpu.random_state import random_state, replayed_random_state
from sapbert.gpu.rows import Rows
from sapbert.gpu.verify import verified_or_fallback
from sapbert.tokens.batching import TokenRows
from sapbert.tokens.pooling import Pooling

if TYPE_CHECKING:
    from sapbert.gpu.fused_adamw import FusedAdamW, Tables

_ROWS_MULTIPLE = 2
"""Numbers of rows are rounded up to a multiple of this: few graphs, and half a row of padding on average."""
_WARM_UP_RUNS = 2
"""Runs before the capture, in which libraries allocate their workspaces."""

Result = TypeVar("Result")
Report = TypeVar("Report")
LossAndReport = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Report]]
"""Takes unit vectors, labels and shared-concept mask; returns the loss to minimize and a report."""
_OnLayerGradients = Callable[[int], None]
_Compute = Callable[..., tuple[Sequence[Tensor], Report]]
_Run = Callable[[], tuple[Gradients, Report]]


@dataclass(frozen=True, slots=True)
class _Graph(Generic[Report]):
    """Computes batches of one shape, which it reads from `packed`."""

    packed: Tensor
    run: _Run[Report]


class CudaGraphStep(Generic[Report]):
    """Computes loss and gradient of a batch. On a CPU the same code runs without a graph, for tests."""

    def __init__(
        self,
        encode: RowEncoder,
        loss_and_report: LossAndReport[Report],
        *,
        pooling: Pooling,
        pad_id: int,
        compiled: bool,
        optimizer: torch.optim.Optimizer | None = None,
        rows_multiple: int = _ROWS_MULTIPLE,
    ) -> None:
        """Compute `loss_and_report`, passed through `torch.compile` if `compiled`.

        If `optimizer` is given, is AdamW with equal settings for all parameters, and its Triton kernel works
        on this device, its updates are part of the graphs. Its state must not be replaced afterwards, so
        restore a checkpoint first.
        """
        self._encode, self._device = encode, encode.model.device
        self._loss_and_report = (
            torch.compile(loss_and_report, fullgraph=True) if compiled else loss_and_report
        )
        self._pooling, self._pad_id, self._rows_multiple = pooling, pad_id, rows_multiple
        self._fused = None if optimizer is None else _fused_adamw(optimizer, encode)
        self.graphs: dict[tuple[int, int], _Graph[Report]] = {}
        """By number of rows and of names."""
        self._pool: Any = None

    @property
    def updates_parameters(self) -> bool:
        """Whether `backward` also updates the parameters."""
        return self._fused is not None

    def pack(
        self, tokens: TokenRows, labels: NDArray[np.int32], shared_concept: NDArray[np.bool_]
    ) -> PackedBatch:
        """Arrange a batch for `capture` and `backward`; may be called ahead of time, in a thread."""
        rows = Rows.of(
            tokens,
            self._pooling,
            pad_id=self._pad_id,
            width=self._encode.width,
            multiple=self._rows_multiple,
        )
        return PackedBatch.of(rows, labels, shared_concept, self._device)

    def capture(self, batch: PackedBatch) -> None:
        """Capture the graph for batches of this shape; changes neither parameters nor random state."""
        self.graphs[self._shape(batch)] = self._make_graph(batch)

    def backward(self, batch: PackedBatch) -> Report:
        """Compute the gradient of every parameter; updates the parameters instead if `updates_parameters`."""
        graph = self.graphs.get(self._shape(batch))
        if graph is None:
            graph = self.graphs[self._shape(batch)] = self._make_graph(batch)
        else:
            graph.packed.copy_(batch.packed, non_blocking=True)
        if self._fused is not None:
            self._fused.begin()
        gradients, report = graph.run()
        for parameter, gradient in gradients.items():
            parameter.grad = gradient
        return report

    def update(self, optimizer: torch.optim.Optimizer) -> None:
        """Apply the gradients, unless the graph that `backward` replayed contained the optimizer update."""
        if not self.updates_parameters:
            optimizer.step()

    def _shape(self, batch: PackedBatch) -> tuple[int, int]:
        return batch.tokens // self._encode.width, batch.names

    def _make_graph(self, batch: PackedBatch) -> _Graph[Report]:
        packed = batch.packed.to(self._device, non_blocking=True, copy=True)
        rows, labels, shared_concept = batch.parts(packed)

        def compute(on_gradients: _OnLayerGradients | None = None) -> tuple[Sequence[Tensor], Report]:
            vectors = functional.normalize(self._encode(rows, on_gradients), dim=-1)
            loss, report = self._loss_and_report(vectors, labels, shared_concept)
            return torch.autograd.grad(loss, self._encode.leaves), report

        if self._fused is None:
            return _Graph(packed, self._with_gradients(compute))
        return _Graph(packed, self._with_update(compute, self._fused, rows.ids))

    def _with_gradients(self, compute: _Compute[Report]) -> _Run[Report]:
        """Return a run that computes the gradient of each parameter."""

        def run() -> tuple[Gradients, Report]:
            self._encode.refresh()
            leaf_gradients, report = compute()
            return self._encode.gradients(leaf_gradients, self._buffers), report

        if self._device.type != "cuda":
            return run
        graph, result = self._captured(run, run)
        return partial(_replay, graph, run, result)

    def _with_update(self, compute: _Compute[Report], fused: FusedAdamW, ids: Tensor) -> _Run[Report]:
        """Return a run that updates the parameters and leaves no gradients."""
        self._encode.refresh()
        tables = fused.tables()
        if self._device.type != "cuda":
            return lambda: ({}, self._update_without_graph(compute, fused, tables, ids))

        def run() -> tuple[Sequence[Tensor], Report]:
            # Updates run on a second stream, in parallel with the gradients of other layers: the former are
            # limited by memory, the latter by matrix products.
            main, side = self._main_stream, self._side_stream

            def on_side_stream(take: Callable[..., None], argument: Tensor | int) -> None:
                side.wait_stream(main)
                with torch.cuda.stream(side):
                    take(tables, argument)

            on_side_stream(fused.update_absent_words, ids)
            absent_words_updated = side.record_event()
            leaf_gradients, report = compute(partial(on_side_stream, fused.update_layer))
            # `update_rest` reads which words are present, which `update_absent_words` writes.
            main.wait_event(absent_words_updated)
            fused.update_rest(tables)
            main.wait_stream(side)
            return leaf_gradients, report

        graph, (leaf_gradients, report) = self._captured(compute, run)
        # Replays write gradients to the addresses they had during the capture.
        fused.fill(tables, leaf_gradients)
        return partial(_replay, graph, run, ({}, report))

    def _update_without_graph(
        self, compute: _Compute[Report], fused: FusedAdamW, tables: Tables, ids: Tensor
    ) -> Report:
        """Update after all gradients are computed; without a graph their addresses change every time."""
        leaf_gradients, report = compute()
        fused.fill(tables, leaf_gradients)
        fused.update_absent_words(tables, ids)
        for number in range(self._encode.layers):
            fused.update_layer(tables, number)
        fused.update_rest(tables)
        return report

    @cached_property
    def _main_stream(self) -> torch.cuda.Stream:
        """The stream of the forward and backward pass, with priority over the side stream."""
        return torch.cuda.Stream(self._device, priority=-1)

    @cached_property
    def _side_stream(self) -> torch.cuda.Stream:
        return torch.cuda.Stream(self._device)

    @cached_property
    def _buffers(self) -> Gradients:
        return self._encode.buffers()

    def _captured(
        self, warm_up: Callable[[], object], run: Callable[[], Result]
    ) -> tuple[torch.cuda.CUDAGraph, Result]:
        """Capture `run`. All graphs share one memory pool, as only one runs at a time."""
        device, graph, main = self._device, torch.cuda.CUDAGraph(), self._main_stream
        with replayed_random_state(random_state(device), device):
            main.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(main):
                for _ in range(_WARM_UP_RUNS):
                    warm_up()
            torch.cuda.current_stream(device).wait_stream(main)
            # Errors of this thread only: another thread pins memory for the next batches meanwhile.
            with (
                _garbage_collection_paused(),
                torch.cuda.graph(graph, self._pool, main, capture_error_mode="thread_local"),
            ):
                result = run()
        self._pool = graph.pool()
        return graph, result


@contextmanager
def _garbage_collection_paused() -> Iterator[None]:
    """Collect garbage now and not inside the block: freeing an older graph invalidates a capture."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _replay(graph: torch.cuda.CUDAGraph, _captured_run: Callable[[], object], result: Result) -> Result:
    """Replay the graph of `_captured_run`, which is passed to keep the tensors alive that the graph reads."""
    graph.replay()
    return result


def _fused_adamw(optimizer: torch.optim.Optimizer, encode: RowEncoder) -> FusedAdamW | None:
    def prepare() -> FusedAdamW | None:
        from sapbert.gpu.fused_adamw import FusedAdamW

        return FusedAdamW(optimizer, encode)

    return verified_or_fallback("Triton AdamW kernel", prepare, None, fallback_name="torch.optim.AdamW")
