from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sapbert.training.flash.misspellings import misspell

LATIN = "abcdefghijklmnopqrstuvwxyz"
names = st.lists(st.text("abcé -1漢щ", max_size=12).map(lambda name: f"{name} heart"), max_size=5)


def one_edit_away(name: str) -> set[str]:
    """Every text that differs by one edit inside a word of more than three letters."""
    copies, end = set(), 0
    while end < len(name):
        start = end
        while end < len(name) and name[end].isalpha() and name[end] != "漢":
            end += 1
        for place in range(start + 1, end - 1) if end - start > 3 else ():
            before, letter, after = name[:place], name[place], name[place + 1 :]
            copies |= {before + after, before + after[0] + letter + after[1:]}
            if letter in LATIN:
                copies |= {before + new + after for new in LATIN}
                copies |= {before + new + letter + after for new in LATIN}
        end += 1
    return copies - {name}


@given(names, st.integers(0, 5))
def test_a_copy_differs_by_one_edit_inside_a_long_word(originals: list[str], seed: int) -> None:
    copies = misspell(originals, np.random.default_rng(seed))
    assert len(copies.names) == len(copies.texts)
    for row, text in zip(copies.names.tolist(), copies.texts, strict=True):
        assert text in one_edit_away(originals[row])


def test_all_errors_and_all_long_words_occur() -> None:
    copies = misspell(["type 2 acute abcd"] * 20_000, np.random.default_rng(0))
    assert set(copies.texts) == one_edit_away("type 2 acute abcd")


def test_short_words_numbers_and_ideographs_are_not_misspelt() -> None:
    copies = misspell(["il 6 a1c", "12345", "糖尿病糖尿病", "flu", "asthma", ""], np.random.default_rng(1))
    assert copies.names.tolist() == [4]


def test_the_same_seed_gives_the_same_copies() -> None:
    first, second = (misspell(["heart attack"] * 9, np.random.default_rng(4)) for _ in range(2))
    assert first.texts == second.texts
    assert misspell([], np.random.default_rng(0)).texts == []
