"""An encoder cut to its leading dimensions, for an index that stores no more of them.

An encoder trained for it (Matryoshka representation learning) puts most of what it knows into the dimensions
that come first. Any other loses as much as if its dimensions had been chosen at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sapbert.errors import ConfigError
from sapbert.protocols import Encoder

_TINY = np.float32(1e-12)
"""Keeps a vector whose leading part is zero from being divided by zero."""


class PortableEncoder(Encoder, Protocol):
    """An encoder that can travel inside an index."""

    def copy_to(self, folder: Path) -> None:
        """Write what opening it again needs to `folder`."""
        ...


@dataclass(frozen=True, slots=True)
class LeadingDimensions:
    """Gives the first components of an encoder's vectors, as unit vectors; fits `protocols.Encoder`."""

    encoder: PortableEncoder
    dimension: int
    """How many."""

    @classmethod
    def of(cls, encoder: PortableEncoder, dimension: int | None) -> PortableEncoder:
        """Cut an encoder to `dimension`; where it has no more, or nothing is asked, it is left as it is."""
        if dimension is None or dimension == encoder.dimension:
            return encoder
        if not 0 < dimension < encoder.dimension:
            raise ConfigError(f"this encoder has {encoder.dimension} dimensions; {dimension} cannot be had")
        return cls(encoder, dimension)

    @property
    def fingerprint(self) -> str:
        """That of the whole encoder, which is what travels; how much is cut off the index knows."""
        return self.encoder.fingerprint

    def encode(self, names: Sequence[str]) -> NDArray[np.float32]:
        """Return one unit vector a name, in the order given.  # (names, dimension)"""
        return leading(self.encoder.encode(names), self.dimension)

    def copy_to(self, folder: Path) -> None:
        """Write the whole encoder to `folder`."""
        self.encoder.copy_to(folder)


def leading(vectors: NDArray[np.float32], dimension: int) -> NDArray[np.float32]:
    """Return the first components of some vectors, as unit vectors.  # (vectors, dimension)"""
    cut = vectors[:, :dimension]
    unit: NDArray[np.float32] = cut / np.maximum(np.linalg.norm(cut, axis=1, keepdims=True), _TINY)
    return unit
