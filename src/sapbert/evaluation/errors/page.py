"""The error browser: all wrong links of an evaluation in a single HTML file.

The table of error kinds is plain HTML. The links are JSON data that a script renders a few at a time, so that
a page with thousands of links opens immediately and filters while the user types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

import polars as pl

from sapbert.evaluation.errors.kinds import DESCRIPTIONS, ErrorKind
from sapbert.evaluation.errors.wrong_links import WrongLink, count_kinds
from sapbert.evaluation.run import DEPTH, Evaluation
from sapbert.pages.document import document

MAX_SHOWN = 20_000
"""Maximum number of wrong links per dictionary on the page, about 10 MB."""
_MAX_NAMES = 10
"""Maximum number of names shown per gold concept."""
_TOOLS = """
<form class="tools" role="search" hidden>
<label class="grow">Search mentions, names, identifiers and documents<input type="search" id="search"></label>
<label>Kind<select id="kind"><option value="">all kinds</option></select></label>
<label>Dictionary<select id="dictionary"></select></label>
<output id="count" aria-live="polite"></output>
</form>
<noscript><p>Enable JavaScript to see the wrong links.</p></noscript>
<div id="links"></div>
<p><button id="more" type="button" hidden>Show more</button></p>
"""


def errors_page(evaluation: Evaluation, links: Mapping[str, Sequence[WrongLink]], *, title: str) -> str:
    """Return the page that shows the wrong links of an evaluation, given per dictionary."""
    body = "\n".join([*_summary(evaluation, links), _TOOLS])
    data = {"depth": DEPTH, "dictionaries": [_dictionary(evaluation, *item) for item in links.items()]}
    return document(title, body, script="errors", data=data)


def _summary(evaluation: Evaluation, links: Mapping[str, Sequence[WrongLink]]) -> Iterator[str]:
    """The number of errors per dictionary, and the table of error kinds."""
    for name, wrong_links in links.items():
        mentions = (evaluation.for_dictionary(name)["gold"] != "").sum()
        wrong = sum(link.times for link in wrong_links)
        share = f" ({wrong / mentions:.1%})" if mentions else ""
        summary = (
            f"{wrong:,} of {mentions:,} mentions are linked wrongly{share}, {len(wrong_links):,} distinct"
        )
        cut = f"; the {MAX_SHOWN:,} most frequent are shown" if len(wrong_links) > MAX_SHOWN else ""
        yield f"<p><b>{escape(name)}</b>: {summary}{cut}.</p>"
    counts = {name: count_kinds(wrong_links) for name, wrong_links in links.items()}
    yield '<table class="rows">\n<thead><tr><th scope="col">kind</th><th scope="col">description</th>'
    yield "".join(f'<th scope="col" class="number">{escape(name)}</th>' for name in counts)
    yield "</tr></thead>\n<tbody>"
    for kind, description in DESCRIPTIONS.items():
        first = next((link for of_one in links.values() for link in of_one if link.kind is kind), None)
        if first is not None:
            cells = "".join(_cell(name, kind, kinds) for name, kinds in counts.items())
            yield f'<tr><th scope="row" data-kind="{kind}">{kind}</th>'
            example = _example(first, evaluation.gold)
            yield f"<td>{escape(description)} <small>{escape(example)}</small></td>{cells}</tr>"
    yield "</tbody>\n</table>"
    yield '<p class="quiet">An error has the first kind that applies. Shares are of the wrong mentions.</p>'


def _example(link: WrongLink, gold: pl.DataFrame) -> str:
    """The mention as written (which may decide its kind), its answer, and a gold name or id."""
    answers = " | ".join(candidates[0].name if candidates else "no candidate" for _, candidates in link.parts)
    names = gold.filter(pl.col("id") == link.gold[0])["name"]
    gold_name = link.gold[0] if names.is_empty() else names[0]
    return f"Example: {link.raw_texts[0]} \u2192 {answers}; gold: {gold_name}"


def _cell(name: str, kind: ErrorKind, counts: Mapping[ErrorKind, int]) -> str:
    count = counts[kind]
    share = f" ({count / sum(counts.values()):.0%})" if count else ""
    return f'<td class="number" data-head="{escape(name)}">{count:,}{share}</td>'


def _dictionary(evaluation: Evaluation, name: str, links: Sequence[WrongLink]) -> dict[str, Any]:
    """The data of one dictionary, with the fields that `pages/errors.js` reads."""
    shown = links[:MAX_SHOWN]
    gold_ids = {gold for link in shown for gold in link.gold}
    gold_names = evaluation.gold.filter(pl.col("dictionary") == name, pl.col("id").is_in(gold_ids))
    concepts = {
        gold: {"names": names[:_MAX_NAMES], "more": len(names[_MAX_NAMES:])}
        for gold, names in gold_names.group_by("id").agg("name").iter_rows()
    }
    return {"name": name, "concepts": concepts, "links": [_link(link) for link in shown]}


def _link(link: WrongLink) -> dict[str, Any]:
    return {
        "kind": link.kind,
        "times": link.times,
        "raws": link.raw_texts,
        "documents": link.documents,
        "gold": link.gold,
        "rank": link.rank,
        "seen": link.seen,
        "parts": [
            {
                "text": text,
                "answers": [[one.name, one.ids, round(one.score, 3), one.correct] for one in candidates],
            }
            for text, candidates in link.parts
        ],
    }
