"""Measure many rankers on many benchmarks, one cell after the other, in a way that can be stopped.

A cell is an evaluation artifact named by a digest of all that it depends on: ranker, benchmark, settings and
the version of this package, as baselines have no other. So there is no state to keep: a cell that is there is
done, whichever table asked for it, and what has changed gets a cell of its own.

Every model is opened once before the first cell is measured: a mistake in the last must not show after hours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from sapbert.artifacts import fingerprint_of
from sapbert.errors import ArtifactError
from sapbert.evaluation.benchmarks.loader import EvaluationSet, open_evaluation_set
from sapbert.evaluation.compare import System
from sapbert.evaluation.rankers import RankerFactory
from sapbert.evaluation.run import DEPTH, Evaluation, evaluate, write_evaluation
from sapbert.version import __version__

CELLS = "cells"
_SPLIT = "test"


@dataclass(frozen=True, slots=True)
class RankerRun:
    """One ranker to be measured: a baseline, or one seed of a model."""

    row: str
    """The row it counts for; several runs of one row are its seeds."""
    fingerprint: str
    """Equal for rankers that give equal results."""
    open: Callable[[], RankerFactory]
    """Loads it; called only where a cell is missing."""


@dataclass(frozen=True, slots=True)
class CellProgress:
    """One run on one benchmark, about to be measured."""

    number: int
    """Of the cells that are not done, from 1."""
    total: int
    row: str
    benchmark: str
    seconds_left: float | None
    """A guess from the names searched so far; None where there are none yet."""


def find_benchmarks(folder: Path, names: Iterable[str]) -> tuple[dict[str, EvaluationSet], dict[str, str]]:
    """Open those of the paper's sets that lie in `folder`; of the others the second says why they cannot be.

    A set that is there and damaged is an error, not an absence.
    """
    found: dict[str, EvaluationSet] = {}
    absent: dict[str, str] = {}
    for name in names:
        if not (folder / name).is_dir():
            absent[name] = f"no folder {name} among the benchmarks"
            continue
        opened = open_evaluation_set(folder / name)
        test = opened.splits.get(_SPLIT)
        if test is None or not (test["ids"].list.len() > 0).any():
            absent[name] = f"the folder {name} has no labelled mentions to test"
        elif not opened.dictionaries:
            absent[name] = f"the folder {name} has no dictionary"
        else:
            found[name] = opened
    return found, absent


def measure_cells(
    runs: Sequence[RankerRun],
    sets: Mapping[str, EvaluationSet],
    target: Path,
    *,
    overwrite: bool = False,
    on_cell: Callable[[CellProgress], None],
) -> dict[tuple[str, str], System]:
    """Measure every run on every set; unless `overwrite`, cells that are already in `target` are kept.

    Returns the runs of each row and set.
    """
    paths = {(run, name): target / CELLS / _key(run, sets[name]) for run in runs for name in sets}
    kept = {} if overwrite else {path: _kept(path) for path in paths.values()}
    done = {path: evaluation for path, evaluation in kept.items() if evaluation is not None}
    # A dictionary, because two rows may ask for the same cell.
    missing = {path: place for place, path in paths.items() if path not in done}
    clock = _Clock([_size(sets[name]) for _, name in missing.values()])
    opened: tuple[RankerRun, RankerFactory] | None = None
    for number, (path, (run, name)) in enumerate(missing.items()):
        on_cell(CellProgress(number + 1, len(missing), run.row, name, clock.left(number)))
        if opened is None or opened[0] is not run:
            opened = None  # Frees the last model before the next is loaded.
            opened = run, run.open()
        done[path] = evaluate(sets[name], opened[1], split=_SPLIT)
        settings = {"benchmark": name, "split": _SPLIT, "row": run.row}
        write_evaluation(
            done[path], path, benchmark=sets[name], settings=settings, ranker=run.fingerprint, overwrite=True
        )
    return {
        (row, name): System(row, tuple(done[paths[run, name]] for run in runs if run.row == row))
        for row in dict.fromkeys(run.row for run in runs)
        for name in sets
    }


class _Clock:
    """Guesses how long the rest takes, as if every name searched took as long."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._start = monotonic()

    def left(self, done: int) -> float | None:
        before, after = sum(self._sizes[:done]), sum(self._sizes[done:])
        return (monotonic() - self._start) * after / before if before else None


def _size(benchmark: EvaluationSet) -> int:
    return max(len(dictionary) for dictionary in benchmark.dictionaries.values())


def _key(run: RankerRun, benchmark: EvaluationSet) -> str:
    parts = {"ranker": run.fingerprint, "benchmark": benchmark.fingerprint, "split": _SPLIT}
    return fingerprint_of({**parts, "depth": str(DEPTH), "sapbert": __version__})


def _kept(path: Path) -> Evaluation | None:
    """Open a cell; one that is damaged counts as missing."""
    try:
        return Evaluation.open(path)
    except ArtifactError:
        return None
