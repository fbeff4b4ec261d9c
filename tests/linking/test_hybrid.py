"""Hybrid search, compared with a loop over all names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sapbert.arrays import Texts
from sapbert.errors import ConfigError
from sapbert.index.flat import FlatIndex
from sapbert.index.settings import Precision
from sapbert.index.sparse import SparseIndex, SparseSettings, write_sparse
from sapbert.index.vectors import Vectors, quantize
from sapbert.linking.hybrid import HybridSearch, ScoredRows, best_weight, open_hybrid

NAMES = ["cardiac arrest", "cardial arrest", "heart attack", "heart failure", "heat attack", "myalgia"]


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> HybridSearch:
    """A search with random vectors, unrelated to the names."""
    encoded = [name.encode() for name in NAMES]
    offsets = np.cumsum([0, *map(len, encoded)]).astype(np.int64)
    folder = tmp_path_factory.mktemp("sparse")
    write_sparse(Texts(np.frombuffer(b"".join(encoded), np.uint8), offsets), folder, SparseSettings())
    vectors = Vectors(unit(np.random.default_rng(0).normal(size=(len(NAMES), 8))), None)
    return HybridSearch(FlatIndex(vectors), vectors, SparseIndex.open(folder), weight=1)


def unit(vectors: NDArray[np.float64]) -> NDArray[np.float32]:
    scaled: NDArray[np.float32] = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(
        np.float32
    )
    return scaled


def with_weight(search: HybridSearch, weight: float) -> HybridSearch:
    return HybridSearch(search.index, search.vectors, search.sparse, weight)


def test_n_grams_find_a_misspelled_name(search: HybridSearch) -> None:
    mention = unit(np.ones((1, 8)))

    _, rows = with_weight(search, 100).search(["heart atack"], mention, 2)

    assert NAMES[rows[0, 0]] == "heart attack"


def test_a_weight_of_zero_gives_the_order_of_the_vectors(search: HybridSearch) -> None:
    mentions = unit(np.random.default_rng(1).normal(size=(3, 8)))

    scores, rows = with_weight(search, 0).search(["heart"] * 3, mentions, 4)

    expected_scores, expected_rows = search.index.search(mentions, 4)
    np.testing.assert_array_equal(rows, expected_rows)
    np.testing.assert_allclose(scores, expected_scores, atol=1e-6)


@settings(max_examples=50)
@given(
    seed=st.integers(0, 1000),
    texts=st.lists(st.sampled_from([*NAMES, "heart", "zz", ""]), min_size=1, max_size=3),
    k=st.integers(1, 8),
    weight=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
)
def test_each_row_of_the_union_has_both_cosines(
    search: HybridSearch, seed: int, texts: list[str], k: int, weight: float
) -> None:
    mentions = unit(np.random.default_rng(seed).normal(size=(len(texts), 8)))
    dense = mentions @ search.vectors.floats(slice(None)).T
    every = np.tile(np.arange(len(NAMES)), (len(texts), 1))
    sparse = search.sparse.compare(texts, every)
    total = (dense + weight * sparse) / (1 + weight)

    scores, rows = with_weight(search, weight).search(texts, mentions, k)

    for at in range(len(texts)):
        union = set(np.argsort(-dense[at], kind="stable")[:k].tolist())
        near = np.argsort(-sparse[at], kind="stable")[:k]
        union |= set(near[sparse[at, near] > 0].tolist())
        found = rows[at][rows[at] >= 0]
        assert len(found) == min(k, len(union), len(NAMES))
        best = sorted((total[at, row] for row in union), reverse=True)[: len(found)]
        np.testing.assert_allclose(scores[at, : len(found)], best, atol=1e-5)
        np.testing.assert_allclose(scores[at, : len(found)], total[at, found], atol=1e-5)


def test_only_allowed_rows_are_found(search: HybridSearch) -> None:
    allowed = np.array([True, False, False, False, False, True])

    _, rows = search.search(["heart attack"], unit(np.ones((1, 8))), 4, allowed=allowed)

    assert set(rows[0].tolist()) == {0, 5, -1}


def test_the_lowest_of_the_best_weights_is_chosen() -> None:
    """The second of two rows is right and has the higher sparse score; a small weight is enough."""
    found = ScoredRows(
        np.array([[0, 1]]), np.array([[0.5, 0.4]], np.float32), np.array([[0.0, 1.0]], np.float32)
    )

    weight, accuracy = best_weight(found, np.array([[False, True]]))

    assert weight == 0.15  # at 0.1 both scores are equal, and the lower row wins
    assert accuracy[0.0] == 0
    assert accuracy[2.0] == 1


def test_the_error_for_an_index_without_n_grams_names_the_option(
    search: HybridSearch, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="sapbert index --hybrid"):
        open_hybrid(search.index, tmp_path, 1)


def test_a_negative_weight_is_refused(search: HybridSearch) -> None:
    with pytest.raises(ConfigError, match="at least 0"):
        with_weight(search, -1)


def test_int8_vectors_give_nearly_the_same_scores(search: HybridSearch) -> None:
    small = quantize(search.vectors.floats(slice(None)), Precision.INT8)
    mention = unit(np.ones((1, 8)))

    few = HybridSearch(FlatIndex(small), small, search.sparse, 1).search(["heart atack"], mention, 3)

    np.testing.assert_allclose(few[0], search.search(["heart atack"], mention, 3)[0], atol=0.02)
