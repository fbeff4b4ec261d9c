"""Input files for the tests."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from sapbert.vocab import input_files as module
from sapbert.vocab.delimited import Layout
from sapbert.vocab.input_files import InputFile, InputReader, Member, Release

PATTERN = r"MRCONSO\.RRF"
CONTENT = b"".join(b"C%07d|ENG|invented name %d|\n" % (row, row) for row in range(200))
PIPES = Layout("|", ("id", "language", "name"), terminated=True, hint="is this MRCONSO.RRF?")


def write_files(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def find(path: Path, pattern: str = PATTERN) -> InputFile:
    source = Release(path).find(pattern)
    assert source is not None
    return source


def content(source: InputFile, inputs: InputReader | None = None) -> bytes:
    with (inputs or InputReader()).stream(source) as stream:
        return stream.read()


def source_of(*pieces: bytes, name: str = "invented.txt") -> InputFile:
    """Return an input file in memory."""

    def opener(piece: bytes) -> Callable[[], io.BytesIO]:
        return lambda: io.BytesIO(piece)

    return InputFile(name, tuple(Member(name, len(piece), opener(piece)) for piece in pieces))


@contextmanager
def blocks_of(size: int) -> Iterator[None]:
    """Set the block size, with three chunks per block; also usable inside a hypothesis test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_BYTES", size)
        patch.setattr(module, "_CHUNK_BYTES", -(-size // 3))
        yield


def gzipped(folder: Path) -> Path:
    return write_files(folder, {"MRCONSO.RRF.gz": gzip.compress(CONTENT)}) / "MRCONSO.RRF.gz"
