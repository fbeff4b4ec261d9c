"""An encoder without a model, in its own module because subprocesses of tests import only this."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


class NgramEncoder:
    """Hashes character trigrams into a unit vector: names that look alike lie close together."""

    def __init__(self, dimension: int = 32) -> None:
        self.dimension = dimension
        self.fingerprint = f"trigrams-{dimension}"
        self.encoded: list[str] = []
        """Every name it was ever given."""

    def copy_to(self, folder: Path) -> None:
        """Write what it takes to make another."""
        folder.mkdir()
        (folder / "dimension.txt").write_text(str(self.dimension))

    def encode(self, names: Sequence[str]) -> NDArray[np.float32]:
        """Return one unit vector a name."""
        self.encoded.extend(names)
        vectors = np.zeros((len(names), self.dimension), np.float32)
        for row, name in enumerate(names):
            padded = f"  {name} "
            for start in range(len(padded) - 2):
                digest = hashlib.blake2b(padded[start : start + 3].encode(), digest_size=4).digest()
                number = int.from_bytes(digest)
                vectors[row, number % self.dimension] += 1 if number & (1 << 31) else -1
        vectors += 1e-3
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors
