"""Hashes of any spans of a sequence of numbers, from one cumulative sum.

With H(i) = Σ v(j)·B^j over the numbers before i, the hash of the numbers from s to e is (H(e) - H(s))·B^-s,
modulo 2^64: equal spans have equal hashes wherever they are. The upper bits differ more than the lower ones,
so callers mix or shift the result. These hashes are stored in artifacts and must not change.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
BASE: Final = 0x9E3779B97F4A7C15
"""Odd, so that its powers have an inverse modulo 2^64."""
MODULUS: Final = 1 << 64
_SMALLEST_TABLE = 1 << 12


class SpanHashes:
    """Hashes the spans of one sequence."""

    def __init__(self, values: NDArray[np.unsignedinteger[Any]]) -> None:
        powers, self._inverses = _powers(_table_size(len(values)))
        self._sums = np.zeros(len(values) + 1, np.uint64)
        np.cumsum(values * powers[: len(values)], out=self._sums[1:])

    def __call__(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> Hashes:
        """Return the hash of the numbers from each start to its stop."""
        hashes: Hashes = (self._sums[stops] - self._sums[starts]) * self._inverses[starts]
        return hashes


def _table_size(numbers: int) -> int:
    """Return the size of the table of powers for a sequence: few sizes, so that tables are reused."""
    return max(_SMALLEST_TABLE, 1 << numbers.bit_length())


@cache
def _powers(count: int) -> tuple[Hashes, Hashes]:
    """Return B^0, B^1, … and their inverses modulo 2^64."""
    return _powers_of(BASE, count), _powers_of(pow(BASE, -1, MODULUS), count)


def _powers_of(base: int, count: int) -> Hashes:
    factors = np.full(count, base, np.uint64)
    factors[0] = 1
    powers: Hashes = np.multiply.accumulate(factors)
    powers.flags.writeable = False
    return powers
