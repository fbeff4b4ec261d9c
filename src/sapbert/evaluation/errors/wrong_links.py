"""The wrong links of an evaluation, gathered for a reader.

A mention that stands in the corpus forty times is one wrong link that counts forty times: a reader learns
nothing from the other thirty-nine, and the most frequent come first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from sapbert.evaluation.errors.kinds import NEAR_MISS_DEPTH, ErrorCase, ErrorKind, classify_error
from sapbert.evaluation.run import Evaluation

_MOST_DOCUMENTS = 5


@dataclass(frozen=True, slots=True)
class WrongLinkCandidate:
    """A candidate of a part."""

    name: str
    ids: str
    """Joined by `|`."""
    score: float
    right: bool
    """One of the ids is gold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongLink:
    """A mention, with its gold ids, whose best candidate is wrong."""

    kind: ErrorKind
    times: int
    """How often it stands in the corpus."""
    raw_texts: tuple[str, ...]
    """How the corpus writes it."""
    documents: tuple[str, ...]
    """Where it stands; the first few."""
    parts: tuple[tuple[str, tuple[WrongLinkCandidate, ...]], ...]
    """What was searched, and the first `NEAR_MISS_DEPTH` candidates of each."""
    gold: tuple[str, ...]
    rank: int | None
    """Where the first right candidate stands, if any does."""
    seen: bool
    """In training."""


def wrong_links(evaluation: Evaluation) -> dict[str, list[WrongLink]]:
    """Return what was linked wrongly with each dictionary, the most frequent first."""
    return {dictionary: _wrong_links(evaluation, dictionary) for dictionary in evaluation.dictionaries}


def _wrong_links(evaluation: Evaluation, dictionary: str) -> list[WrongLink]:
    results = evaluation.for_dictionary(dictionary)
    wrong = results.filter(pl.col("gold") != "", pl.col("rank").fill_null(0) != 1)
    # Equal texts have equal candidates, so one mention stands for all; how it is written may decide its kind.
    written = wrong.group_by("text", "gold", "raw", maintain_order=True).agg(
        pl.first("mention", "rank", "seen"), pl.len().alias("times"), pl.col("document").unique().sort()
    )
    answers = _answers(evaluation.candidates.filter(dictionary=dictionary), written["mention"])
    names = evaluation.gold.filter(dictionary=dictionary).group_by("id").agg("name")
    gold_names: dict[str, list[str]] = dict(names.iter_rows())
    grouped: dict[tuple[str, str, ErrorKind], list[dict[str, Any]]] = {}
    for row in written.iter_rows(named=True):
        kind = _kind(row, answers, gold_names)
        grouped.setdefault((row["text"], row["gold"], kind), []).append(row)
    found = [_link(kind, rows, answers) for (_, _, kind), rows in grouped.items()]
    return sorted(found, key=lambda link: (-link.times, link.parts[0][0]))


def count_kinds(links: Sequence[WrongLink]) -> dict[ErrorKind, int]:
    """How many mentions each kind has; all kinds, in their order."""
    return {kind: sum(link.times for link in links if link.kind is kind) for kind in ErrorKind}


_Answers = Mapping[tuple[int, int], list[tuple[str, str, float]]]


def _answers(candidates: pl.DataFrame, mentions: pl.Series) -> _Answers:
    """The first candidates of each mention and part."""
    near = candidates.filter(
        pl.col("position") <= NEAR_MISS_DEPTH, pl.col("mention").is_in(mentions.implode())
    )
    found: dict[tuple[int, int], list[tuple[str, str, float]]] = {}
    for mention, part, *answer in near.select("mention", "part", "name", "ids", "score").iter_rows():
        found.setdefault((mention, part), []).append((answer[0], answer[1], answer[2]))
    return found


def _kind(row: Mapping[str, Any], answers: _Answers, gold_names: Mapping[str, list[str]]) -> ErrorKind:
    parts = row["text"].split("|")
    best = [answers.get((row["mention"], part)) for part in range(len(parts))]
    gold = [name for concept in row["gold"].split("|") for name in gold_names.get(concept, ())]
    return classify_error(
        ErrorCase(row["raw"], parts, [found[0][0] if found else None for found in best], gold, row["rank"])
    )


def _link(kind: ErrorKind, rows: Sequence[Mapping[str, Any]], answers: _Answers) -> WrongLink:
    first = rows[0]
    gold = tuple(first["gold"].split("|"))
    return WrongLink(
        kind=kind,
        times=sum(row["times"] for row in rows),
        raw_texts=tuple(row["raw"] for row in rows),
        documents=tuple(dict.fromkeys(d for row in rows for d in row["document"] if d))[:_MOST_DOCUMENTS],
        parts=tuple(
            (
                text,
                tuple(
                    WrongLinkCandidate(name, ids, score, right=not set(gold).isdisjoint(ids.split("|")))
                    for name, ids, score in answers.get((first["mention"], part), ())
                ),
            )
            for part, text in enumerate(first["text"].split("|"))
        ),
        gold=gold,
        rank=first["rank"],
        seen=first["seen"],
    )
