from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapbert.annotation import annotator as module
from sapbert.annotation.annotator import Annotator
from sapbert.annotation.settings import AnnotateSettings
from sapbert.errors import ConfigError
from tests.annotation.conftest import NAMES, MakeAnnotator

Found = list[tuple[int, int, str, str]]


@pytest.fixture(scope="module")
def annotator(annotator_of: MakeAnnotator) -> Annotator:
    return annotator_of()


def found(annotator: Annotator, text: str) -> list[tuple[str, str]]:
    return [(one.mention, one.concept_id) for one in annotator.annotate([text])[0].annotations]


def test_names_are_found_with_their_offsets_and_nested_ones_are_marked(annotator: Annotator) -> None:
    [result] = annotator.annotate(["No fever; the mother had breast cancers."])

    assert [(one.start, one.end, one.concept_id, one.nested) for one in result.annotations] == [
        (3, 8, "mesh:D3", False),
        (25, 39, "mesh:D1", False),
        (32, 39, "mesh:D2", True),
    ]
    assert [one.matched_by for one in result.annotations] == ["exact", "words", "words"]
    assert result[1].matched_name == "Breast Cancer"
    assert len(result) == 3


def test_without_nested_the_longest_of_overlapping_spans_is_kept(annotator_of: MakeAnnotator) -> None:
    assert found(annotator_of(nested=False), "breast cancer") == [("breast cancer", "mesh:D1")]


def test_a_symbol_needs_its_capitals_and_common_words_are_left_out(annotator: Annotator) -> None:
    assert found(annotator, "The role of a cat. CAT and ms; MS") == [("CAT", "mesh:D6"), ("MS", "mesh:D5")]


def test_of_mesh_only_some_types_are_annotated_by_default(annotator_of: MakeAnnotator) -> None:
    text = "liver tumor"  # Neoplasms is the top of its tree and has no type.
    assert found(annotator_of(), text) == [("tumor", "mesh:D2")]
    assert found(annotator_of(types=("A",)), text) == [("liver", "mesh:D8")]


def test_an_abbreviation_means_what_the_text_defines(annotator: Annotator) -> None:
    text = "Familial adenomatous polyposis (FAP) and MS. FAP is rare."
    assert found(annotator, text) == [
        ("Familial adenomatous polyposis", "mesh:D4"),
        ("FAP", "mesh:D4"),
        ("MS", "mesh:D5"),
        ("FAP", "mesh:D4"),
    ]
    assert found(annotator, "Mass spectrometry (MS) of tumors. MS was used.") == [("tumors", "mesh:D2")]


def test_a_threshold_removes_improbable_annotations(annotator_of: MakeAnnotator) -> None:
    assert found(annotator_of(min_confidence=1), "fever") == []
    with pytest.raises(ConfigError, match="between 0 and 1"):
        AnnotateSettings(min_confidence=2)


def test_a_string_instead_of_a_list_is_refused(annotator: Annotator) -> None:
    with pytest.raises(TypeError, match="list of texts"):
        annotator.annotate("fever")


names = st.sampled_from([name for names in NAMES.values() for name in names] + ["FAP", "(FAP)"])
noise = st.text(st.characters(), max_size=12)
texts = st.lists(st.one_of(noise, names, st.sampled_from([" ", ". ", "\n", "\u0301", "\ud800"]))).map("".join)


@given(st.lists(texts, max_size=3))
def test_offsets_are_code_points_of_any_text(annotator_of: MakeAnnotator, given_texts: list[str]) -> None:
    results = annotator_of(min_confidence=0).annotate(given_texts)

    assert [result.text for result in results] == given_texts
    for result in results:
        spans = [(one.start, one.end) for one in result.annotations]
        assert spans == sorted(spans, key=lambda span: (span[0], -span[1]))
        for one in result.annotations:
            assert 0 <= one.start < one.end
            assert result.text[one.start : one.end] == one.mention


def test_long_texts_are_annotated_in_pieces(
    annotator_of: MakeAnnotator, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "Fever was seen in breast cancer. No pneumonia\n" * 50 + "pneumonia" * 40
    whole = annotator_of().annotate([text])[0]
    monkeypatch.setattr(module, "PIECE", 300)
    pieces = annotator_of().annotate([text])[0]

    assert pieces == whole
    assert len(whole) == 200
