"""The parts of `gpu.py` about a training step: correctness, time, and profile."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from statistics import median
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile
from transformers import PreTrainedModel

from baselines.padded_gpu import PaddedStep, encode_padded, multi_similarity
from gpu_bench import Bench, Figures, Variant
from sapbert.gpu.cuda_graph import CudaGraphStep
from sapbert.gpu.packed_batch import PackedBatch
from sapbert.gpu.random_state import seed_generators
from sapbert.gpu.rows import Rows
from sapbert.tokens.pooling import Pooling
from sapbert.training.alignment.batches import PairBatch
from sapbert.training.delayed_metrics import DelayedMetrics
from sapbert.training.objective import StepReport

Batch = TypeVar("Batch")


def pack(step: CudaGraphStep[StepReport], batch: PairBatch) -> PackedBatch:
    return step.pack(batch.tokens, batch.labels, batch.shared_concept)


def optimizer_of(model: PreTrainedModel) -> torch.optim.AdamW:
    return torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.01, fused=True)


def same(bench: Bench) -> Iterator[Figures]:
    """Loss and gradient without dropout, ours and padded mixed precision, compared with fp32."""
    model = bench.model()
    model.train(mode=False)
    figures: list[Figures] = []
    for batch in bench.batches(bench.few_pairs).after(0, 3):
        # Names that share a concept through an ambiguous text are negatives in the reference.
        figures.append(
            _compared(bench, model, replace(batch, shared_concept=batch.labels[:, None] == batch.labels))
        )
        bench.say(f"{figures[-1]}")
    yield {"batches": figures}
    yield {"batches": figures, "dropout": _dropout(bench)}


def _dropout(bench: Bench) -> Figures:
    """Losses of one batch by seed: replays with the same seed must have the same dropout."""
    ours = _Ours(bench, replace(first_working(bench).variant, updating=False))
    batch = next(bench.batches(bench.few_pairs).after(0, 1))
    losses = []
    for seed in (1, 2, 1, 2, 3):
        seed_generators(seed, bench.device)
        losses.append(ours.step.backward(ours.pack(batch)).loss.item())
    bench.say(f"losses with seeds 1, 2, 1, 2, 3: {losses}")
    return {"seeds": [1, 2, 1, 2, 3], "losses": losses}


def _compared(bench: Bench, model: PreTrainedModel, batch: PairBatch) -> Figures:
    exact, loss = _gradient(model, lambda: _padded(bench, model, batch, half=False))
    row: Figures = {"fp32": {"loss": loss}}
    for name, work in (
        ("ours", lambda: _run_once(Variant(compiled=False).step(bench, model), batch).loss),
        ("padded_bf16", lambda: _padded(bench, model, batch, half=True)),
    ):
        gradient, loss = _gradient(model, work)
        row[name] = {
            "loss": loss,
            "cosine": torch.cosine_similarity(gradient, exact, dim=0).item(),
            "relative_error": ((gradient - exact).norm() / exact.norm()).item(),
        }
    return row


def _run_once(step: CudaGraphStep[StepReport], batch: PairBatch) -> StepReport:
    return step.backward(pack(step, batch))


def _padded(bench: Bench, model: PreTrainedModel, batch: PairBatch, *, half: bool) -> Tensor:
    with torch.autocast(bench.device.type, torch.bfloat16, enabled=half):
        names = encode_padded(model, batch.tokens, np.arange(len(batch.labels)))
    labels = torch.from_numpy(batch.labels).to(bench.device)
    loss = multi_similarity(functional.normalize(names.float(), dim=1), labels)
    loss.backward()
    return loss


def _gradient(model: PreTrainedModel, work: Callable[[], Tensor]) -> tuple[Tensor, float]:
    model.zero_grad(set_to_none=True)
    loss = work().item()
    gradient = torch.cat([p.grad.double().flatten() for p in model.parameters() if p.grad is not None])
    model.zero_grad(set_to_none=True)
    return gradient, loss


def first_working(bench: Bench) -> _Ours:
    """Return the first variant that works on this device, after one step."""
    batch = next(bench.batches(bench.few_pairs).after(0, 1))
    for variant in (
        Variant(),
        Variant(compiled=False),
        Variant(compiled=False, updating=False),
        WITHOUT_KERNELS,
    ):
        try:
            ours = _Ours(bench, variant)
            ours.run([ours.pack(batch)])
        except Exception:  # noqa: BLE001 - compilers fail in many ways, and the next variant may work
            bench.say(f"{variant} does not work:\n{traceback.format_exc()}")
        else:
            bench.say(f"uses {variant}, optimizer step in the graph: {ours.step.updates_parameters}")
            return ours
    raise RuntimeError("no variant works on this device")


def step(bench: Bench) -> Iterator[Figures]:
    """Time of complete steps, from text, both sides alternating; the result is the median over turns."""
    size, batches = bench.size, bench.batches(bench.few_pairs)
    ours, theirs = first_working(bench), PaddedStep(bench.model(), half=bench.device.type == "cuda")
    theirs.model.train()
    turns: dict[str, list[float]] = {"reference": [], "ours": []}
    for turn in range(size.turns + 1):
        start = turn * size.steps
        slow = batches.after(start, start + size.slow_steps + 1)
        turns["reference"].append(_after_first(bench, theirs.run, slow, size.slow_steps))
        fast = batches.prepared(start, start + size.steps + 1, ours.pack)
        turns["ours"].append(_after_first(bench, ours.run, fast, size.steps))
        bench.say(
            f"turn {turn}: " + ", ".join(f"{side} {took[-1] * 1000:.2f} ms" for side, took in turns.items())
        )
        if turn:  # The first turn compiles and captures.
            medians = {side: median(values[1:]) for side, values in turns.items()}
            figures: Figures = {
                "seconds_per_step": medians,
                "turns": turns,
                "times_faster": medians["reference"] / medians["ours"],
                "shapes_captured": sorted(ours.step.graphs),
                "optimizer_in_graph": ours.step.updates_parameters,
                "main_thread_ms_per_step": ours.host,
            }
            yield figures
            bench.say(f"main thread: {ours.host}")
    figures["prepared"] = _prepared(bench, ours)
    bench.say(f"{figures['prepared']}")
    yield figures


def _after_first(
    bench: Bench, run: Callable[[Iterable[Batch]], None], steps: Iterator[Batch], count: int
) -> float:
    """Seconds per step, without the first step, which waits for the first names."""
    run([next(steps)])
    return bench.seconds(partial(run, steps)) / count


def _prepared(bench: Bench, ours: _Ours) -> Figures:
    """Milliseconds of a step whose batch is prepared, and of a graph replay alone."""
    steps = list(map(ours.pack, bench.batches(bench.few_pairs).after(0, bench.size.repeats)))
    return {
        "step": bench.seconds(partial(ours.run, steps * 4)) / len(steps) / 4 * 1000,
        "main_thread": ours.host,
        "replay": {str(shape): bench.median_ms(one.run) for shape, one in ours.step.graphs.items()},
    }


class _Ours:
    """A training step as in the loop of `sapbert train`."""

    def __init__(self, bench: Bench, variant: Variant) -> None:
        self.model = bench.model()
        self.model.train()
        self.optimizer = optimizer_of(self.model)
        self.step = variant.step(bench, self.model, self.optimizer)
        self.host: Figures = {}
        self.variant, self._bench = variant, bench

    def pack(self, batch: PairBatch) -> PackedBatch:
        """Pack a batch, as the background thread of training does."""
        return pack(self.step, batch)

    def run(self, batches: Iterable[PackedBatch]) -> None:
        """Run steps, and record how the main thread spends its time."""
        delayed = DelayedMetrics(self._bench.device, 2 * self._bench.size.batch)
        parts, cpu = np.zeros(5), time.thread_time()
        clock = [time.perf_counter()] * 5
        number = 0
        for number, batch in enumerate(batches, 1):
            clock[0] = time.perf_counter()
            seed_generators(number, self._bench.device)
            self.optimizer.zero_grad(set_to_none=True)
            clock[1] = time.perf_counter()
            report = self.step.backward(batch)
            clock[2] = time.perf_counter()
            self.step.update(self.optimizer)
            clock[3] = time.perf_counter()
            delayed.add(number, 0.0, report)
            delayed.read(wait=False)
            parts += np.diff([clock[4], *clock[:4], time.perf_counter()])
            clock[4] = time.perf_counter()
        delayed.read(wait=True)
        names = ("waiting for names", "seed, zero_grad", "graph", "optimizer", "metrics of earlier steps")
        self.host = dict(zip(names, (parts / number * 1000).round(3).tolist(), strict=True))
        self.host["CPU time"] = round((time.thread_time() - cpu) / number * 1000, 3)


WITHOUT_KERNELS = Variant(kernels=False, compiled=False, updating=False)
VARIANTS = {
    "kernels": Variant(),
    "kernels, optimizer not in the graph": Variant(updating=False),
    "kernels, nothing compiled": Variant(compiled=False),
    "kernels, rows of 128": Variant(width=128),
    "kernels, rows by 4": Variant(rows_multiple=4),
    "plain": WITHOUT_KERNELS,
}


def variants(bench: Bench) -> Iterator[Figures]:
    """Device time of the variants of our step: the graph, and the optimizer step separately."""
    figures: Figures = {}
    batches = list(bench.batches(bench.few_pairs).after(0, bench.size.repeats + 1))
    for name, variant in VARIANTS.items():
        if bench.left < 60:
            bench.say(f"no time for {name}")
            continue
        torch.compiler.reset()
        try:
            figures[name] = _device_time(bench, variant, batches)
        except Exception as error:  # noqa: BLE001 - a failing variant must not stop the others
            bench.say(traceback.format_exc())
            figures[name] = {"failed": str(error)[:500]}
        bench.say(f"{name}: {figures[name]}")
        yield figures


def _device_time(bench: Bench, variant: Variant, batches: list[PairBatch]) -> Figures:
    ours = _Ours(bench, variant)
    took = bench.seconds(lambda: ours.run(map(ours.pack, batches)))
    rows = [len(Rows.of(b.tokens, Pooling.CLS, pad_id=0, width=variant.width)) for b in batches]
    return {
        "seconds_to_prepare": took,
        "prepared": _prepared(bench, ours),
        "optimizer_ms": bench.median_ms(ours.optimizer.step),
        "rows": [min(rows), float(np.mean(rows)), max(rows)],
    }


def profiled(bench: Bench) -> Iterator[Figures]:
    """Time of our step per kernel."""
    ours, batches = first_working(bench), bench.batches(bench.few_pairs).after(0, 6)
    steps = list(map(ours.pack, batches))
    ours.run(steps)
    bench.wait()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        ours.run(steps)
        bench.wait()
    rows = profiler.key_averages()
    key = "self_cuda_time_total" if bench.device.type == "cuda" else "self_cpu_time_total"
    table = rows.table(sort_by=key, row_limit=60, max_name_column_width=90)
    (bench.out / "profile.txt").write_text(table)
    (bench.out / "profile_cpu.txt").write_text(rows.table(sort_by="self_cpu_time_total", row_limit=40))
    profiler.export_chrome_trace(str(bench.out / "trace.json"))
    kernels = sorted(((row.self_device_time_total, row.count, row.key) for row in rows), reverse=True)[:40]
    yield {
        "steps": len(steps),
        "kernels_us_per_step": [(took / len(steps), n, name[:120]) for took, n, name in kernels if took],
    }
