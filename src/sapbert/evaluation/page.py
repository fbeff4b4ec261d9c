"""One HTML file that shows a comparison, with nothing outside it: it can be mailed and opened offline."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

import polars as pl

from sapbert.evaluation.compare import Comparison
from sapbert.evaluation.report import accuracy_text, difference_text, p_text

MOST_SHOWN = 1_000
"""Changed mentions of each dictionary in the page; a browser is slow with more, and a reader has enough."""
# Blue and orange are told apart by the colour-blind too; the word stands beside them.
_STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #ffffff; --line: #d0d0d0; --soft: #f3f3f3;
        --gained: #0b5cad; --lost: #a84300; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --paper: #161616; --line: #444444; --soft: #222222;
          --gained: #7db8f5; --lost: #f2a36b; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { text-align: left; padding: .3rem .8rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th { background: var(--soft); }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
.gained { color: var(--gained); font-weight: 600; } .lost { color: var(--lost); font-weight: 600; }
.wide { overflow-x: auto; }
"""


def comparison_page(comparisons: list[Comparison], first: str, second: str, *, k: int) -> str:
    """Return the page of a comparison of accuracy at k."""
    title = f"{second} against {first}: accuracy at {k}"
    sections = "\n".join(line for found in comparisons for line in _section(found, first, second))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width">\n<title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n{sections}\n</body>\n</html>\n"
    )


def _section(found: Comparison, first: str, second: str) -> Iterator[str]:
    yield f"<h2>{escape(found.dictionary)}: {found.mentions:,} mentions</h2>"
    yield "<table>"
    for name, text in (
        (first, accuracy_text(found.first)),
        (second, accuracy_text(found.second)),
        ("difference", difference_text(found)),
    ):
        yield f'<tr><th scope="row">{escape(name)}</th><td class="number">{escape(text)}</td></tr>'
    yield "</table>"
    yield f"<p>{escape(p_text(found))}</p>"
    shown = found.changed.head(MOST_SHOWN)
    more = f", the first {MOST_SHOWN:,} of them" if found.changed.height > MOST_SHOWN else ""
    yield f"<h3>{found.changed.height:,} mentions changed{more}</h3>"
    if shown.height:
        yield from _changes(shown, first, second)


def _changes(changed: pl.DataFrame, first: str, second: str) -> Iterator[str]:
    heads = ("", "mention", "as measured", "gold", first, second)
    yield '<div class="wide"><table>\n<thead><tr>'
    yield "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    yield "</tr></thead>\n<tbody>"
    for change, *cells in changed.iter_rows():
        words = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        yield f'<tr><td class="{change}">{change}</td>{words}</tr>'
    yield "</tbody>\n</table></div>"
