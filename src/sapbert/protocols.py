"""The three seams of the package: whatever fits one of these shapes can take its place.

`encoder` brings an `Encoder`, `index` an `Index`; a `Reranker` is to come. A caller may bring its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Encoder(Protocol):
    """Turns names into vectors."""

    @property
    def dimension(self) -> int:
        """Length of one vector."""
        ...

    @property
    def fingerprint(self) -> str:
        """Changes whenever the vectors of the same names would."""
        ...

    def encode(self, names: Sequence[str]) -> NDArray[np.float32]:
        """Return one unit vector a name, in the order given.  # (names, dimension)"""
        ...


class Index(Protocol):
    """Finds the nearest of many vectors."""

    def __len__(self) -> int: ...

    @property
    def dimension(self) -> int:
        """Length of one vector."""
        ...

    def search(
        self, vectors: NDArray[np.float32], k: int, *, allowed: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return cosine scores, best first, and row numbers; -inf and -1 where there are fewer than k.

        Of equal scores the lower row comes first. `allowed` says of each row whether it may be found; it
        works inside the search, so k rows come back where so many are allowed.

        # (mentions, k), (mentions, k)
        """
        ...


class Reranker(Protocol):
    """Reorders the candidate names of one mention."""

    def rerank(self, mention: str, names: Sequence[str]) -> NDArray[np.float32]:
        """Return one score a name; higher is better.  # (names,)"""
        ...
