from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sapbert.artifacts import load_manifest
from sapbert.errors import ArtifactError
from sapbert.index.build import build_index
from sapbert.index.flat import FlatIndex
from sapbert.index.folder import open_index
from sapbert.index.recall import SAMPLE_SIZE, Sample, choose_candidates, merge_neighbours
from sapbert.index.settings import IndexSettings, Kind, Precision
from sapbert.index.vectors import quantize
from sapbert.resumable import run_folder
from sapbert.vocab.vocabulary import Vocabulary
from tests.index.building.conftest import Build
from tests.index.conftest import MakeVocabulary, NgramEncoder


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("precision", list(Precision))
def test_an_index_has_one_vector_per_name(
    build: Build, vocabulary: Vocabulary, kind: Kind, precision: Precision
) -> None:
    path = build(vocabulary, kind=kind, precision=precision)

    index, name_table, manifest = open_index(path)
    names = name_table.folded.span(0, len(name_table))
    scores, rows = index.search(NgramEncoder().encode(names), 1)
    assert len(index) == len(name_table) == 450
    assert scores[:, 0] == pytest.approx(np.ones(450), abs=0.05 if precision is Precision.INT4 else 2e-3)
    assert [names[row] for row in rows[:, 0]] == names
    assert manifest.details["kind"] == kind
    assert manifest.details["precision"] == precision
    assert manifest.inputs == {
        "vocabulary": {"name": vocabulary.path.name, "fingerprint": vocabulary.fingerprint},
        "encoder": {"fingerprint": "trigrams-32"},
    }


def test_an_index_contains_its_encoder_and_leaves_no_chunks(build: Build, vocabulary: Vocabulary) -> None:
    path = build(vocabulary)

    assert (path / "encoder" / "dimension.txt").read_text() == "32"
    assert not run_folder(path).exists()
    assert load_manifest(path, verify=True).counts == {"names": 450, "concepts": 150}


def test_small_vocabularies_are_searched_exactly_and_large_ones_by_codes(
    build: Build, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = open_index(build(vocabulary, "small"))[2]
    monkeypatch.setattr("sapbert.index.settings.ANN_FROM", 450)
    large = open_index(build(vocabulary, "large"))[2]

    assert (small.details["kind"], small.details["precision"]) == ("flat", "fp32")
    assert (large.details["kind"], large.details["precision"]) == ("ann", "int8")


def test_a_vocabulary_of_one_name_has_an_index(build: Build, vocabulary_of: MakeVocabulary) -> None:
    for kind in Kind:
        path = build(vocabulary_of([("x:1", "Flu")]), kind.value, kind=kind)
        assert open_index(path)[0].search(NgramEncoder().encode(["flu"]), 5)[1].tolist() == [
            [0, -1, -1, -1, -1]
        ]
        assert open_index(path)[2].details["recall@10"] == 1


def test_progress_is_reported_up_to_the_last_name(vocabulary: Vocabulary, tmp_path: Path) -> None:
    reports: list[tuple[str, int, int]] = []

    build_index(
        vocabulary,
        NgramEncoder(),
        tmp_path / "index",
        IndexSettings(),
        progress=lambda *args: reports.append(args),
    )

    encoded = [report for report in reports if report[0] == "names"]
    done = [number for _, number, _ in encoded]
    assert done == sorted(done)
    assert encoded[-1] == ("names", 450, 450)
    assert len(encoded) == 5
    assert reports[-1] == ("lexicon", 450, 450)


# Recall


def test_the_recall_in_the_manifest_equals_that_against_an_exact_search(
    build: Build, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sapbert.index.recall.MIN_CANDIDATES", 12)
    monkeypatch.setattr("sapbert.index.recall.MAX_CANDIDATES", 12)
    path = build(vocabulary, kind=Kind.ANN)

    index, name_table, manifest = open_index(path)
    names = name_table.folded.span(0, len(name_table))
    vectors = NgramEncoder().encode(names)
    sample = np.unique(np.linspace(0, 449, SAMPLE_SIZE).astype(int))
    cosines = vectors[sample] @ vectors.T
    cosines[np.arange(len(sample)), sample] = -1
    exact = np.argsort(-cosines, axis=1, kind="stable")[:, :10]
    found = index.search(vectors[sample], 11)[1]
    shares = [len(set(a) & set(b)) / 10 for a, b in zip(exact.tolist(), found.tolist(), strict=True)]
    assert manifest.details["recall@10"] == pytest.approx(np.mean(shares))
    assert 0.3 < manifest.details["recall@10"] < 1


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.INT8])
def test_recall_includes_the_loss_by_rounding(precision: Precision) -> None:
    vectors = np.random.default_rng(0).standard_normal((3000, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    sample = Sample(np.arange(0, 3000, 15), vectors[::15])
    truth = merge_neighbours(
        [sample.nearest(vectors[start : start + 700], start) for start in range(0, 3000, 700)]
    )

    recall = sample.recall(FlatIndex(quantize(vectors, precision)), truth)

    cosines = vectors[::15] @ vectors.T
    cosines[np.arange(200), sample.rows] = -1
    assert np.array_equal(truth.rows, np.argsort(-cosines, axis=1)[:, :10])
    assert 0.9 < recall <= 1
    assert (recall == 1) is (precision is Precision.FP32)


def test_candidates_are_doubled_while_recall_increases() -> None:
    recalls = {100: 0.9, 200: 0.98, 400: 0.99, 800: 0.9905, 1600: 1.0}

    assert choose_candidates(recalls.__getitem__) == (400, 0.99)
    assert choose_candidates(lambda number: number / 10_000) == (6400, 0.64)


# Damage


def test_a_truncated_file_is_detected_on_opening(build: Build, vocabulary: Vocabulary) -> None:
    path = build(vocabulary)
    with open(path / "vectors.npy", "r+b") as file:
        file.truncate(1000)

    with pytest.raises(ArtifactError, match=r"vectors\.npy has 1000 bytes instead of"):
        open_index(path)


def test_another_artifact_is_not_opened_as_an_index(vocabulary: Vocabulary) -> None:
    with pytest.raises(ArtifactError, match="is a vocabulary, not an index"):
        open_index(vocabulary.path)
