"""Project an encoder's vectors onto fewer dimensions, for an index that stores fewer.

The axes are the principal components of the vectors of names, without subtracting the mean, since cosines
are compared. Half of the default encoder's dimensions chosen this way keep more of a mention's neighbours
than its first two thirds do, although it was trained for the latter (Matryoshka learning).

The axes are then rotated at random within their span. That changes no cosine, but spreads each vector evenly:
otherwise one axis would have a third of its length, and quantization relative to the largest component would
lose the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sapbert.protocols import Encoder

_TINY = np.float32(1e-12)
"""Avoids dividing a zero projection by zero."""
_SEED = 33


class PortableEncoder(Encoder, Protocol):
    """An encoder that can be stored inside an index."""

    def copy_to(self, folder: Path) -> None:
        """Write all files needed to open the encoder again to `folder`."""
        ...


@dataclass(frozen=True, slots=True)
class ProjectedEncoder:
    """An encoder whose vectors are projected onto some axes; implements `protocols.Encoder`."""

    encoder: PortableEncoder
    axes: NDArray[np.float32]
    """Orthonormal columns.  # (the encoder's dimension, dimension)"""

    @property
    def dimension(self) -> int:
        """Number of axes."""
        return int(self.axes.shape[1])

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the full encoder; the axes belong to the index."""
        return self.encoder.fingerprint

    def encode(self, names: Sequence[str]) -> NDArray[np.float32]:
        """Return one unit vector per name, in the order given.  # (names, dimension)"""
        return project(self.encoder.encode(names), self.axes)

    def copy_to(self, folder: Path) -> None:
        """Write the full encoder to `folder`."""
        self.encoder.copy_to(folder)


def principal_axes(vectors: NDArray[np.float32], dimension: int) -> NDArray[np.float32]:
    """Return rotated principal axes of `vectors`.  # (vectors' dimension, dimension)"""
    wide = vectors.astype(np.float64)
    span = np.linalg.eigh(wide.T @ wide).eigenvectors[:, -dimension:]
    drawn = np.random.default_rng(_SEED).standard_normal(span.shape)
    # Drawn in the full space and projected, so that the axes do not depend on the signs that `eigh` chose.
    rotated: NDArray[np.float32] = np.linalg.qr(span @ (span.T @ drawn)).Q.astype(np.float32)
    return rotated


def project(vectors: NDArray[np.float32], axes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Project vectors onto `axes` and normalize them.  # (vectors, dimension)"""
    # A batched product: in one matrix product a vector may round differently than alone.
    projected = (vectors[:, np.newaxis] @ axes)[:, 0]
    unit: NDArray[np.float32] = projected / np.maximum(
        np.linalg.norm(projected, axis=1, keepdims=True), _TINY
    )
    return unit
