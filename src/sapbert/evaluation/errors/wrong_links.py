"""Collect the wrong links of an evaluation for error analysis.

A mention that occurs forty times in the corpus is one wrong link with a count of forty. The most frequent are
first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from sapbert.evaluation.errors.kinds import NEAR_MISS_DEPTH, ErrorCase, ErrorKind, classify_error
from sapbert.evaluation.run import Evaluation

_MAX_DOCUMENTS = 5


@dataclass(frozen=True, slots=True)
class WrongLinkCandidate:
    """A candidate of one part of a mention."""

    name: str
    ids: str
    """Joined by `|`."""
    score: float
    correct: bool
    """Whether one of the ids is a gold id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongLink:
    """A mention with gold ids whose best candidate is wrong."""

    kind: ErrorKind
    times: int
    """Occurrences in the corpus."""
    raw_texts: tuple[str, ...]
    """Spellings in the corpus."""
    documents: tuple[str, ...]
    """The first few documents with this mention."""
    parts: tuple[tuple[str, tuple[WrongLinkCandidate, ...]], ...]
    """The searched texts, each with its first `NEAR_MISS_DEPTH` candidates."""
    gold: tuple[str, ...]
    rank: int | None
    """Rank of the first correct candidate; None if there is none."""
    seen: bool
    """Whether the text occurs in the training split."""


def wrong_links(evaluation: Evaluation) -> dict[str, list[WrongLink]]:
    """Return the wrong links per dictionary, most frequent first."""
    return {dictionary: _wrong_links(evaluation, dictionary) for dictionary in evaluation.dictionaries}


def _wrong_links(evaluation: Evaluation, dictionary: str) -> list[WrongLink]:
    results = evaluation.for_dictionary(dictionary)
    wrong = results.filter(pl.col("gold") != "", pl.col("rank").fill_null(0) != 1)
    # Equal texts have equal candidates, so one mention represents all. Spellings may be of different kinds.
    spellings = wrong.group_by("text", "gold", "raw", maintain_order=True).agg(
        pl.first("mention", "rank", "seen"), pl.len().alias("times"), pl.col("document").unique().sort()
    )
    answers = _answers(evaluation.candidates.filter(dictionary=dictionary), spellings["mention"])
    names = evaluation.gold.filter(dictionary=dictionary).group_by("id").agg("name")
    gold_names: dict[str, list[str]] = dict(names.iter_rows())
    grouped: dict[tuple[str, str, ErrorKind], list[dict[str, Any]]] = {}
    for row in spellings.iter_rows(named=True):
        kind = _kind(row, answers, gold_names)
        grouped.setdefault((row["text"], row["gold"], kind), []).append(row)
    links = [_link(kind, rows, answers) for (_, _, kind), rows in grouped.items()]
    return sorted(links, key=lambda link: (-link.times, link.parts[0][0]))


def count_kinds(links: Sequence[WrongLink]) -> dict[ErrorKind, int]:
    """Return the number of wrong mentions per kind, for all kinds in their order."""
    return {kind: sum(link.times for link in links if link.kind is kind) for kind in ErrorKind}


_Answers = Mapping[tuple[int, int], list[tuple[str, str, float]]]


def _answers(candidates: pl.DataFrame, mentions: pl.Series) -> _Answers:
    """The first candidates of each mention and part."""
    near = candidates.filter(
        pl.col("position") <= NEAR_MISS_DEPTH, pl.col("mention").is_in(mentions.implode())
    )
    answers: dict[tuple[int, int], list[tuple[str, str, float]]] = {}
    for mention, part, *answer in near.select("mention", "part", "name", "ids", "score").iter_rows():
        answers.setdefault((mention, part), []).append((answer[0], answer[1], answer[2]))
    return answers


def _kind(row: Mapping[str, Any], answers: _Answers, gold_names: Mapping[str, list[str]]) -> ErrorKind:
    parts = row["text"].split("|")
    best = [answers.get((row["mention"], part)) for part in range(len(parts))]
    gold = [name for concept in row["gold"].split("|") for name in gold_names.get(concept, ())]
    return classify_error(
        ErrorCase(row["raw"], parts, [answer[0][0] if answer else None for answer in best], gold, row["rank"])
    )


def _link(kind: ErrorKind, rows: Sequence[Mapping[str, Any]], answers: _Answers) -> WrongLink:
    first = rows[0]
    gold = tuple(first["gold"].split("|"))
    return WrongLink(
        kind=kind,
        times=sum(row["times"] for row in rows),
        raw_texts=tuple(row["raw"] for row in rows),
        documents=tuple(dict.fromkeys(d for row in rows for d in row["document"] if d))[:_MAX_DOCUMENTS],
        parts=tuple(
            (
                text,
                tuple(
                    WrongLinkCandidate(name, ids, score, correct=not set(gold).isdisjoint(ids.split("|")))
                    for name, ids, score in answers.get((first["mention"], part), ())
                ),
            )
            for part, text in enumerate(first["text"].split("|"))
        ),
        gold=gold,
        rank=first["rank"],
        seen=first["seen"],
    )
