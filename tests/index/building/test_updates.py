from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapbert.artifacts import load_manifest
from sapbert.errors import ArtifactError, ConfigError
from sapbert.index.folder import open_index, require_encoder
from sapbert.index.recall import SAMPLE_SIZE
from sapbert.index.settings import Kind, Precision
from sapbert.index.vectors import quantize
from sapbert.vocab.vocabulary import Vocabulary
from tests.index.building.conftest import Build, contents, names_of
from tests.index.conftest import MakeVocabulary, NgramEncoder


@pytest.mark.parametrize("options", [{}, {"precision": Precision.INT8}, {"kind": Kind.ANN}])
def test_an_update_encodes_only_new_names_and_gives_the_same_index(
    build: Build, vocabulary: Vocabulary, vocabulary_of: MakeVocabulary, options: dict[str, object]
) -> None:
    old = build(vocabulary, "old", **options)
    newer = vocabulary_of(names_of(400, first=100))
    spy = NgramEncoder()

    path = build(newer, encoder=spy, update=old, **options)

    new = {name for _, name in names_of(50, first=450)}
    assert set(spy.encoded[SAMPLE_SIZE:]) == {name.casefold() for name in new}
    fresh = build(newer, "fresh", **options)
    expected = contents(fresh)
    assert contents(path) == expected


def test_an_index_can_be_replaced_by_its_update(
    build: Build, vocabulary: Vocabulary, vocabulary_of: MakeVocabulary
) -> None:
    old = build(vocabulary)

    path = build(vocabulary_of(names_of(460)), update=old, overwrite=True)

    assert len(open_index(path)[1]) == 460


def test_an_update_can_change_flat_to_ann(build: Build, vocabulary: Vocabulary) -> None:
    old, spy = build(vocabulary, "old", precision=Precision.FP32), NgramEncoder()

    path = build(vocabulary, encoder=spy, update=old, kind=Kind.ANN)

    assert len(spy.encoded) == SAMPLE_SIZE
    assert contents(path) == contents(build(vocabulary, "fresh", kind=Kind.ANN))


def test_an_update_cannot_increase_the_precision(build: Build, vocabulary: Vocabulary) -> None:
    old = build(vocabulary, "old", precision=Precision.INT8)

    with pytest.raises(ConfigError, match="as int8, which cannot become fp16; give --precision int8"):
        build(vocabulary, update=old, precision=Precision.FP16)


def test_an_index_of_another_encoder_is_refused_with_both_named(build: Build, vocabulary: Vocabulary) -> None:
    old = build(vocabulary, "old", encoder=NgramEncoder(40))

    with pytest.raises(ArtifactError, match="made by the encoder trigrams-40, not by trigrams-32"):
        build(vocabulary, update=old)
    with pytest.raises(ArtifactError, match="make the index again"):
        require_encoder(old, load_manifest(old), NgramEncoder())


@settings(max_examples=50)
@given(st.integers(1, 20), st.integers(1, 20), st.sampled_from(list(Precision)), st.integers(0, 2**32))
def test_vectors_that_were_rounded_stay_as_they_are(
    rows: int, dimension: int, precision: Precision, seed: int
) -> None:
    vectors = np.random.default_rng(seed).standard_normal((rows, 2 * dimension)).astype(np.float32)
    once = quantize(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), precision)

    twice = quantize(once.floats(slice(None)), precision)

    assert np.array_equal(once.data, twice.data)
    assert np.array_equal(once.floats(slice(None)), twice.floats(slice(None)))
