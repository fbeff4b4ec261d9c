from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sapbert.linking.linker import Linker
from sapbert.service import lookup
from sapbert.service.linkers import ServedLinker
from sapbert.text import fold
from tests.index.conftest import NgramEncoder, Row
from tests.linking.conftest import bench_of

NAMES = st.text(alphabet="abcABC é\U0001f600", min_size=1, max_size=6).filter(lambda name: fold(name) != "")
ROWS = st.lists(
    st.tuples(st.sampled_from(["x:1", "x:2", "y:1", "y:12"]), NAMES, st.sampled_from(["", "A", "B"])),
    min_size=1,
    max_size=25,
)


def served_of(rows: list[Row], folder: Path) -> ServedLinker:
    types = [(concept, concept[:1]) for concept in sorted({row[0] for row in rows})]
    return ServedLinker("x", "X", bench_of(folder, rows, {"types": types}, NgramEncoder(64)).linker)


@given(ROWS, st.text(alphabet="abAé\U0001f600", max_size=3))
@settings(max_examples=20)
def test_a_search_finds_the_same_names_as_a_linear_scan(rows: list[Row], prefix: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        served = served_of(rows, Path(folder) / "bench")
        names = sorted({(fold(row[1]).encode(), row[0]) for row in rows})

        result = lookup.search(served, prefix, limit=100)

        wanted = fold(prefix).encode()
        expected = dict.fromkeys(concept for name, concept in names if wanted and name.startswith(wanted))
        assert [row.concept_id for row in result] == list(expected)
        assert all(fold(row.matched_name).startswith(fold(prefix)) for row in result)
        for skip in range(4):
            rest = lookup.search(served, prefix, limit=2, skip=skip)
            assert [row.concept_id for row in rest] == list(expected)[skip : skip + 2]
        for space in sorted({row[0][0] for row in rows}):
            own = [concept for concept in expected if concept[0] == space]
            of_type = lookup.search(served, prefix, limit=100, types=[space])
            of_space = lookup.search(served, prefix, limit=100, namespaces=[space])
            assert [row.concept_id for row in of_type] == own
            assert of_space == of_type


def test_a_search_finds_identifiers_without_their_prefix(tmp_path: Path) -> None:
    rows: list[Row] = [("x:D12", "a", ""), ("y:D123", "b", ""), ("y:E1", "c", ""), ("y:F1", "d12 units", "")]
    served = served_of(rows, tmp_path / "bench")
    for text in ("D12", "d12"):
        found = [row.concept_id for row in lookup.search(served, text, limit=10)]
        assert found == ["x:D12", "y:D123", "y:F1"]
    assert lookup.search(served, "D", limit=10) == lookup.search(served, "d12 u", limit=10)


@given(ROWS)
@settings(max_examples=15)
def test_a_concept_has_the_names_of_the_vocabulary(rows: list[Row]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        served = served_of(rows, Path(folder) / "bench")
        for concept in {row[0] for row in rows}:
            number = served.concept_number(concept)
            assert number is not None

            result = lookup.describe_concept(served, number, neighbours=3)

            own = [row for row in rows if row[0] == concept]
            assert sorted(fold(name.name) for name in result.names) == sorted({fold(row[1]) for row in own})
            assert result.name_count == len(result.names)
            assert set(result.sources) == {row[2] for row in own} - {""}
            assert len(result.neighbours) == min(3, len({row[0] for row in rows}) - 1)


@given(st.integers(min_value=1, max_value=12), st.integers(min_value=0, max_value=2**32 - 1))
def test_a_projection_explains_as_much_variance_as_possible(count: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(count, 5)).astype(np.float32)

    places, explained = lookup._project(vectors)

    values = (
        np.linalg.eigvalsh(np.cov(vectors.T.astype(np.float64), bias=True))[::-1] if count > 1 else [0, 0]
    )
    np.testing.assert_allclose((places**2).sum(axis=0) / count, np.array(values)[:2].clip(0), atol=1e-4)
    assert (places[0] >= 0).all()
    assert len(explained) == min(2, count)
    assert sum(explained) <= 1 + 1e-3


def test_identical_vectors_are_projected_onto_one_point() -> None:
    places, explained = lookup._project(np.ones((3, 4), np.float32))
    assert (places == 0).all()
    assert explained == [0, 0]


def test_a_map_has_at_most_the_names_of_the_index(linkers: dict[str, Linker]) -> None:
    drawn = lookup.nearby_names(ServedLinker("d", "D", linkers["drug"]), "aspirine", names=200)
    assert [point.name for point in drawn.points] == ["aspirin", "water <b>"]
    assert drawn.points[1].concept_ids == ["chebi:2"]
