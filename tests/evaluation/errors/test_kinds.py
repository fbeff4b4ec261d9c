from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapbert.evaluation.errors.kinds import EXPLAINED, NEAR, Case, Kind, kind_of
from sapbert.text import fold

GOLD = ("glimmer fever", "fever of the glimmer", "gf disease")


def wrong(
    raw: str, answer: str | None, *, gold: tuple[str, ...] = GOLD, rank: int | None = None, text: str = ""
) -> Kind:
    """The kind of a mention, searched as it is written, and of its answer."""
    return kind_of(Case(raw, [text or fold(raw)], [answer], gold, rank))


@pytest.mark.parametrize(
    ("raw", "answer", "kind"),
    [
        ("pale and glimmer fever", "pale fever", Kind.COMPOSITE),
        ("PGF", "tin ear", Kind.ABBREVIATION),
        ("chronic PG2 fever", "chronic fever", Kind.ABBREVIATION),
        ("glimmers", None, Kind.UNANSWERED),
        ("tin ear", "tin ear", Kind.AMBIGUOUS),
        ("tin ear", "ears, tin", Kind.AMBIGUOUS),
        ("shining heat", "fever", Kind.BROADER),
        ("odd tin ear", "tin ear", Kind.BROADER),
        ("shining heat", "chronic glimmer fever", Kind.NARROWER),
        ("shining heat", "shining heat of the liver", Kind.NARROWER),
        ("shining heat", "moss lung", Kind.OTHER),
    ],
)
def test_each_kind_has_its_rule(raw: str, answer: str | None, kind: Kind) -> None:
    assert wrong(raw, answer) is kind


def test_the_words_of_the_mention_count_more_than_those_of_a_gold_name() -> None:
    assert wrong("glimmer", "glimmer fever", gold=("odd glimmer fever",)) is Kind.NARROWER
    assert wrong("odd glimmer fever", "glimmer fever", gold=("glimmer",)) is Kind.BROADER


def test_without_gold_names_nothing_else_matters() -> None:
    assert wrong("PGF", "pgf", gold=(), rank=2) is Kind.ABSENT


def test_several_parts_are_a_composite_mention() -> None:
    case = Case("glimmer and pale fever", ["glimmer fever", "pale fever"], ["glimmer fever", None], GOLD, 2)
    assert kind_of(case) is Kind.COMPOSITE


def test_a_near_miss_is_right_further_down() -> None:
    assert wrong("shining heat", "moss lung", rank=NEAR) is Kind.NEAR_MISS
    assert wrong("shining heat", "moss lung", rank=NEAR + 1) is Kind.OTHER


def test_a_short_form_that_was_written_out_or_is_a_gold_name_is_no_abbreviation() -> None:
    assert wrong("PGF", "moss lung", text="pale glimmer fever") is Kind.OTHER
    assert wrong("GF", "moss lung") is Kind.OTHER
    assert wrong("PGF", "moss lung") is Kind.ABBREVIATION


def test_initials_are_an_abbreviation_where_a_corpus_has_small_letters() -> None:
    assert wrong("fotg", "moss lung") is Kind.ABBREVIATION
    assert wrong("fotx", "moss lung") is Kind.OTHER


def test_shouting_is_no_abbreviation() -> None:
    assert wrong("SHINING HEAT", "moss lung") is Kind.OTHER
    assert wrong("SHINING", "moss lung") is Kind.ABBREVIATION


texts = st.text("abAB1 -,/&(", max_size=12).map(str.strip)
cases = st.builds(
    lambda raw, parts, answers, gold, rank: Case(
        raw, [fold(part) for part in parts], (answers * 2)[: len(parts)], [fold(name) for name in gold], rank
    ),
    texts,
    st.lists(texts, min_size=1, max_size=2),
    st.lists(st.none() | texts.map(fold), min_size=1, max_size=2),
    st.lists(texts, max_size=3),
    st.none() | st.integers(2, 20),
)


@given(cases)
def test_every_case_has_one_kind_that_is_explained(case: Case) -> None:
    assert kind_of(case) in EXPLAINED


@given(cases)
def test_the_order_of_gold_names_does_not_matter(case: Case) -> None:
    assert kind_of(case) is kind_of(case._replace(gold=case.gold[::-1]))


@given(cases)
def test_what_a_kind_says_is_so(case: Case) -> None:
    kind = kind_of(case)
    assert (kind is Kind.ABSENT) == (not case.gold)
    if len(case.parts) > 1 and case.gold:
        assert kind is Kind.COMPOSITE
    if kind is Kind.UNANSWERED:
        assert case.answers[0] is None
    if kind is Kind.NEAR_MISS:
        assert case.rank is not None
        assert case.rank <= NEAR
    if kind is Kind.OTHER:
        assert case.rank is None or case.rank > NEAR


def test_kinds_are_explained_in_the_order_they_are_asked_for() -> None:
    assert list(EXPLAINED) == list(Kind)
