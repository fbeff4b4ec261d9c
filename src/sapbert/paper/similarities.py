"""How alike the names of a batch are, before and after mining: the numbers of the paper's Fig. 2.

A pair counts once for each of its names that is its anchor, as it does in a loss: before mining that is
always twice, after it perhaps once. Counts are kept in bins, so they add up over any number of batches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sapbert.errors import ConfigError
from sapbert.pairs.artifact import Pairs
from sapbert.paper.settings import SimilaritySettings
from sapbert.protocols import Encoder
from sapbert.training.alignment.mining import HardPairs, MiningSettings, mine, pair_masks

BINS = 100
EDGES: NDArray[np.float64] = np.linspace(-1, 1, BINS + 1).round(2)
"""Where bins of cosines begin and end."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """How many pairs have which cosine."""

    positives: NDArray[np.int64]
    """Pairs of one concept.  # (BINS,)"""
    negatives: NDArray[np.int64]
    """Pairs of different concepts.  # (BINS,)"""

    @classmethod
    def of(cls, cosines: Tensor, pairs: HardPairs) -> Self:
        """Count the cosines (n, n) of these pairs."""
        return cls(_count(cosines[pairs.positives]), _count(cosines[pairs.negatives]))

    def __add__(self, other: Distribution) -> Distribution:
        return Distribution(self.positives + other.positives, self.negatives + other.negatives)

    @property
    def overlap(self) -> float:
        """The area that positives and negatives share where each has area 1; 0 where one has no pair."""
        shares = [counts / max(counts.sum(), 1) for counts in (self.positives, self.negatives)]
        return float(np.minimum(*shares).sum())


_NONE = Distribution(np.zeros(BINS, np.int64), np.zeros(BINS, np.int64))


@dataclass(frozen=True, slots=True)
class Similarities:
    """The cosines of one batch, or of several added up."""

    all_pairs: Distribution
    """Of all pairs: before mining."""
    mined: Distribution
    """Of the pairs that mining keeps."""

    def __add__(self, other: Similarities) -> Similarities:
        return Similarities(self.all_pairs + other.all_pairs, self.mined + other.mined)


def similarities(vectors: Tensor, labels: Tensor, share: Tensor, mining: MiningSettings) -> Similarities:
    """Count the cosines of a batch of unit vectors (n, d); `labels` and `share` are those of `pair_masks`."""
    positives, negatives = pair_masks(labels, share)
    cosines = vectors @ vectors.T  # (n, n)
    hard = mine(vectors, vectors, positives, negatives, mining)
    return Similarities(
        Distribution.of(cosines, HardPairs(positives, negatives)), Distribution.of(cosines, hard)
    )


def count_similarities(
    pairs: Pairs, encoder: Encoder, settings: SimilaritySettings, *, on_batch: Callable[[int], None]
) -> Similarities:
    """Draw batches and add up their similarities; `on_batch` is told the batches done."""
    if settings.batch_size > len(pairs):
        raise ConfigError(f"a batch of {settings.batch_size} pairs is more than the {len(pairs)} there are")
    mining = MiningSettings(margin=settings.margin)
    total = Similarities(_NONE, _NONE)
    for number in range(settings.batches):
        generator = np.random.default_rng([settings.seed, number])
        rows = pairs.pairs[generator.choice(len(pairs), settings.batch_size, replace=False)].reshape(-1)
        total += similarities(
            torch.from_numpy(encoder.encode(pairs.names.take(rows))),
            torch.from_numpy(pairs.concepts[rows]),
            torch.from_numpy(pairs.share_concept(rows)),
            mining,
        )
        on_batch(number + 1)
    return total


def _count(cosines: Tensor) -> NDArray[np.int64]:
    # Rounding may carry a cosine just beyond 1, and so out of the last bin.
    counts, _ = np.histogram(cosines.clamp(-1, 1).numpy(), EDGES)
    return counts.astype(np.int64)
