"""A table of the paper as it comes out here: what was measured, with what the paper printed beside it.

The paper's figures are with the dictionary of each benchmark's protocol, which for NCBI and BC5CDR holds the
training and development mentions; so that table comes first, and a second one shows what the dictionary alone
is worth. Only the first has published figures beside it.
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
from sapbert.paper.published import BENCHMARKS, PaperTable, paper_tables
from sapbert.paper.results_table import markdown_table

ALONE, ENLARGED = "dictionary", "test_dictionary"
ABSENT = "\N{EN DASH}"
_SIGNIFICANT = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured accuracy."""

    accuracy: Accuracy
    interval: Interval
    p: float | None
    """Of the difference to the row that all are tested against; None where there is no test."""
    better: bool
    """Whether it is higher than that row's, and not by luck."""


@dataclass(frozen=True)
class Reproduction:
    """What a table is made of."""

    table: PaperTable
    systems: Mapping[tuple[str, str], System]
    """Row and set → its runs."""
    sets: Mapping[str, EvaluationSet]
    absent: Mapping[str, str]
    """Set that could not be measured → why."""
    beside: Mapping[str, str]
    """Row → the row of the paper that stands beside it."""
    against: str | None
    """The row, here or else in the paper, that the others are tested against."""

    @property
    def rows(self) -> list[str]:
        """Rows that were measured."""
        return list(dict.fromkeys(row for row, _ in self.systems))

    @property
    def columns(self) -> list[str]:
        """Sets of the paper's table, then others of the paper that were found."""
        return [*self.table.columns, *(name for name in self.sets if name not in self.table.columns)]

    def protocol(self, name: str) -> str:
        """The dictionary that the paper used, of those that a set has."""
        return ENLARGED if ENLARGED in self.sets[name].dictionaries else ALONE

    @cached_property
    def figures(self) -> dict[tuple[str, str, str, int], Figure]:
        """Row, set, dictionary and k → what was measured."""
        found: dict[tuple[str, str, str, int], Figure] = {}
        for (row, name), system in self.systems.items():
            for k in KS:
                tests = self._tests(row, name, k)
                for dictionary in self.sets[name].dictionaries:
                    p, difference = tests.get(dictionary, (None, 0))
                    found[row, name, dictionary, k] = Figure(
                        accuracy=mean_over_runs(system.accuracies(dictionary, k)),
                        interval=bootstrap_interval(system.correct_at(dictionary, k)),
                        p=p,
                        better=p is not None and p < _SIGNIFICANT and difference > 0,
                    )
        return found

    def _tests(self, row: str, name: str, k: int) -> dict[str, tuple[float, float]]:
        """The dictionaries with which a row can be tested → p and difference."""
        if self.against is None or row == self.against:
            return {}
        system = self.systems[row, name]
        if self.against in self.rows:
            found = compare(self.systems[self.against, name], system, k=k)
            return {one.dictionary: (one.randomisation, one.difference) for one in found}
        dictionary = self.protocol(name)
        printed, values = self.table.accuracy(self.against, name, k), system.accuracies(dictionary, k)
        if printed is None or len(values) < 2:
            return {}
        return {dictionary: (t_test(values, printed), float(values.mean()) - printed)}


def table_text(found: Reproduction) -> str:
    """The table, and what must be known to read it, as Markdown."""
    protocol = {name: found.protocol(name) for name in found.sets}
    alone = {
        name: ALONE
        for name, chosen in protocol.items()
        if chosen != ALONE and ALONE in found.sets[name].dictionaries
    }
    sections = [
        f"# SapBERT paper, {found.table.title}\n",
        "Acc@1/Acc@5 in percent. Rows in italics are the paper's.\n",
        "## With the dictionary of each protocol, as in the paper\n",
        markdown_table(list(_lines(found, found.columns, protocol, published=True))),
    ]
    if alone:
        sections += [
            "## With the dictionary alone\n",
            markdown_table(list(_lines(found, list(alone), alone, published=False))),
        ]
    notes = "".join(f"- {note}\n" for note in _notes(found))
    return "\n".join([*sections, f"## Notes\n\n{notes}"])


def csv_rows(found: Reproduction) -> Iterator[dict[str, object]]:
    """Every figure, one a line, as a share: first what was measured here, then what the paper has."""
    for (row, name, dictionary, k), figure in found.figures.items():
        system = found.systems[row, name]
        yield {
            "row": row,
            "of": "here",
            "benchmark": name,
            "dictionary": dictionary,
            "k": k,
            "accuracy": figure.accuracy.mean,
            "deviation": figure.accuracy.deviation,
            "low": figure.interval.low,
            "high": figure.interval.high,
            "runs": len(system.runs),
            "mentions": len(system.correct_at(dictionary, k)),
            "p": figure.p,
        }
    for row in found.table.rows:
        for name in found.table.columns:
            for k in KS:
                printed = found.table.accuracy(row, name, k)
                if printed is not None:
                    yield {"row": row, "of": "paper", "benchmark": name, "k": k, "accuracy": printed}


def _lines(
    found: Reproduction, columns: Sequence[str], dictionaries: Mapping[str, str], *, published: bool
) -> Iterator[dict[str, str]]:
    """Rows of a table: each with its interval and the paper's beside it, and last the paper's others."""
    for row in found.rows:
        runs = len(next(system for (own, _), system in found.systems.items() if own == row).runs)
        yield _line(
            row if runs == 1 else f"{row} ({runs} runs)",
            columns,
            {
                name: "/".join(_accuracy(found.figures[row, name, dictionary, k]) for k in KS)
                for name, dictionary in dictionaries.items()
            },
        )
        yield _line(
            f"{CONFIDENCE_LEVEL:.0%} interval",
            columns,
            {
                name: "/".join(interval_text(found.figures[row, name, dictionary, k].interval) for k in KS)
                for name, dictionary in dictionaries.items()
            },
        )
        if published and row in found.beside:
            printed = found.beside[row]
            yield _line(f"*paper: {printed}*", columns, found.table.rows[printed])
    for row in found.table.rows if published else ():
        if row not in found.beside.values():
            yield _line(f"*{row}*", columns, found.table.rows[row])


def _line(title: str, columns: Sequence[str], cells: Mapping[str, str]) -> dict[str, str]:
    return {"": title} | {BENCHMARKS[name].title: cells.get(name, ABSENT) for name in columns}


def _accuracy(figure: Figure) -> str:
    return accuracy_text(figure.accuracy) + ("†" if figure.better else "")


def _notes(found: Reproduction) -> Iterator[str]:
    for name, benchmark in found.sets.items():
        yield f"{BENCHMARKS[name].title}: {_counts(name, benchmark)}. {BENCHMARKS[name].note}"
    for name in found.columns:
        if name in found.absent:
            yield f"{BENCHMARKS[name].title} was not measured: {found.absent[name]}."
    enlarged = [BENCHMARKS[name].title for name in found.sets if found.protocol(name) == ENLARGED]
    if enlarged:
        yield (
            f"The protocol of {' and '.join(enlarged)} adds the training and development mentions to the "
            "dictionary; most of what that brings is on mentions seen in training."
        )
    yield (
        "Intervals are bootstraps over mentions; of several runs the mean is told, ± their deviation. "
        "The paper's own figures are means of five runs, without either."
    )
    if any(figure.p is not None for figure in found.figures.values()):
        yield f"†: better than {found.against}, p < {_SIGNIFICANT}, by {_test_name(found)}."


def _test_name(found: Reproduction) -> str:
    if found.against in found.rows:
        return "the paired randomisation test over mentions"
    return "a t-test of two runs or more against the printed figure, as in the paper"


def _counts(name: str, benchmark: EvaluationSet) -> str:
    test = benchmark.split("test")
    folds = test["fold"].n_unique()
    mentions = f"{folds} folds of {test.height / folds:,.1f}" if folds > 1 else f"{test.height:,}"
    sizes = {key: f"{len(found):,}" for key, found in benchmark.dictionaries.items()}
    names = " names, with the protocol's mentions ".join(sizes.values())
    printed = paper_tables()["table3"].rows[name]
    paper = f"in the paper {printed['test']} and {printed['names']}"
    return f"{mentions} test mentions and {names}{' names' if len(sizes) == 1 else ''}; {paper}"
