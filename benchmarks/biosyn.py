"""What labelled mentions add to the encoder that comes along: zero-shot, plain fine-tuning and BioSyn.

    sapbert export default --format huggingface -o BASE
    python benchmarks/biosyn.py --base BASE --out OUT                        # all sets, three seeds
    python benchmarks/biosyn.py --base BASE --out OUT --seeds 1 --sets ncbi-disease

Every figure comes from the commands that a user runs, which are printed: `biosyn` with its recipe, `pairs
--mentions` and `train` with the paper's recipe for fine-tuning, `evaluate` with all seeds as one system, and
`compare`. As in BioSyn's protocol, mentions of training and development are learned from and are names of the
dictionary where the benchmark has one enlarged by them. OUT keeps models and evaluations; what is there is
not made again.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from results import write_results

ROOT = Path(__file__).parents[1]
RECIPES = ROOT / "recipes"
BENCHMARKS = ROOT.parent / "shared" / "data" / "benchmarks"
ZERO, PLAIN, BIOSYN = "zero-shot", "fine-tuned", "biosyn"
LEARNED = BIOSYN, PLAIN
DICTIONARY, ENLARGED = "dictionary.tsv.gz", "test_dictionary.tsv.gz"
PACKAGES = ("torch", "transformers", "polars", "scipy", "numpy")


@dataclass(frozen=True, slots=True)
class Labelled:
    """A set with training mentions."""

    folder: str
    """What is measured; the dictionary lies in it, or above it."""
    plain_recipe: str
    biosyn_recipe: str
    mark: tuple[float, float]
    """Accuracy at 1 and 5 to reach with the larger dictionary."""
    prefix: tuple[str, ...] = ()


SETS = {
    "ncbi-disease": Labelled(
        "ncbi-disease", "paper-finetune-scientific", "biosyn-ncbi-disease", (92.5, 96.2)
    ),
    "bc5cdr-disease": Labelled(
        "bc5cdr-disease", "paper-finetune-scientific", "biosyn-bc5cdr-disease", (93.8, 96.5)
    ),
    "askapatient": Labelled(
        "askapatient/fold0",
        "paper-finetune-askapatient",
        "biosyn-askapatient",
        (89.0, 96.2),
        ("--prefix", "snomed"),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--seeds", nargs="+", default=["1", "2", "3"])
    parser.add_argument("--jobs", type=int, default=1, help="Trainings at once, which then take longer each.")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--benchmarks", type=Path, default=BENCHMARKS)
    told = parser.parse_args()
    told.out.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {"trainings_at_once": told.jobs, "seeds": told.seeds}
    trained = Trained(told.base, told.out, told.benchmarks, told.precision)
    with ThreadPoolExecutor(told.jobs) as pool:
        for name in told.sets:
            trained.prepare(name)
        work = [(name, method, seed) for name in told.sets for seed in told.seeds for method in LEARNED]
        seconds = dict(zip(work, pool.map(lambda one: trained.train(*one), work), strict=True))
        measured = pool.map(partial(trained.measure, seeds=told.seeds), told.sets)
        for name, found in zip(told.sets, measured, strict=True):
            took = {method: [seconds[name, method, seed] for seed in told.seeds] for method in LEARNED}
            figures[name] = {"mark": SETS[name].mark, "seconds_of_training": took, **found}
            write_results("biosyn", figures, PACKAGES, folder=told.out)


class Trained:
    """Runs the commands of one set after the other in a folder."""

    def __init__(self, base: Path, out: Path, benchmarks: Path, precision: str) -> None:
        self._base, self._out, self._benchmarks, self._precision = base, out, benchmarks, precision

    def _file(self, name: str, *names: str) -> Path:
        """The first file of these names that is there, in the folder of the set or above it."""
        own = self._benchmarks / SETS[name].folder
        return next(path for file in names for path in (own / file, own.parent / file) if path.exists())

    def prepare(self, name: str) -> None:
        """Read what BioSyn learns from, and draw the pairs that plain fine-tuning does, of the dictionary."""
        plain, pairs = (self._out / f"{name}{end}" for end in ("-plain", "-pairs"))
        if not self._mentions(name).exists():
            self._write_mentions(name)
        self._read(name, self._file(name, ENLARGED, DICTIONARY), self._out / name)
        self._read(name, self._file(name, DICTIONARY), plain)
        if not pairs.exists():
            sapbert("pairs", plain, "--mentions", self._mentions(name), *SETS[name].prefix, "-o", pairs)

    def _read(self, name: str, dictionary: Path, vocabulary: Path) -> None:
        if vocabulary.exists():
            return
        text = vocabulary.with_suffix(".txt")
        with gzip.open(dictionary, "rt", encoding="utf-8") as lines:
            next(lines)
            rows = [line.split("\t", 1) for line in lines]
            # Of a mention that means two things at once, its ids are joined by a plus; either is right.
            text.write_text("".join(f"{ids.replace('+', '|')}||{words}" for ids, words in rows), "utf-8")
        sapbert("read", "table", text, *SETS[name].prefix, "-o", vocabulary)

    def _write_mentions(self, name: str) -> None:
        """Join the mentions of development to those of training if they are names anyhow."""
        splits = ("train", "dev") if self._file(name, ENLARGED, DICTIONARY).name == ENLARGED else ("train",)
        lines: list[str] = []
        for split in splits:
            with gzip.open(self._file(name, f"{split}.tsv.gz"), "rt", encoding="utf-8") as rows:
                header, *found = rows
                lines += found
        self._mentions(name).write_text("".join([header, *lines]), encoding="utf-8")

    def train(self, name: str, method: str, seed: str) -> float | None:
        """Train one model and return the seconds it took; None if it was there."""
        target, one = self._out / f"{name}-{method}-{seed}", SETS[name]
        if target.exists():
            return None
        shared = ("--base", self._base, "--seed", seed, "--precision", self._precision, "-o", target)
        start = time.perf_counter()
        if method == BIOSYN:
            learned = (self._out / name, "--mentions", self._mentions(name), *one.prefix)
            sapbert("biosyn", *learned, "--recipe", RECIPES / f"{one.biosyn_recipe}.toml", *shared)
        else:
            pooling = ("--recipe", RECIPES / f"{one.plain_recipe}.toml", "--pooling", "mean")
            sapbert("train", self._out / f"{name}-pairs", *pooling, *shared)
        return time.perf_counter() - start

    def measure(self, name: str, *, seeds: Sequence[str]) -> dict[str, Any]:
        """Evaluate each system and compare it with those before."""
        systems = {ZERO: [self._base]} | {
            method: [self._out / f"{name}-{method}-{seed}" for seed in seeds] for method in LEARNED
        }
        folder = self._benchmarks / SETS[name].folder
        against = () if (folder / DICTIONARY).exists() else ("--dictionary", self._file(name, DICTIONARY))
        found: dict[str, Any] = {}
        for system, models in systems.items():
            given = [part for model in models for part in ("--model", model)]
            kept = ("-o", self._evaluation(name, system), "--overwrite", "--json")
            found[system] = json.loads(sapbert("evaluate", "--benchmark", folder, *against, *given, *kept))
        pairs = ((ZERO, PLAIN), (ZERO, BIOSYN), (PLAIN, BIOSYN))
        found["compared"] = {
            f"{first}, {second}, at {k}": sapbert(
                "compare", *(self._evaluation(name, one) for one in (first, second)), "--k", k
            ).splitlines()
            for first, second in pairs
            for k in (1, 5)
        }
        return found

    def _mentions(self, name: str) -> Path:
        return self._out / f"{name}-mentions.tsv"

    def _evaluation(self, name: str, system: str) -> Path:
        return self._out / "evaluations" / name / system


def sapbert(*arguments: object) -> str:
    """Run the command of this name, tell what is run and what it prints, and stop where it stops."""
    command = [sys.executable, "-m", "sapbert", *map(str, arguments)]
    print("$", *command[2:], flush=True)
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


if __name__ == "__main__":
    main()
