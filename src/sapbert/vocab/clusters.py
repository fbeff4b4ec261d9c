"""Which concepts are one: clusters in a graph of numbered nodes, in numpy.

Nodes are identifiers, an edge says that two of them mean the same. The work is sorting and indexing, so tens
of millions of edges take seconds. Equal input gives equal clusters, whatever the order of the edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sapbert.vocab.settings import Trust

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """What is known of the nodes; the first `concepts` of them are concepts, the others only referred to."""

    concepts: int
    spaces: Ints
    """For each node a number of the vocabulary it belongs to."""
    same: Ints
    """For each node the smallest that is the same without doubt, often itself."""


class Clustering(NamedTuple):
    """What becomes of the concepts."""

    heads: Ints
    """For each concept the smallest of its cluster."""
    retried: int
    """Clusters that were doubtful with all references."""
    refused: int
    """Clusters that were doubtful with references between concepts only, and were left apart."""
    largest_refused: Ints
    """The concepts of the largest of those."""


class _Attempt(NamedTuple):
    labels: Ints
    """For each node the smallest of its cluster."""
    sizes: Ints
    """At the label of a cluster, how many concepts it has."""
    doubtful: Mask
    """At the label of a cluster, whether it must not be joined."""


def cluster(nodes: Nodes, left: Ints, right: Ints, *, trust: Trust, max_cluster: int) -> Clustering:
    """Join concepts by the references between `left` and `right`, as `merge` describes."""
    left, right = distinct(nodes.same.size, nodes.same[left], nodes.same[right])
    if trust == "one-to-one":
        kept = one_to_one(left, right, nodes.spaces)
        left, right = left[kept], right[kept]
    every = _attempt(nodes, left, right, trust, max_cluster)
    direct = (left < nodes.concepts) & (right < nodes.concepts) & every.doubtful[every.labels[left]]
    few = _attempt(nodes, left[direct], right[direct], trust, max_cluster)
    itself = nodes.same[: nodes.concepts]
    first, second = every.labels[itself], few.labels[itself]
    heads = np.where(few.doubtful[second], itself, second)
    heads = np.where(every.doubtful[first], heads, first)
    largest = np.flatnonzero(second == np.argmax(np.where(few.doubtful, few.sizes, 0)))
    refused = int(np.count_nonzero(few.doubtful))
    return Clustering(
        heads, int(np.count_nonzero(every.doubtful)), refused, largest if refused else largest[:0]
    )


def _attempt(nodes: Nodes, left: Ints, right: Ints, trust: Trust, max_cluster: int) -> _Attempt:
    total = nodes.same.size
    labels = connected(total, left, right)
    itself = nodes.same[: nodes.concepts]
    sizes = np.bincount(labels[itself], minlength=total)
    things = _unique(itself)
    # What is the same without doubt stays together, however much it is.
    doubtful = (sizes > max_cluster) & (np.bincount(labels[things], minlength=total) > 1)
    if trust == "one-to-one":
        width = int(nodes.spaces.max(initial=0)) + 1
        doubtful[labels[things[_repeats(labels[things] * width + nodes.spaces[things])]]] = True
    return _Attempt(labels, sizes, doubtful)


def connected(total: int, left: Ints, right: Ints) -> Ints:
    """Label each of `total` nodes with the smallest node it is connected to.

    Each round hooks every root to its smallest neighbour and flattens the trees, then keeps only the edges
    between different trees. Two rounds at least halve the roots, so there are O(log total) of them.
    """
    labels = np.arange(total, dtype=np.int64)
    while left.size:
        low, high = np.minimum(left, right), np.maximum(left, right)
        np.minimum.at(labels, high, low)
        while not np.array_equal(flatter := labels[labels], labels):
            labels = flatter
        left, right = labels[low], labels[high]
        apart = left != right
        left, right = left[apart], right[apart]
    return labels


def distinct(total: int, left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """Return each undirected edge once, without loops."""
    keys = np.minimum(left, right) * total + np.maximum(left, right)
    keys = _unique(keys[left != right])
    return keys // total, keys % total


def one_to_one(left: Ints, right: Ints, spaces: Ints) -> Mask:
    """Tell which of distinct edges are at both ends the only one into the other end's space.

    Two nodes of one space are never one to one.
    """
    width = int(spaces.max(initial=0)) + 1
    ways = np.concatenate([left * width + spaces[right], right * width + spaces[left]])
    crowded = _repeats(ways).reshape(2, -1).any(axis=0)
    return ~crowded & np.not_equal(spaces[left], spaces[right])


def _repeats(values: Ints) -> Mask:
    """Tell which values occur more than once."""
    order = np.argsort(values)
    ordered = values[order]
    equal = np.flatnonzero(ordered[1:] == ordered[:-1])
    repeats = np.zeros(values.size, dtype=np.bool_)
    repeats[order[equal]] = True
    repeats[order[equal + 1]] = True
    return repeats


def _unique(values: Ints) -> Ints:
    # np.unique hashes, which takes many times longer for millions of numbers.
    ordered = np.sort(values)
    first = np.ones(values.size, dtype=np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]
