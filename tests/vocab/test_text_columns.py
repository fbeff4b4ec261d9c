from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sapbert.curies import parse_curie
from sapbert.text import fold, tidy
from sapbert.vocab.text_columns import (
    fold_names,
    fold_tidy_names,
    is_first_in_group,
    possibly_repeated_rows,
    tidy_names,
    to_curies,
)
from tests.test_curies import PREFIXES, texts
from tests.test_text import TRICKY, code_points

FORMS = ["{0}", "{0}A", "A{0}", " {0} ", "A {0}", "{0} {0}"]
CURIE_FORMS = ["{0}", "{0}1", "1{0}", "GO:{0}", "GO:1{0}", "GO:1{0}2", "{0}GO:1", "G{0}:1", "{0}:1"]
names = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from([*TRICKY, "A", "z", " "]))


@cache
def touched() -> list[str]:
    """The characters that folding or tidying changes; the letters of most scripts are left alone."""
    return [char for char in code_points(assigned=True) if fold(f"a{char}b") != f"a{char}b"]


def disagreements(
    whole: Callable[[pl.Series], pl.Series], one: Callable[[str], str | None], column: list[str]
) -> list[str]:
    """The texts of which the column function makes something else than the function of one text."""
    made = whole(pl.Series(column, dtype=pl.String)).to_list()
    return [text for text, found in zip(column, made, strict=True) if found != one(text)]


def curie_disagreements(column: list[str], prefix: str | None) -> list[str]:
    return disagreements(
        lambda ids: to_curies(ids, prefix=prefix), lambda text: parse_curie(text, prefix=prefix), column
    )


def test_columns_of_names_are_folded_and_tidied() -> None:
    column = pl.Series(["Migraine", " two\tWORDS ", "Straße", "", None])
    assert fold_names(column).to_list() == ["migraine", "two words", "strasse", "", None]
    assert tidy_names(column).to_list() == ["Migraine", "two WORDS", "Straße", "", None]
    assert column.to_list() == ["Migraine", " two\tWORDS ", "Straße", "", None], "the column stays as it is"


def test_a_column_of_identifiers_becomes_curies() -> None:
    column = pl.Series(["MESH:D1", "D1", " HP:1 ", "GO:GO:2", "mesh:", "", None])
    assert to_curies(column).to_list() == ["mesh:D1", None, "hp:1", "go:2", None, None, None]
    lent = to_curies(column, prefix="MSH").to_list()
    assert lent == ["mesh:D1", "mesh:D1", "hp:1", "go:2", None, None, None]


@pytest.mark.parametrize("column", [[], [None], [None, None]])
def test_empty_and_null_columns_are_unchanged(column: list[None]) -> None:
    empty = pl.Series(column, dtype=pl.String)
    made = [fold_names(empty), tidy_names(empty), to_curies(empty), to_curies(empty, prefix="mesh")]
    assert [series.to_list() for series in made] == [column] * 4
    assert {series.dtype for series in made} == {pl.String()}


def test_every_character_is_treated_as_in_one_name() -> None:
    column = [
        *(f"a{char}b" for char in code_points(assigned=True)),
        *(form.format(char) for form in FORMS for char in touched()),
        "".join(code_points(assigned=False)),
    ]
    assert disagreements(fold_names, fold, column) == []
    assert disagreements(tidy_names, tidy, column) == []


@pytest.mark.parametrize("prefix", [None, "MSH"])
def test_every_character_is_treated_as_in_one_identifier(prefix: str | None) -> None:
    column = [form.format(char) for form in CURIE_FORMS for char in touched()]
    assert curie_disagreements(column, prefix) == []


@given(st.lists(names))
def test_any_names_are_treated_as_one_by_one(column: list[str]) -> None:
    assert disagreements(fold_names, fold, column) == []
    assert disagreements(tidy_names, tidy, column) == []
    assert disagreements(fold_tidy_names, fold, [tidy(name) for name in column]) == []


@given(st.lists(texts | names), st.sampled_from([None, *PREFIXES, "no prefix", "a:b", ""]))
def test_any_identifiers_are_treated_as_one_by_one(column: list[str], prefix: str | None) -> None:
    assert curie_disagreements(column, prefix) == []


tables = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["a", "b", "c"])))


def first_of_each(rows: list[tuple[int, str]]) -> list[bool]:
    return [row not in rows[:number] for number, row in enumerate(rows)]


def columns(rows: list[tuple[int, str]]) -> tuple[pl.Series, NDArray[np.uint64], NDArray[np.int64]]:
    texts = pl.Series([text for _, text in rows], dtype=pl.String)
    return texts, texts.hash().to_numpy(), np.array([number for number, _ in rows], np.int64)


@given(tables)
def test_a_row_is_first_if_no_row_above_is_equal(rows: list[tuple[int, str]]) -> None:
    assert is_first_in_group(*columns(rows)).tolist() == first_of_each(rows)


@given(tables)
def test_rows_with_equal_hashes_are_distinguished(rows: list[tuple[int, str]]) -> None:
    texts, hashes, groups = columns(rows)
    assert is_first_in_group(texts, np.zeros_like(hashes), groups).tolist() == first_of_each(rows)


hashes = st.lists(st.integers(0, 3) | st.integers(0, 2**64 - 1) | st.integers(2**64 - 4, 2**64 - 1))


@given(hashes)
def test_every_repeated_hash_is_found(numbers: list[int]) -> None:
    found = possibly_repeated_rows(np.array(numbers, np.uint64)).tolist()
    assert found == sorted(set(found))
    assert {row for row, number in enumerate(numbers) if numbers.count(number) > 1} <= set(found)


def test_unique_hashes_are_hardly_ever_found() -> None:
    once = np.random.default_rng(1).permutation(np.arange(10_000, dtype=np.uint64) << np.uint64(40))
    assert not len(possibly_repeated_rows(once))
