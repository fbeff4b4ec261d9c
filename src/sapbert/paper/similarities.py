"""Cosine similarities of the names in a batch, before and after mining: the data of Fig. 2 of the paper.

A pair counts once per anchor, as in a loss: always twice before mining, and once or twice after it. Counts
are histograms, so they add up over any number of batches.
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
"""Edges of the bins of cosines."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Histograms of the cosines of positive and of negative pairs."""

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
        """Overlap of the two histograms, each normalized to area 1; 0 if one is empty."""
        shares = [counts / max(counts.sum(), 1) for counts in (self.positives, self.negatives)]
        return float(np.minimum(*shares).sum())


_NONE = Distribution(np.zeros(BINS, np.int64), np.zeros(BINS, np.int64))


@dataclass(frozen=True, slots=True)
class Similarities:
    """Cosines of the pairs in one or several batches."""

    all_pairs: Distribution
    """Before mining."""
    mined: Distribution
    """After mining: only the hard pairs."""

    def __add__(self, other: Similarities) -> Similarities:
        return Similarities(self.all_pairs + other.all_pairs, self.mined + other.mined)


def similarities(vectors: Tensor, labels: Tensor, share: Tensor, mining: MiningSettings) -> Similarities:
    """Count the cosines of a batch of unit vectors (n, d); `labels` and `share` are as in `pair_masks`."""
    positives, negatives = pair_masks(labels, share)
    cosines = vectors @ vectors.T  # (n, n)
    hard = mine(vectors, vectors, positives, negatives, mining)
    return Similarities(
        Distribution.of(cosines, HardPairs(positives, negatives)), Distribution.of(cosines, hard)
    )


def count_similarities(
    pairs: Pairs, encoder: Encoder, settings: SimilaritySettings, *, on_batch: Callable[[int], None]
) -> Similarities:
    """Count the similarities in random batches; `on_batch` is called with the number of batches done."""
    if settings.batch_size > len(pairs):
        raise ConfigError(f"batch_size {settings.batch_size} is more than the {len(pairs)} pairs")
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
    # Rounding errors may push a cosine above 1, out of the last bin.
    counts, _ = np.histogram(cosines.clamp(-1, 1).numpy(), EDGES)
    return counts.astype(np.int64)
