"""Find concepts that mean the same: clusters in a graph of numbered nodes, in numpy.

A node is an identifier; an edge says that two identifiers mean the same. The algorithm only sorts and indexes
arrays, so tens of millions of edges take seconds. The result does not depend on the order of the edges.
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
    """The nodes of the graph: first `concepts` concepts, then ids that only occur in references."""

    concepts: int
    vocabularies: Ints
    """For each node, the number of the vocabulary it belongs to."""
    identity: Ints
    """For each node, the smallest node known to be identical to it; often the node own."""


class Clustering(NamedTuple):
    """Which concepts are joined."""

    heads: Ints
    """For each concept, the smallest concept of its cluster."""
    retried: int
    """Number of clusters that were ambiguous with all references."""
    refused: int
    """Number of clusters that were still ambiguous with direct references only; they are not joined."""
    largest_refused: Ints
    """The concepts of the largest refused cluster."""


class _Attempt(NamedTuple):
    labels: Ints
    """For each node, the smallest node of its cluster."""
    sizes: Ints
    """For each label, the number of concepts in its cluster."""
    ambiguous: Mask
    """For each label, whether its cluster must not be joined."""


def cluster(nodes: Nodes, left: Ints, right: Ints, *, trust: Trust, max_cluster: int) -> Clustering:
    """Join concepts by the references between `left` and `right`, as `merge` describes."""
    left, right = distinct(nodes.identity.size, nodes.identity[left], nodes.identity[right])
    if trust == "one-to-one":
        kept = one_to_one(left, right, nodes.vocabularies)
        left, right = left[kept], right[kept]
    full = _attempt(nodes, left, right, trust, max_cluster)
    direct = (left < nodes.concepts) & (right < nodes.concepts) & full.ambiguous[full.labels[left]]
    direct_only = _attempt(nodes, left[direct], right[direct], trust, max_cluster)
    concept_nodes = nodes.identity[: nodes.concepts]
    first, second = full.labels[concept_nodes], direct_only.labels[concept_nodes]
    heads = np.where(direct_only.ambiguous[second], concept_nodes, second)
    heads = np.where(full.ambiguous[first], heads, first)
    largest = np.flatnonzero(second == np.argmax(np.where(direct_only.ambiguous, direct_only.sizes, 0)))
    refused = int(np.count_nonzero(direct_only.ambiguous))
    return Clustering(
        heads, int(np.count_nonzero(full.ambiguous)), refused, largest if refused else largest[:0]
    )


def _attempt(nodes: Nodes, left: Ints, right: Ints, trust: Trust, max_cluster: int) -> _Attempt:
    total = nodes.identity.size
    labels = connected(total, left, right)
    concept_nodes = nodes.identity[: nodes.concepts]
    sizes = np.bincount(labels[concept_nodes], minlength=total)
    concepts = _unique(concept_nodes)
    # Concepts known to be identical stay together, however many they are.
    ambiguous = (sizes > max_cluster) & (np.bincount(labels[concepts], minlength=total) > 1)
    if trust == "one-to-one":
        width = int(nodes.vocabularies.max(initial=0)) + 1
        in_cluster = labels[concepts] * width + nodes.vocabularies[concepts]
        ambiguous[labels[concepts[_repeats(in_cluster)]]] = True
    return _Attempt(labels, sizes, ambiguous)


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
        different = left != right
        left, right = left[different], right[different]
    return labels


def distinct(total: int, left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """Return each undirected edge once, without loops."""
    keys = np.minimum(left, right) * total + np.maximum(left, right)
    keys = _unique(keys[left != right])
    return keys // total, keys % total


def one_to_one(left: Ints, right: Ints, vocabularies: Ints) -> Mask:
    """Return which of the distinct edges are one-to-one.

    At both ends, such an edge is the only one into the vocabulary of the other end. An edge between two nodes
    of one vocabulary is never one to one.
    """
    width = int(vocabularies.max(initial=0)) + 1
    directions = np.concatenate([left * width + vocabularies[right], right * width + vocabularies[left]])
    not_one_to_one = _repeats(directions).reshape(2, -1).any(axis=0)
    return ~not_one_to_one & np.not_equal(vocabularies[left], vocabularies[right])


def _repeats(values: Ints) -> Mask:
    """Return which values occur more than once."""
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
