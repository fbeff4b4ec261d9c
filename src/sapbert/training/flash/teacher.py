"""Vectors of a teacher, any encoder, cached on disk: they depend only on the teacher and the pairs.

The cache has one artifact per part of the names, so an interrupted run continues after the last part.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sapbert.arrays import map_array
from sapbert.artifacts import create, fingerprint_of, load_manifest
from sapbert.encoder.open import open_encoder
from sapbert.errors import ArtifactError
from sapbert.pairs.artifact import Pairs
from sapbert.progress import Progress, no_progress
from sapbert.protocols import Encoder

KIND = "vectors"
_FILE = "vectors.npy"
_PART = 65_536
"""Names per part."""
log = logging.getLogger(__name__)


class Teacher(NamedTuple):
    """An encoder that a flash encoder imitates."""

    name: str
    fingerprint: str
    vectors: NDArray[np.float16]
    """A vector per name of the pairs.  # (names, dimension)"""


def open_teacher(name: str, pairs: Pairs, *, progress: Progress = no_progress) -> Teacher:
    """Open the encoder `name` and encode the names of `pairs`, unless the cache has their vectors."""
    encoder = open_encoder(name)
    return Teacher(name, encoder.fingerprint, teacher_vectors(encoder, pairs, progress=progress))


def teacher_vectors(
    teacher: Encoder, pairs: Pairs, *, progress: Progress = no_progress
) -> NDArray[np.float16]:
    """Return the teacher's vector of each name of `pairs`, from the cache if it has them."""
    from sapbert.cache import cache_folder  # needs platformdirs, which training without a teacher does not

    key = {"teacher": teacher.fingerprint, "pairs": pairs.manifest.fingerprint}
    folder = cache_folder() / "teachers" / fingerprint_of(key)
    vectors = np.empty((len(pairs.names), teacher.dimension), np.float16)
    for start in range(0, len(vectors), _PART):
        part, stop = folder / f"{start // _PART:05}", min(start + _PART, len(vectors))
        if not _is_complete(part):
            with create(part, overwrite=True) as draft:
                encoded = teacher.encode(pairs.names.span(start, stop))
                np.save(draft.path / _FILE, encoded.astype(np.float16))
                draft.seal(KIND, settings=key, inputs={}, counts={"names": stop - start})
        vectors[start:stop] = map_array(part / _FILE, np.float16, shape=(stop - start, teacher.dimension))
        progress("names", stop, len(vectors))
    return vectors


def _is_complete(part: Path) -> bool:
    if not part.exists():
        return False
    try:
        load_manifest(part, kind=KIND)
    except ArtifactError as error:
        log.warning("%s; encoding these names again", error)
        return False
    return True
