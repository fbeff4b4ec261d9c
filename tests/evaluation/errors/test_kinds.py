from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapbert.evaluation.errors.kinds import (
    DESCRIPTIONS,
    NEAR_MISS_DEPTH,
    ErrorCase,
    ErrorKind,
    classify_error,
)
from sapbert.text import fold

GOLD = ("glimmer fever", "fever of the glimmer", "gf disease")


def wrong(
    raw: str, answer: str | None, *, gold: tuple[str, ...] = GOLD, rank: int | None = None, text: str = ""
) -> ErrorKind:
    """The kind of a mention, searched as it is written, and of its answer."""
    return classify_error(ErrorCase(raw, [text or fold(raw)], [answer], gold, rank))


@pytest.mark.parametrize(
    ("raw", "answer", "kind"),
    [
        ("pale and glimmer fever", "pale fever", ErrorKind.COMPOSITE),
        ("PGF", "tin ear", ErrorKind.ABBREVIATION),
        ("chronic PG2 fever", "chronic fever", ErrorKind.ABBREVIATION),
        ("glimmers", None, ErrorKind.UNANSWERED),
        ("tin ear", "tin ear", ErrorKind.AMBIGUOUS),
        ("tin ear", "ears, tin", ErrorKind.AMBIGUOUS),
        ("shining heat", "fever", ErrorKind.BROADER),
        ("odd tin ear", "tin ear", ErrorKind.BROADER),
        ("shining heat", "chronic glimmer fever", ErrorKind.NARROWER),
        ("shining heat", "shining heat of the liver", ErrorKind.NARROWER),
        ("shining heat", "moss lung", ErrorKind.OTHER),
    ],
)
def test_each_kind_has_its_rule(raw: str, answer: str | None, kind: ErrorKind) -> None:
    assert wrong(raw, answer) is kind


def test_the_words_of_the_mention_count_more_than_those_of_a_gold_name() -> None:
    assert wrong("glimmer", "glimmer fever", gold=("odd glimmer fever",)) is ErrorKind.NARROWER
    assert wrong("odd glimmer fever", "glimmer fever", gold=("glimmer",)) is ErrorKind.BROADER


def test_without_gold_names_nothing_else_matters() -> None:
    assert wrong("PGF", "pgf", gold=(), rank=2) is ErrorKind.ABSENT


def test_several_parts_are_a_composite_mention() -> None:
    case = ErrorCase(
        "glimmer and pale fever", ["glimmer fever", "pale fever"], ["glimmer fever", None], GOLD, 2
    )
    assert classify_error(case) is ErrorKind.COMPOSITE


def test_a_near_miss_has_a_correct_candidate_further_down() -> None:
    assert wrong("shining heat", "moss lung", rank=NEAR_MISS_DEPTH) is ErrorKind.NEAR_MISS
    assert wrong("shining heat", "moss lung", rank=NEAR_MISS_DEPTH + 1) is ErrorKind.OTHER


def test_an_expanded_abbreviation_or_one_in_a_gold_name_is_not_an_abbreviation_error() -> None:
    assert wrong("PGF", "moss lung", text="pale glimmer fever") is ErrorKind.OTHER
    assert wrong("GF", "moss lung") is ErrorKind.OTHER
    assert wrong("PGF", "moss lung") is ErrorKind.ABBREVIATION


def test_initials_are_an_abbreviation_in_a_lowercase_corpus() -> None:
    assert wrong("fotg", "moss lung") is ErrorKind.ABBREVIATION
    assert wrong("fotx", "moss lung") is ErrorKind.OTHER


def test_text_in_capitals_is_not_an_abbreviation() -> None:
    assert wrong("SHINING HEAT", "moss lung") is ErrorKind.OTHER
    assert wrong("SHINING", "moss lung") is ErrorKind.ABBREVIATION


texts = st.text("abAB1 -,/&(", max_size=12).map(str.strip)
cases = st.builds(
    lambda raw, parts, answers, gold, rank: ErrorCase(
        raw, [fold(part) for part in parts], (answers * 2)[: len(parts)], [fold(name) for name in gold], rank
    ),
    texts,
    st.lists(texts, min_size=1, max_size=2),
    st.lists(st.none() | texts.map(fold), min_size=1, max_size=2),
    st.lists(texts, max_size=3),
    st.none() | st.integers(2, 20),
)


@given(cases)
def test_every_case_has_a_kind_with_a_description(case: ErrorCase) -> None:
    assert classify_error(case) in DESCRIPTIONS


@given(cases)
def test_the_order_of_gold_names_does_not_matter(case: ErrorCase) -> None:
    assert classify_error(case) is classify_error(case._replace(gold=case.gold[::-1]))


@given(cases)
def test_the_definition_of_each_kind_applies(case: ErrorCase) -> None:
    kind = classify_error(case)
    assert (kind is ErrorKind.ABSENT) == (not case.gold)
    if len(case.parts) > 1 and case.gold:
        assert kind is ErrorKind.COMPOSITE
    if kind is ErrorKind.UNANSWERED:
        assert case.answers[0] is None
    if kind is ErrorKind.NEAR_MISS:
        assert case.rank is not None
        assert case.rank <= NEAR_MISS_DEPTH
    if kind is ErrorKind.OTHER:
        assert case.rank is None or case.rank > NEAR_MISS_DEPTH


def test_kinds_are_described_in_the_order_they_are_checked() -> None:
    assert list(DESCRIPTIONS) == list(ErrorKind)
