from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sapbert.hierarchy import Hierarchy, HierarchyCounts

CONCEPTS = 8
edges = st.lists(st.tuples(st.integers(0, CONCEPTS - 1), st.integers(0, CONCEPTS - 1)), max_size=20)


def hierarchy(pairs: list[tuple[int, int]], concepts: int = CONCEPTS) -> Hierarchy:
    children, parents = np.array(pairs, np.int64).reshape(-1, 2).T
    return Hierarchy.from_edges(concepts, children, parents)


def reachable(pairs: list[tuple[int, int]], start: int) -> set[int]:
    """Everything above `start`, by repeating a definition until nothing changes."""
    above: set[int] = {parent for child, parent in pairs if child == start}
    while more := {parent for child, parent in pairs if child in above} - above:
        above |= more
    return above


def test_ancestors_are_ordered_by_distance() -> None:
    #  3 → 1 → 0, 3 → 2 → 0, 0 → 4
    graph = hierarchy([(3, 1), (3, 2), (1, 0), (2, 0), (0, 4)], 6)
    assert graph.parents(3) == [1, 2]
    assert graph.children(0) == [1, 2]
    assert graph.ancestors(3) == [1, 2, 0, 4]
    assert graph.descendants(4) == [0, 1, 2, 3]
    assert graph.ancestor_steps(3) == {3: 0, 1: 1, 2: 1, 0: 2, 4: 3}
    assert graph.within([1, 2]).tolist() == [False, True, True, True, False, False]
    assert graph.counts() == HierarchyCounts(roots=1, orphans=1, in_cycles=0)


def test_a_cycle_is_counted_and_entered_once() -> None:
    graph = hierarchy([(0, 1), (1, 2), (2, 0), (3, 0), (2, 4), (5, 5)], 6)
    assert graph.ancestors(0) == [1, 2, 4]
    assert graph.counts() == HierarchyCounts(roots=1, orphans=1, in_cycles=3)


def test_a_hierarchy_may_be_empty() -> None:
    graph = Hierarchy.empty(3)
    assert not graph
    assert graph.ancestors(2) == []
    assert graph.within([1]).tolist() == [False, True, False]
    assert not hierarchy([], 0)


@given(edges)
def test_ancestors_and_descendants_agree_with_their_definition(pairs: list[tuple[int, int]]) -> None:
    graph = hierarchy(pairs)
    for concept in range(CONCEPTS):
        steps = graph.ancestor_steps(concept)
        assert set(steps) == reachable(pairs, concept) | {concept}
        assert all(one <= other for one, other in pairwise(steps.values()))
        assert set(graph.descendants(concept)) == {
            other for other in range(CONCEPTS) if other != concept and concept in reachable(pairs, other)
        }
        below = set(np.flatnonzero(graph.within([concept])).tolist())
        assert below == {concept, *graph.descendants(concept)}


@given(edges)
def test_a_concept_in_a_cycle_is_above_itself_or_between_two_such(
    pairs: list[tuple[int, int]],
) -> None:
    pairs = [(child, parent) for child, parent in pairs if child != parent]
    above = {concept: reachable(pairs, concept) for concept in range(CONCEPTS)}
    cyclic = {concept for concept in above if concept in above[concept]}
    between = {
        concept
        for concept in above
        if above[concept] & cyclic and any(concept in above[lower] for lower in cyclic)
    }
    assert hierarchy(pairs).counts().in_cycles == len(cyclic | between)
