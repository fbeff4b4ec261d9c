"""What an evaluation and a comparison say, in words and as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sapbert.evaluation.compare import Accuracy, Comparison
from sapbert.evaluation.kinds import Kind
from sapbert.evaluation.metrics import KS, Measures, measure, measure_by, right_at
from sapbert.evaluation.run import Evaluation
from sapbert.evaluation.significance import LEVEL, Interval, bootstrap_interval
from sapbert.evaluation.wrong import WrongLink, count_kinds

_SEEN = {"true": "seen in training", "false": "unseen"}
_WIDE = 24


def summarise(evaluation: Evaluation, *, threshold: float | None = None) -> dict[str, Any]:
    """Return every figure of an evaluation, by dictionary, for machines."""
    summary: dict[str, Any] = {}
    for dictionary in evaluation.dictionaries:
        results = evaluation.of(dictionary)
        found: dict[str, Any] = asdict(measure(results, threshold=threshold))
        rights = {k: right_at(results, k) for k in KS}
        found["interval"] = {k: bootstrap_interval(right) for k, right in rights.items() if len(right)}
        for column in ("seen", "type"):
            found[f"by {column}"] = {key: asdict(own) for key, own in measure_by(results, column).items()}
        summary[dictionary] = found
    return summary


def evaluation_lines(evaluation: Evaluation, *, threshold: float | None = None) -> Iterator[str]:
    """Tell an evaluation in a table: a line a dictionary, and under it those seen in training and not."""
    head = "".join(f"{title:<21}" for title in (f"Acc@{k}" for k in KS))
    yield f"{'':<{_WIDE}}{'mentions':>9}  {head}{'strict@1':<10}{'MRR':<7}coverage"
    for dictionary in evaluation.dictionaries:
        results = evaluation.of(dictionary)
        figures = measure(results, threshold=threshold)
        intervals = {k: bootstrap_interval(right_at(results, k)) for k in KS if figures.mentions}
        yield _line(dictionary, figures, intervals)
        for key, own in measure_by(results, "seen").items():
            if own.mentions < figures.mentions:
                yield _line(f"  {_SEEN[key]}", own, {})
        if figures.nil:
            told = f"precision {_percent(figures.nil_precision)}, recall {_percent(figures.nil_recall)}"
            yield f"  NIL: {figures.nil:,} mentions, {told}"
    yield f"In brackets: {LEVEL:.0%} bootstrap intervals over mentions."


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
    rows["wrong"] = [f"{wrong[name]:,} of {measure(evaluation.of(name)).mentions:,}" for name in counts]
    for kind in Kind:
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


def difference_text(found: Comparison) -> str:
    """The difference in points, and its interval."""
    low, high = (100 * bound for bound in found.interval)
    return f"{100 * found.difference:+.1f} ({LEVEL:.0%} interval {low:+.1f} to {high:+.1f})"


def p_text(found: Comparison) -> str:
    """The p of each test."""
    exact = "" if found.mcnemar is None else f", exact McNemar p {_p(found.mcnemar)}"
    return f"paired randomisation p {_p(found.randomisation)}{exact}"


def _p(value: float) -> str:
    return f"= {value:.4f}" if value >= 0.0001 else "< 0.0001"


def _line(title: str, figures: Measures, intervals: Mapping[int, Interval]) -> str:
    cells = "".join(f"{_accuracy(figures.accuracy[k], intervals.get(k)):<21}" for k in KS)
    mrr = "-" if figures.mrr is None else f"{figures.mrr:.3f}"
    strict, coverage = _percent(figures.strict[1]), _percent(figures.coverage)
    return f"{title:<{_WIDE}}{figures.mentions:>9,}  {cells}{strict:<10}{mrr:<7}{coverage}".rstrip()


def _accuracy(value: float | None, interval: Interval | None) -> str:
    between = "" if interval is None else f" ({_percent(interval.low)}-{_percent(interval.high)})"
    return _percent(value) + between


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"
