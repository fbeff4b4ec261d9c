"""Interrupted builds, and builds that are refused."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sapbert.errors import ArtifactError, ConfigError, SapbertError
from sapbert.index.folder import open_index
from sapbert.index.recall import SAMPLE_SIZE
from sapbert.index.settings import Precision
from sapbert.resumable import run_folder
from sapbert.vocab.vocabulary import Vocabulary
from tests.conftest import SyncedFiles
from tests.index.building.conftest import Build, contents, names_of
from tests.index.conftest import MakeVocabulary, NgramEncoder


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
        build(vocabulary, encoder=DyingEncoder(SAMPLE_SIZE + 250, KeyboardInterrupt()))
    assert not (tmp_path / "index").exists()
    spy = NgramEncoder()

    path = build(vocabulary, encoder=spy, resume=True)

    names = open_index(path)[1].folded.span(0, 450)
    assert spy.encoded[SAMPLE_SIZE:] == names[200:]
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
        if len(self.encoded) >= 400:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().encode(names)

build.ROWS_PER_CHUNK = 100
vocabulary, target = map(Path, sys.argv[1:])
build.build_index(Vocabulary.open(vocabulary), Killed(), target, IndexSettings())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_killed_build_is_resumed(build: Build, vocabulary: Vocabulary, tmp_path: Path) -> None:
    paths = map(str, (vocabulary.path, tmp_path / "index"))
    arguments = [sys.executable, "-c", KILLED, *paths]
    killed = subprocess.run(arguments, cwd=Path(__file__).parents[3], env=_environment(), check=False)
    assert killed.returncode == -signal.SIGKILL
    spy = NgramEncoder()

    path = build(vocabulary, encoder=spy, resume=True)

    assert len(spy.encoded) == SAMPLE_SIZE + 250
    assert contents(path) == contents(build(vocabulary, "whole"))
    assert {item.name for item in tmp_path.iterdir()} == {"index", "whole", vocabulary.path.name}


def test_a_build_is_not_resumed_with_another_vocabulary_encoder_or_precision(
    build: Build, vocabulary: Vocabulary, vocabulary_of: MakeVocabulary
) -> None:
    with pytest.raises(KeyboardInterrupt):
        build(vocabulary, encoder=DyingEncoder(SAMPLE_SIZE + 250, KeyboardInterrupt()))

    with pytest.raises(ConfigError, match="other inputs: dimension was 32, now 40; encoder was"):
        build(vocabulary, encoder=NgramEncoder(40), resume=True)
    with pytest.raises(ConfigError, match="other inputs: precision was 'fp32', now 'fp16'; give --overwrite"):
        build(vocabulary, precision=Precision.FP16, resume=True)
    with pytest.raises(ConfigError, match="other inputs: vocabulary was"):
        build(vocabulary_of(names_of(450, first=1)), resume=True)


def test_a_build_is_not_resumed_with_another_choice_of_inverted_names(
    build: Build, vocabulary: Vocabulary
) -> None:
    with pytest.raises(KeyboardInterrupt):
        build(vocabulary, encoder=DyingEncoder(SAMPLE_SIZE + 250, KeyboardInterrupt()))

    with pytest.raises(ConfigError, match="other inputs: inverted was True, now False"):
        build(vocabulary, inverted=False, resume=True)


def test_finished_chunks_are_synced(build: Build, vocabulary: Vocabulary, synced: SyncedFiles) -> None:
    with pytest.raises(KeyboardInterrupt):
        build(vocabulary, encoder=DyingEncoder(SAMPLE_SIZE + 250, KeyboardInterrupt()))

    chunks = list(vocabulary.path.parent.rglob("*.npz"))
    assert len(chunks) == 2
    assert all(chunk in synced for chunk in chunks)


def test_an_interrupted_build_is_discarded_only_on_request(
    build: Build, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        build(vocabulary, encoder=DyingEncoder(SAMPLE_SIZE + 250, KeyboardInterrupt()))
    spy = NgramEncoder()

    with pytest.raises(ArtifactError, match="give --resume to continue it or --overwrite to start over"):
        build(vocabulary, encoder=spy)
    assert not spy.encoded
    build(vocabulary, encoder=spy, overwrite=True)
    assert len(spy.encoded) == SAMPLE_SIZE + 450
    assert not run_folder(tmp_path / "index").exists()


def test_a_build_that_fails_before_its_first_chunk_leaves_no_run_folder(
    build: Build, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        build(vocabulary, encoder=DyingEncoder(SAMPLE_SIZE, KeyboardInterrupt()))

    assert not run_folder(tmp_path / "index").exists()


def test_a_full_disk_is_explained_and_finished_chunks_are_kept(
    build: Build, vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(SapbertError) as error:
        build(vocabulary, encoder=DyingEncoder(SAMPLE_SIZE + 250, full))

    assert str(error.value) == (
        f"{tmp_path}: No space left on device; make room, then give --resume to continue from index.run"
    )
    assert len(list(run_folder(tmp_path / "index").glob("*.npz"))) == 2


def test_a_truncated_chunk_is_named(build: Build, vocabulary: Vocabulary, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        build(vocabulary, encoder=DyingEncoder(SAMPLE_SIZE + 250, KeyboardInterrupt()))
    chunk = run_folder(tmp_path / "index") / "000001.npz"
    chunk.write_bytes(chunk.read_bytes()[:-100])

    with pytest.raises(
        ArtifactError, match=r"index\.run/000001\.npz is damaged: .*; remove it and give --resume"
    ):
        build(vocabulary, resume=True)


def test_a_chunk_of_another_build_is_refused(build: Build, vocabulary: Vocabulary, tmp_path: Path) -> None:
    for name in ("other", "index"):
        encoder = DyingEncoder(SAMPLE_SIZE + 250, KeyboardInterrupt())
        encoder.fingerprint = name
        with pytest.raises(KeyboardInterrupt):
            build(vocabulary, name, encoder=encoder)
    chunks = run_folder(tmp_path / "other"), run_folder(tmp_path / "index")
    (chunks[0] / "000001.npz").replace(chunks[1] / "000001.npz")
    again = NgramEncoder()
    again.fingerprint = "index"

    with pytest.raises(ArtifactError, match=r"000001\.npz is damaged: it belongs to another build"):
        build(vocabulary, encoder=again, resume=True)


def test_a_second_build_of_the_same_index_is_refused(
    build: Build, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    class Starting(NgramEncoder):
        def encode(self, names: Sequence[str]) -> NDArray[np.float32]:
            with pytest.raises(ArtifactError, match="index is being written by another process"):
                build(vocabulary, overwrite=True)
            return super().encode(names)

    path = build(vocabulary, encoder=Starting())
    assert {item.name for item in tmp_path.iterdir()} == {path.name, vocabulary.path.name}


def test_a_build_killed_while_it_removes_its_chunks_can_be_repeated(
    build: Build, vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = shutil.rmtree

    def killed(folder: Path, **options: Any) -> None:
        if folder == run_folder(tmp_path / "index") and folder.exists():
            assert [file.name for file in folder.iterdir()] == ["chunks.json"]
            raise KeyboardInterrupt
        remove(folder, **options)

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            build(vocabulary)

    build(vocabulary, overwrite=True)
    assert not run_folder(tmp_path / "index").exists()


def test_a_folder_of_another_kind_is_not_emptied(
    build: Build, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    other = run_folder(tmp_path / "index")
    other.mkdir()
    (other / "thesis.tex").write_text("years of work")

    with pytest.raises(ArtifactError, match="contains no chunks"):
        build(vocabulary, overwrite=True)
    assert (other / "thesis.tex").exists()


def test_an_index_that_exists_is_refused_before_anything_is_encoded(
    build: Build, vocabulary: Vocabulary
) -> None:
    build(vocabulary)
    spy = NgramEncoder()

    with pytest.raises(ArtifactError, match="exists"):
        build(vocabulary, encoder=spy)
    assert not spy.encoded


def test_vectors_with_nan_are_refused(build: Build, vocabulary: Vocabulary) -> None:
    class Broken(NgramEncoder):
        def encode(self, names: Sequence[str]) -> NDArray[np.float32]:
            vectors = super().encode(names)
            vectors[[name.endswith(" 77") for name in names], 3] = np.nan
            return vectors

    with pytest.raises(SapbertError, match="returned NaN for 'carcartete 77'"):
        build(vocabulary, encoder=Broken())


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
