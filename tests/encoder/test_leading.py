from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapbert.encoder.leading import LeadingDimensions, leading
from sapbert.errors import ConfigError
from tests.index.conftest import NgramEncoder

NAMES = ["heart attack", "cold", ""]


def test_the_first_components_are_unit_vectors_again() -> None:
    cut = LeadingDimensions.of(NgramEncoder(32), 8)

    vectors = cut.encode(NAMES)

    assert (cut.dimension, vectors.shape, vectors.dtype) == (8, (3, 8), np.dtype(np.float32))
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-6)
    whole = NgramEncoder(32).encode(NAMES)[:, :8]
    assert vectors == pytest.approx(whole / np.linalg.norm(whole, axis=1, keepdims=True), abs=1e-6)


@given(st.integers(1, 6), st.lists(st.lists(st.floats(-1, 1, width=32), min_size=6, max_size=6), max_size=5))
def test_no_vector_becomes_anything_but_a_number(dimension: int, rows: list[list[float]]) -> None:
    vectors = leading(np.array(rows, np.float32).reshape(-1, 6), dimension)

    lengths = np.linalg.norm(vectors, axis=1)
    assert np.isfinite(vectors).all()
    assert (lengths < 1 + 1e-5).all()


def test_an_encoder_that_need_not_be_cut_is_left_alone() -> None:
    encoder = NgramEncoder(32)

    assert LeadingDimensions.of(encoder, 32) is encoder
    assert LeadingDimensions.of(encoder, None) is encoder


@pytest.mark.parametrize("dimension", [0, 33])
def test_dimensions_that_an_encoder_has_not_are_refused(dimension: int) -> None:
    with pytest.raises(ConfigError, match=f"has 32 dimensions; {dimension} cannot be had"):
        LeadingDimensions.of(NgramEncoder(32), dimension)


def test_the_whole_encoder_travels(tmp_path: Path) -> None:
    encoder = NgramEncoder(32)
    cut = LeadingDimensions.of(encoder, 8)

    cut.copy_to(tmp_path / "encoder")

    assert (tmp_path / "encoder" / "dimension.txt").read_text() == "32"
    assert cut.fingerprint == encoder.fingerprint
