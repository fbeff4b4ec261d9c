from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sapbert.encoder.pca import ProjectedEncoder, principal_axes, project
from tests.index.conftest import NgramEncoder

NAMES = ["heart attack", "cold", ""]
shapes = st.tuples(st.integers(0, 30), st.integers(1, 12)).flatmap(
    lambda shape: st.tuples(st.just(shape), st.integers(1, shape[1]), st.integers(0, 2**32))
)


def drawn(rows: int, dimension: int, seed: int = 0) -> NDArray[np.float32]:
    vectors = np.random.default_rng(seed).standard_normal((rows, dimension))
    vectors[:, 0] += 2  # as names have much in common
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.astype(np.float32)


def test_vectors_of_a_plane_need_two_axes() -> None:
    plane = np.linalg.qr(np.random.default_rng(5).standard_normal((9, 2))).Q.T
    vectors = (drawn(50, 2) @ plane).astype(np.float32)

    flat = project(vectors, principal_axes(vectors, 2))

    assert flat.shape == (50, 2)
    assert flat @ flat.T == pytest.approx(vectors @ vectors.T, abs=1e-5)


@given(shapes)
def test_no_other_axes_keep_more_of_the_vectors(told: tuple[tuple[int, int], int, int]) -> None:
    shape, dimension, seed = told
    vectors = drawn(*shape, seed)

    axes = principal_axes(vectors, dimension)

    assert axes.T @ axes == pytest.approx(np.eye(dimension), abs=1e-5)
    most = (np.linalg.svd(vectors, compute_uv=False)[:dimension] ** 2).sum()
    assert ((vectors @ axes) ** 2).sum() == pytest.approx(most, abs=1e-3)


def test_the_common_part_of_vectors_is_spread_over_all_axes() -> None:
    vectors = drawn(500, 64) + np.eye(1, 64, dtype=np.float32)

    held = (project(vectors, principal_axes(vectors, 32)) ** 2).mean(axis=0)

    assert (vectors[:, 0] ** 2).mean() > 0.5 * (vectors**2).sum(axis=1).mean()
    assert held.max() < 8 / 32


def test_axes_do_not_depend_on_the_signs_of_eigenvectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sign of an eigenvector depends on the library and the machine."""
    vectors, found = drawn(100, 6), np.linalg.eigh
    axes = principal_axes(vectors, 4)

    def opposite(matrix: NDArray[np.float64]) -> SimpleNamespace:
        return SimpleNamespace(eigenvectors=found(matrix).eigenvectors * [1, 1, -1, 1, -1, -1])

    monkeypatch.setattr(np.linalg, "eigh", opposite)
    assert principal_axes(vectors, 4) == pytest.approx(axes, abs=1e-6)


def test_a_vector_does_not_depend_on_the_other_vectors() -> None:
    vectors = drawn(300, 384)
    axes = principal_axes(vectors, 256)

    together = project(vectors, axes)

    alone = [project(vectors[row : row + 1], axes)[0] for row in range(len(vectors))]
    assert np.array_equal(together, alone)


@given(st.integers(1, 6), st.lists(st.lists(st.floats(-1, 1, width=32), min_size=6, max_size=6), max_size=5))
def test_projected_vectors_are_finite(dimension: int, rows: list[list[float]]) -> None:
    vectors = project(np.array(rows, np.float32).reshape(-1, 6), np.eye(6, dimension, dtype=np.float32))

    assert vectors.shape == (len(rows), dimension)
    assert np.isfinite(vectors).all()
    assert (np.linalg.norm(vectors, axis=1) < 1 + 1e-5).all()


def test_vectors_of_names_are_projected_onto_the_axes() -> None:
    axes = principal_axes(NgramEncoder(32).encode(NAMES), 8)
    cut = ProjectedEncoder(NgramEncoder(32), axes)

    vectors = cut.encode(NAMES)

    assert (cut.dimension, vectors.shape, vectors.dtype) == (8, (3, 8), np.dtype(np.float32))
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-6)
    whole = NgramEncoder(32).encode(NAMES) @ axes
    assert vectors == pytest.approx(whole / np.linalg.norm(whole, axis=1, keepdims=True), abs=1e-6)


def test_the_full_encoder_is_copied(tmp_path: Path) -> None:
    encoder = NgramEncoder(32)
    cut = ProjectedEncoder(encoder, np.eye(32, 8, dtype=np.float32))

    cut.copy_to(tmp_path / "encoder")

    assert (tmp_path / "encoder" / "dimension.txt").read_text() == "32"
    assert cut.fingerprint == encoder.fingerprint
