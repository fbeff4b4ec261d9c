"""Encoded vectors of an unfinished index, in chunks on disk, so that an interrupted build can be resumed.

Encoding fifteen million names takes hours. Each finished chunk is written to `TARGET.run`, synced and
renamed; after an interrupt or a full disk only the missing chunks are encoded. Chunks of another encoder,
vocabulary or precision cannot be continued: each contains the digest of what it was made from.

A chunk also stores which of its rows are nearest to a sample of names, in full precision. Together these are
an exact search, against which the recall of the index is measured once the exact vectors are gone.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np

from sapbert.errors import ArtifactError, ConfigError
from sapbert.index.recall import Neighbours
from sapbert.index.vectors import Vectors
from sapbert.resumable import changed_values, locked_run, refuse_interrupted, run_folder

_IDENTITY = "chunks.json"


class Chunk(NamedTuple):
    """The vectors of some rows."""

    vectors: Vectors
    near: Neighbours
    """Its rows that are nearest to the names of the sample."""


@contextmanager
def chunk_folder(target: Path, *, resume: bool, overwrite: bool) -> Iterator[Path]:
    """Yield the folder for the chunks of the index `target`, locked; remove it when the index is complete."""
    folder = run_folder(target)
    with locked_run(target):
        refuse_interrupted(folder, resume=resume, overwrite=overwrite)
        yield folder
        for chunk in folder.glob("*.npz"):
            chunk.unlink()
        # Last, because a folder without this file is not recognized as ours if removing is interrupted.
        shutil.rmtree(folder, ignore_errors=True)


class ChunkStore:
    """The folder of finished chunks."""

    def __init__(self, folder: Path, identity: Mapping[str, Any], *, resume: bool) -> None:
        """Open the chunks of an interrupted build if `resume`, else discard them.

        `identity` is what two builds must share for one to continue the other. The folder is created with the
        first chunk, so a build that fails earlier leaves nothing behind.
        """
        self.folder = folder
        self._identity = identity
        self._digest = np.frombuffer(sha256(json.dumps(identity).encode()).digest(), np.uint8)
        file = folder / _IDENTITY
        if not file.is_file() and folder.is_dir() and any(folder.iterdir()):
            raise ArtifactError(f"{folder} is not empty and contains no chunks; remove it")
        stored = _read(file) if resume and file.is_file() else None
        if stored is None:
            shutil.rmtree(folder, ignore_errors=True)
        elif stored != identity:
            raise ConfigError(
                f"{folder} contains a build with other inputs: {changed_values(stored, identity)}; "
                "give --overwrite to start over"
            )

    def has(self, number: int) -> bool:
        """Return whether a chunk is finished."""
        return self._file(number).exists()

    def save(self, number: int, chunk: Chunk) -> None:
        """Write a chunk atomically."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / _IDENTITY).exists():
            (self.folder / _IDENTITY).write_text(json.dumps(self._identity), encoding="utf-8")
        partial = self._file(number).with_suffix(".partial")
        with open(partial, "wb") as file:
            scales = np.empty(0) if chunk.vectors.scales is None else chunk.vectors.scales
            np.savez(
                file,
                data=chunk.vectors.data,
                scales=scales,
                scores=chunk.near.scores,
                rows=chunk.near.rows,
                identity=self._digest,
            )
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._file(number))

    def load(self, number: int) -> Chunk:
        """Read a finished chunk."""
        try:
            with open(self._file(number), "rb") as file, np.load(file, allow_pickle=False) as arrays:
                if not np.array_equal(arrays["identity"], self._digest):
                    raise ValueError("it belongs to another build")
                scales = arrays["scales"] if len(arrays["scales"]) else None
                return Chunk(Vectors(arrays["data"], scales), Neighbours(arrays["scores"], arrays["rows"]))
        except (BadZipFile, ValueError, KeyError, EOFError) as error:
            raise ArtifactError(
                f"{self._file(number)} is damaged: {error}; remove it and give --resume"
            ) from error

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:06}.npz"


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        return None
