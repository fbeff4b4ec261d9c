from __future__ import annotations

import polars as pl
from hypothesis import example, given
from hypothesis import strategies as st

from sapbert.vocab.schema import Kind, Schema, Scope
from sapbert.vocab.settings import KINDS, SCOPES
from sapbert.vocab.sorting import sort_distinct_names

Row = tuple[int, str, str, str, int, str, str, int]
SCHEMA: Schema = {
    "concept": pl.UInt32,
    "language": pl.Categorical,
    "name": pl.String,
    "source": pl.Categorical,
    "rank": pl.Int32,
    "scope": Scope,
    "kind": Kind,
    "count": pl.UInt32,
}

names = st.text("aAbé病 \U0001f9ec", max_size=3) | st.builds(
    str.__add__, st.sampled_from(["", "the same ", "the same beginning of "]), st.text("abz", max_size=3)
)
rows = st.tuples(
    st.integers(0, 3) | st.integers(0, 2**31),
    st.sampled_from(["en", "de", "zh", "a", "zzz", "é"]),
    names,
    st.sampled_from(["B", "A", "é", ""]),
    st.integers(0, 2),
    st.sampled_from(SCOPES),
    st.sampled_from(KINDS),
    st.integers(0, 2),
)


def obvious(rows: list[Row]) -> list[Row]:
    """The first of each name in order, the slow and obvious way."""

    def place(row: Row) -> tuple[object, ...]:
        concept, language, name, source, rank, scope, kind, count = row
        key = (concept, language.encode(), name.encode(), source.encode())
        return *key, -rank, SCOPES.index(scope), KINDS.index(kind), -count

    found: dict[tuple[int, str, str, str], Row] = {}
    for row in sorted(rows, key=place):
        found.setdefault(row[:4], row)
    return list(found.values())


def test_names_are_sorted_and_the_best_of_equal_ones_is_kept() -> None:
    unsorted = [
        (1, "en", "Cold", "MSH", 0, "exact", "", 0),
        (0, "en", "Migraine", "NCI", 0, "exact", "", 0),
        (0, "de", "Migräne", "MSH", 0, "exact", "", 0),
        (0, "en", "Migraine", "MSH", 1, "related", "", 0),
        (0, "en", "Migraine", "MSH", 2, "exact", "", 0),
    ]
    table = pl.DataFrame(unsorted, schema=SCHEMA, orient="row")
    assert sort_distinct_names(table).rows() == [unsorted[number] for number in (2, 4, 1, 0)]


@given(st.lists(rows, max_size=40))
@example([])
@example([(0, "en", "a", "", 0, "exact", "", 0)] * 2)
@example([(0, "en", "a\0", "", 0, "exact", "", 0), (0, "en", "a", "", 0, "exact", "", 0)])
def test_the_order_equals_sorting_by_every_column(unsorted: list[Row]) -> None:
    table = pl.DataFrame(unsorted, schema=SCHEMA, orient="row")
    assert sort_distinct_names(table).rows() == obvious(unsorted)
