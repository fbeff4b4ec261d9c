"""Reproduce a table of the paper: own results next to the published ones.

The paper uses the dictionary of each benchmark's protocol, which for NCBI and BC5CDR includes the training
and development mentions. So the first table uses that dictionary and includes the published rows. A second
table shows the results with the dictionary alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from sapbert.evaluation.benchmarks.loader import EvaluationSet
from sapbert.evaluation.compare import Accuracy, System, compare, mean_over_runs
from sapbert.evaluation.metrics import KS
from sapbert.evaluation.report import accuracy_text, interval_text
from sapbert.evaluation.significance import CONFIDENCE_LEVEL, Interval, bootstrap_interval, t_test
from sapbert.paper.published import BENCHMARKS, XL_BEL, PaperTable, paper_tables
from sapbert.paper.results_table import markdown_table

DICTIONARY, ENLARGED_DICTIONARY = "dictionary", "test_dictionary"
NO_VALUE = "\N{EN DASH}"
_SETS = {**BENCHMARKS, **XL_BEL}
_PUBLISHED = "Rows in italics are from the paper."
_NOT_PUBLISHED = "The figures of the paper are not included."
_SIGNIFICANCE_LEVEL = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredAccuracy:
    """One measured accuracy."""

    accuracy: Accuracy
    interval: Interval
    p: float | None
    """p value of the difference to the reference row; None if it was not tested."""
    better: bool
    """Whether it is significantly higher than that of the reference row."""


@dataclass(frozen=True)
class Reproduction:
    """The data of a reproduced table."""

    table: PaperTable
    systems: Mapping[tuple[str, str], System]
    """Row and benchmark → its runs."""
    benchmarks: Mapping[str, EvaluationSet]
    missing: Mapping[str, str]
    """Benchmark that could not be measured → the reason."""
    paper_rows: Mapping[str, str]
    """Row → the corresponding row of the paper."""
    reference: str | None
    """The row, of this table or else of the paper, that the others are tested against."""

    @property
    def rows(self) -> list[str]:
        """The measured rows."""
        return list(dict.fromkeys(row for row, _ in self.systems))

    @property
    def columns(self) -> list[str]:
        """Benchmarks of the paper's table, then other measured benchmarks."""
        return [*self.table.columns, *(name for name in self.benchmarks if name not in self.table.columns)]

    def protocol(self, name: str) -> str:
        """Return the name of the dictionary that the paper uses for a benchmark."""
        has_enlarged = ENLARGED_DICTIONARY in self.benchmarks[name].dictionaries
        return ENLARGED_DICTIONARY if has_enlarged else DICTIONARY

    @cached_property
    def accuracies(self) -> dict[tuple[str, str, str, int], MeasuredAccuracy]:
        """Row, benchmark, dictionary and k → accuracy."""
        accuracies: dict[tuple[str, str, str, int], MeasuredAccuracy] = {}
        for (row, name), system in self.systems.items():
            for k in KS:
                tests = self._tests(row, name, k)
                for dictionary in self.benchmarks[name].dictionaries:
                    p, difference = tests.get(dictionary, (None, 0))
                    accuracies[row, name, dictionary, k] = MeasuredAccuracy(
                        accuracy=mean_over_runs(system.accuracies(dictionary, k)),
                        interval=bootstrap_interval(system.correct_at(dictionary, k)),
                        p=p,
                        better=p is not None and p < _SIGNIFICANCE_LEVEL and difference > 0,
                    )
        return accuracies

    def _tests(self, row: str, name: str, k: int) -> dict[str, tuple[float, float]]:
        """Return dictionary → p value and difference of the tests that are possible for a row."""
        if self.reference is None or row == self.reference:
            return {}
        system = self.systems[row, name]
        if self.reference in self.rows:
            comparisons = compare(self.systems[self.reference, name], system, k=k)
            return {one.dictionary: (one.randomisation, one.difference) for one in comparisons}
        dictionary = self.protocol(name)
        printed, values = self.table.accuracy(self.reference, name, k), system.accuracies(dictionary, k)
        if printed is None or len(values) < 2:
            return {}
        return {dictionary: (t_test(values, printed), float(values.mean()) - printed)}


def table_text(data: Reproduction) -> str:
    """Return the table and its notes as Markdown."""
    protocol = {name: data.protocol(name) for name in data.benchmarks}
    alone = {
        name: DICTIONARY
        for name, dictionary in protocol.items()
        if dictionary != DICTIONARY and DICTIONARY in data.benchmarks[name].dictionaries
    }
    sections = [
        f"# SapBERT paper, {data.table.title}\n",
        f"Acc@1/Acc@5 in percent. {_PUBLISHED if data.table.rows else _NOT_PUBLISHED}\n",
        "## With the dictionary of each protocol, as in the paper\n",
        markdown_table(list(_lines(data, data.columns, protocol, published=True))),
    ]
    if alone:
        sections += [
            "## With the dictionary alone\n",
            markdown_table(list(_lines(data, list(alone), alone, published=False))),
        ]
    notes = "".join(f"- {note}\n" for note in _notes(data))
    return "\n".join([*sections, f"## Notes\n\n{notes}"])


def csv_rows(data: Reproduction) -> Iterator[dict[str, object]]:
    """Yield one row per accuracy, as a share: first the measured ones, then those of the paper."""
    for (row, name, dictionary, k), measured in data.accuracies.items():
        system = data.systems[row, name]
        yield {
            "row": row,
            "of": "here",
            "benchmark": name,
            "dictionary": dictionary,
            "k": k,
            "accuracy": measured.accuracy.mean,
            "deviation": measured.accuracy.deviation,
            "low": measured.interval.low,
            "high": measured.interval.high,
            "runs": len(system.runs),
            "mentions": len(system.correct_at(dictionary, k)),
            "p": measured.p,
        }
    for row in data.table.rows:
        for name in data.table.columns:
            for k in KS:
                printed = data.table.accuracy(row, name, k)
                if printed is not None:
                    yield {"row": row, "of": "paper", "benchmark": name, "k": k, "accuracy": printed}


def _lines(
    data: Reproduction, columns: Sequence[str], dictionaries: Mapping[str, str], *, published: bool
) -> Iterator[dict[str, str]]:
    """Rows of a table: each measured row, its interval and its paper row; then other rows of the paper."""
    for row in data.rows:
        runs = len(next(system for (name, _), system in data.systems.items() if name == row).runs)
        yield _line(
            row if runs == 1 else f"{row} ({runs} runs)",
            columns,
            {
                name: "/".join(_accuracy(data.accuracies[row, name, dictionary, k]) for k in KS)
                for name, dictionary in dictionaries.items()
            },
        )
        yield _line(
            f"{CONFIDENCE_LEVEL:.0%} interval",
            columns,
            {
                name: "/".join(interval_text(data.accuracies[row, name, dictionary, k].interval) for k in KS)
                for name, dictionary in dictionaries.items()
            },
        )
        if published and row in data.paper_rows:
            printed = data.paper_rows[row]
            yield _line(f"*paper: {printed}*", columns, data.table.rows[printed])
    for row in data.table.rows if published else ():
        if row not in data.paper_rows.values():
            yield _line(f"*{row}*", columns, data.table.rows[row])


def _line(title: str, columns: Sequence[str], cells: Mapping[str, str]) -> dict[str, str]:
    return {"": title} | {_SETS[name].title: cells.get(name, NO_VALUE) for name in columns}


def _accuracy(measured: MeasuredAccuracy) -> str:
    return accuracy_text(measured.accuracy) + ("†" if measured.better else "")


def _notes(data: Reproduction) -> Iterator[str]:
    for name, benchmark in data.benchmarks.items():
        yield f"{_SETS[name].title}: {_counts(name, benchmark)}. {_SETS[name].note}"
    for name in data.columns:
        if name in data.missing:
            yield f"{_SETS[name].title} was not measured: {data.missing[name]}."
    enlarged = [_SETS[name].title for name in data.benchmarks if data.protocol(name) == ENLARGED_DICTIONARY]
    if enlarged:
        yield (
            f"The protocol of {' and '.join(enlarged)} adds the training and development mentions to the "
            "dictionary; most of the gain is on mentions seen in training."
        )
    yield (
        "Intervals are bootstrap intervals over mentions. For several runs, results are mean ± standard "
        "deviation."
    ) + (" The paper reports means of five runs, without intervals or deviations." if data.table.rows else "")
    if any(measured.p is not None for measured in data.accuracies.values()):
        yield f"†: better than {data.reference}, p < {_SIGNIFICANCE_LEVEL}, by {_test_name(data)}."


def _test_name(data: Reproduction) -> str:
    if data.reference in data.rows:
        return "the paired randomisation test over mentions"
    return "a t-test of two or more runs against the published figure, as in the paper"


def _counts(name: str, benchmark: EvaluationSet) -> str:
    test = benchmark.split("test")
    folds = test["fold"].n_unique()
    mentions = f"{folds} folds of {test.height / folds:,.1f}" if folds > 1 else f"{test.height:,}"
    sizes = [f"{len(dictionary):,}" for dictionary in benchmark.dictionaries.values()]
    names = " names, with the protocol's mentions ".join(sizes)
    counts = f"{mentions} test mentions and {names}{' names' if len(sizes) == 1 else ''}"
    printed = paper_tables()["table3"].rows.get(name)
    return f"{counts}; in the paper {printed['test']} and {printed['names']}" if printed else counts
