"""The flash encoder: vectors against a loop, quantization, and damaged folders."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from sapbert.encoder.flash.encoder import FlashEncoder, sum_rows, write_flash_encoder
from sapbert.encoder.flash.features import features
from sapbert.encoder.flash.product_codes import quantize_table
from sapbert.encoder.open import open_encoder, open_exported
from sapbert.errors import ArtifactError, ConfigError
from tests.encoder.flash.tiny_flash import SPEC, write_tiny_flash

NAMES = ["heart attack", "diabetes mellitus, type 2", "fever", "", "Инфаркт миокарда", "x"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tiny_flash(tmp_path)
    return tmp_path


def test_a_vector_is_the_normalized_sum_of_the_rows_of_its_features(folder: Path) -> None:
    encoder = FlashEncoder.open(folder)
    table = encoder.table().astype(np.float64)
    for name, vector in zip(NAMES, encoder.encode(NAMES), strict=True):
        total = np.zeros(16)
        for row in features([name], SPEC).ids.tolist():
            total += table[row]
        if name:
            np.testing.assert_allclose(vector, total / np.linalg.norm(total), atol=1e-5)
        else:
            assert vector.tolist() == [1] + [0] * 15


def test_threads_and_windows_do_not_change_a_bit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"name {number} {'of ' * (number % 5)}" for number in range(50)]
    whole = FlashEncoder.open(folder, threads=1).encode(names)
    monkeypatch.setattr("sapbert.encoder.flash.encoder._WINDOW", 7)
    monkeypatch.setattr("sapbert.encoder.flash.encoder._PARALLEL", 2)
    np.testing.assert_array_equal(FlashEncoder.open(folder, threads=3).encode(names), whole)


def test_sums_equal_those_of_a_loop() -> None:
    generator = np.random.default_rng(0)
    rows = generator.standard_normal((9, 4)).astype(np.float32)
    offsets = np.array([0, 3, 3, 8, 9])
    places = generator.integers(9, size=9)
    expected = [rows[places[start:stop]].sum(axis=0) for start, stop in pairwise(offsets)]
    np.testing.assert_allclose(sum_rows(rows, places, offsets), expected, rtol=1e-6)


@pytest.mark.parametrize(("piece", "cosine"), [(1, 0.999), (2, 0.97), (4, 0.85)])
def test_quantized_rows_point_in_the_same_direction(piece: int, cosine: float) -> None:
    table = np.random.default_rng(0).standard_normal((2_000, 16)).astype(np.float32) * 3
    decoded = quantize_table(table, piece).decode(np.arange(2_000))
    norms = np.linalg.norm(table, axis=1) * np.linalg.norm(decoded, axis=1)
    assert ((table * decoded).sum(axis=1) / norms).mean() > cosine


def test_rows_that_are_not_used_become_zero() -> None:
    table = np.ones((4, 8), np.float32)
    codes = quantize_table(table, 2, uses=np.array([1, 0, 2, 0]))
    assert np.linalg.norm(codes.decode(np.arange(4)), axis=1).astype(bool).tolist() == [True, False] * 2


def test_dimensions_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ConfigError, match="pieces of 4"):
        quantize_table(np.ones((2, 6), np.float32), 4)


def test_any_encoder_name_opens_it(folder: Path) -> None:
    assert isinstance(open_encoder(str(folder)), FlashEncoder)
    with pytest.raises(ConfigError, match="no variant int8"):
        open_exported(folder, variant="int8")


def test_a_copy_has_the_same_fingerprint_and_vectors(folder: Path, tmp_path: Path) -> None:
    encoder = FlashEncoder.open(folder)
    encoder.copy_to(tmp_path / "copy")
    copy = FlashEncoder.open(tmp_path / "copy")
    assert copy.fingerprint == encoder.fingerprint
    np.testing.assert_array_equal(copy.encode(NAMES), encoder.encode(NAMES))


def test_other_tables_or_features_have_another_fingerprint(folder: Path, tmp_path: Path) -> None:
    fingerprint = FlashEncoder.open(folder).fingerprint
    other = tmp_path / "other"
    other.mkdir()
    write_tiny_flash(other, seed=1)
    assert FlashEncoder.open(other).fingerprint != fingerprint


def test_damage_is_reported(folder: Path) -> None:
    codes = folder / "codes.npy"
    codes.write_bytes(codes.read_bytes()[:-1] + b"\xff")
    with pytest.raises(ArtifactError, match=r"codes\.npy does not match its checksum"):
        FlashEncoder.open(folder)
    codes.unlink()
    with pytest.raises(ArtifactError, match=r"codes\.npy is missing"):
        FlashEncoder.open(folder)


def test_a_damaged_description_is_reported(folder: Path) -> None:
    description = json.loads((folder / "sapbert.json").read_text())
    description["features"][0]["bits"] = 99
    (folder / "sapbert.json").write_text(json.dumps(description))
    with pytest.raises((ArtifactError, ConfigError), match="bits=99"):
        FlashEncoder.open(folder)


def test_a_table_of_another_size_is_not_written(tmp_path: Path) -> None:
    codes = quantize_table(np.ones((3, 8), np.float32), 4)
    with pytest.raises(ConfigError, match="the table has 3"):
        write_flash_encoder(tmp_path, SPEC, codes)
