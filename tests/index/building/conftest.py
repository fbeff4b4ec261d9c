"""Indexes of invented names, built in small chunks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sapbert.index import ann
from sapbert.index import build as build_module
from sapbert.index.build import build_index
from sapbert.index.settings import IndexSettings
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
    monkeypatch.setattr(build_module, "ROWS_PER_CHUNK", 100)
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
        resume: bool = False,
        overwrite: bool = False,
        **options: object,
    ) -> Path:
        build_index(
            vocabulary,
            encoder or NgramEncoder(),
            tmp_path / name,
            IndexSettings(**options),  # type: ignore[arg-type]
            update=update,
            resume=resume,
            overwrite=overwrite,
        )
        return tmp_path / name

    return run


def contents(folder: Path) -> dict[str, bytes]:
    files = (file for file in folder.rglob("*") if file.is_file() and file.name != "manifest.json")
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}
