"""An encoder seen along fewer axes than it has, for an index that stores no more of them.

The axes span the directions in which the vectors of names are longest (principal components, with no mean
taken off, since cosines are compared). So chosen, half of the default encoder's dimensions keep more of a
mention's neighbours than its first two thirds do, although it was trained for these (Matryoshka learning).

Within their span the axes are turned at random, which changes no cosine: one axis would else hold a third of
every vector, and an index that rounds to some steps of the largest component would lose the others.
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
"""Keeps a vector that is zero along all axes from being divided by zero."""
_SEED = 33


class PortableEncoder(Encoder, Protocol):
    """An encoder that can travel inside an index."""

    def copy_to(self, folder: Path) -> None:
        """Write what opening it again needs to `folder`."""
        ...


@dataclass(frozen=True, slots=True)
class AlongAxes:
    """Gives an encoder's vectors along some axes, as unit vectors; fits `protocols.Encoder`."""

    encoder: PortableEncoder
    axes: NDArray[np.float32]
    """Unit vectors at right angles.  # (the encoder's dimension, dimension)"""

    @property
    def dimension(self) -> int:
        """How many axes there are."""
        return int(self.axes.shape[1])

    @property
    def fingerprint(self) -> str:
        """That of the whole encoder, which is what travels; the axes are the index's."""
        return self.encoder.fingerprint

    def encode(self, names: Sequence[str]) -> NDArray[np.float32]:
        """Return one unit vector a name, in the order given.  # (names, dimension)"""
        return along(self.encoder.encode(names), self.axes)

    def copy_to(self, folder: Path) -> None:
        """Write the whole encoder to `folder`."""
        self.encoder.copy_to(folder)


def principal_axes(vectors: NDArray[np.float32], dimension: int) -> NDArray[np.float32]:
    """Find the axes along which some vectors are longest.  # (of the vectors, dimension)"""
    wide = vectors.astype(np.float64)
    span = np.linalg.eigh(wide.T @ wide).eigenvectors[:, -dimension:]
    drawn = np.random.default_rng(_SEED).standard_normal(span.shape)
    # Drawn outside and cast into the span, so that axes do not depend on the signs that `eigh` chose.
    turned: NDArray[np.float32] = np.linalg.qr(span @ (span.T @ drawn)).Q.astype(np.float32)
    return turned


def along(vectors: NDArray[np.float32], axes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return vectors along some axes, as unit vectors.  # (vectors, dimension)"""
    # One by one in one call: in a product of matrices a vector may round otherwise than it does alone.
    seen = (vectors[:, np.newaxis] @ axes)[:, 0]
    unit: NDArray[np.float32] = seen / np.maximum(np.linalg.norm(seen, axis=1, keepdims=True), _TINY)
    return unit
