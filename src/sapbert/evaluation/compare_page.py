"""A comparison as one HTML file that can be mailed and opened offline."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

import polars as pl

from sapbert.evaluation.compare import Comparison
from sapbert.evaluation.report import accuracy_text, difference_text, p_text
from sapbert.pages.document import document

MOST_SHOWN = 1_000
"""Changed mentions of each dictionary in the page; a browser is slow with more, and a reader has enough."""
_LOOKS = {"gained": "good", "lost": "bad"}
"""How each change looks."""


def comparison_page(comparisons: list[Comparison], first: str, second: str, *, k: int) -> str:
    """Return the page of a comparison of accuracy at k."""
    sections = "\n".join(line for found in comparisons for line in _section(found, first, second))
    return document(f"{second} against {first}: accuracy at {k}", sections)


def _section(found: Comparison, first: str, second: str) -> Iterator[str]:
    yield f"<h2>{escape(found.dictionary)}: {found.mentions:,} mentions</h2>"
    yield "<table>"
    for name, text in (
        (first, accuracy_text(found.first)),
        (second, accuracy_text(found.second)),
        ("difference", difference_text(found)),
    ):
        yield f'<tr><th scope="row">{escape(name)}</th><td>{escape(text)}</td></tr>'
    yield "</table>"
    yield f'<p class="quiet">{escape(p_text(found))}</p>'
    changed = found.changed.group_by(pl.exclude("raw"), maintain_order=True).agg(
        pl.col("raw").unique(maintain_order=True).str.join(", "), pl.len().alias("times")
    )
    more = f"; below are {MOST_SHOWN:,}" if changed.height > MOST_SHOWN else ""
    yield f"<h3>{found.changed.height:,} mentions changed, {changed.height:,} different ones{more}</h3>"
    if changed.height:
        yield from _changes(changed.head(MOST_SHOWN), first, second)


def _changes(changed: pl.DataFrame, first: str, second: str) -> Iterator[str]:
    heads = ("mention", "gold", first, second, "times")
    yield '<table class="rows">\n<thead><tr><th scope="col"></th>'
    yield "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    yield "</tr></thead>\n<tbody>"
    for row in changed.iter_rows(named=True):
        change = row["change"]
        cells = (
            _two(row["text"], "" if row["raw"] == row["text"] else row["raw"]),
            _two(row["means"], row["gold"]),
            *(escape(row[system]) for system in ("first", "second")),
            f"{row['times']:,}",
        )
        told = "".join(
            f'<td data-head="{escape(head)}">{cell}</td>' for head, cell in zip(heads, cells, strict=True)
        )
        yield f'<tr><td class="{_LOOKS[change]}">{change}</td>{told}</tr>'
    yield "</tbody>\n</table>"


def _two(text: str, small: str) -> str:
    """A text, and under it another in small print."""
    return f"{escape(text)} <small>{escape(small).replace('|', '|<wbr>')}</small>"
