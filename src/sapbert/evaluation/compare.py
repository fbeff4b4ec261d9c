"""Compare two systems on the same mentions.

A system is one evaluation, or a folder of several evaluations of models trained with different seeds. On
small benchmarks, seeds differ by a percentage point or more, so comparing one run with one run says little
about a recipe, whatever the p value.
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
    """A system to compare: one or several runs."""

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
                f"{path}: neither an evaluation nor a folder of evaluations; `sapbert evaluate -o` writes one"
            )
        return cls(path.name, tuple(Evaluation.open(path) for path in paths))

    def correct_at(self, dictionary: str, k: int) -> NDArray[np.float64]:
        """Share of runs in which each mention with gold ids is correct at k.  # (mentions,)"""
        share: NDArray[np.float64] = self.correct_per_run(dictionary, k).mean(axis=0)
        return share

    def accuracies(self, dictionary: str, k: int) -> NDArray[np.float64]:
        """Accuracy at k of each run.  # (runs,), empty if no mention has gold ids"""
        shares = (compute_metrics(run.for_dictionary(dictionary), ks=(k,)).accuracy[k] for run in self.runs)
        return np.array([share for share in shares if share is not None], np.float64)

    def correct_per_run(self, dictionary: str, k: int) -> NDArray[np.float64]:
        """1 if a mention with gold ids is correct at k in a run, else 0.  # (runs, mentions)"""
        return np.stack([correct_at(run.for_dictionary(dictionary), k) for run in self.runs])


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """The accuracy of one system over its runs."""

    mean: float
    deviation: float | None
    """Standard deviation over the runs; None if there is only one run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The second system compared with the first, with one dictionary."""

    dictionary: str
    mentions: int
    first: Accuracy
    second: Accuracy
    difference: float
    interval: Interval
    randomisation: float
    """p of the paired randomisation test."""
    mcnemar: float | None
    """p of the exact McNemar test; None if a system has several runs."""
    changed: pl.DataFrame
    """Mentions that only one system gets right.

    Columns: `change` (gained, lost), `raw`, `text`, `gold`, `gold_name` and the best candidates of both
    systems: `first`, `second`. `gold_name` is a name of the first gold id that is in the dictionary.
    """


def compare(first: System, second: System, *, k: int = 1, seed: int = 0) -> list[Comparison]:
    """Compare accuracy at k with each dictionary."""
    _require_same_mentions(first, second)
    return [_compare(first, second, dictionary, k=k, seed=seed) for dictionary in first.runs[0].dictionaries]


def _compare(first: System, second: System, dictionary: str, *, k: int, seed: int) -> Comparison:
    correct = [system.correct_per_run(dictionary, k) for system in (first, second)]  # (runs, mentions) each
    means = [runs.mean(axis=0) for runs in correct]
    differences = means[1] - means[0]
    single = len(first.runs) == len(second.runs) == 1
    return Comparison(
        dictionary=dictionary,
        mentions=len(differences),
        first=mean_over_runs(correct[0].mean(axis=1)),
        second=mean_over_runs(correct[1].mean(axis=1)),
        difference=float(differences.mean()),
        interval=bootstrap_interval(differences, seed=seed),
        randomisation=randomisation_test(differences, seed=seed),
        mcnemar=mcnemar(*means) if single else None,
        changed=_changed(first, second, dictionary, differences),
    )


def mean_over_runs(values: NDArray[np.float64]) -> Accuracy:
    """Return mean and standard deviation of an accuracy, given one value per run."""
    return Accuracy(
        mean=float(values.mean()), deviation=float(values.std(ddof=1)) if len(values) > 1 else None
    )


def _changed(
    first: System, second: System, dictionary: str, differences: NDArray[np.float64]
) -> pl.DataFrame:
    """Mentions that one system gets right more often, gained first, with the answers of the first runs."""
    linked = first.runs[0].for_dictionary(dictionary).filter(pl.col("gold") != "")
    rows = linked.select("mention", "raw", "text", "gold", difference=pl.Series(differences))
    for name, system in (("first", first), ("second", second)):
        best = system.runs[0].candidates.filter(dictionary=dictionary, position=1).sort("mention", "part")
        answers = best.group_by("mention").agg(pl.col("name").str.join("|").alias(name))
        rows = rows.join(answers, on="mention", how="left", maintain_order="left")
    names = first.runs[0].gold.filter(dictionary=dictionary).unique("id", keep="first", maintain_order=True)
    ids = rows.select("mention", id=pl.col("gold").str.split("|")).explode("id")
    gold_names = (
        ids.join(names, on="id", maintain_order="left").group_by("mention").agg(gold_name=pl.first("name"))
    )
    rows = rows.join(gold_names, on="mention", how="left", maintain_order="left")
    change = pl.when(pl.col("difference") > 0).then(pl.lit("gained")).otherwise(pl.lit("lost"))
    changed = rows.filter(pl.col("difference") != 0).with_columns(change=change)
    return changed.sort("change", "mention").select(
        "change", "raw", "text", "gold", pl.col("gold_name", "first", "second").fill_null("")
    )


def _require_same_mentions(first: System, second: System) -> None:
    """Raise an error if runs have different mentions: a paired test would be meaningless."""
    expected = first.runs[0].results.select(_KEY)
    for system in (first, second):
        for run in system.runs:
            if not run.results.select(_KEY).equals(expected):
                raise ConfigError(
                    f"{first.name} and {system.name} were not evaluated on the same mentions; "
                    "evaluate both on the same benchmark and split"
                )
