"""Accuracy gain from labelled mentions for the bundled transformer: zero-shot, fine-tuning and BioSyn.

    sapbert export open-mini --format huggingface -o BASE
    python benchmarks/biosyn.py --base BASE --out OUT                        # all sets, three seeds
    python benchmarks/biosyn.py --base BASE --out OUT --seeds 1 --sets ncbi-disease

All results come from commands that a user can run, which are printed: `biosyn` with its recipe, `pairs
--mentions` and `train` with the paper's recipe for fine-tuning, `evaluate` with all seeds as one system, and
`compare`. As in BioSyn's protocol, models are trained on training and development mentions, which are also
names of the dictionary if the benchmark has an enlarged one. OUT keeps models and evaluations; existing ones
are reused.
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
    """Folder of the benchmark; the dictionary is in it, or in its parent."""
    plain_recipe: str
    biosyn_recipe: str
    target: tuple[float, float]
    """Target accuracy at 1 and 5 with the enlarged dictionary."""
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
    parser.add_argument("--jobs", type=int, default=1, help="Parallel training runs; each takes longer.")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--benchmarks", type=Path, default=BENCHMARKS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {"trainings_at_once": options.jobs, "seeds": options.seeds}
    trained = Trained(options.base, options.out, options.benchmarks, options.precision)
    with ThreadPoolExecutor(options.jobs) as pool:
        for name in options.sets:
            trained.prepare(name)
        work = [(name, method, seed) for name in options.sets for seed in options.seeds for method in LEARNED]
        seconds = dict(zip(work, pool.map(lambda one: trained.train(*one), work), strict=True))
        measured = pool.map(partial(trained.measure, seeds=options.seeds), options.sets)
        for name, results in zip(options.sets, measured, strict=True):
            took = {method: [seconds[name, method, seed] for seed in options.seeds] for method in LEARNED}
            figures[name] = {"target": SETS[name].target, "seconds_of_training": took, **results}
            write_results("biosyn", figures, PACKAGES, folder=options.out)


class Trained:
    """Runs the commands for each benchmark in a folder."""

    def __init__(self, base: Path, out: Path, benchmarks: Path, precision: str) -> None:
        self._base, self._out, self._benchmarks, self._precision = base, out, benchmarks, precision

    def _file(self, name: str, *names: str) -> Path:
        """The first of these files that exists, in the folder of the benchmark or its parent."""
        folder = self._benchmarks / SETS[name].folder
        return next(path for file in names for path in (folder / file, folder.parent / file) if path.exists())

    def prepare(self, name: str) -> None:
        """Read the vocabulary for BioSyn, and draw the pairs for fine-tuning."""
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
            # The ids of a mention with two meanings are joined by a plus; either is correct.
            text.write_text("".join(f"{ids.replace('+', '|')}||{words}" for ids, words in rows), "utf-8")
        sapbert("read", "table", text, *SETS[name].prefix, "-o", vocabulary)

    def _write_mentions(self, name: str) -> None:
        """Write the training mentions, with the development mentions if the dictionary contains them."""
        splits = ("train", "dev") if self._file(name, ENLARGED, DICTIONARY).name == ENLARGED else ("train",)
        lines: list[str] = []
        for split in splits:
            with gzip.open(self._file(name, f"{split}.tsv.gz"), "rt", encoding="utf-8") as rows:
                header, *body = rows
                lines += body
        self._mentions(name).write_text("".join([header, *lines]), encoding="utf-8")

    def train(self, name: str, method: str, seed: str) -> float | None:
        """Train one model and return the seconds it took; None if it exists."""
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
        """Evaluate all systems and compare each with the previous ones."""
        systems = {ZERO: [self._base]} | {
            method: [self._out / f"{name}-{method}-{seed}" for seed in seeds] for method in LEARNED
        }
        folder = self._benchmarks / SETS[name].folder
        dictionary = () if (folder / DICTIONARY).exists() else ("--dictionary", self._file(name, DICTIONARY))
        results: dict[str, Any] = {}
        for system, models in systems.items():
            model_options = [part for model in models for part in ("--model", model)]
            output = ("-o", self._evaluation(name, system), "--overwrite", "--json")
            results[system] = json.loads(
                sapbert("evaluate", "--benchmark", folder, *dictionary, *model_options, *output)
            )
        pairs = ((ZERO, PLAIN), (ZERO, BIOSYN), (PLAIN, BIOSYN))
        results["compared"] = {
            f"{first}, {second}, at {k}": sapbert(
                "compare", *(self._evaluation(name, one) for one in (first, second)), "--k", k
            ).splitlines()
            for first, second in pairs
            for k in (1, 5)
        }
        return results

    def _mentions(self, name: str) -> Path:
        return self._out / f"{name}-mentions.tsv"

    def _evaluation(self, name: str, system: str) -> Path:
        return self._out / "evaluations" / name / system


def sapbert(*arguments: object) -> str:
    """Print and run a `sapbert` command; return its output, or raise an error if it fails."""
    command = [sys.executable, "-m", "sapbert", *map(str, arguments)]
    print("$", *command[2:], flush=True)
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


if __name__ == "__main__":
    main()
