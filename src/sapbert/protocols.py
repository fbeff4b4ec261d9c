"""The three interfaces between the stages; any class that implements one can be used.

The package `encoder` implements `Encoder` and `Reranker`, and `index` implements `Index`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Encoder(Protocol):
    """Converts names to vectors."""

    @property
    def dimension(self) -> int:
        """Length of one vector."""
        ...

    @property
    def fingerprint(self) -> str:
        """Differs if the vectors of the same names differ."""
        ...

    def encode(self, names: Sequence[str]) -> NDArray[np.float32]:
        """Return one unit vector per name, in the given order.  # (names, dimension)"""
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
        """Return cosine scores, best first, and row numbers; -inf and -1 if there are fewer than k.

        Of equal scores the lower row is first. `allowed` says for each row whether it may be returned; it is
        applied during the search, so k rows are returned if so many are allowed.

        # (mentions, k), (mentions, k)
        """
        ...


@dataclass(frozen=True, slots=True)
class RerankRequest:
    """A mention and the names of its candidates, to be put in order."""

    mention: str
    """The mention as given."""
    names: tuple[str, ...]
    """The matched name of each candidate, best first."""
    scores: tuple[float, ...]
    """Their scores in the search."""
    context: str = ""
    """Text around the mention, such as its sentence; empty if unknown."""
    kinds: tuple[str, ...] = ()
    """Kind of each name, such as `abbreviation`; empty if unknown."""
    counts: tuple[int, ...] = ()
    """How often each name, if it is an abbreviation, has this meaning in text; empty if unknown."""


class Reranker(Protocol):
    """Reorders the candidates of mentions."""

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
