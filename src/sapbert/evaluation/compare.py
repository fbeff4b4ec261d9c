"""Compare two systems on the mentions that both were measured on.

A system is one evaluation, or a folder of several: the same system trained with other seeds. Seeds differ by
a point and more on small benchmarks, so one run against one proves little about a recipe, whatever its p.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sapbert.artifacts import MANIFEST
from sapbert.errors import ArtifactError, ConfigError
from sapbert.evaluation.metrics import compute_metrics, correct_at
from sapbert.evaluation.run import Evaluation
from sapbert.evaluation.significance import Interval, bootstrap_interval, mcnemar, randomisation_test

_KEY = ("dictionary", "mention", "text", "gold")


@dataclass(frozen=True, slots=True)
class System:
    """One or several runs of what is compared."""

    name: str
    runs: tuple[Evaluation, ...]

    @classmethod
    def open(cls, path: Path) -> System:
        """Open an evaluation, or all evaluations in a folder."""
        paths = (
            [path] if (path / MANIFEST).is_file() else sorted(p.parent for p in path.glob(f"*/{MANIFEST}"))
        )
        if not paths:
            raise ArtifactError(
                f"{path}: no evaluation, nor a folder of them; `sapbert evaluate -o` writes one"
            )
        return cls(path.name, tuple(Evaluation.open(one) for one in paths))

    def correct_at(self, dictionary: str, k: int) -> NDArray[np.float64]:
        """How often each mention with gold ids is right at k, over the runs.  # (mentions,)"""
        often: NDArray[np.float64] = self.correct_per_run(dictionary, k).mean(axis=0)
        return often

    def accuracies(self, dictionary: str, k: int) -> NDArray[np.float64]:
        """The accuracy at k of each run.  # (runs,), empty where no mention has gold ids"""
        shares = (compute_metrics(run.for_dictionary(dictionary), ks=(k,)).accuracy[k] for run in self.runs)
        return np.array([share for share in shares if share is not None], np.float64)

    def correct_per_run(self, dictionary: str, k: int) -> NDArray[np.float64]:
        """Which mentions are right at k in each run.  # (runs, mentions)"""
        return np.stack([correct_at(run.for_dictionary(dictionary), k) for run in self.runs])


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """How good one system is."""

    mean: float
    deviation: float | None
    """Over its runs; None where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The second system against the first, with one dictionary."""

    dictionary: str
    mentions: int
    first: Accuracy
    second: Accuracy
    difference: float
    interval: Interval
    randomisation: float
    """p of the paired randomisation test."""
    mcnemar: float | None
    """Exact p, where both systems are one run."""
    changed: pl.DataFrame
    """`change` (gained, lost), `raw`, `text`, `gold`, `means` and the best candidates: `first`, `second`.

    `means` is a name of the first gold id that the dictionary has.
    """


def compare(first: System, second: System, *, k: int = 1, seed: int = 0) -> list[Comparison]:
    """Compare accuracy at k, dictionary by dictionary."""
    _refuse_others(first, second)
    return [_compare(first, second, dictionary, k=k, seed=seed) for dictionary in first.runs[0].dictionaries]


def _compare(first: System, second: System, dictionary: str, *, k: int, seed: int) -> Comparison:
    rights = [system.correct_per_run(dictionary, k) for system in (first, second)]  # (runs, mentions) each
    means = [right.mean(axis=0) for right in rights]
    differences = means[1] - means[0]
    single = len(first.runs) == len(second.runs) == 1
    return Comparison(
        dictionary=dictionary,
        mentions=len(differences),
        first=mean_over_runs(rights[0].mean(axis=1)),
        second=mean_over_runs(rights[1].mean(axis=1)),
        difference=float(differences.mean()),
        interval=bootstrap_interval(differences, seed=seed),
        randomisation=randomisation_test(differences, seed=seed),
        mcnemar=mcnemar(*means) if single else None,
        changed=_changed(first, second, dictionary, differences),
    )


def mean_over_runs(values: NDArray[np.float64]) -> Accuracy:
    """Sum up an accuracy that was measured once a run."""
    return Accuracy(
        mean=float(values.mean()), deviation=float(values.std(ddof=1)) if len(values) > 1 else None
    )


def _changed(
    first: System, second: System, dictionary: str, differences: NDArray[np.float64]
) -> pl.DataFrame:
    """The mentions that one system has right more often, gained ones first, with the first runs' answers."""
    linked = first.runs[0].for_dictionary(dictionary).filter(pl.col("gold") != "")
    rows = linked.select("mention", "raw", "text", "gold", difference=pl.Series(differences))
    for name, system in (("first", first), ("second", second)):
        best = system.runs[0].candidates.filter(dictionary=dictionary, position=1).sort("mention", "part")
        answers = best.group_by("mention").agg(pl.col("name").str.join("|").alias(name))
        rows = rows.join(answers, on="mention", how="left", maintain_order="left")
    names = first.runs[0].gold.filter(dictionary=dictionary).unique("id", keep="first", maintain_order=True)
    ids = rows.select("mention", id=pl.col("gold").str.split("|")).explode("id")
    known = ids.join(names, on="id", maintain_order="left").group_by("mention").agg(means=pl.first("name"))
    rows = rows.join(known, on="mention", how="left", maintain_order="left")
    change = pl.when(pl.col("difference") > 0).then(pl.lit("gained")).otherwise(pl.lit("lost"))
    changed = rows.filter(pl.col("difference") != 0).with_columns(change=change)
    return changed.sort("change", "mention").select(
        "change", "raw", "text", "gold", pl.col("means", "first", "second").fill_null("")
    )


def _refuse_others(first: System, second: System) -> None:
    """Refuse runs over other mentions: a paired test of them would be nonsense with a p."""
    wanted = first.runs[0].results.select(_KEY)
    for system in (first, second):
        for run in system.runs:
            if not run.results.select(_KEY).equals(wanted):
                raise ConfigError(
                    f"{first.name} and {system.name} were not measured on the same mentions; "
                    "evaluate both on one benchmark and split"
                )
