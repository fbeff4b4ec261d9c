"""Vectors of names already encoded, so that a second evaluation takes seconds.

A name's vector depends on the encoder alone, so it is kept by the encoder's fingerprint and the digest of the
name, and benchmarks that share a dictionary share its vectors. They lie in segments, an artifact each, that
are written when full: a run that is killed goes on where it was. A segment that is damaged is encoded again.
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
"""Names encoded between two looks at the disk: what a killed run may lose."""
_TOLD = 1_024
"""Names encoded between two words of progress: seconds on a CPU, where a segment takes minutes."""
_DIGEST = np.dtype("S16")
"""numpy drops zero bytes at the end of these, but alike on both sides of every comparison."""


class CachedEncoder:
    """Encodes what `encoder` has not encoded before; fits `protocols.Encoder`."""

    def __init__(
        self, encoder: Encoder, folder: Path, *, progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Keep vectors under `folder`; `progress` is told of names encoded and names to encode."""
        self._encoder = encoder
        self._progress = progress
        self.dimension = encoder.dimension
        self.fingerprint = encoder.fingerprint
        self._folder = folder / self.fingerprint

    def encode(self, names: Sequence[str]) -> NDArray[np.float32]:
        """Return one unit vector a name, in the order given.  # (names, dimension)"""
        digests = _digests(names)
        vectors = np.empty((len(names), self.dimension), np.float32)
        missing = self._fill(vectors, digests)
        # Of names that are missing, each once; they come back from the segments they are written to.
        distinct = np.unique(digests[missing], return_index=True)[1]
        rows = missing[np.sort(distinct)]
        for start in range(0, len(rows), SEGMENT):
            segment = rows[start : start + SEGMENT]
            encoded = self._encode([names[row] for row in segment], start, len(rows))
            self._write(digests[segment], encoded)
        if len(rows) and len(self._fill(vectors, digests)):
            raise ArtifactError(f"{self._folder}: vectors vanished while they were used; run this again")
        return vectors

    def _fill(self, vectors: NDArray[np.float32], digests: NDArray[np.bytes_]) -> NDArray[np.intp]:
        """Copy the vectors that are kept, and return the rows of those that are not."""
        found = np.zeros(len(digests), bool)
        for segment in sorted(self._folder.glob("[0-9a-f]*")):
            with suppress(ArtifactError):
                load_manifest(segment, kind=KIND, verify=False)
                kept = np.load(segment / "digests.npy")
                if len(kept):
                    places = np.minimum(np.searchsorted(kept, digests), len(kept) - 1)
                    here = np.flatnonzero(kept[places] == digests)
                    vectors[here] = map_array(segment / "vectors.npy")[places[here]]
                    found[here] = True
        return np.flatnonzero(~found)

    def _encode(self, names: Sequence[str], before: int, total: int) -> NDArray[np.float32]:
        """Encode the names of a segment, telling of progress from `before` on."""
        vectors = np.empty((len(names), self.dimension), np.float32)
        for start in range(0, len(names), _TOLD):
            if self._progress is not None:
                self._progress(before + start, total)
            stop = min(start + _TOLD, len(names))
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
    """16 bytes a name: of a billion names no two share them.  # (names,)"""
    texts = (name.encode(errors="surrogatepass") for name in names)
    return np.array([hashlib.blake2b(text, digest_size=16).digest() for text in texts], _DIGEST)
