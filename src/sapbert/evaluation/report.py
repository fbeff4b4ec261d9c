"""What an evaluation and a comparison say, in words and as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import polars as pl

from sapbert.evaluation.compare import Accuracy, Comparison, System, mean_over_runs
from sapbert.evaluation.errors.kinds import ErrorKind
from sapbert.evaluation.errors.wrong_links import WrongLink, count_kinds
from sapbert.evaluation.metrics import KS, Metrics, compute_metrics, compute_metrics_by
from sapbert.evaluation.run import Evaluation
from sapbert.evaluation.significance import CONFIDENCE_LEVEL, Interval, bootstrap_interval

_SEEN = {"true": "seen in training", "false": "unseen"}
_WIDE = 24


def summarise(system: System, *, threshold: float | None = None) -> dict[str, Any]:
    """Return every figure of a system, by dictionary, for machines; of several runs also of each."""
    each = [_summarise(run, threshold) for run in system.runs]
    summary: dict[str, Any] = {}
    for dictionary in system.runs[0].dictionaries:
        interval = {
            k: bootstrap_interval(right) for k in KS if len(right := system.correct_at(dictionary, k))
        }
        own = [one[dictionary] for one in each]
        if len(own) == 1:
            summary[dictionary] = {**own[0], "interval": interval}
            continue
        means = {k: asdict(mean_over_runs(system.accuracies(dictionary, k))) for k in interval}
        summary[dictionary] = {"accuracy": means, "interval": interval, "runs": own}
    return summary


def evaluation_lines(
    system: System, *, threshold: float | None = None, by_type: bool = False
) -> Iterator[str]:
    """Tell an evaluation in a table: a line a dictionary, and under it those seen in training and not.

    `by_type` adds a line a type of mention. Of several runs each figure is the mean, with its deviation.
    """
    wide = 21 if len(system.runs) == 1 else 28
    head = "".join(f"{title:<{wide}}" for title in (f"Acc@{k}" for k in KS))
    yield f"{'':<{_WIDE}}{'mentions':>9}  {head}{'strict@1':<{wide - 11}}{'MRR':<7}coverage"
    for dictionary in system.runs[0].dictionaries:
        results = [run.for_dictionary(dictionary) for run in system.runs]
        figures = [compute_metrics(own, threshold=threshold) for own in results]
        rights = {k: system.correct_at(dictionary, k) for k in KS if figures[0].mentions}
        yield _line(dictionary, figures, {k: bootstrap_interval(right) for k, right in rights.items()}, wide)
        for column in ("seen", "type") if by_type else ("seen",):
            yield from _group_lines(results, column, wide)
        if figures[0].nil:
            precision = _percent([own.nil_precision for own in figures])
            told = f"precision {precision}, recall {_percent([own.nil_recall for own in figures])}"
            yield f"  NIL: {figures[0].nil:,} mentions, {told}"
    yield f"In brackets: {CONFIDENCE_LEVEL:.0%} bootstrap intervals over mentions."
    if len(system.runs) > 1:
        yield f"Means and deviations of {len(system.runs)} runs."


def comparison_lines(comparisons: list[Comparison], first: str, second: str) -> Iterator[str]:
    """Tell a comparison: both accuracies, their difference, and whether it was luck."""
    for found in comparisons:
        yield f"{found.dictionary}, {found.mentions:,} mentions"
        wide = max(len(first), len(second), len("difference"))
        yield f"  {first:<{wide}}  {accuracy_text(found.first)}"
        yield f"  {second:<{wide}}  {accuracy_text(found.second)}"
        yield f"  {'difference':<{wide}}  {difference_text(found)}"
        yield f"  {p_text(found)}"
        changes = found.changed["change"].value_counts()
        counts: Mapping[str, int] = dict(changes.iter_rows())
        yield f"  {counts.get('gained', 0):,} mentions gained, {counts.get('lost', 0):,} lost"


def error_lines(evaluation: Evaluation, links: Mapping[str, Sequence[WrongLink]]) -> Iterator[str]:
    """Tell how many mentions each dictionary leaves wrong, and of which kinds these are."""
    counts = {name: count_kinds(own) for name, own in links.items()}
    wrong = {name: sum(own.values()) for name, own in counts.items()}
    rows = {"": list(counts)}
    rows["wrong"] = [
        f"{wrong[name]:,} of {compute_metrics(evaluation.for_dictionary(name)).mentions:,}" for name in counts
    ]
    for kind in ErrorKind:
        if any(own[kind] for own in counts.values()):
            rows[f"  {kind}"] = [
                f"{own[kind]:,} ({own[kind] / max(wrong[name], 1):.0%})" for name, own in counts.items()
            ]
    for title, cells in rows.items():
        yield (f"{title:<16}" + "".join(f"{cell:<{_WIDE}}" for cell in cells)).rstrip()


def accuracy_text(accuracy: Accuracy) -> str:
    """An accuracy in percent, with its deviation over runs where there are several."""
    deviation = "" if accuracy.deviation is None else f" ± {100 * accuracy.deviation:.1f}"
    return f"{100 * accuracy.mean:.1f}{deviation}"


def interval_text(interval: Interval) -> str:
    """The bounds of an accuracy in percent."""
    return f"{100 * interval.low:.1f}-{100 * interval.high:.1f}"


def difference_text(found: Comparison) -> str:
    """The difference in points, and its interval."""
    low, high = (100 * bound for bound in found.interval)
    return f"{100 * found.difference:+.1f} ({CONFIDENCE_LEVEL:.0%} interval {low:+.1f} to {high:+.1f})"


def p_text(found: Comparison) -> str:
    """The p of each test."""
    exact = "" if found.mcnemar is None else f", exact McNemar p {_p(found.mcnemar)}"
    return f"paired randomisation p {_p(found.randomisation)}{exact}"


def _p(value: float) -> str:
    return f"= {value:.4f}" if value >= 0.0001 else "< 0.0001"


def _summarise(evaluation: Evaluation, threshold: float | None) -> dict[str, Any]:
    summary: dict[str, Any] = {}
    for dictionary in evaluation.dictionaries:
        results = evaluation.for_dictionary(dictionary)
        found: dict[str, Any] = asdict(compute_metrics(results, threshold=threshold))
        for column in ("seen", "type"):
            found[f"by {column}"] = {
                key: asdict(own) for key, own in compute_metrics_by(results, column).items()
            }
        summary[dictionary] = found
    return summary


def _group_lines(results: Sequence[pl.DataFrame], column: str, wide: int) -> Iterator[str]:
    """A line a group of mentions that have gold ids, where there are several."""
    groups = [compute_metrics_by(own, column) for own in results]
    keys = [key for key in (_SEEN if column == "seen" else groups[0]) if key in groups[0]]
    told = [key for key in keys if groups[0][key].mentions]
    for key in told if len(told) > 1 else ():
        title = _SEEN[key] if column == "seen" else key or "no type"
        short = title if len(title) < _WIDE - 2 else f"{title[: _WIDE - 4]}\N{HORIZONTAL ELLIPSIS}"
        yield _line(f"  {short}", [own[key] for own in groups], {}, wide)


def _line(title: str, figures: Sequence[Metrics], intervals: Mapping[int, Interval], wide: int) -> str:
    cells = ""
    for k in KS:
        between = f" ({interval_text(intervals[k])})" if k in intervals else ""
        cells += f"{_percent([own.accuracy[k] for own in figures]) + between:<{wide}}"
    cells += f"{_percent([own.strict[1] for own in figures]):<{wide - 11}}"
    ranks = [own.mrr for own in figures if own.mrr is not None]
    cells += f"{f'{np.mean(ranks):.3f}' if ranks else '-':<7}"
    coverage = _percent([own.coverage for own in figures[:1]])
    return f"{title:<{_WIDE}}{figures[0].mentions:>9,}  {cells}{coverage}".rstrip()


def _percent(shares: Sequence[float | None]) -> str:
    """A share over runs; - where none has one."""
    known = np.array([share for share in shares if share is not None], np.float64)
    return accuracy_text(mean_over_runs(known)) if len(known) else "-"
