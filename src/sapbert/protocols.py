"""The three seams of the package: whatever fits one of these shapes can take its place.

`encoder` brings an `Encoder` and a `Reranker`, `index` an `Index`. A caller may bring its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class RerankRequest:
    """A mention and the names of its candidates, to be put in order."""

    mention: str
    """As it was given."""
    names: tuple[str, ...]
    """Of its candidates, best first; each is the name that matched."""
    scores: tuple[float, ...]
    """What the search gave them."""
    context: str = ""
    """Text that the mention stands in, such as its sentence; empty where nobody knows."""


class Reranker(Protocol):
    """Puts the candidates of mentions in a better order than the search did."""

    @property
    def fingerprint(self) -> str:
        """Changes whenever the scores of the same requests would."""
        ...

    def rerank(self, requests: Sequence[RerankRequest]) -> Sequence[NDArray[np.float32]]:
        """Return one finite score per name of each request, in the order of its names; higher is better.

        Scores are compared within a request only, and depend on nothing outside it. Names of equal score
        keep their order. A reranker may ignore the scores of the search and the context.

        # (names,) each
        """
        ...
