from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sapbert.artifacts import load_manifest
from sapbert.errors import ArtifactError, ConfigError, SapbertError
from sapbert.index import ann
from sapbert.index import build as build_module
from sapbert.index.build import build_index, run_folder
from sapbert.index.flat import FlatIndex
from sapbert.index.folder import open_index, require_encoder
from sapbert.index.recall import SIZE, Sample, choose_candidates, merged
from sapbert.index.settings import IndexSettings, Kind, Precision
from sapbert.index.vectors import quantised
from sapbert.vocab.vocabulary import Vocabulary
from tests.index.conftest import MakeVocabulary, NgramEncoder, Row

SYLLABLES = ["car", "di", "neu", "ro", "pa", "thy", "os", "te", "itis", "myo"]


def names_of(count: int, *, first: int = 0) -> list[Row]:
    """Invented names, all distinct, some a concept."""
    rows: list[Row] = []
    for number in range(first, first + count):
        name = "".join(SYLLABLES[int(digit)] for digit in f"{number:04}")
        rows.append((f"x:{number // 3:05}", f"{name} {number}"))
    return rows


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_module, "ROWS_A_CHUNK", 100)
    monkeypatch.setattr(build_module, "ROWS_A_CALL", 30)
    monkeypatch.setattr(ann, "BITS", 64)


@pytest.fixture
def vocabulary(vocabulary_of: MakeVocabulary) -> Vocabulary:
    return vocabulary_of(names_of(450))


Build = Callable[..., Path]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Build an index of a vocabulary with the trigram encoder and return where it is."""

    def run(
        vocabulary: Vocabulary,
        name: str = "index",
        *,
        encoder: NgramEncoder | None = None,
        update: Path | None = None,
        overwrite: bool = False,
        **options: object,
    ) -> Path:
        build_index(
            vocabulary,
            encoder or NgramEncoder(),
            tmp_path / name,
            IndexSettings(**options),  # type: ignore[arg-type]
            update=update,
            overwrite=overwrite,
        )
        return tmp_path / name

    return run


def contents(folder: Path) -> dict[str, bytes]:
    files = (file for file in folder.rglob("*") if file.is_file() and file.name != "manifest.json")
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("precision", list(Precision))
def test_an_index_holds_a_vector_for_each_name(
    build: Build, vocabulary: Vocabulary, kind: Kind, precision: Precision
) -> None:
    path = build(vocabulary, kind=kind, precision=precision)

    index, entries, manifest = open_index(path)
    names = entries.folded.span(0, len(entries))
    scores, rows = index.search(NgramEncoder().encode(names), 1)
    assert len(index) == len(entries) == 450
    assert scores[:, 0] == pytest.approx(np.ones(450), abs=0.05 if precision is Precision.INT4 else 2e-3)
    assert [names[row] for row in rows[:, 0]] == names
    assert manifest.details["kind"] == kind
    assert manifest.details["precision"] == precision
    assert manifest.inputs == {
        "vocabulary": {"name": vocabulary.path.name, "fingerprint": vocabulary.fingerprint},
        "encoder": {"fingerprint": "trigrams-32"},
    }


def test_an_index_carries_its_encoder_and_leaves_no_chunks(build: Build, vocabulary: Vocabulary) -> None:
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


def test_progress_is_told_up_to_the_last_name(vocabulary: Vocabulary, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []

    build_index(
        vocabulary,
        NgramEncoder(),
        tmp_path / "index",
        IndexSettings(),
        progress=lambda *args: told.append(args),
    )

    done = [number for _, number, _ in told]
    assert done == sorted(done)
    assert told[-1] == ("names", 450, 450)
    assert len(told) > 450 / 30


# Recall


def test_the_recall_in_the_manifest_is_that_against_an_exact_search(
    build: Build, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sapbert.index.recall.FEWEST_CANDIDATES", 12)
    monkeypatch.setattr("sapbert.index.recall.MOST_CANDIDATES", 12)
    path = build(vocabulary, kind=Kind.ANN)

    index, entries, manifest = open_index(path)
    names = entries.folded.span(0, len(entries))
    vectors = NgramEncoder().encode(names)
    sample = np.unique(np.linspace(0, 449, SIZE).astype(int))
    cosines = vectors[sample] @ vectors.T
    cosines[np.arange(len(sample)), sample] = -1
    exact = np.argsort(-cosines, axis=1, kind="stable")[:, :10]
    found = index.search(vectors[sample], 11)[1]
    shares = [len(set(a) & set(b)) / 10 for a, b in zip(exact.tolist(), found.tolist(), strict=True)]
    assert manifest.details["recall@10"] == pytest.approx(np.mean(shares))
    assert 0.3 < manifest.details["recall@10"] < 1


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.INT8])
def test_recall_tells_what_rounding_lost(precision: Precision) -> None:
    vectors = np.random.default_rng(0).standard_normal((3000, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    sample = Sample(np.arange(0, 3000, 15), vectors[::15])
    truth = merged([sample.nearest(vectors[start : start + 700], start) for start in range(0, 3000, 700)])

    recall = sample.recall(FlatIndex(quantised(vectors, precision)), truth)

    cosines = vectors[::15] @ vectors.T
    cosines[np.arange(200), sample.rows] = -1
    assert np.array_equal(truth.rows, np.argsort(-cosines, axis=1)[:, :10])
    assert 0.9 < recall <= 1
    assert (recall == 1) is (precision is Precision.FP32)


def test_candidates_are_doubled_while_that_pays() -> None:
    recalls = {100: 0.9, 200: 0.98, 400: 0.99, 800: 0.9905, 1600: 1.0}

    assert choose_candidates(recalls.__getitem__) == (400, 0.99)
    assert choose_candidates(lambda number: number / 10_000) == (6400, 0.64)


# A build that is cut short


class DyingEncoder(NgramEncoder):
    """Breaks off before the name after so many."""

    def __init__(self, after: int, error: BaseException) -> None:
        super().__init__()
        self._after, self._error = after, error

    def encode(self, names: Sequence[str]) -> NDArray[np.float32]:
        if len(self.encoded) + len(names) > self._after:
            raise self._error
        return super().encode(names)


def test_finished_chunks_are_not_encoded_again(build: Build, vocabulary: Vocabulary, tmp_path: Path) -> None:
    whole = build(vocabulary, "whole")
    with pytest.raises(KeyboardInterrupt):
        build(vocabulary, encoder=DyingEncoder(SIZE + 250, KeyboardInterrupt()))
    assert not (tmp_path / "index").exists()
    spy = NgramEncoder()

    path = build(vocabulary, encoder=spy)

    names = open_index(path)[1].folded.span(0, 450)
    assert spy.encoded[SIZE:] == names[200:]
    assert contents(path) == contents(whole)
    assert open_index(path)[2].fingerprint == open_index(whole)[2].fingerprint
    assert not run_folder(path).exists()


KILLED = """
import os, signal, sys
from pathlib import Path
from sapbert.index import build
from sapbert.index.settings import IndexSettings
from tests.index.conftest import NgramEncoder
from sapbert.vocab.vocabulary import Vocabulary

class Killed(NgramEncoder):
    def encode(self, names):
        if len(self.encoded) > 450:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().encode(names)

build.ROWS_A_CHUNK, build.ROWS_A_CALL = 100, 30
vocabulary, target = map(Path, sys.argv[1:])
build.build_index(Vocabulary.open(vocabulary), Killed(), target, IndexSettings())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_killed_build_is_gone_on_with(build: Build, vocabulary: Vocabulary, tmp_path: Path) -> None:
    paths = map(str, (vocabulary.path, tmp_path / "index"))
    arguments = [sys.executable, "-c", KILLED, *paths]
    killed = subprocess.run(arguments, cwd=Path(__file__).parents[2], env=_environment(), check=False)
    assert killed.returncode == -signal.SIGKILL
    spy = NgramEncoder()

    path = build(vocabulary, encoder=spy)

    assert len(spy.encoded) == SIZE + 250
    assert contents(path) == contents(build(vocabulary, "whole"))
    assert {item.name for item in tmp_path.iterdir()} == {"index", "whole", vocabulary.path.name}


def test_chunks_of_another_vocabulary_encoder_or_precision_are_not_used(
    build: Build, vocabulary: Vocabulary, vocabulary_of: MakeVocabulary
) -> None:
    def encoded_after_an_interrupt(second: Vocabulary, encoder: NgramEncoder, **options: object) -> int:
        with pytest.raises(KeyboardInterrupt):
            build(vocabulary, encoder=DyingEncoder(SIZE + 250, KeyboardInterrupt()), overwrite=True)
        build(second, encoder=encoder, overwrite=True, **options)
        return len(encoder.encoded) - SIZE

    assert encoded_after_an_interrupt(vocabulary, NgramEncoder()) == 250
    assert encoded_after_an_interrupt(vocabulary, NgramEncoder(40)) == 450
    assert encoded_after_an_interrupt(vocabulary, NgramEncoder(), precision=Precision.FP16) == 450
    assert encoded_after_an_interrupt(vocabulary_of(names_of(450, first=1)), NgramEncoder()) == 450


def test_a_full_disk_is_told_and_finished_chunks_stay(
    build: Build, vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(SapbertError) as error:
        build(vocabulary, encoder=DyingEncoder(SIZE + 250, full))

    assert str(error.value) == (
        f"{tmp_path}: No space left on device; make room and give the same command again, "
        "which goes on with what is in index.run"
    )
    assert len(list(run_folder(tmp_path / "index").glob("*.npz"))) == 2


def test_a_chunk_cut_short_is_named(build: Build, vocabulary: Vocabulary, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        build(vocabulary, encoder=DyingEncoder(SIZE + 250, KeyboardInterrupt()))
    chunk = run_folder(tmp_path / "index") / "000001.npz"
    chunk.write_bytes(chunk.read_bytes()[:-100])

    with pytest.raises(ArtifactError, match=r"index\.run/000001\.npz is damaged: .*; remove it and go on"):
        build(vocabulary)


def test_a_folder_of_another_kind_is_not_emptied(
    build: Build, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    other = run_folder(tmp_path / "index")
    other.mkdir()
    (other / "thesis.tex").write_text("years of work")

    with pytest.raises(ArtifactError, match="holds no chunks"):
        build(vocabulary)
    assert (other / "thesis.tex").exists()


def test_an_index_that_exists_is_refused_before_anything_is_encoded(
    build: Build, vocabulary: Vocabulary
) -> None:
    build(vocabulary)
    spy = NgramEncoder()

    with pytest.raises(ArtifactError, match="exists"):
        build(vocabulary, encoder=spy)
    assert not spy.encoded


def test_vectors_that_are_no_numbers_are_refused(build: Build, vocabulary: Vocabulary) -> None:
    class Broken(NgramEncoder):
        def encode(self, names: Sequence[str]) -> NDArray[np.float32]:
            vectors = super().encode(names)
            vectors[[name.endswith(" 77") for name in names], 3] = np.nan
            return vectors

    with pytest.raises(SapbertError, match="vector of 'carcartete 77' is not a number"):
        build(vocabulary, encoder=Broken())


# Updates


@pytest.mark.parametrize("options", [{}, {"precision": Precision.INT8}, {"kind": Kind.ANN}])
def test_an_update_encodes_only_new_names_and_gives_the_same_index(
    build: Build, vocabulary: Vocabulary, vocabulary_of: MakeVocabulary, options: dict[str, object]
) -> None:
    old = build(vocabulary, "old", **options)
    newer = vocabulary_of(names_of(400, first=100))
    spy = NgramEncoder()

    path = build(newer, encoder=spy, update=old, **options)

    new = {name for _, name in names_of(50, first=450)}
    assert set(spy.encoded[SIZE:]) == {name.casefold() for name in new}
    fresh = build(newer, "fresh", **options)
    expected = contents(fresh)
    assert contents(path) == expected


def test_an_index_can_be_replaced_by_its_update(
    build: Build, vocabulary: Vocabulary, vocabulary_of: MakeVocabulary
) -> None:
    old = build(vocabulary)

    path = build(vocabulary_of(names_of(460)), update=old, overwrite=True)

    assert len(open_index(path)[1]) == 460


def test_an_exact_index_can_become_one_of_codes(build: Build, vocabulary: Vocabulary) -> None:
    old, spy = build(vocabulary, "old", precision=Precision.FP32), NgramEncoder()

    path = build(vocabulary, encoder=spy, update=old, kind=Kind.ANN)

    assert len(spy.encoded) == SIZE
    assert contents(path) == contents(build(vocabulary, "fresh", kind=Kind.ANN))


def test_rounded_vectors_do_not_become_exact_ones(build: Build, vocabulary: Vocabulary) -> None:
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
    once = quantised(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), precision)

    twice = quantised(once.floats(slice(None)), precision)

    assert np.array_equal(once.data, twice.data)
    assert np.array_equal(once.floats(slice(None)), twice.floats(slice(None)))


# Damage


def test_a_file_cut_short_is_found_on_opening(build: Build, vocabulary: Vocabulary) -> None:
    path = build(vocabulary)
    with open(path / "vectors.npy", "r+b") as file:
        file.truncate(1000)

    with pytest.raises(ArtifactError, match=r"vectors\.npy has 1000 bytes instead of"):
        open_index(path)


def test_another_artifact_is_no_index(vocabulary: Vocabulary) -> None:
    with pytest.raises(ArtifactError, match="of kind vocabulary, expected index"):
        open_index(vocabulary.path)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
