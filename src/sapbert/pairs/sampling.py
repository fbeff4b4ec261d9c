"""Which pairs to draw: at most `limit` for a concept, uniformly, without listing all of them.

A concept with n names offers n(n-1)/2 pairs, some of them millions; listing them to pick fifty would
take the whole day. Instead the pairs of a concept are numbered: name p, in the order of its concept,
makes a pair with each of the `partners[p]` names from `first[p]` on. Fifty different numbers are drawn
by Floyd's algorithm, for all concepts at once, and turned back into names.

Random numbers are a hash of seed, concept and draw, so they do not depend on how the vocabulary is cut
into parts, on what other concepts it has, on the number of threads, or on the version of numpy.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sapbert.pairs.settings import Languages

Ints = NDArray[np.int64]
Keys = Callable[[Ints], NDArray[np.uint64]]
"""Gives each of some concepts, by their numbers, a key of its own that no other concept changes."""


def draw(concepts: Ints, languages: Ints, *, keys: Keys, rule: Languages, limit: int, seed: int) -> Ints:
    """Return row numbers of pairs, in order.  # (pairs, 2)

    `concepts` numbers the concept of each row from 0, ascending; `languages` numbers the language of
    each row, ascending within a concept; `keys` tells what a concept's random numbers depend on.
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
    # Where all pairs are drawn a row has as many as it has partners; elsewhere the numbers drawn tell.
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
    """Repeat each of some pairs so many times; the fraction of a time is its chance.  # (pairs, 2)

    `concepts` numbers the concept of each pair, ascending; `keys` is as in `draw`.
    """
    start = np.flatnonzero(np.diff(concepts, prepend=-1))
    sizes = np.diff(start, append=len(concepts))
    within = (np.arange(len(concepts)) - np.repeat(start, sizes)).astype(np.uint64)
    seeds = _mix(_mix(np.uint64(seed) ^ _mix(keys(concepts[start]))))
    whole = np.floor(times)
    more = _unit(_mix(np.repeat(seeds, sizes) + within)) < times - whole
    return np.repeat(rows, (whole + more).astype(np.int64), axis=0)


def _partners(concepts: Ints, languages: Ints, start: Ints, rule: Languages) -> tuple[Ints, Ints]:
    """The first row each row is paired with, and how many from there on; all come before it."""
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
    """For each number offered, `count` different numbers below it, uniformly drawn and sorted."""
    chosen = np.empty((count, len(offered)), np.int64)
    for step in range(count):
        top = offered - count + step
        # Floyd: a number below or at `top`; if it was taken before, `top` itself, which cannot have been.
        number = (_unit(_mix(keys + np.uint64(step))) * (top + 1)).astype(np.int64)
        chosen[step] = np.where((chosen[:step] == number).any(axis=0), top, number)
    return np.sort(chosen.T, axis=1)


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64: scatters consecutive numbers over all 64-bit ones."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _unit(value: NDArray[np.uint64]) -> NDArray[np.float64]:
    """A number in [0, 1) from the upper 53 bits."""
    return (value >> np.uint64(11)).astype(np.float64) * 2.0**-53
