"""Cache of vectors on disk, so that a second evaluation takes seconds.

The vector of a name depends only on the encoder and the name, so the cache key is the fingerprint of the
encoder and a digest of the name. Benchmarks that share a dictionary share its vectors. Vectors are stored in
segments, one artifact each, written when full: an interrupted run continues after the last segment. Damaged
segments are encoded again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sapbert.arrays import map_array
from sapbert.artifacts import create, load_manifest
from sapbert.errors import ArtifactError
from sapbert.protocols import Encoder

KIND = "vectors"
SEGMENT = 8_192
"""Names per segment: the most that an interrupted run encodes again."""
_PROGRESS_EVERY = 1_024
"""Names between two progress reports: seconds on a CPU, where a segment takes minutes."""
_DIGEST = np.dtype("S16")
"""numpy strips trailing zero bytes of this type, but on both sides of every comparison."""


class CachedEncoder:
    """An encoder with a cache on disk; implements `protocols.Encoder`."""

    def __init__(
        self, encoder: Encoder, folder: Path, *, progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Cache vectors under `folder`; `progress` is called with the names encoded and the total."""
        self._encoder = encoder
        self._progress = progress
        self.dimension = encoder.dimension
        self.fingerprint = encoder.fingerprint
        self._folder = folder / self.fingerprint

    def encode(self, names: Sequence[str]) -> NDArray[np.float32]:
        """Return one unit vector per name, in input order.  # (names, dimension)"""
        digests = _digests(names)
        vectors = np.empty((len(names), self.dimension), np.float32)
        missing = self._fill(vectors, digests)
        # Encode each missing name once; the vectors are read back from the segments just written.
        distinct = np.unique(digests[missing], return_index=True)[1]
        rows = missing[np.sort(distinct)]
        for start in range(0, len(rows), SEGMENT):
            segment = rows[start : start + SEGMENT]
            encoded = self._encode([names[row] for row in segment], start, len(rows))
            self._write(digests[segment], encoded)
        if len(rows) and len(self._fill(vectors, digests)):
            raise ArtifactError(f"{self._folder}: cached vectors disappeared during the run; run it again")
        return vectors

    def _fill(self, vectors: NDArray[np.float32], digests: NDArray[np.bytes_]) -> NDArray[np.intp]:
        """Copy cached vectors into `vectors`, and return the rows that are not cached."""
        cached = np.zeros(len(digests), bool)
        for segment in sorted(self._folder.glob("[0-9a-f]*")):
            with suppress(ArtifactError):
                load_manifest(segment, kind=KIND, verify=False)
                stored = np.load(segment / "digests.npy")
                if len(stored):
                    places = np.minimum(np.searchsorted(stored, digests), len(stored) - 1)
                    rows = np.flatnonzero(stored[places] == digests)
                    vectors[rows] = map_array(segment / "vectors.npy")[places[rows]]
                    cached[rows] = True
        return np.flatnonzero(~cached)

    def _encode(self, names: Sequence[str], before: int, total: int) -> NDArray[np.float32]:
        """Encode the names of a segment and report progress; `before` names are already done."""
        vectors = np.empty((len(names), self.dimension), np.float32)
        for start in range(0, len(names), _PROGRESS_EVERY):
            if self._progress is not None:
                self._progress(before + start, total)
            stop = min(start + _PROGRESS_EVERY, len(names))
            vectors[start:stop] = self._encoder.encode(names[start:stop])
        if self._progress is not None:
            self._progress(before + len(names), total)
        return vectors

    def _write(self, digests: NDArray[np.bytes_], vectors: NDArray[np.float32]) -> None:
        order = np.argsort(digests)
        name = hashlib.sha256(digests[order].tobytes()).hexdigest()[:32]
        with create(self._folder / name, overwrite=True) as draft:
            np.save(draft.path / "digests.npy", digests[order])
            np.save(draft.path / "vectors.npy", vectors[order])
            draft.seal(
                KIND,
                settings={},
                inputs={"encoder": {"fingerprint": self.fingerprint}},
                counts={"names": len(vectors)},
            )


def _digests(names: Sequence[str]) -> NDArray[np.bytes_]:
    """16-byte digest per name, wide enough that a billion names do not collide.  # (names,)"""
    texts = (name.encode(errors="surrogatepass") for name in names)
    return np.array([hashlib.blake2b(text, digest_size=16).digest() for text in texts], _DIGEST)
