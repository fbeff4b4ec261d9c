from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer

from sapbert.errors import ConfigError
from sapbert.evaluation import vector_cache as cache
from sapbert.evaluation.rankers import BASELINES, EncoderRanker, Ranker, baseline, top_k_columns
from sapbert.evaluation.vector_cache import CachedEncoder

NAMES = ["heart attack", "attack", "heart failure", "myocardial infarction", "fever"]


class Letters:
    """An encoder that counts letters, and how often it was asked."""

    dimension = 27

    def __init__(self, fingerprint: str = "letters") -> None:
        self.fingerprint = fingerprint
        self.asked: list[str] = []

    def encode(self, names: Sequence[str]) -> NDArray[np.float32]:
        self.asked += names
        counts = np.zeros((len(names), self.dimension), np.float32)
        for row, name in enumerate(names):
            for letter in name:
                counts[row, ord(letter) % 26] += 1
            counts[row, 26] = 1
        unit: NDArray[np.float32] = counts / np.linalg.norm(counts, axis=1, keepdims=True)
        return unit


def first(ranker: Ranker, mention: str, k: int = 5) -> list[str]:
    rows = ranker.rank([mention], k)[1][0]
    return [NAMES[row] for row in rows if row >= 0]


def test_exact_match_finds_the_name_or_nothing() -> None:
    ranker = baseline("exact")(NAMES)

    assert first(ranker, "fever") == ["fever"]
    assert first(ranker, "fevers") == []


def test_bm25_weighs_rare_words_more() -> None:
    ranker = baseline("bm25")(NAMES)

    assert first(ranker, "failure of the heart")[:2] == ["heart failure", "heart attack"]
    assert first(ranker, "no such words") == []


def test_edit_distance_forgives_a_typo() -> None:
    assert first(baseline("edit")(NAMES), "hart atack")[0] == "heart attack"


def test_tfidf_is_that_of_scikit_learn() -> None:
    vectorizer = TfidfVectorizer(analyzer="char", ngram_range=(1, 2))
    theirs = (vectorizer.fit_transform(NAMES) @ vectorizer.transform(["hart faliure"]).T).toarray()[:, 0]

    scores, rows = baseline("tfidf")(NAMES).rank(["hart faliure"], 5)

    assert rows[0].tolist() == np.argsort(-theirs, kind="stable").tolist()
    assert np.allclose(scores[0], np.sort(theirs)[::-1], atol=1e-6)


def test_an_encoder_ranks_by_cosine() -> None:
    encoder = Letters()
    scores = encoder.encode(["hearts"]) @ encoder.encode(NAMES).T

    ranked = EncoderRanker(NAMES, encoder).rank(["hearts"], 5)

    assert ranked[1][0].tolist() == np.argsort(-scores[0], kind="stable").tolist()
    assert np.allclose(ranked[0][0], np.sort(scores[0])[::-1], atol=1e-6)


def test_an_unknown_baseline_is_told() -> None:
    with pytest.raises(ConfigError, match="unknown baseline 'oracle'; choose from exact"):
        baseline("oracle")


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_finds_a_name_by_itself_and_pads_what_is_missing(name: str) -> None:
    scores, rows = baseline(name)(NAMES).rank(NAMES, 9)

    assert rows[:, 0].tolist() == list(range(len(NAMES)))
    assert scores.shape == rows.shape == (5, 9)
    assert (rows[:, 5:] == -1).all()
    assert all(own.tolist() == sorted(own, reverse=True) for own in scores)


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4), min_size=1, max_size=5), st.integers(1, 6)
)
def test_the_best_are_those_of_a_stable_sort(scores: list[list[int]], k: int) -> None:
    expected = [sorted(range(4), key=lambda at: (-row[at], at))[:k] for row in scores]

    assert top_k_columns(np.array(scores, np.float32), k).tolist() == expected


def test_bm25_agrees_with_its_formula() -> None:
    names, mention = ["a b", "a a c", "c"], "a c"
    lengths = [2, 3, 1]
    scores, rows = baseline("bm25")(names).rank([mention], 3)
    expected = []
    for name, length in zip(names, lengths, strict=True):
        total = 0.0
        for word in mention.split():
            documents = sum(word in other.split() for other in names)
            count = name.split().count(word)
            rarity = np.log(1 + (3 - documents + 0.5) / (documents + 0.5))
            total += rarity * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * length / 2))
        expected.append(total)

    assert {int(row): score for row, score in zip(rows[0], scores[0], strict=True)} == pytest.approx(
        dict(enumerate(expected)), rel=1e-5
    )


def test_a_name_is_encoded_once_for_all_runs(tmp_path: Path) -> None:
    first_run, second_run = Letters(), Letters()
    wanted = first_run.encode(["b", "a", "b"])
    first_run.asked.clear()

    found = CachedEncoder(first_run, tmp_path).encode(["b", "a", "b"])
    again = CachedEncoder(second_run, tmp_path).encode(["a", "c", "b"])

    assert np.array_equal(found, wanted)
    assert np.array_equal(again[[2, 0]], wanted[:2])
    assert first_run.asked == ["b", "a"]
    assert second_run.asked == ["c"]


def test_vectors_of_another_encoder_are_not_taken(tmp_path: Path) -> None:
    other = Letters("other")
    CachedEncoder(Letters(), tmp_path).encode(["a"])
    CachedEncoder(other, tmp_path).encode(["a"])

    assert other.asked == ["a"]


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "SEGMENT", 2)
    told: list[tuple[int, int]] = []

    class Dies(Letters):
        def encode(self, names: Sequence[str]) -> NDArray[np.float32]:
            if "c" in names:
                raise KeyboardInterrupt
            return super().encode(names)

    with pytest.raises(KeyboardInterrupt):
        CachedEncoder(Dies(), tmp_path).encode(["a", "b", "c", "d"])
    encoder = Letters()
    CachedEncoder(encoder, tmp_path, progress=lambda *done: told.append(done)).encode(["a", "b", "c", "d"])

    assert encoder.asked == ["c", "d"]
    assert told == [(0, 2), (2, 2)]


def test_progress_is_told_within_a_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "SEGMENT", 3)
    monkeypatch.setattr(cache, "_PROGRESS_EVERY", 2)
    told: list[tuple[int, int]] = []
    encoder = CachedEncoder(Letters(), tmp_path, progress=lambda *done: told.append(done))

    found = encoder.encode(["d", "a", "c", "b"])

    assert told == [(0, 4), (2, 4), (3, 4), (3, 4), (4, 4)]
    assert np.array_equal(found, Letters().encode(["d", "a", "c", "b"]))


def test_a_damaged_segment_is_encoded_again(tmp_path: Path) -> None:
    CachedEncoder(Letters(), tmp_path).encode(["a", "b"])
    (vectors,) = tmp_path.glob("*/*/vectors.npy")
    vectors.write_bytes(vectors.read_bytes()[:-4])
    encoder = Letters()

    found = CachedEncoder(encoder, tmp_path).encode(["a", "b"])

    assert encoder.asked == ["a", "b"]
    assert np.array_equal(found, Letters().encode(["a", "b"]))


def test_no_names_have_no_vectors(tmp_path: Path) -> None:
    assert CachedEncoder(Letters(), tmp_path).encode([]).shape == (0, 27)
