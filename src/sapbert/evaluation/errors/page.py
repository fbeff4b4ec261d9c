"""The error browser: every wrong link of an evaluation in one HTML file, kind by kind.

What the kinds are and how many there are is plain HTML; the links themselves are data that a script shows a
few at a time, so that a page of thousands opens at once and filters as fast as one types.
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

MOST_SHOWN = 20_000
"""Wrong links of each dictionary in the page: some 10 MB."""
_MOST_NAMES = 10
"""Names shown of a gold concept."""
_TOOLS = """
<form class="tools" role="search" hidden>
<label class="grow">Search mentions, names, identifiers and documents<input type="search" id="search"></label>
<label>ErrorKind<select id="kind"><option value="">all kinds</option></select></label>
<label>Dictionary<select id="dictionary"></select></label>
<output id="count" aria-live="polite"></output>
</form>
<noscript><p>The wrong links themselves are shown by a script, which this browser does not run.</p></noscript>
<div id="links"></div>
<p><button id="more" type="button" hidden>Show more</button></p>
"""


def errors_page(evaluation: Evaluation, links: Mapping[str, Sequence[WrongLink]], *, title: str) -> str:
    """Return the page of the wrong links of an evaluation, by dictionary."""
    body = "\n".join([*_summary(evaluation, links), _TOOLS])
    data = {"depth": DEPTH, "dictionaries": [_dictionary(evaluation, *item) for item in links.items()]}
    return document(title, body, script="errors", data=data)


def _summary(evaluation: Evaluation, links: Mapping[str, Sequence[WrongLink]]) -> Iterator[str]:
    """Say how many errors there are, and what each kind is."""
    for name, own in links.items():
        mentions, wrong = (
            (evaluation.for_dictionary(name)["gold"] != "").sum(),
            sum(link.times for link in own),
        )
        share = f" ({wrong / mentions:.1%})" if mentions else ""
        told = f"{wrong:,} of {mentions:,} mentions are linked wrongly{share}"
        cut = f"; the {MOST_SHOWN:,} most frequent are below" if len(own) > MOST_SHOWN else ""
        yield f"<p><b>{escape(name)}</b>: {told}, {len(own):,} different ones{cut}.</p>"
    counts = {name: count_kinds(own) for name, own in links.items()}
    yield '<table class="rows">\n<thead><tr><th scope="col">kind</th><th scope="col">what it is</th>'
    yield "".join(f'<th scope="col" class="number">{escape(name)}</th>' for name in counts)
    yield "</tr></thead>\n<tbody>"
    for kind, explained in DESCRIPTIONS.items():
        example = next((link for own in links.values() for link in own if link.kind is kind), None)
        if example is not None:
            cells = "".join(_cell(name, kind, own) for name, own in counts.items())
            yield f'<tr><th scope="row" data-kind="{kind}">{kind}</th>'
            told = _example(example, evaluation.gold)
            yield f"<td>{escape(explained)} <small>{escape(told)}</small></td>{cells}</tr>"
    yield "</tbody>\n</table>"
    yield '<p class="quiet">An error is of the first kind that fits. Shares are of the wrong mentions.</p>'


def _example(link: WrongLink, gold: pl.DataFrame) -> str:
    """Say what was written, which may decide the kind, and meant where the dictionary has a name for it."""
    answers = " | ".join(found[0].name if found else "no answer" for _, found in link.parts)
    names = gold.filter(pl.col("id") == link.gold[0])["name"]
    meant = link.gold[0] if names.is_empty() else names[0]
    return f"For example: {link.raw_texts[0]} \u2192 {answers}; gold: {meant}"


def _cell(name: str, kind: ErrorKind, counts: Mapping[ErrorKind, int]) -> str:
    count = counts[kind]
    share = f" ({count / sum(counts.values()):.0%})" if count else ""
    return f'<td class="number" data-head="{escape(name)}">{count:,}{share}</td>'


def _dictionary(evaluation: Evaluation, name: str, links: Sequence[WrongLink]) -> dict[str, Any]:
    """What the script needs of one dictionary: `pages/errors.js` reads the same fields."""
    shown = links[:MOST_SHOWN]
    wanted = {gold for link in shown for gold in link.gold}
    names = evaluation.gold.filter(pl.col("dictionary") == name, pl.col("id").is_in(wanted))
    concepts = {
        gold: {"names": own[:_MOST_NAMES], "more": len(own[_MOST_NAMES:])}
        for gold, own in names.group_by("id").agg("name").iter_rows()
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
                "answers": [[own.name, own.ids, round(own.score, 3), own.right] for own in answers],
            }
            for text, answers in link.parts
        ],
    }
