"""Results published in the SapBERT paper (Liu et al., NAACL 2021), to compare with own results.

`published.tsv` has the figures as printed: one block per table, with its page, and Acc@1/Acc@5 per benchmark.
`-` means not reported, OOM out of memory, and † significantly better than the supervised SOTA (t-test,
p < 0.05). COMETA's results with back-off are in brackets. The known differences between the paper's
benchmarks and those that can be obtained are listed here and printed below every table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from sapbert.errors import ConfigError

SOTA = "supervised SOTA"
"""The row that the paper tests its own rows against."""
_HEAD = re.compile(r"# (Table (\d), page \d+): (.*)")


@dataclass(frozen=True, slots=True)
class PaperBenchmark:
    """A benchmark in the paper."""

    title: str
    """Its name in the paper."""
    note: str
    """How the benchmark in the paper may differ from the one measured, in sentences."""


BENCHMARKS = {
    "ncbi-disease": PaperBenchmark("NCBI", "The paper counts one name less in the same dictionary."),
    "bc5cdr-disease": PaperBenchmark(
        "BC5CDR-d", "The paper counts mentions before dropping those with ids that are not in MEDIC."
    ),
    "bc5cdr-chemical": PaperBenchmark(
        "BC5CDR-c",
        "The paper searches CTD's chemicals of 2019, and counts mentions before dropping those with ids that "
        "are not in CTD. With another dictionary, results are only roughly comparable.",
    ),
    "medmentions": PaperBenchmark("MedMentions", "The paper searches all English names of UMLS 2017AA."),
    "askapatient": PaperBenchmark(
        "AskAPatient",
        "Results are means over the folds. Folds overlap: two thirds of the test mentions repeat a training "
        "pair of their fold, and as many are in the test split of another fold. So results of fine-tuned "
        "models are too high, and intervals are too narrow. Names that fold to the same text are one.",
    ),
    "cometa": PaperBenchmark("COMETA", "This is the stratified general split."),
    "cometa-zeroshot": PaperBenchmark(
        "COMETA zero-shot", "This is the zero-shot general split, of Tables 2 and 6."
    ),
}
"""Name of the folder of a benchmark → the benchmark."""
XL_BEL = {
    f"xl-bel-{language}": PaperBenchmark(
        language, "The paper searches 399,931 names of UMLS, in all languages."
    )
    for language in ("en", "es", "de", "fi", "ru", "tr", "ko", "zh", "ja", "th")
}
"""The sets of the cross-lingual paper (Liu et al., ACL 2021), in the order of its tables."""


@dataclass(frozen=True, slots=True)
class PaperTable:
    """A table as printed."""

    title: str
    """Number, page and subject of the table."""
    columns: tuple[str, ...]
    rows: Mapping[str, Mapping[str, str]]
    """Row → column → the printed text."""
    aliases: Mapping[str, str]
    """Another name of a row → the row."""

    def find(self, name: str) -> str | None:
        """Return the row called `name`, ignoring case and punctuation."""
        rows = {
            _plain(known): row for known, row in [*((row, row) for row in self.rows), *self.aliases.items()]
        }
        return rows.get(_plain(name))

    def row(self, name: str) -> str:
        """Return the row called `name`; raise an error if there is none."""
        row = self.find(name)
        if row is None:
            raise ConfigError(f"the paper's table has no row {name!r}, only: {'; '.join(self.rows)}")
        return row

    def accuracy(self, row: str, column: str, k: int) -> float | None:
        """Return the share printed for Acc@k in a cell `Acc@1/Acc@5`; None if there is none."""
        printed = self.rows[row].get(column, "-/-").split("/")[{1: 0, 5: 1}[k]]
        number = re.match(r"[\d.]+", printed)
        return round(float(number[0]) / 100, 4) if number else None


@cache
def paper_tables() -> Mapping[str, PaperTable]:
    """Return all tables in `published.tsv` by name: `table1`, …"""
    text = files("sapbert.paper").joinpath("published.tsv").read_text(encoding="utf-8")
    return dict(_table(block.splitlines()) for block in text.split("\n\n"))


def xl_bel_table() -> PaperTable:
    """Return the table of XL-BEL: its columns, without rows.

    The published figures are not included, because only the sets themselves were at hand.
    """
    return PaperTable("XL-BEL (Liu et al., ACL 2021)", tuple(XL_BEL), {}, {})


def _table(lines: list[str]) -> tuple[str, PaperTable]:
    head = _HEAD.fullmatch(lines[0])
    assert head is not None
    _, *columns = lines[1].split("\t")
    rows = {
        row: dict(zip(columns, cells, strict=True))
        for row, *cells in (line.split("\t") for line in lines[2:])
    }
    aliases = {cells.pop("also", ""): row for row, cells in rows.items()}
    aliases.pop("", None)
    benchmarks = tuple(column for column in columns if column != "also")
    return f"table{head[2]}", PaperTable(f"{head[1]}: {head[3]}", benchmarks, rows, aliases)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
