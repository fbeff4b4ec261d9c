"""How far wrong answers are from the gold concept in a hierarchy of concepts.

A system that answers "diabetes mellitus" for "diabetes mellitus type 2" is wrong by every other metric here,
as wrong as one that answers "migraine". With the parents of a vocabulary the difference can be measured. The
distance of two concepts is the length of the shortest path over a common ancestor. Of several answers and
gold ids the nearest pair counts. Composite mentions that are wrong have no relation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import polars as pl

from sapbert.evaluation.run import Evaluation
from sapbert.hierarchy import Hierarchy
from sapbert.vocab.readers.biosyn import medic_curies
from sapbert.vocab.vocabulary import Vocabulary


class Relation(StrEnum):
    """What an answer is to the gold concept."""

    SAME = "same"
    BROADER = "broader"
    NARROWER = "narrower"
    SIBLING = "sibling"
    RELATED = "common ancestor"
    UNRELATED = "unrelated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestry:
    """The distances of the answers of an evaluation, over mentions with gold ids."""

    mentions: int
    correct: int
    within_one_step: int
    """Answers that are correct, or a parent or child of a gold concept."""
    wrong: Mapping[Relation, int]
    """Wrong answers by relation."""
    mean_distance: float | None
    """Over wrong answers that have a common ancestor with the gold concept."""

    @property
    def accuracy_within_one_step(self) -> float:
        """Share of mentions."""
        return self.within_one_step / max(self.mentions, 1)


def relate(hierarchy: Hierarchy, answer: int, gold: int) -> tuple[Relation, int | None]:
    """Return the relation of an answer to the gold concept, and their distance."""
    above_gold, above_answer = hierarchy.ancestor_steps(gold), hierarchy.ancestor_steps(answer)
    if answer == gold:
        return Relation.SAME, 0
    # In a cycle each is above the other; then the shorter way counts.
    ways = [
        (steps, relation)
        for steps, relation in (
            (above_gold.get(answer), Relation.BROADER),
            (above_answer.get(gold), Relation.NARROWER),
        )
        if steps is not None
    ]
    if ways:
        steps, relation = min(ways)
        return relation, steps
    common = [above_gold[each] + above_answer[each] for each in above_gold.keys() & above_answer.keys()]
    if not common:
        return Relation.UNRELATED, None
    return (Relation.SIBLING if min(common) == 2 else Relation.RELATED), min(common)


def measure_ancestry(
    evaluation: Evaluation, dictionary: str, vocabulary: Vocabulary, *, prefix: str | None = None
) -> Ancestry:
    """Measure the answers with one dictionary; ids of MeSH and OMIM need no `prefix`."""
    results = evaluation.for_dictionary(dictionary).filter(pl.col("gold") != "")
    correct = results["rank"].fill_null(0) == 1
    wrong: dict[Relation, int] = dict.fromkeys(list(Relation)[1:], 0)
    distances: list[int] = []
    adjacent = 0
    for relation, distance in _wrong_answers(
        evaluation, dictionary, results.filter(~correct), vocabulary, prefix
    ):
        wrong[relation] += 1
        adjacent += distance == 1
        if distance is not None:
            distances.append(distance)
    return Ancestry(
        mentions=results.height,
        correct=int(correct.sum()),
        within_one_step=int(correct.sum()) + adjacent,
        wrong=wrong,
        mean_distance=sum(distances) / len(distances) if distances else None,
    )


def _wrong_answers(
    evaluation: Evaluation,
    dictionary: str,
    wrong: pl.DataFrame,
    vocabulary: Vocabulary,
    prefix: str | None,
) -> Iterator[tuple[Relation, int | None]]:
    """Yield the relation and the distance of each wrong answer."""
    best = evaluation.candidates.filter(dictionary=dictionary, position=1, part=0)
    rows = wrong.join(best.select("mention", "ids"), on="mention", how="left", maintain_order="left")
    numbers = _concept_numbers(pl.concat([rows["ids"], rows["gold"]]), vocabulary, prefix)
    graph = vocabulary.hierarchy.graph
    for text, answers, gold in rows.select("text", "ids", "gold").iter_rows():
        pairs = [
            relate(graph, numbers[one], numbers[other])
            for one in (answers or "").split("|")
            for other in gold.split("|")
            if "|" not in text and one in numbers and other in numbers
        ]
        # Two ids of one concept of the vocabulary may be two concepts of the benchmark.
        apart = [(relation, steps) for relation, steps in pairs if steps != 0]
        yield min(
            apart,
            key=lambda pair: (pair[1] is None, pair[1] or 0, pair[0]),
            default=(Relation.UNRELATED, None),
        )


def _concept_numbers(ids: pl.Series, vocabulary: Vocabulary, prefix: str | None) -> dict[str, int]:
    """Return the number of each id in the hierarchy; ids that the vocabulary does not have are left out."""
    distinct = ids.drop_nulls().str.split("|").explode().unique().sort()
    curies = medic_curies(distinct.str.strip_chars(), prefix)
    aliases = dict(vocabulary.aliases.select("alias", "concept_id").collect().iter_rows())
    found = (
        (text, vocabulary.hierarchy.number(aliases.get(curie, curie)))
        for text, curie in zip(distinct, curies, strict=True)
        if curie is not None
    )
    return {text: number for text, number in found if number is not None}
