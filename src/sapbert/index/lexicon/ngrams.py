"""Hashes of all word n-grams of some texts at once.

The hash of a set of words is the sum of their hashes, so one cumulative sum gives the hash of every n-gram as
a difference. It ignores order: "cancer of the breast" has the hash of "breast cancer". A second hash weights
each word by a power of an odd number according to its position; it tells whether the order is the same. All
sums are modulo 2**64. Stop words are left out, so an n-gram begins and ends with a content word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from sapbert.index.lexicon.words import Gap, Words
from sapbert.span_hashes import BASE, MODULUS, SpanHashes

MAX_WORDS = 10
"""Content words of the longest name that is found."""
_MAX_STOP_WORDS = 3


@dataclass(frozen=True, slots=True)
class Ngrams:
    """Some n-grams; each column has one value per n-gram."""

    first: NDArray[np.int64]
    """Number of the first word in `Words`."""
    last: NDArray[np.int64]
    """Number of the last word."""
    bag: NDArray[np.uint64]
    """Hash of the words in any order."""
    order: NDArray[np.uint32]
    """Hash of the words in this order."""

    def __len__(self) -> int:
        return len(self.first)

    def take(self, chosen: NDArray[np.int64] | NDArray[np.bool_]) -> Self:
        """Return some of the n-grams."""
        return type(self)(self.first[chosen], self.last[chosen], self.bag[chosen], self.order[chosen])


def hash_words(hashes: Sequence[int]) -> tuple[int, int]:
    """Return both hashes of a whole text, given the hashes of its content words."""
    mixed = [word | 1 for word in hashes]
    order = sum(word * pow(BASE, place, MODULUS) for place, word in enumerate(mixed))
    return sum(mixed) % MODULUS, (order % MODULUS) >> 32


class NgramHashes:
    """Cumulative sums over the content words of some texts, from which any n-gram is hashed."""

    def __init__(self, words: Words) -> None:
        self.words = words
        self.content = np.flatnonzero(words.content)
        """Numbers of the content words."""
        hashes = _mixed(words.hash[self.content])
        self._bag = _cumulated(hashes)
        self._order = SpanHashes(hashes)
        self._breaks = np.cumsum(words.gap >= Gap.COLON)

    def by_length(self, longest: int = MAX_WORDS) -> Iterator[Ngrams]:
        """Yield the n-grams inside sentences with 1, 2, … content words."""
        first = np.arange(len(self.content))
        for count in range(1, longest + 1):
            first = first[first <= len(self.content) - count]
            one, other = self.content[first], self.content[first + count - 1]
            near = self._breaks[one] == self._breaks[other]
            first = first[near]
            if not len(first):
                return
            few = other[near] - one[near] < count + _MAX_STOP_WORDS
            yield self.hashed(first[few], count)

    def hashed(self, first: NDArray[np.int64], count: int | NDArray[np.int64]) -> Ngrams:
        """Return n-grams, given the position of the first among the content words, and their number."""
        bag = self._bag[first + count] - self._bag[first]
        order = self._order(first, first + count)
        return Ngrams(
            self.content[first],
            self.content[first + count - 1],
            bag,
            (order >> np.uint64(32)).astype(np.uint32),
        )


def _mixed(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Make sums of hashes collide no more often than random numbers do; xxh3 is random enough as it is."""
    return hashes | np.uint64(1)


def _cumulated(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return np.concatenate([np.zeros(1, np.uint64), np.cumsum(values, dtype=np.uint64)])
