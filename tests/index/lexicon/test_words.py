from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapbert.index.lexicon.words import Gap, Splitter, normal_form

TEXTS = st.text(st.characters(), max_size=60)


def words_of(text: str) -> list[str]:
    words = Splitter().split([text])
    return [text[start:end] for start, end in zip(words.start.tolist(), words.end.tolist(), strict=True)]


def test_a_word_is_a_run_of_letters_or_of_digits() -> None:
    assert words_of("IL6-driven, 2.5 mg") == ["IL", "6", "driven", "2", "5", "mg"]


def test_chinese_characters_are_words_and_marks_belong_to_their_letter() -> None:
    assert words_of("心肌梗死 a\u0301b") == ["心", "肌", "梗", "死", "a\u0301b"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("tumours", "tumor"),
        ("Metastases", "metastasis"),
        ("Haemorrhage", "hemorrhages"),
        ("Sjögren", "sjogren"),
        ("biopsies", "biopsy"),
        ("MIs", "MI"),
        ("diseases", "disease"),
        ("viruses", "virus"),
    ],
)
def test_inflected_words_have_one_normal_form(one: str, other: str) -> None:
    assert normal_form(one) == normal_form(other)


@pytest.mark.parametrize(("one", "other"), [("AIDS", "aid"), ("bees", "be"), ("as", "a"), ("gas", "ga")])
def test_other_words_do_not(one: str, other: str) -> None:
    assert normal_form(one) != normal_form(other)


def test_a_sentence_end_is_a_break_but_an_initial_is_not() -> None:
    words = Splitter().split(["E. coli sepsis. Heart (left), lung-disease\nof: liver\nNext"])

    gaps = [Gap(gap).name for gap in words.gap.tolist()]
    assert gaps == ["BREAK", "COMMA", "SPACE", "BREAK", "COMMA", "COMMA", "HYPHEN", "SPACE", "COLON", "BREAK"]


@given(st.lists(TEXTS, max_size=4))
def test_offsets_are_code_points_of_their_text(texts: list[str]) -> None:
    words = Splitter().split(texts)
    rows = zip(words.text.tolist(), words.start.tolist(), words.end.tolist(), strict=True)
    previous = (-1, 0)
    for text, start, end in rows:
        assert 0 <= start < end <= len(texts[text])
        assert (text, start) >= previous
        previous = (text, end)
        assert not any(character.isspace() for character in texts[text][start:end])


@given(TEXTS, TEXTS)
def test_texts_are_split_independently(one: str, other: str) -> None:
    splitter = Splitter()
    alone, second = splitter.split([one]), splitter.split([other])
    both = splitter.split([one, other])

    assert both.hash.tolist() == alone.hash.tolist() + second.hash.tolist()
    assert both.gap.tolist() == alone.gap.tolist() + second.gap.tolist()
    assert both.start.tolist() == alone.start.tolist() + second.start.tolist()
