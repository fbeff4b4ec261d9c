"""Properties of every encoder: torch, ONNX and flash."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapbert.encoder import onnx, transformer
from sapbert.encoder.flash import encoder as flash
from sapbert.encoder.flash.encoder import FlashEncoder
from sapbert.encoder.forward import BatchLimits
from sapbert.encoder.onnx import OnnxEncoder
from sapbert.encoder.transformer import TransformerEncoder
from sapbert.protocols import Encoder
from tests.encoder.conftest import POOLINGS, Exported
from tests.encoder.flash.tiny_flash import write_tiny_flash
from tests.encoder.tiny import WIDTH, WORDS

AnyEncoder = TransformerEncoder | OnnxEncoder | FlashEncoder
NAMES = ["heart attack", "", "acute renal failure of the heart", "fever", "感冒", "   ", "e", "fever"]


@pytest.fixture(scope="module", params=["torch", "fp32", "int8", "flash"])
def encoder(
    request: pytest.FixtureRequest,
    exported: Callable[[str], Exported],
    tmp_path_factory: pytest.TempPathFactory,
) -> AnyEncoder:
    if request.param == "flash":
        folder = tmp_path_factory.mktemp("flash")
        write_tiny_flash(folder, dimension=WIDTH)
        return FlashEncoder.open(folder, threads=2)
    folders = exported("bert")
    if request.param == "torch":
        return TransformerEncoder.open(folders.model, pooling=POOLINGS["bert"], max_length=60, device="cpu")
    return OnnxEncoder.open(folders.onnx, variant=request.param, threads=1)


def test_it_implements_the_encoder_protocol(encoder: AnyEncoder) -> None:
    seam: Encoder = encoder
    vectors = seam.encode(NAMES)

    assert seam.dimension == WIDTH
    assert len(seam.fingerprint) == 32
    assert vectors.shape == (len(NAMES), WIDTH)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


@given(names=st.lists(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join), max_size=12))
@settings(max_examples=25)
def test_a_vector_does_not_depend_on_the_other_names(encoder: AnyEncoder, names: list[str]) -> None:
    together = encoder.encode(names)

    assert together.shape == (len(names), WIDTH)
    for name, vector in zip(names, together, strict=True):
        np.testing.assert_allclose(vector, encoder.encode([name])[0], atol=1e-5)


def test_small_windows_and_batches_keep_the_order(
    encoder: AnyEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{WORDS[i % 20]} {' '.join(WORDS[: i % 7])}" for i in range(100)]
    whole = encoder.encode(names)
    for module in (transformer, onnx, flash):
        monkeypatch.setattr(module, "_WINDOW", 7)
    monkeypatch.setattr(onnx, "_BATCH_TOKENS", 11)
    monkeypatch.setattr(transformer, "inference_limits", lambda device: BatchLimits(tokens=11, names=3))

    np.testing.assert_allclose(encoder.encode(names), whole, atol=1e-5)


def test_progress_counts_distinct_names_to_the_end(
    encoder: AnyEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int]] = []
    for module in (transformer, onnx, flash):
        monkeypatch.setattr(module, "_WINDOW", 2)
    encoder.encode(["a", "b", "a", "c"], on_progress=lambda done, total: told.append((done, total)))
    assert told == [(2, 3), (3, 3)]


def test_no_names_give_no_vectors(encoder: AnyEncoder) -> None:
    assert encoder.encode([]).shape == (0, WIDTH)


def test_one_string_instead_of_names_is_refused(encoder: AnyEncoder) -> None:
    with pytest.raises(TypeError, match="sequence of names"):
        encoder.encode("fever")


def test_a_very_long_name_is_truncated(encoder: AnyEncoder) -> None:
    start = "heart attack " * 100
    huge, short = encoder.encode([start + "fever " * 200_000, start])
    np.testing.assert_allclose(huge, short, atol=1e-6)


def test_a_lone_surrogate_is_read_as_an_unknown_character(encoder: AnyEncoder) -> None:
    broken, unknown = encoder.encode(["fever \ud800", "fever ?"])
    np.testing.assert_allclose(broken, unknown, atol=1e-6)


def test_encoding_is_deterministic(encoder: AnyEncoder) -> None:
    before = encoder.fingerprint
    np.testing.assert_array_equal(encoder.encode(NAMES), encoder.encode(NAMES))
    assert encoder.fingerprint == before
