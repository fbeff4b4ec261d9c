"""How well an encoder finds a synonym it was never trained on.

Of each held-out concept one name asks and another answers: right is an answer whose concept is that of the
asking name, among the answers of all held-out concepts. It costs seconds and moves with linking accuracy.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sapbert.pairs.artifact import Pairs
from sapbert.protocols import Encoder

_QUERIES_AT_A_TIME = 1024


def retrieval_accuracy(pairs: Pairs, held_out: NDArray[np.int64], encoder: Encoder) -> float:
    """The share of held-out concepts whose name finds its synonym first."""
    owners = pairs.concepts[pairs.pairs[held_out, 0]]
    _, firsts = np.unique(owners, return_index=True)
    asking, answering = pairs.pairs[held_out[firsts]].T
    queries = encoder.encode(pairs.names.take(asking))  # (concepts, dim)
    answers = encoder.encode(pairs.names.take(answering))  # (concepts, dim)
    right = 0
    for start in range(0, len(queries), _QUERIES_AT_A_TIME):
        best = (queries[start : start + _QUERIES_AT_A_TIME] @ answers.T).argmax(axis=1)
        right += int((best == np.arange(start, start + len(best))).sum())
    return right / len(queries)
