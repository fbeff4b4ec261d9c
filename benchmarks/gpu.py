"""Training and encoding on one GPU: reference implementation and ours in one run.

    python benchmarks/gpu.py --out FOLDER                        # all parts
    python benchmarks/gpu.py --out FOLDER --parts step variants  # some parts
    python benchmarks/gpu.py --out FOLDER --smoke                # smoke test on a CPU, in seconds

Needs torch, transformers and numpy. The model is a BERT-base with random weights, because speed does not
depend on them, and names are synthetic, with the lengths of real names (`synthetic_names.py`). Parts:

- `ceilings`: peak throughput of this GPU
- `same`: loss and gradient of our step compared with padded full precision
- `step`: the paper's training step, both sides
- `variants`: variants of our step
- `profile`: time per kernel of our step
- `kernels`: each of our kernels separately
- `resume`: an interrupted and resumed training run
- `encode`: names to vectors, both sides
- `search`: encode and search a dictionary
- `epoch`: the complete pretraining of the paper (`training.alignment.trainer`), including its files

Each part writes `gpu_PART.json` and appends to `log.txt` while it runs, so an interrupted run loses little.
If there are several parts, each runs in its own process, because a process cannot use the GPU after an error.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import torch

from gpu_bench import SMOKE, Bench, Figures, Size
from gpu_encoding import encode, search
from gpu_kernels import kernels
from gpu_step import profiled, same, step, variants
from results import write_results
from sapbert.pairs.artifact import Pairs
from sapbert.training.alignment.trainer import train
from sapbert.training.loop import METRICS
from sapbert.training.metrics import read_metrics
from sapbert.training.settings import TrainSettings
from synthetic_names import write_pairs

PACKAGES = ("torch", "transformers", "tokenizers", "numpy")


def ceilings(bench: Bench) -> Iterator[Figures]:
    """Throughput of a matrix product and of a copy, which bound everything else."""
    size, repeats = (8192, 20) if bench.device.type == "cuda" else (128, 2)
    left, right = (torch.randn(size, size, device=bench.device, dtype=torch.bfloat16) for _ in range(2))
    other = torch.empty(size, size * 32, device=bench.device, dtype=torch.bfloat16)
    source = torch.randn_like(other)
    for work in (lambda: left @ right, lambda: other.copy_(source)):
        bench.seconds(work)
    product = bench.seconds(lambda: [left @ right for _ in range(repeats)]) / repeats
    copy = bench.seconds(lambda: [other.copy_(source) for _ in range(repeats)]) / repeats
    yield {
        "bf16_tflops": 2 * size**3 / product / 1e12,
        "copy_terabytes_per_second": 2 * other.nbytes / copy / 1e12,
    }


def saved(bench: Bench) -> str:
    """Return the folder of the base model; write it if it does not exist."""
    base = bench.scratch / "base"
    if not base.exists():
        bench.model().save_pretrained(base)
        bench.tokenizer.save_pretrained(base)
    return str(base)


def resume(bench: Bench) -> Iterator[Figures]:
    """Compare the losses of a resumed run and of a repeated run with those of an uninterrupted run."""
    pairs, steps = bench.few_pairs, 3 * bench.size.repeats + 6
    epochs = steps * bench.size.batch / len(pairs)
    settings = TrainSettings(precision="bf16", batch_size=bench.size.batch, epochs=epochs, held_out=0)
    start = partial(train, pairs, saved(bench), settings=settings, device=bench.device)

    def stop(done: int, total: int, _figures: Mapping[str, float]) -> None:
        if done == total // 2:
            signal.raise_signal(signal.SIGINT)

    losses = {}
    for name in ("uninterrupted", "repeated", "resumed"):
        target = bench.scratch / name
        if name == "resumed":
            with suppress(KeyboardInterrupt):
                start(target=target, on_step=stop)
        start(target=target, resume=True)
        losses[name] = [row["loss"] for row in read_metrics(target / METRICS) if "loss" in row]
    figures: Figures = {"steps": len(losses["uninterrupted"]), "last_loss": losses["uninterrupted"][-1]}
    for name in ("repeated", "resumed"):
        differences = [
            abs(one - other) for one, other in zip(losses[name], losses["uninterrupted"], strict=True)
        ]
        figures[f"largest_difference_{name}"] = max(differences)
    bench.say(f"{figures}")
    yield figures


def epoch(bench: Bench) -> Iterator[Figures]:
    """The complete pretraining of the paper, as in `sapbert train --precision bf16`."""
    took = bench.seconds(lambda: write_pairs(bench.inventor, bench.size.pairs, bench.scratch / "pairs"))
    bench.say(f"{bench.size.pairs:,} pairs made in {took:.1f} s")
    every = bench.size.checkpoint_every
    settings = TrainSettings(
        precision="bf16", checkpoint_every=every, evaluate_every=every, batch_size=bench.size.batch,
        held_out=1000 if bench.device.type == "cuda" else 5, keep=1,
    )  # fmt: skip
    start, figures = time.perf_counter(), {"settings": str(settings), "losses": {}}

    def report(done: int, total: int, metrics: Mapping[str, float]) -> None:
        if done % 1000 in (0, 1, 100) or done == total:
            figures["losses"][done] = metrics.get("loss")
            bench.say(
                f"step {done:,} of {total:,} after {time.perf_counter() - start:.1f} s: {dict(metrics)}"
            )

        if bench.left < 0:
            figures["stopped_after_steps"] = done
            raise KeyboardInterrupt

    pairs = Pairs.open(bench.scratch / "pairs")
    with suppress(KeyboardInterrupt):
        train(pairs, saved(bench), bench.scratch / "model", settings, device=bench.device, on_step=report)
    figures["seconds"] = time.perf_counter() - start
    yield figures


PARTS: dict[str, Callable[[Bench], Iterator[Figures]]] = {
    "ceilings": ceilings,
    "same": same,
    "step": step,
    "variants": variants,
    "profile": profiled,
    "kernels": kernels,
    "resume": resume,
    "encode": encode,
    "search": search,
    "epoch": epoch,
}


def machine(bench: Bench) -> Figures:
    if bench.device.type != "cuda":
        return {"device": "cpu"}
    command = ["nvidia-smi", "--query-gpu=driver_version,clocks.sm,power.limit", "--format=csv,noheader"]
    driver = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return {
        "device": torch.cuda.get_device_name(),
        "driver": driver,
        "cuda": torch.version.cuda,
        "layer": bench.kernels.layer.__name__,
    }


def run(name: str, bench: Bench) -> int:
    """Run a part and log its errors; return the exit status."""
    bench.say(f"--- {name}")
    try:
        for figures in PARTS[name](bench):
            # Written after each result, so that a killed process leaves its results so far.
            write_results(f"gpu_{name}", machine(bench) | figures, PACKAGES, folder=bench.out)
    except Exception:  # noqa: BLE001 - drivers fail in many ways
        bench.say(traceback.format_exc())
        return 1
    return 0


def run_in_process(name: str, bench: Bench) -> int:
    """Run a part in its own process, forked so that modules and pairs are loaded."""
    process = multiprocessing.get_context("fork").Process(target=lambda: sys.exit(run(name, bench)))
    process.start()
    process.join()
    return process.exitcode or 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for figures and log")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--seconds", type=float, default=540, help="start nothing after this time")
    parser.add_argument("--smoke", action="store_true", help="tiny, on a CPU")
    options = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    options.out.mkdir(parents=True, exist_ok=True)
    device = torch.device("cpu" if options.smoke else "cuda")
    bench = Bench(SMOKE if options.smoke else Size({}), options.out, device, options.seconds)
    bench.few_pairs  # noqa: B018 - most parts need them
    failed, start = False, run if len(options.parts) == 1 else run_in_process
    for name in options.parts:
        if bench.left < 0:
            bench.say(f"no time for {name}")
            continue
        failed |= start(name, bench) != 0
    shutil.rmtree(bench.scratch, ignore_errors=True)
    bench.say("done")
    sys.exit(failed)


if __name__ == "__main__":
    main()
