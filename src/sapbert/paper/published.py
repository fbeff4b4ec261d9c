"""What the SapBERT paper reports (Liu et al., NAACL 2021), to stand beside what is measured here.

The figures are in `published.tsv` as they are printed: a block a table, with its page, and Acc@1/Acc@5 a set.
`-` is not reported, OOM out of memory, † significantly better than the supervised SOTA (T-test, p < 0.05);
COMETA's results with back-off stand in brackets. What is known to differ between the paper's sets and those
that can be had is told here, and goes below every table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from sapbert.errors import ConfigError

SOTA = "supervised SOTA"
"""The row against which the paper tests its own."""
_HEAD = re.compile(r"# (Table (\d), page \d+): (.*)")


@dataclass(frozen=True, slots=True)
class PaperBenchmark:
    """A benchmark of the paper."""

    title: str
    """What the paper calls it."""
    note: str
    """How it may differ from what lies here, in sentences."""


BENCHMARKS = {
    "ncbi-disease": PaperBenchmark("NCBI", "The paper counts one name less in the same dictionary."),
    "bc5cdr-disease": PaperBenchmark(
        "BC5CDR-d", "The paper counts mentions before those with ids that MEDIC lacks are dropped."
    ),
    "bc5cdr-chemical": PaperBenchmark(
        "BC5CDR-c",
        "The paper searches CTD's chemicals of 2019, and counts mentions before those with ids that CTD "
        "lacks are dropped; with another dictionary the figures are only roughly comparable.",
    ),
    "medmentions": PaperBenchmark("MedMentions", "The paper searches all English names of UMLS 2017AA."),
    "askapatient": PaperBenchmark(
        "AskAPatient",
        "Figures are means over the folds. Folds overlap: two test mentions in three repeat a training pair "
        "of their fold, and as many stand in the test of another; so a fine-tuned figure flatters, and "
        "intervals are too narrow. Names that fold alike are one.",
    ),
    "cometa": PaperBenchmark("COMETA", "This is the stratified general split."),
    "cometa-zeroshot": PaperBenchmark(
        "COMETA zero-shot", "This is the zero-shot general split, of Tables 2 and 6."
    ),
}
"""Name of the folder in which a set is sought → the set."""


@dataclass(frozen=True, slots=True)
class PaperTable:
    """A table as printed."""

    title: str
    """Where it stands and what it is of."""
    columns: tuple[str, ...]
    rows: Mapping[str, Mapping[str, str]]
    """Row → column → what is printed."""
    also: Mapping[str, str]
    """Another name of a row → the row."""

    def find(self, name: str) -> str | None:
        """Return the row called `name`, whatever its case and punctuation."""
        called = {
            _plain(known): row for known, row in [*((row, row) for row in self.rows), *self.also.items()]
        }
        return called.get(_plain(name))

    def row(self, name: str) -> str:
        """Return the row called `name`, which must be there."""
        found = self.find(name)
        if found is None:
            raise ConfigError(f"the paper's table has no row {name!r}, only: {'; '.join(self.rows)}")
        return found

    def accuracy(self, row: str, column: str, k: int) -> float | None:
        """The share that a cell prints for Acc@k, of Acc@1/Acc@5."""
        printed = self.rows[row].get(column, "-/-").split("/")[{1: 0, 5: 1}[k]]
        number = re.match(r"[\d.]+", printed)
        return round(float(number[0]) / 100, 4) if number else None


@cache
def paper_tables() -> Mapping[str, PaperTable]:
    """All tables that are kept, by name: `table1`, …"""
    text = files("sapbert.paper").joinpath("published.tsv").read_text(encoding="utf-8")
    return dict(_table(block.splitlines()) for block in text.split("\n\n"))


def _table(lines: list[str]) -> tuple[str, PaperTable]:
    head = _HEAD.fullmatch(lines[0])
    assert head is not None
    _, *columns = lines[1].split("\t")
    rows = {
        row: dict(zip(columns, cells, strict=True))
        for row, *cells in (line.split("\t") for line in lines[2:])
    }
    also = {cells.pop("also", ""): row for row, cells in rows.items()}
    also.pop("", None)
    kept = tuple(column for column in columns if column != "also")
    return f"table{head[2]}", PaperTable(f"{head[1]}: {head[3]}", kept, rows, also)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
