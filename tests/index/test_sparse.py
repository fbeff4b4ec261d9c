"""Search by character n-grams, compared with scikit-learn."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer

from sapbert.arrays import Texts
from sapbert.errors import ConfigError, MissingExtraError
from sapbert.index import sparse
from sapbert.index.sparse import SparseIndex, SparseSettings, write_sparse

NAMES = ["cardiac arrest", "heart attack", "heart failure", "myocardial infarction"]
# Runs of blanks, which folded names have not, are the one thing that scikit-learn reads in another way.
texts = st.text(alphabet="a\u00e1bc\u6771\U0001f9e0-", max_size=8)
some_names = st.lists(texts.filter(bool), min_size=1, max_size=12, unique=True)
some_mentions = st.lists(texts, min_size=1, max_size=5)


def build(names: list[str], folder: Path, settings: SparseSettings | None = None) -> SparseIndex:
    encoded = [name.encode() for name in names]
    offsets = np.cumsum([0, *map(len, encoded)]).astype(np.int64)
    texts = Texts(np.frombuffer(b"".join(encoded), np.uint8), offsets)
    folder.mkdir(exist_ok=True)
    write_sparse(texts, folder, settings or SparseSettings())
    return SparseIndex.open(folder)


def cosines(names: list[str], mentions: list[str], longest: int = 2) -> NDArray[np.float64]:
    vectorizer = TfidfVectorizer(analyzer="char", ngram_range=(1, longest))
    vectors = vectorizer.fit_transform(names)
    product: NDArray[np.float64] = (vectorizer.transform(mentions) @ vectors.T).toarray()
    return product


def test_the_name_with_the_most_similar_spelling_is_first(tmp_path: Path) -> None:
    scores, rows = build(NAMES, tmp_path).search(["heart attacks"], 2)

    assert rows[0, 0] == 1
    assert scores[0, 0] > scores[0, 1] > 0


def test_a_name_finds_itself_with_cosine_one(tmp_path: Path) -> None:
    scores, rows = build(NAMES, tmp_path).search(NAMES, 1)

    assert rows[:, 0].tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(scores[:, 0], 1, atol=1e-6)


@pytest.mark.parametrize("longest", [1, 2, 3])
def test_cosines_are_those_of_scikit_learn(tmp_path: Path, longest: int) -> None:
    mentions = ["hart atack", "cardiac", "zzz", "infarct of the heart"]
    index = build(NAMES, tmp_path, SparseSettings(longest=longest))
    every = np.tile(np.arange(len(NAMES)), (len(mentions), 1))

    found = index.compare(mentions, every)

    np.testing.assert_allclose(found, cosines(NAMES, mentions, longest), atol=1e-6)


@settings(max_examples=60)
@given(names=some_names, mentions=some_mentions, k=st.integers(1, 14))
def test_search_gives_the_best_of_all_cosines_with_lower_rows_first(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], mentions: list[str], k: int
) -> None:
    index = build(names, tmp_path_factory.mktemp("sparse"))

    scores, rows = index.search(mentions, k)

    assert scores.shape == rows.shape == (len(mentions), k)
    for own_scores, own_rows, expected in zip(scores, rows, cosines(names, mentions), strict=True):
        there = own_rows >= 0
        assert there.sum() == min(k, int((expected > 0).sum()))
        np.testing.assert_allclose(own_scores[there], -np.sort(-expected)[: there.sum()], atol=1e-6)
        np.testing.assert_allclose(own_scores[there], expected[own_rows[there]], atol=1e-6)
        order = list(zip(-own_scores[there], own_rows[there], strict=True))
        assert order == sorted(order)
        assert not own_scores[~there].any()


def test_blocks_and_batches_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = sorted(
        {f"{first}{second} disease {number}" for first in "abc" for second in "xyz" for number in range(9)}
    )
    mentions = ["a1 disease", "disease 5", "z", "b"] * 3
    whole = build(names, tmp_path / "whole").search(mentions, 7)

    monkeypatch.setattr(sparse, "_ROWS", 5)
    monkeypatch.setattr(sparse, "_MENTIONS", 2)
    pieces = build(names, tmp_path / "pieces").search(mentions, 7)

    np.testing.assert_allclose(pieces[0], whole[0], atol=1e-6)
    np.testing.assert_array_equal(pieces[1], whole[1])


def test_equal_scores_across_blocks_are_in_row_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse, "_ROWS", 2)
    index = build(["ab", "ba", "ab", "ab", "ab"], tmp_path)

    assert index.search(["ab"], 3)[1].tolist() == [[0, 2, 3]]


def test_only_allowed_rows_are_returned(tmp_path: Path) -> None:
    allowed = np.array([True, False, False, True])

    _, rows = build(NAMES, tmp_path).search(["heart attack"], 4, allowed=allowed)

    assert set(rows[0].tolist()) == {0, 3, -1}


def test_a_missing_row_has_cosine_zero(tmp_path: Path) -> None:
    scores = build(NAMES, tmp_path).compare(["heart attack"], np.array([[1, -1]]))

    np.testing.assert_allclose(scores, [[1, 0]], atol=1e-6)


def test_an_empty_vocabulary_and_no_mentions_are_accepted(tmp_path: Path) -> None:
    empty = build([], tmp_path / "empty")

    assert empty.search(["heart"], 2)[1].tolist() == [[-1, -1]]
    assert build(NAMES, tmp_path / "full").search([], 2)[1].shape == (0, 2)


def test_counts_above_the_limit_are_clipped(tmp_path: Path) -> None:
    index = build(["a" * 100_000, "b"], tmp_path)

    scores, rows = index.search(["aaa", "a" * 1_000_000], 1)

    assert rows[:, 0].tolist() == [0, 0]
    assert (scores > 0.9).all()


def test_more_ngrams_than_16_bits_can_number_are_told_apart(tmp_path: Path) -> None:
    characters = np.random.default_rng(0).integers(0x4E00, 0x9FA0, (2_100, 24))
    names = ["".join(map(chr, row)) for row in characters]
    index = build(names, tmp_path)
    mentions = [names[0], names[900], max(names), min(names)]
    every = np.array([[names.index(mention)] for mention in mentions])

    assert len(index.ngrams) > 1 << 16
    np.testing.assert_allclose(index.compare(mentions, every), 1, atol=1e-6)


@pytest.mark.parametrize(("shortest", "longest"), [(0, 2), (2, 1), (1, 4)])
def test_impossible_ngrams_are_refused(shortest: int, longest: int) -> None:
    with pytest.raises(ConfigError, match="1 to 3 characters"):
        SparseSettings(shortest, longest)


def test_a_missing_scipy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)

    with pytest.raises(MissingExtraError, match=r"sapbert\[hybrid\]"):
        SparseIndex.open(tmp_path)
