"""Which concepts are above and below a concept: the direct parents and children of numbered concepts.

Both directions are stored, so the parents or children of a concept are one slice of a memory-mapped array,
and its ancestors take microseconds. Ancestors are not stored: for UMLS they would take a gigabyte.

Merged vocabularies contain cycles (A is broader than B in one source and narrower in another). Every concept
is visited once, so a cycle ends a search, and no concept is its own ancestor.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.signedinteger[Any]]


class HierarchyCounts(NamedTuple):
    """Counts of concepts by their place in a hierarchy."""

    roots: int
    """Concepts with children and without parents."""
    orphans: int
    """Concepts with neither."""
    in_cycles: int
    """Concepts in a cycle, or between two cycles."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The neighbours of each concept in one direction."""

    offsets: Ints
    """Where the neighbours of each concept start.  # (concepts + 1,)"""
    numbers: NDArray[np.int32]
    """Concept numbers, ascending within a concept."""

    @classmethod
    def of(cls, concepts: int, left: Ints, right: Ints) -> Self:
        """Make `right` the neighbours of `left`; repeated pairs and self-references are dropped."""
        pairs = _distinct((left.astype(np.int64) << 32) | right)
        left, right = pairs >> 32, pairs & 0xFFFFFFFF
        ends = np.cumsum(np.bincount(left[left != right], minlength=concepts))
        offsets = np.append(np.zeros(1, np.int64), ends)
        fits = len(pairs) <= np.iinfo(np.int32).max
        return cls(offsets.astype(np.int32) if fits else offsets, right[left != right].astype(np.int32))

    def __getitem__(self, concept: int) -> list[int]:
        neighbours: list[int] = self.numbers[self.offsets[concept] : self.offsets[concept + 1]].tolist()
        return neighbours

    def of_all(self, concepts: Ints) -> NDArray[np.int32]:
        """Return the neighbours of all `concepts`, one after the other."""
        begin = self.offsets[concepts]
        count = self.offsets[concepts + 1] - begin
        place = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        neighbours: NDArray[np.int32] = self.numbers[place + np.repeat(begin, count)]
        return neighbours


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """The parents and children of concepts, which are numbered from 0."""

    parents_of: Neighbours
    children_of: Neighbours

    @classmethod
    def from_edges(cls, concepts: int, children: Ints, parents: Ints) -> Self:
        """Make a hierarchy from pairs of child and parent."""
        return cls(Neighbours.of(concepts, children, parents), Neighbours.of(concepts, parents, children))

    @classmethod
    def empty(cls, concepts: int) -> Self:
        """Make a hierarchy without parents; it takes no memory."""
        none = Neighbours(np.broadcast_to(np.zeros(1, np.int32), concepts + 1), np.empty(0, np.int32))
        return cls(none, none)

    def __bool__(self) -> bool:
        return len(self.parents_of.numbers) > 0

    def __len__(self) -> int:
        return len(self.parents_of.offsets) - 1

    def parents(self, concept: int) -> list[int]:
        """Return the direct parents of a concept, ascending."""
        return self.parents_of[concept]

    def children(self, concept: int) -> list[int]:
        """Return the direct children of a concept, ascending."""
        return self.children_of[concept]

    def ancestors(self, concept: int) -> list[int]:
        """Return everything above a concept, nearest first."""
        return list(self.ancestor_steps(concept))[1:]

    def descendants(self, concept: int) -> list[int]:
        """Return everything below a concept, nearest first."""
        return list(_steps(self.children_of, concept))[1:]

    def ancestor_steps(self, concept: int) -> dict[int, int]:
        """Return the concept (0 steps) and its ancestors with their distance, nearest first."""
        return _steps(self.parents_of, concept)

    def within(self, concepts: Iterable[int]) -> NDArray[np.bool_]:
        """Return for each concept whether it is one of `concepts` or below one."""
        inside = np.zeros(len(self), np.bool_)
        frontier = np.array(list(concepts), np.int64)
        while len(frontier):
            inside[frontier] = True
            below = self.children_of.of_all(frontier)
            frontier = _distinct(below[~inside[below]])
        return inside

    def counts(self) -> HierarchyCounts:
        """Count roots, orphans and concepts in cycles."""
        parents, children = np.diff(self.parents_of.offsets), np.diff(self.children_of.offsets)
        cyclic = _unreached(self.children_of, parents) & _unreached(self.parents_of, children)
        return HierarchyCounts(
            roots=int(((parents == 0) & (children > 0)).sum()),
            orphans=int(((parents == 0) & (children == 0)).sum()),
            in_cycles=int(cyclic.sum()),
        )


def _steps(neighbours: Neighbours, concept: int) -> dict[int, int]:
    """Return the distance of every concept that can be reached, in order of distance."""
    # Slicing a memoryview takes a third of the time of slicing an array.
    offsets, numbers = neighbours.offsets.data, neighbours.numbers.data
    steps = {concept: 0}
    frontier = [concept]
    distance = 0
    while frontier:
        distance += 1
        reached = []
        for member in frontier:
            for number in numbers[offsets[member] : offsets[member + 1]].tolist():
                if number not in steps:
                    steps[number] = distance
                    reached.append(number)
        frontier = reached
    return steps


def _unreached(below: Neighbours, above: Ints) -> NDArray[np.bool_]:
    """Return which concepts remain if those without anything above them are removed again and again.

    `above` is the number of concepts directly above each.
    """
    remaining = above.astype(np.int64)
    frontier: Ints = np.flatnonzero(remaining == 0)
    while len(frontier):
        reached = np.sort(below.of_all(frontier))
        distinct = _distinct(reached)
        remaining[distinct] -= np.diff(np.searchsorted(reached, distinct), append=len(reached))
        frontier = distinct[remaining[distinct] == 0]
    unreached: NDArray[np.bool_] = remaining > 0
    return unreached


def _distinct(numbers: Ints) -> Ints:
    """Return the distinct numbers, ascending; takes a tenth of the time of `np.unique`."""
    ordered = np.sort(numbers)
    first = np.ones(len(ordered), np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]
