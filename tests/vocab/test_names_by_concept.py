from __future__ import annotations

from itertools import groupby, pairwise

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from sapbert.vocab.names_by_concept import NamesByConcept, regroup_by_concept, run_starts

Row = tuple[str, str]
rows = st.lists(st.tuples(st.sampled_from(["C1", "C2", "C3", "é"]), st.sampled_from(["a", "b", ""])))


def frame(table: list[Row]) -> pl.DataFrame:
    return pl.DataFrame(table, schema={"concept_id": pl.String, "name": pl.String}, orient="row")


def table(concepts: NamesByConcept) -> list[Row]:
    return [(row["concept_id"], row["name"]) for row in concepts.with_ids().iter_rows(named=True)]


def test_each_identifier_is_stored_once() -> None:
    concepts = NamesByConcept.of(frame([("C1", "a"), ("C1", "b"), ("C2", "a"), ("C1", "c")]), "umls:")
    assert concepts.ids.to_list() == ["umls:C1", "umls:C2", "umls:C1"]
    assert concepts.names.select("concept", "name").rows() == [(0, "a"), (0, "b"), (1, "a"), (2, "c")]


@given(rows)
def test_grouping_can_be_undone(names: list[Row]) -> None:
    assert table(NamesByConcept.of(frame(names))) == names


@given(rows)
def test_concepts_without_names_are_dropped(names: list[Row]) -> None:
    concepts = NamesByConcept.of(frame(sorted(names)))
    kept = concepts.with_names(concepts.names.filter(pl.col("name") != ""))
    left = [row for row in sorted(names) if row[1]]
    assert table(kept) == left
    assert kept.ids.to_list() == sorted({row[0] for row in left})


@given(rows.filter(bool), st.lists(st.integers(0, 20), max_size=4), st.integers(1, 8))
def test_pieces_are_regrouped_so_that_no_concept_is_split(
    names: list[Row], cuts: list[int], rows_per_part: int
) -> None:
    names = sorted(names)
    bounds = sorted({0, len(names), *(cut for cut in cuts if cut < len(names))})
    pieces = [NamesByConcept.of(frame(names[start:stop])) for start, stop in pairwise(bounds)]
    assert table(NamesByConcept.concat(pieces)) == names
    parts = list(regroup_by_concept(pieces, rows_per_part))
    assert [row for part in parts for row in table(part)] == names
    assert [own for part in parts for own in part.ids] == sorted({row[0] for row in names})


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["en", "de"]))))
def test_a_run_starts_where_any_column_changes(pairs: list[tuple[int, str]]) -> None:
    numbers = pl.Series([number for number, _ in pairs], dtype=pl.UInt32)
    languages = pl.Series([language for _, language in pairs], dtype=pl.Categorical)
    starts, place = [], 0
    for _, run in groupby(pairs):
        starts.append(place)
        place += len(list(run))
    assert run_starts(numbers, languages).tolist() == starts
