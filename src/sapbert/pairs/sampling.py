"""Sample pairs: at most `limit` per concept, uniformly, without listing all of them.

A concept with n names has n(n-1)/2 pairs, in some cases millions; listing them to pick fifty would take a
day. Instead the pairs of a concept are numbered: name p, in the order of its concept, is paired with each of
the `partners[p]` names from `first[p]` on. Fifty distinct numbers are drawn by Floyd's algorithm, for all
concepts at once, and converted back to names.

Random numbers are a hash of seed, concept and draw, so they do not depend on how the vocabulary is split into
parts, on its other concepts, on the number of threads, or on the version of numpy.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sapbert.pairs.settings import Languages

Ints = NDArray[np.int64]
Keys = Callable[[Ints], NDArray[np.uint64]]
"""Maps concept numbers to keys that depend only on the concept."""


def draw(concepts: Ints, languages: Ints, *, keys: Keys, rule: Languages, limit: int, seed: int) -> Ints:
    """Return row numbers of pairs, in order.  # (pairs, 2)

    `concepts` is the concept number of each row, from 0, ascending; `languages` is the language number of
    each row, ascending within a concept; `keys` seeds the random numbers of a concept.
    """
    if not len(concepts):
        return np.empty((0, 2), np.int64)
    start = np.flatnonzero(np.diff(concepts, prepend=-1))
    first, partners = _partners(concepts, languages, start, rule)
    ends = np.cumsum(partners)
    begins = ends - partners
    offered = np.add.reduceat(partners, start)
    drawn = np.minimum(offered, limit)
    numbers = np.arange(drawn.sum()) + np.repeat(begins[start] - (np.cumsum(drawn) - drawn), drawn)
    # If all pairs of a concept are drawn, a row has one pair per partner; else count the numbers drawn.
    here = partners.copy()
    many = np.flatnonzero(offered > limit)
    if len(many):
        seeds = _mix(np.uint64(seed) ^ _mix(keys(many)))
        chosen = _distinct(offered[many], limit, seeds) + begins[start[many], np.newaxis]
        numbers[np.repeat(offered > limit, drawn)] = chosen.ravel()
        rows = np.flatnonzero(np.repeat(offered > limit, np.diff(start, append=len(concepts))))
        here[rows] = np.diff(np.searchsorted(numbers, ends[rows]), prepend=0)
        here[start] = 0
    right = np.repeat(np.arange(len(concepts)), here)
    left = numbers + np.repeat(first - begins, here)
    return np.stack([left, right], axis=1)


def repeat(rows: Ints, concepts: Ints, times: NDArray[np.float64], *, keys: Keys, seed: int) -> Ints:
    """Repeat each pair `times` times; a fractional part is a probability.  # (pairs, 2)

    `concepts` is the concept number of each pair, ascending; `keys` is as in `draw`.
    """
    start = np.flatnonzero(np.diff(concepts, prepend=-1))
    sizes = np.diff(start, append=len(concepts))
    within = (np.arange(len(concepts)) - np.repeat(start, sizes)).astype(np.uint64)
    seeds = _mix(_mix(np.uint64(seed) ^ _mix(keys(concepts[start]))))
    whole = np.floor(times)
    more = _unit(_mix(np.repeat(seeds, sizes) + within)) < times - whole
    return np.repeat(rows, (whole + more).astype(np.int64), axis=0)


def _partners(concepts: Ints, languages: Ints, start: Ints, rule: Languages) -> tuple[Ints, Ints]:
    """Return the first partner row of each row, and the number of partners from there on, all before it."""
    rows = np.arange(len(concepts))
    concept_start = np.repeat(start, np.diff(start, append=len(concepts)))
    if rule is Languages.ANY:
        return concept_start, rows - concept_start
    language_starts = np.flatnonzero((np.diff(languages, prepend=-1) != 0) | (rows == concept_start))
    language_start = np.repeat(language_starts, np.diff(language_starts, append=len(concepts)))
    if rule is Languages.WITHIN:
        return language_start, rows - language_start
    return concept_start, language_start - concept_start


def _distinct(offered: Ints, count: int, keys: NDArray[np.uint64]) -> Ints:
    """Return `count` distinct numbers below each of `offered`, uniformly drawn and sorted."""
    chosen = np.empty((count, len(offered)), np.int64)
    for step in range(count):
        top = offered - count + step
        # Floyd: a number up to `top`; if it was drawn before, `top` itself, which cannot have been drawn.
        number = (_unit(_mix(keys + np.uint64(step))) * (top + 1)).astype(np.int64)
        chosen[step] = np.where((chosen[:step] == number).any(axis=0), top, number)
    return np.sort(chosen.T, axis=1)


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64: spread consecutive numbers over all 64-bit numbers."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _unit(value: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return a number in [0, 1) from the upper 53 bits."""
    return (value >> np.uint64(11)).astype(np.float64) * 2.0**-53
