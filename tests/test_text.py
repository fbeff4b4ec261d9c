# ruff: noqa: RUF001 - letters that look like others are what this is about
from __future__ import annotations

import itertools
import sys
import unicodedata
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapbert.text import fold, tidy

INVISIBLE = "\u00ad\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
TRICKY = [
    *("\u0130", "i", "I", "ß", "\u1e9e", "s", "ﬁ", "ﬀ", "Ω", "\u2126", "Å", "\u212b", "\u00b5", "μ"),
    *("σ", "ς", "Σ", "\u0345", "\u1f88", "\u1fb3", "\u01c4", "\u0149", "\u1e9a", "\u0390", "ŉ"),
    *("\u0300", "\u0301", "\u0307", "\u0308", "\u0315", "\u0327", "\u0338", "\u05b0", "\u3099", "\u309a"),
    *("\u1100", "\u1161", "\u11a8", "가", "\u115f", "\uffa0", "か", "ｶ", "ﾞ", "\u0958", "\u0f73", "\u2adc"),
    *("\u00a8", "\u00b4", "\u2017", "\u037a", "\u1fbd", "\ufdfa", "\u3000", "\u00a0", " ", "\t", "\x00"),
    *("\x1c", "\x85", "\u2028", "\u180e", "\u200d", "\ufe0f", "①", "Ⅳ", "㎏", "½", *INVISIBLE),
]


@cache
def code_points(*, assigned: bool) -> list[str]:
    """Every character that has been given a meaning, or every one that has not."""
    every = ((chr(code), unicodedata.category(chr(code))) for code in range(sys.maxunicode + 1))
    return [char for char, kind in every if kind != "Cs" and (kind in ("Cn", "Co")) != assigned]


@pytest.mark.parametrize(
    ("name", "folded"),
    [
        ("Migraine", "migraine"),
        ("  MIGRAINE\t with\r\naura ", "migraine with aura"),
        ("Crohn\u2019s disease", "crohn's disease"),
        ("5\u2032\u2013nucleotidase", "5'-nucleotidase"),
        ("Sjögren", "sjögren"),
        ("Sjo\u0308gren", "sjögren"),
        ("ﬁbrosis", "fibrosis"),
        ("STRASSE", "strasse"),
        ("Straße", "strasse"),
        ("Straẞe", "strasse"),
        ("İstanbul", "i̇stanbul"),
        ("ΟΔΟΣ", "οδοσ"),
        ("οδος", "οδοσ"),
        ("10 kΩ", "10 kω"),
        ("10 k\u2126", "10 kω"),
        ("5 µg", "5 μg"),
        ("H₂O", "h2o"),
        ("Factor Ⅷ", "factor viii"),
        ("ＡＢＣ　１２３", "abc 123"),
        ("\u1112\u1161\u11ab\u1100\u1173\u11af", "한글"),
        ("ｶﾞﾝ", "ガン"),
        ("B\u00adcell", "bcell"),
        ("\ufeffzero\u200bwidth\u2060", "zerowidth"),
        ("\u200fصداع\u200e نصفي", "صداع نصفي"),
        ("\u2067שפעת\u2069", "שפעת"),
        ("nul\x00byte\x7f", "nul byte"),
        ("", ""),
        (" \u00a0\u200b\n", ""),
    ],
)
def test_spellings_of_one_name_fold_to_the_same_text(name: str, folded: str) -> None:
    assert fold(name) == folded


@pytest.mark.parametrize(
    ("one", "another"),
    [
        ("Migraine, Acute", "acute migraine"),
        ("non-small", "non small"),
        ("Type I", "Type II"),
        ("résumé", "resume"),
        ("factor ⅷ", "factor ⅶ"),
        ("IL-1α", "IL-1β"),
        ("שפעה", "שפעת"),
    ],
)
def test_different_names_fold_to_different_texts(one: str, another: str) -> None:
    assert fold(one) != fold(another)


def test_folding_any_one_character_twice_changes_nothing() -> None:
    assert [char for char in code_points(assigned=True) if fold(fold(char)) != fold(char)] == []
    untouched = "".join(code_points(assigned=False))
    assert fold(untouched) == untouched


def test_folding_any_two_or_three_tricky_characters_twice_changes_nothing() -> None:
    pairs = map("".join, itertools.product(TRICKY, repeat=2))
    triples = map("".join, itertools.product(TRICKY[::2], TRICKY[20:45], TRICKY[1::3]))
    assert [name for name in itertools.chain(pairs, triples) if fold(fold(name)) != fold(name)] == []


names = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(TRICKY))


@given(names)
def test_folding_twice_changes_nothing(name: str) -> None:
    assert fold(fold(name)) == fold(name)


@given(names)
def test_a_folded_name_is_normal_tidy_and_has_no_case(name: str) -> None:
    folded = fold(name)
    assert unicodedata.is_normalized("NFKC", folded)
    assert tidy(folded) == folded
    assert unicodedata.normalize("NFKC", folded.casefold()) == folded
    assert not set(INVISIBLE) & set(folded)


@given(names, st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]))
def test_the_normal_form_a_source_uses_does_not_matter(name: str, form: str) -> None:
    form_of_name = unicodedata.normalize(form, name)  # type: ignore[arg-type]  # one of the four literals
    assert fold(form_of_name) == fold(name)


@given(st.lists(st.text("aZé", min_size=1), min_size=1), st.data())
def test_case_white_space_and_invisible_characters_do_not_matter(
    words: list[str], data: st.DataObject
) -> None:
    blanks = st.text(" \t\n\r\x00\x1f\x85\u00a0\u2003\u2028\u3000", min_size=1, max_size=3)
    marks = st.text(INVISIBLE, max_size=2)
    spelled = data.draw(blanks)
    for word in words:
        spelled += data.draw(marks) + data.draw(st.sampled_from([word, word.upper(), word.lower()]))
        spelled += data.draw(blanks) + data.draw(marks)
    assert fold(spelled) == " ".join(words).lower()


@pytest.mark.parametrize(
    ("name", "tidied"),
    [
        ("tidy", "tidy"),
        ("  two   words ", "two words"),
        ("line\r\nbreak\u2028and\x85more", "line break and more"),
        ("nul\x00", "nul"),
        ("\x1c\x1dbell\x07tab\t", "bell tab"),
        ("no-break\u00a0space", "no-break space"),
        ("Case and ﬁ stay", "Case and ﬁ stay"),
        ("zero\u200bwidth stays", "zero\u200bwidth stays"),
        ("\x00\n ", ""),
    ],
)
def test_a_tidy_name_is_one_line(name: str, tidied: str) -> None:
    assert tidy(name) == tidied


def test_tidying_replaces_only_white_space_and_control_characters() -> None:
    characters = code_points(assigned=True)
    changed = {char for char in characters if tidy(f"a{char}b") != f"a{char}b"}
    blanks = {char for char in characters if char.isspace()} - {" "}
    controls = {char for char in characters if unicodedata.category(char) == "Cc"}
    assert changed == blanks | controls
    assert {tidy(f"a{char}b") for char in changed} == {"a b"}


@given(names)
def test_tidying_twice_changes_nothing_and_does_not_affect_folding(name: str) -> None:
    tidied = tidy(name)
    assert tidy(tidied) == tidied
    assert len(tidied.splitlines()) <= 1
    assert fold(tidied) == fold(name)
