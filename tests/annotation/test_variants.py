from __future__ import annotations

import pytest

from sapbert.annotation.variants import composites_with, nouns_of
from tests.annotation.conftest import MakeAnnotator


@pytest.mark.parametrize(
    ("adjective", "noun"),
    [
        ("Hypertensive", "hypertension"),
        ("diabetic", "diabetes"),
        ("epileptic", "epilepsy"),
        ("ischemic", "ischemia"),
        ("psychotic", "psychosis"),
        ("parkinsonian", "parkinsonism"),
        ("cancerous", "cancer"),
    ],
)
def test_an_adjective_has_the_noun_it_is_formed_from(adjective: str, noun: str) -> None:
    assert noun in nouns_of(adjective)


def test_composites_end_with_a_span() -> None:
    text = "in breast and ovarian cancer"
    assert next(composites_with(text, 14, len(text))) == (3, ["breast cancer", "ovarian cancer"])
    assert list(composites_with("ovarian cancer", 0, 14)) == []


def test_a_composite_has_all_its_concepts(annotator_of: MakeAnnotator) -> None:
    [result] = annotator_of(nested=False).annotate(["Breast and ovarian cancer, cancerous cells"])

    assert [(one.mention, one.concept_id) for one in result.annotations] == [
        ("Breast and ovarian cancer", "mesh:D1"),
        ("Breast and ovarian cancer", "mesh:D9"),
        ("cancerous", "mesh:D2"),
    ]
    assert result[2].confidence < 0.7


def test_a_short_form_may_need_the_word_after_it(annotator_of: MakeAnnotator) -> None:
    [result] = annotator_of().annotate(["Sjögren's (SJ) syndrome, and SJ syndrome."])

    assert [(one.start, one.mention, one.expanded) for one in result.annotations] == [
        (29, "SJ syndrome", "Sjögren's")
    ]
