"""Comparison of two systems as a single HTML file that opens offline."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

import polars as pl

from sapbert.evaluation.compare import Comparison
from sapbert.evaluation.report import accuracy_text, difference_text, p_text
from sapbert.pages.document import document

MAX_SHOWN = 1_000
"""Maximum number of changed mentions per dictionary on the page; browsers are slow with more."""
_STYLES = {"gained": "good", "lost": "bad"}
"""Change → CSS class."""


def comparison_page(comparisons: list[Comparison], first: str, second: str, *, k: int) -> str:
    """Return the page that compares two systems by accuracy at k."""
    sections = "\n".join(line for comparison in comparisons for line in _section(comparison, first, second))
    return document(f"{second} compared with {first}: accuracy at {k}", sections)


def _section(comparison: Comparison, first: str, second: str) -> Iterator[str]:
    yield f"<h2>{escape(comparison.dictionary)}: {comparison.mentions:,} mentions</h2>"
    yield "<table>"
    for name, text in (
        (first, accuracy_text(comparison.first)),
        (second, accuracy_text(comparison.second)),
        ("difference", difference_text(comparison)),
    ):
        yield f'<tr><th scope="row">{escape(name)}</th><td>{escape(text)}</td></tr>'
    yield "</table>"
    yield f'<p class="quiet">{escape(p_text(comparison))}</p>'
    changed = comparison.changed.group_by(pl.exclude("raw"), maintain_order=True).agg(
        pl.col("raw").unique(maintain_order=True).str.join(", "), pl.len().alias("count")
    )
    more = f"; the first {MAX_SHOWN:,} are shown" if changed.height > MAX_SHOWN else ""
    yield f"<h3>{comparison.changed.height:,} mentions changed, {changed.height:,} distinct{more}</h3>"
    if changed.height:
        yield from _changes(changed.head(MAX_SHOWN), first, second)


def _changes(changed: pl.DataFrame, first: str, second: str) -> Iterator[str]:
    headers = ("mention", "gold", first, second, "count")
    yield '<table class="rows">\n<thead><tr><th scope="col"></th>'
    yield "".join(f'<th scope="col">{escape(header)}</th>' for header in headers)
    yield "</tr></thead>\n<tbody>"
    for row in changed.iter_rows(named=True):
        change = row["change"]
        cells = (
            _with_small_print(row["text"], "" if row["raw"] == row["text"] else row["raw"]),
            _with_small_print(row["gold_name"], row["gold"]),
            *(escape(row[system]) for system in ("first", "second")),
            f"{row['count']:,}",
        )
        data = "".join(
            f'<td data-head="{escape(header)}">{cell}</td>'
            for header, cell in zip(headers, cells, strict=True)
        )
        yield f'<tr><td class="{_STYLES[change]}">{change}</td>{data}</tr>'
    yield "</tbody>\n</table>"


def _with_small_print(text: str, small: str) -> str:
    """A text with a second text below it in small print."""
    return f"{escape(text)} <small>{escape(small).replace('|', '|<wbr>')}</small>"
