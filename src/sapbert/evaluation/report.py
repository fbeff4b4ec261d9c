"""Reports of evaluations, comparisons and errors, as text and as JSON-ready data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import polars as pl

from sapbert.evaluation.ancestry import Ancestry
from sapbert.evaluation.compare import Accuracy, Comparison, System, mean_over_runs
from sapbert.evaluation.errors.kinds import ErrorKind
from sapbert.evaluation.errors.wrong_links import WrongLink, count_kinds
from sapbert.evaluation.metrics import KS, Metrics, compute_metrics, compute_metrics_by
from sapbert.evaluation.run import Evaluation
from sapbert.evaluation.significance import CONFIDENCE_LEVEL, Interval, bootstrap_interval

_SEEN = {"true": "seen in training", "false": "unseen"}
_COLUMN_WIDTH = 24


def summarise(system: System, *, threshold: float | None = None) -> dict[str, Any]:
    """Return all metrics of a system per dictionary, ready for JSON; with several runs, also per run."""
    summaries = [_summarise(run, threshold) for run in system.runs]
    summary: dict[str, Any] = {}
    for dictionary in system.runs[0].dictionaries:
        interval = {
            k: bootstrap_interval(correct) for k in KS if len(correct := system.correct_at(dictionary, k))
        }
        runs = [run[dictionary] for run in summaries]
        if len(runs) == 1:
            summary[dictionary] = {**runs[0], "interval": interval}
            continue
        means = {k: asdict(mean_over_runs(system.accuracies(dictionary, k))) for k in interval}
        summary[dictionary] = {"accuracy": means, "interval": interval, "runs": runs}
    return summary


def evaluation_lines(
    system: System, *, threshold: float | None = None, by_type: bool = False
) -> Iterator[str]:
    """Yield the lines of a table: one per dictionary, and below it mentions seen in training and unseen ones.

    `by_type` adds one line per type of mention. With several runs, cells are mean and standard deviation.
    """
    width = 21 if len(system.runs) == 1 else 28
    header = "".join(f"{title:<{width}}" for title in (f"Acc@{k}" for k in KS))
    yield f"{'':<{_COLUMN_WIDTH}}{'mentions':>9}  {header}{'strict@1':<{width - 11}}{'MRR':<7}coverage"
    for dictionary in system.runs[0].dictionaries:
        results = [run.for_dictionary(dictionary) for run in system.runs]
        metrics = [compute_metrics(run, threshold=threshold) for run in results]
        correct = {k: system.correct_at(dictionary, k) for k in KS if metrics[0].mentions}
        yield _line(dictionary, metrics, {k: bootstrap_interval(of_k) for k, of_k in correct.items()}, width)
        for column in ("seen", "type") if by_type else ("seen",):
            yield from _group_lines(results, column, width)
        if metrics[0].nil:
            precision = _percent([run.nil_precision for run in metrics])
            recall = _percent([run.nil_recall for run in metrics])
            yield f"  NIL: {metrics[0].nil:,} mentions, precision {precision}, recall {recall}"
    yield f"In brackets: {CONFIDENCE_LEVEL:.0%} bootstrap intervals over mentions."
    if len(system.runs) > 1:
        yield f"Mean and standard deviation over {len(system.runs)} runs."


def comparison_lines(comparisons: list[Comparison], first: str, second: str) -> Iterator[str]:
    """Yield the lines of a comparison: both accuracies, their difference, its interval and p values."""
    for comparison in comparisons:
        yield f"{comparison.dictionary}, {comparison.mentions:,} mentions"
        width = max(len(first), len(second), len("difference"))
        yield f"  {first:<{width}}  {accuracy_text(comparison.first)}"
        yield f"  {second:<{width}}  {accuracy_text(comparison.second)}"
        yield f"  {'difference':<{width}}  {difference_text(comparison)}"
        yield f"  {p_text(comparison)}"
        changes = comparison.changed["change"].value_counts()
        counts: Mapping[str, int] = dict(changes.iter_rows())
        yield f"  {counts.get('gained', 0):,} mentions gained, {counts.get('lost', 0):,} lost"


def error_lines(evaluation: Evaluation, links: Mapping[str, Sequence[WrongLink]]) -> Iterator[str]:
    """Yield the lines of a table: wrong mentions per dictionary, and how many are of each error kind."""
    counts = {name: count_kinds(wrong_links) for name, wrong_links in links.items()}
    wrong = {name: sum(kinds.values()) for name, kinds in counts.items()}
    rows = {"": list(counts)}
    rows["wrong"] = [
        f"{wrong[name]:,} of {compute_metrics(evaluation.for_dictionary(name)).mentions:,}" for name in counts
    ]
    for kind in ErrorKind:
        if any(kinds[kind] for kinds in counts.values()):
            rows[f"  {kind}"] = [
                f"{kinds[kind]:,} ({kinds[kind] / max(wrong[name], 1):.0%})" for name, kinds in counts.items()
            ]
    for title, cells in rows.items():
        yield (f"{title:<20}" + "".join(f"{cell:<{_COLUMN_WIDTH}}" for cell in cells)).rstrip()


def ancestry_lines(measured: Mapping[str, Ancestry]) -> Iterator[str]:
    """Yield how far the answers of each system, or with each dictionary, are from the gold concepts."""
    rows: dict[str, list[str]] = {"": list(measured)}
    rows["within one step"] = [f"{each.accuracy_within_one_step:.1%}" for each in measured.values()]
    for relation in next(iter(measured.values())).wrong:
        rows[f"  {relation}"] = [
            f"{each.wrong[relation]:,} ({each.wrong[relation] / max(sum(each.wrong.values()), 1):.0%})"
            for each in measured.values()
        ]
    rows["mean distance"] = [
        "-" if each.mean_distance is None else f"{each.mean_distance:.1f}" for each in measured.values()
    ]
    for title, cells in rows.items():
        yield (f"{title:<20}" + "".join(f"{cell:<{_COLUMN_WIDTH}}" for cell in cells)).rstrip()


def accuracy_text(accuracy: Accuracy) -> str:
    """An accuracy in percent, with its standard deviation if there are several runs."""
    deviation = "" if accuracy.deviation is None else f" ± {100 * accuracy.deviation:.1f}"
    return f"{100 * accuracy.mean:.1f}{deviation}"


def interval_text(interval: Interval) -> str:
    """An interval of an accuracy in percent."""
    return f"{100 * interval.low:.1f}-{100 * interval.high:.1f}"


def difference_text(comparison: Comparison) -> str:
    """The difference in percentage points, and its interval."""
    low, high = (100 * bound for bound in comparison.interval)
    return f"{100 * comparison.difference:+.1f} ({CONFIDENCE_LEVEL:.0%} interval {low:+.1f} to {high:+.1f})"


def p_text(comparison: Comparison) -> str:
    """The p value of each test."""
    exact = "" if comparison.mcnemar is None else f", exact McNemar p {_p(comparison.mcnemar)}"
    return f"paired randomisation p {_p(comparison.randomisation)}{exact}"


def _p(value: float) -> str:
    return f"= {value:.4f}" if value >= 0.0001 else "< 0.0001"


def _summarise(evaluation: Evaluation, threshold: float | None) -> dict[str, Any]:
    summary: dict[str, Any] = {}
    for dictionary in evaluation.dictionaries:
        results = evaluation.for_dictionary(dictionary)
        metrics: dict[str, Any] = asdict(compute_metrics(results, threshold=threshold))
        for column in ("seen", "type"):
            groups = compute_metrics_by(results, column)
            metrics[f"by {column}"] = {key: asdict(group) for key, group in groups.items()}
        summary[dictionary] = metrics
    return summary


def _group_lines(results: Sequence[pl.DataFrame], column: str, width: int) -> Iterator[str]:
    """One line per group of mentions with gold ids, if there are several groups."""
    groups = [compute_metrics_by(run, column) for run in results]
    keys = [key for key in (_SEEN if column == "seen" else groups[0]) if key in groups[0]]
    shown = [key for key in keys if groups[0][key].mentions]
    for key in shown if len(shown) > 1 else ():
        title = _SEEN[key] if column == "seen" else key or "no type"
        most = _COLUMN_WIDTH - 2
        short = title if len(title) < most else f"{title[: most - 2]}\N{HORIZONTAL ELLIPSIS}"
        yield _line(f"  {short}", [run[key] for run in groups], {}, width)


def _line(title: str, metrics: Sequence[Metrics], intervals: Mapping[int, Interval], width: int) -> str:
    """One line of the table; `metrics` has one item per run."""
    cells = ""
    for k in KS:
        interval = f" ({interval_text(intervals[k])})" if k in intervals else ""
        cells += f"{_percent([run.accuracy[k] for run in metrics]) + interval:<{width}}"
    cells += f"{_percent([run.strict[1] for run in metrics]):<{width - 11}}"
    mrr = [run.mrr for run in metrics if run.mrr is not None]
    cells += f"{f'{np.mean(mrr):.3f}' if mrr else '-':<7}"
    coverage = _percent([run.coverage for run in metrics[:1]])
    return f"{title:<{_COLUMN_WIDTH}}{metrics[0].mentions:>9,}  {cells}{coverage}".rstrip()


def _percent(shares: Sequence[float | None]) -> str:
    """Mean share over runs in percent; "-" if no run has a value."""
    known = np.array([share for share in shares if share is not None], np.float64)
    return accuracy_text(mean_over_runs(known)) if len(known) else "-"
