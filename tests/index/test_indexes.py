"""Tests that every implementation of `protocols.Index` must pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sapbert.errors import ArtifactError, ConfigError
from sapbert.index import ann, flat
from sapbert.index.ann import AnnIndex, Coder, write_codes
from sapbert.index.flat import FlatIndex
from sapbert.index.settings import Precision
from sapbert.index.signs import SignIndex
from sapbert.index.vectors import Vectors, VectorWriter, quantize
from sapbert.protocols import Index

Floats = NDArray[np.float32]
Build = Callable[[Floats], Index]
KINDS = [
    "flat-fp32",
    "flat-fp16",
    "flat-int8",
    "flat-int4",
    "ann-int8",
    "ann-fp16",
    "ann-int4",
    "signs-int8",
    "signs-int4",
]
TOLERANCE = {"fp32": 1e-6, "fp16": 2e-3, "int8": 2e-2, "int4": 0.15}


def unit(rows: int, dimension: int = 24, *, seed: int = 0) -> Floats:
    vectors = np.random.default_rng(seed).standard_normal((rows, dimension)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def saved(folder: Path, vectors: Floats, precision: Precision) -> Vectors:
    with VectorWriter(folder, vectors.shape[1], precision) as writer:
        for start in range(0, len(vectors), 7):
            writer.append(quantize(vectors[start : start + 7], precision))
    return Vectors.open(folder)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def precision(kind: str) -> Precision:
    return Precision(kind.partition("-")[2])


@pytest.fixture
def build(
    kind: str, precision: Precision, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Build:
    """Save vectors as an index of this kind and open it; blocks are small, so that there are several."""
    monkeypatch.setattr(flat, "BLOCK_BYTES", 4 * 24 * 5)
    monkeypatch.setattr(flat, "BLOCK_BYTES_ALONE", 4 * 24 * 4)
    monkeypatch.setattr(flat, "MENTIONS", 3)
    monkeypatch.setattr(ann, "BLOCK", 50)
    monkeypatch.setattr(ann, "MENTIONS", 3)
    monkeypatch.setattr(ann, "BITS", 64)

    def run(vectors: Floats) -> Index:
        folder = tmp_path_factory.mktemp("index")
        opened = saved(folder, vectors, precision)
        if kind.startswith("flat"):
            return FlatIndex(opened)
        if kind.startswith("signs"):
            return SignIndex(opened, candidates=100)
        write_codes(folder)
        return AnnIndex.open(folder, opened, candidates=100, threads=2)

    return run


def brute_force(stored: Floats, mention: Floats, k: int, allowed: NDArray[np.bool_] | None) -> list[int]:
    """Rows of the k nearest, one cosine after the other."""
    rows = [row for row in range(len(stored)) if allowed is None or allowed[row]]
    scores = {row: float((stored[row] * mention).sum()) for row in rows}
    return sorted(rows, key=lambda row: (-scores[row], row))[:k]


def test_the_nearest_are_first(build: Build, precision: Precision) -> None:
    vectors = np.eye(24, dtype=np.float32)
    index = build(vectors)
    mention = np.zeros((1, 24), np.float32)
    mention[0, [3, 7, 5]] = [0.8, 0.5, 0.33]

    scores, rows = index.search(mention, 3)

    assert (len(index), index.dimension) == (24, 24)
    assert rows.tolist() == [[3, 7, 5]]
    assert scores[0] == pytest.approx([0.8, 0.5, 0.33], abs=TOLERANCE[precision])
    assert scores.dtype == np.float32
    assert rows.dtype == np.int64


laws = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])


@laws
@given(
    rows=st.integers(1, 100),
    k=st.integers(1, 120),
    mentions=st.integers(1, 5),
    share=st.sampled_from([0.0, 0.1, 0.5, 1.0, None]),
    seed=st.integers(0, 2**32),
)
def test_an_index_equals_comparing_all_rows_one_by_one(
    build: Build, precision: Precision, rows: int, k: int, mentions: int, share: float | None, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    # Many rows are alike, so that ties must be broken.
    vectors = unit(rows, seed=seed)[rng.integers(0, rows, rows)]
    batch = unit(mentions, seed=seed + 1)
    allowed = None if share is None else rng.random(rows) < share
    stored = quantize(vectors, precision).floats(slice(None))

    scores, found = build(vectors).search(batch, k, allowed=allowed)

    assert scores.shape == found.shape == (mentions, k)
    for number, mention in enumerate(batch):
        expected = brute_force(stored, mention, k, allowed)
        assert found[number].tolist() == expected + [-1] * (k - len(expected))
        cosines = scores[number, : len(expected)]
        assert np.all(np.diff(cosines) <= 0)
        assert cosines == pytest.approx(vectors[expected] @ mention, abs=TOLERANCE[precision])


@laws
@given(rows=st.integers(101, 400), seed=st.integers(0, 2**32), share=st.sampled_from([None, 0.9]))
def test_results_do_not_depend_on_the_batch(build: Build, rows: int, seed: int, share: float | None) -> None:
    index, batch = build(unit(rows, seed=seed)), unit(7, seed=seed + 1)
    allowed = None if share is None else np.random.default_rng(seed).random(rows) < share

    together = index.search(batch, 5, allowed=allowed)

    for number, mention in enumerate(batch):
        alone = index.search(mention[np.newaxis], 5, allowed=allowed)
        assert np.array_equal(alone[0][0], together[0][number])
        assert np.array_equal(alone[1][0], together[1][number])


def test_a_filter_is_applied_during_the_search(build: Build) -> None:
    vectors = unit(400)
    allowed = np.zeros(400, np.bool_)
    # The twenty that are farthest away: no list of the nearest holds them.
    allowed[np.argsort(vectors @ vectors[0])[:20]] = True

    _, rows = build(vectors).search(vectors[:1], 10, allowed=allowed)

    assert allowed[rows[0]].all()
    assert len(set(rows[0].tolist())) == 10


def test_a_weak_filter_returns_the_nearest_allowed_rows(build: Build) -> None:
    vectors = unit(400)
    allowed = np.arange(400) % 4 > 0

    _, rows = build(vectors).search(vectors[:40], 1, allowed=allowed)

    themselves = np.flatnonzero(allowed[:40])
    assert rows[themselves, 0].tolist() == themselves.tolist()
    assert allowed[rows[:, 0]].all()


def test_no_mentions_give_an_empty_result(build: Build) -> None:
    scores, rows = build(unit(9)).search(np.empty((0, 24), np.float32), 4)

    assert scores.shape == rows.shape == (0, 4)


def test_a_filter_without_rows_gives_an_empty_result(build: Build) -> None:
    _, rows = build(unit(9)).search(unit(2), 4, allowed=np.zeros(9, np.bool_))

    assert rows.tolist() == [[-1] * 4] * 2


def test_scores_are_cosines_of_unit_vectors(build: Build) -> None:
    vectors = unit(300)

    scores, rows = build(vectors).search(vectors[:20], 1)

    assert rows[:, 0].tolist() == list(range(20))
    assert np.all(scores <= 1)


@pytest.mark.parametrize(
    ("mentions", "k", "allowed", "message"),
    [
        (np.ones(24), 3, None, r"shape \(24,\), expected \(mentions, 24\)"),
        (np.ones((1, 23)), 3, None, r"shape \(1, 23\), expected \(mentions, 24\)"),
        (np.ones((1, 24)), 0, None, "k is 0"),
        (np.ones((1, 24)), 3, np.ones(8, np.bool_), r"allowed has shape \(8,\), expected \(9,\)"),
    ],
)
def test_invalid_arguments_are_a_value_error(
    build: Build, mentions: Floats, k: int, allowed: NDArray[np.bool_] | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        build(unit(9)).search(mentions, k, allowed=allowed)


# What an approximate index gives up


@pytest.mark.parametrize("dimension", [32, 600])
def test_codes_find_nearly_all_of_the_nearest(tmp_path: Path, dimension: int) -> None:
    centres = unit(300, dimension)
    vectors = np.repeat(centres, 20, axis=0) + 0.9 * unit(6000, dimension, seed=1)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    opened = saved(tmp_path, vectors, Precision.INT8)
    write_codes(tmp_path)
    index = AnnIndex.open(tmp_path, opened, candidates=200)

    _, found = index.search(vectors[:100], 10)

    exact = np.argsort(-(vectors[:100] @ vectors.T), axis=1)[:, :10]
    recall = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found.tolist(), exact.tolist(), strict=True)])
    assert recall > 0.97


def nearest_codes(folder: Path, mention: Floats, allowed: NDArray[np.bool_], count: int) -> NDArray[np.bool_]:
    """Mark the rows whose codes differ least from that of a mention, lower rows first."""
    codes = np.load(folder / "codes.npy")
    own = Coder.open(folder, len(mention)).encode(mention[np.newaxis])
    distances = np.bitwise_count(codes ^ own).sum(axis=1)
    rows = np.flatnonzero(allowed)
    near = np.zeros(len(codes), np.bool_)
    near[rows[np.argsort(distances[rows], kind="stable")[:count]]] = True
    return near


@settings(max_examples=25)
@given(
    rows=st.integers(60, 200),
    k=st.integers(1, 20),
    share=st.sampled_from([0.5, 0.9, None]),
    seed=st.integers(0, 2**32),
)
def test_the_rows_with_the_nearest_codes_are_rescored(
    tmp_path_factory: pytest.TempPathFactory, rows: int, k: int, share: float | None, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("codes")
    vectors, mentions = unit(rows, seed=seed), unit(5, seed=seed + 1)
    filtered = None if share is None else np.random.default_rng(seed).random(rows) < share
    allowed = np.ones(rows, np.bool_) if filtered is None else filtered
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ann, "BLOCK", 30)
        patch.setattr(ann, "MENTIONS", 3)
        patch.setattr(ann, "BITS", 64)
        opened = saved(folder, vectors, Precision.FP32)
        write_codes(folder)
        index = AnnIndex.open(folder, opened, candidates=12, threads=2)
        _, found = index.search(mentions, k, allowed=filtered)

        for mention, own in zip(mentions, found, strict=True):
            near = nearest_codes(folder, mention, allowed, max(12, 2 * k))
            expected = brute_force(vectors, mention, k, near)
            assert own.tolist() == expected + [-1] * (k - len(expected))


def test_candidates_do_not_depend_on_the_number_of_threads(tmp_path: Path) -> None:
    vectors = saved(tmp_path, unit(3000), Precision.INT8)
    write_codes(tmp_path)
    batch = unit(40, seed=1)

    one, four = (
        AnnIndex.open(tmp_path, vectors, candidates=20, threads=threads).search(batch, 5)
        for threads in (1, 4)
    )

    assert np.array_equal(one[1], four[1])


@pytest.mark.parametrize("precision", list(Precision))
def test_a_vector_of_zeros_is_stored_as_such(precision: Precision) -> None:
    assert not quantize(np.zeros((2, 4), np.float32), precision).floats(slice(None)).any()


def test_int4_has_fifteen_steps_and_two_values_per_byte() -> None:
    vectors = np.array([[1, -1, 1 / 7, 0], [0.2, 0.1, 0.05, -0.2]], np.float32)

    small = quantize(vectors, Precision.INT4)

    assert small.data.tolist() == [[15 << 4 | 1, 9 << 4 | 8], [15 << 4 | 12, 10 << 4 | 1]]
    assert (small.dimension, small.precision, len(small)) == (4, Precision.INT4, 2)
    steps = np.array([[7, -7, 1, 0], [7, 4, 2, -7]], np.float32)
    assert small.floats(slice(None)) == pytest.approx(steps / np.linalg.norm(steps, axis=1, keepdims=True))


def lost(vectors: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """What 7 steps of the largest component take from a vector's cosine with itself, and what int4 takes."""
    plain = np.rint(vectors / np.abs(vectors).max(axis=1, keepdims=True) * 7)
    plain /= np.linalg.norm(plain, axis=1, keepdims=True)
    stored = quantize(vectors, Precision.INT4).floats(slice(None))
    return 1 - (plain * vectors).sum(axis=1), 1 - (stored * vectors).sum(axis=1)


def test_int4_loses_less_if_a_large_component_is_clipped() -> None:
    plainly, lost_now = lost(unit(100, 256))

    assert lost_now.mean() < 0.85 * plainly.mean()


@laws
@given(rows=st.integers(1, 20), dimension=st.integers(1, 40), seed=st.integers(0, 2**32))
def test_clipping_never_makes_a_direction_worse(rows: int, dimension: int, seed: int) -> None:
    plainly, lost_now = lost(unit(rows, 2 * dimension, seed=seed))

    assert (lost_now <= plainly + 1e-6).all()


def test_int4_refuses_an_odd_number_of_dimensions() -> None:
    with pytest.raises(ConfigError, match="pairs of dimensions, got 5; give an even --dimensions"):
        quantize(unit(2, 5), Precision.INT4)


def test_half_floats_are_converted_as_numpy_converts_them() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)].reshape(-1, 2)

    converted = Vectors(finite, None).floats(slice(None))

    assert np.array_equal(converted.view(np.uint32), finite.astype(np.float32).view(np.uint32))


@pytest.mark.parametrize("precision", list(Precision))
def test_cosines_with_stored_vectors_equal_those_with_floats(precision: Precision) -> None:
    vectors, mentions = quantize(unit(50), precision), unit(3, seed=1)
    rows = np.array([4, 0, 49])

    assert vectors.cosines(mentions, rows) == pytest.approx(mentions @ vectors.floats(rows).T, abs=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, 7])
def test_a_vector_whose_length_is_not_one_is_an_error(value: float) -> None:
    vectors, mentions = unit(300), np.abs(unit(5, seed=1))
    vectors[200, 3] = value

    with pytest.raises(ValueError, match="a vector does not have length 1"):
        FlatIndex(Vectors(vectors, None)).search(mentions, 3)


@pytest.mark.parametrize("precision", list(Precision))
def test_results_do_not_depend_on_keeping_vectors_in_memory(
    precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, mentions = FlatIndex(quantize(unit(300, 16, seed=1), precision)), unit(20, 16, seed=2)
    held = index.search(mentions, 7)
    monkeypatch.setattr("sapbert.index.flat.IN_MEMORY_BYTES", 0)
    mapped = FlatIndex(index.vectors).search(mentions, 7)

    assert index.vectors.precision is precision
    np.testing.assert_array_equal(held[1], mapped[1])
    np.testing.assert_array_equal(held[0], mapped[0])


def test_a_small_index_is_converted_to_float32_once(monkeypatch: pytest.MonkeyPatch) -> None:
    convert, calls = Vectors.to_float32, []

    def counted(vectors: Vectors) -> Vectors:
        calls.append(vectors)
        return convert(vectors)

    monkeypatch.setattr(Vectors, "to_float32", counted)
    index = FlatIndex(quantize(unit(30, 16), Precision.INT4))

    for _ in range(2):
        index.search(unit(2, 16), 3)

    assert calls == [index.vectors]


def test_huge_numbers_in_a_damaged_file_are_refused_without_a_warning(tmp_path: Path) -> None:
    np.save(tmp_path / "vectors.npy", np.full((3, 8), 3e38, np.float32))
    with pytest.raises(ArtifactError, match="it contains a vector of length inf"):
        Vectors.open(tmp_path)
