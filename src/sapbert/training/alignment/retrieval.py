"""Measure how well an encoder retrieves synonyms that it was not trained on.

Each held-out concept provides two names, a query and a target. A query is correct if its nearest target,
among those of all held-out concepts, belongs to the same concept. This takes seconds and correlates with
linking accuracy.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sapbert.pairs.artifact import Pairs
from sapbert.protocols import Encoder

_QUERIES_PER_BLOCK = 1024


def retrieval_accuracy(pairs: Pairs, held_out: NDArray[np.int64], encoder: Encoder) -> float:
    """Return the fraction of held-out concepts whose query retrieves its target first."""
    owners = pairs.concepts[pairs.pairs[held_out, 0]]
    _, first_rows = np.unique(owners, return_index=True)
    query_names, target_names = pairs.pairs[held_out[first_rows]].T
    queries = encoder.encode(pairs.names.take(query_names))  # (concepts, dim)
    targets = encoder.encode(pairs.names.take(target_names))  # (concepts, dim)
    correct = 0
    for start in range(0, len(queries), _QUERIES_PER_BLOCK):
        best = (queries[start : start + _QUERIES_PER_BLOCK] @ targets.T).argmax(axis=1)
        correct += int((best == np.arange(start, start + len(best))).sum())
    return correct / len(queries)
