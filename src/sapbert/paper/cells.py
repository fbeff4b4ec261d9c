"""Evaluate many rankers on many benchmarks, cell by cell, so that an interrupted run can be resumed.

A cell is an evaluation artifact, named by a digest of everything it depends on: ranker, benchmark, settings
and the version of this package (the only version that baselines have). So there is no other state: a cell
that exists is done, whichever table needed it, and anything that changes gets a new cell.

Callers open every model before the first cell is measured, so that a mistake in the last one shows at once.
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
    """One ranker to evaluate: a baseline, or a model trained with one seed."""

    row: str
    """Row of the table; the runs of one row are models with different seeds."""
    fingerprint: str
    """Equal for rankers that give equal results."""
    open: Callable[[], RankerFactory]
    """Loads the ranker; called only if a cell is missing."""


@dataclass(frozen=True, slots=True)
class CellProgress:
    """Progress report before a cell is measured."""

    number: int
    """Number of the cell among those that are missing, from 1."""
    total: int
    """Number of missing cells."""
    row: str
    benchmark: str
    seconds_left: float | None
    """Estimate from the cells measured so far; None before the first."""


def find_benchmarks(
    folder: Path, names: Iterable[str], *, dictionary: Path | None = None
) -> tuple[dict[str, EvaluationSet], dict[str, str]]:
    """Open the benchmarks called `names` in `folder`; return also why others cannot be measured.

    `dictionary` is for benchmarks without one. A damaged benchmark is an error, not a missing one.
    """
    benchmarks: dict[str, EvaluationSet] = {}
    missing: dict[str, str] = {}
    for name in names:
        if not (folder / name).is_dir():
            missing[name] = f"no folder {name} in the folder of benchmarks"
            continue
        benchmark = open_evaluation_set(folder / name, dictionary=dictionary)
        test = benchmark.splits.get(_SPLIT)
        if test is None or not (test["ids"].list.len() > 0).any():
            missing[name] = f"the folder {name} has no test split with labelled mentions"
        elif not benchmark.dictionaries:
            missing[name] = f"the folder {name} has no dictionary"
        else:
            benchmarks[name] = benchmark
    return benchmarks, missing


def measure_cells(
    runs: Sequence[RankerRun],
    benchmarks: Mapping[str, EvaluationSet],
    target: Path,
    *,
    overwrite: bool = False,
    on_cell: Callable[[CellProgress], None],
) -> dict[tuple[str, str], System]:
    """Evaluate every run on every benchmark; unless `overwrite`, cells that exist in `target` are reused.

    Returns row and benchmark → the runs of the row.
    """
    paths = {(run, name): target / CELLS / _key(run, benchmarks[name]) for run in runs for name in benchmarks}
    cells = {} if overwrite else {path: _open_cell(path) for path in paths.values()}
    done = {path: cell for path, cell in cells.items() if cell is not None}
    # Keyed by path, because two rows may need the same cell.
    missing = {path: run_and_name for run_and_name, path in paths.items() if path not in done}
    estimate = _TimeEstimate([_size(benchmarks[name]) for _, name in missing.values()])
    opened: tuple[RankerRun, RankerFactory] | None = None
    for number, (path, (run, name)) in enumerate(missing.items()):
        on_cell(CellProgress(number + 1, len(missing), run.row, name, estimate.seconds_left(number)))
        if opened is None or opened[0] is not run:
            opened = None  # Free the previous model before loading the next.
            opened = run, run.open()
        done[path] = evaluate(benchmarks[name], opened[1], split=_SPLIT)
        write_evaluation(
            done[path],
            path,
            benchmark=benchmarks[name],
            settings={"benchmark": name, "split": _SPLIT, "row": run.row},
            ranker=run.fingerprint,
            overwrite=True,
        )
    return {
        (row, name): System(row, tuple(done[paths[run, name]] for run in runs if run.row == row))
        for row in dict.fromkeys(run.row for run in runs)
        for name in benchmarks
    }


class _TimeEstimate:
    """Estimates the remaining time, assuming that it is proportional to the sizes of the dictionaries."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._start = monotonic()

    def seconds_left(self, done: int) -> float | None:
        before, after = sum(self._sizes[:done]), sum(self._sizes[done:])
        return (monotonic() - self._start) * after / before if before else None


def _size(benchmark: EvaluationSet) -> int:
    return max(len(dictionary) for dictionary in benchmark.dictionaries.values())


def _key(run: RankerRun, benchmark: EvaluationSet) -> str:
    parts = {"ranker": run.fingerprint, "benchmark": benchmark.fingerprint, "split": _SPLIT}
    return fingerprint_of({**parts, "depth": str(DEPTH), "sapbert": __version__})


def _open_cell(path: Path) -> Evaluation | None:
    """Open a cell; a damaged cell counts as missing."""
    try:
        return Evaluation.open(path)
    except ArtifactError:
        return None
