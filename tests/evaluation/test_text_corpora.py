from __future__ import annotations

from sapbert.annotation.annotation import Annotation
from sapbert.annotation.input.pubtator import Annotation as Gold
from sapbert.annotation.input.pubtator import Document
from sapbert.evaluation.text_corpora import Counts, GoldMention, compare, evaluate_texts, gold_mentions, total
from tests.annotation.conftest import MakeAnnotator, annotator_of

__all__ = ["annotator_of"]


def found(start: int, end: int, concept_id: str) -> Annotation:
    return Annotation(start, end, "", concept_id, "", "", "exact", 1.0, 1.0)


def test_levels_differ_in_the_offsets_they_accept() -> None:
    gold = [GoldMention(0, 5, frozenset({"x:1", "x:2"})), GoldMention(10, 15, frozenset({"x:3"}))]
    counts = compare(gold, [found(0, 5, "x:2"), found(11, 16, "x:3"), found(20, 25, "x:9")])

    assert counts["strict"] == Counts(3, 1, 2, 1)
    assert counts["relaxed"] == Counts(3, 2, 2, 2)
    assert counts["document"] == Counts(3, 2, 2, 2)
    assert (counts["strict"].precision, counts["strict"].recall, counts["strict"].f1) == (1 / 3, 0.5, 0.4)
    assert total([counts, counts])["strict"] == Counts(6, 2, 4, 2)
    assert Counts(0, 0, 0, 0).f1 == 0


def test_gold_mentions_need_a_concept_and_get_a_prefix_by_their_form() -> None:
    document = Document(
        "1",
        "t",
        annotations=[
            Gold(0, 1, "a", "Disease", "D000001|C5"),
            Gold(0, 1, "a", "Disease", "-1"),
            Gold(0, 1, "a", "Disease", "MESH:D2+OMIM:3"),
            Gold(0, 1, "a", "Chemical", "104300"),
        ],
    )

    ids = [sorted(mention.concept_ids) for mention in gold_mentions(document)]
    assert ids == [["mesh:C5", "mesh:D000001"], ["mesh:D2", "omim:3"], ["omim:104300"]]
    assert len(gold_mentions(document, types=("Chemical",))) == 1


def test_an_annotator_is_evaluated_on_a_corpus(annotator_of: MakeAnnotator) -> None:
    document = Document(
        "1", "Breast cancers", "and fever", [Gold(0, 14, "Breast cancers", "Disease", "mesh:D1")]
    )
    evaluation = evaluate_texts([document], annotator_of(nested=False))

    assert evaluation.scores["exact"]["strict"] == Counts(1, 0, 1, 0)
    assert evaluation.scores["all"]["strict"] == Counts(2, 1, 1, 1)
    assert evaluation.to_json()["scores"]["all"]["document"]["recall"] == 1
