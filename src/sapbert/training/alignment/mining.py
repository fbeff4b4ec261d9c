"""Which pairs of a batch are worth learning from: those of triplets that the encoder still gets wrong.

A triplet is an anchor a, a name p of its concept and a name n of another. With d the Euclidean distance of
unit vectors, the paper keeps those with d(a, n) - d(a, p) <= 0.2 (its lambda is -0.2, our `margin` 0.2), and
trains on the pairs (a, p) and (a, n) they are made of.

Triplets are never listed: time and memory are those of the (n, m) distances. A pair is in some kept triplet
exactly if it is in the one with its strongest opponent, so (a, p) is held against the nearest negative of a,
and (a, n) against its farthest positive. Where the difference must also be above 0 ("semihard") the strongest
opponent depends on the pair, and is looked up in the sorted distances of the row. The kept pairs are those of
pytorch-metric-learning's `TripletMarginMiner`, from the same distances.

Anchors may be some of the references (the names of one process among those of all): masks are (n, m).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal, get_args

import torch
from torch import Tensor

from sapbert.errors import ConfigError

Triplets = Literal["all", "hard", "semihard", "easy", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MiningSettings:
    """Which pairs of a batch are trained on."""

    margin: float = 0.2
    """How much farther than the positive a negative must be for a triplet to count as learned."""
    triplets: Triplets = "all"
    """Whose pairs are kept: of `all` triplets not learned yet; of these only the `hard` (the negative is at
    most as far as the positive) or only the `semihard` (it is farther); of the `easy`, learned ones; `off`
    keeps every pair of the batch."""

    def __post_init__(self) -> None:
        if self.triplets not in get_args(Triplets):
            raise ConfigError(f"triplets is one of {', '.join(get_args(Triplets))}; got {self.triplets!r}")
        if not 0 <= self.margin <= 2:
            raise ConfigError(
                f"margin is a difference of distances in [0, 2], got {self.margin}; "
                "the paper writes a margin of 0.2 as lambda = -0.2"
            )


@dataclass(frozen=True, slots=True)
class HardPairs:
    """The pairs a loss is taken over; where both are False the pair plays no part."""

    positives: Tensor
    """Anchor and reference are to come closer.  # (n, m) bool"""
    negatives: Tensor
    """Anchor and reference are to part.  # (n, m) bool"""

    def counts(self) -> tuple[int, int]:
        """Return how many positive and negative pairs there are; waits for the device."""
        positives, negatives = torch.stack([self.positives.sum(), self.negatives.sum()]).tolist()
        return positives, negatives


def pair_masks(labels: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """Return which names of a batch are positives and which are negatives of each other.

    `labels` (n,) numbers the concept each name was drawn for, `share` (n, n) tells which names have any
    concept in common (`Pairs.share_concept`). Names that share one only through an ambiguous text are
    neither. A process that holds some of the names takes its rows of both masks.  # (n, n), (n, n)
    """
    same = labels[:, None] == labels
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    return same & ~itself, ~(same | share)


def mine(
    anchors: Tensor, references: Tensor, positives: Tensor, negatives: Tensor, settings: MiningSettings
) -> HardPairs:
    """Keep the pairs of the triplets that `settings` asks for; no gradient passes through the choice.

    `anchors` (n, d) and `references` (m, d) are unit vectors in full precision, `positives` and `negatives`
    are (n, m) masks.
    """
    if settings.triplets == "off":
        return HardPairs(positives, negatives)
    # Of unit vectors, so that the loss's cosines serve where both are compiled together.
    cosines = anchors.detach() @ references.detach().T
    distances = (2 - 2 * cosines).clamp(min=0).sqrt()  # (n, m)
    # A comparison with NaN is False: asked this way round such pairs are kept, and the loss shows the NaN.
    match settings.triplets:
        case "easy":
            farthest_negative = distances.masked_fill(~negatives, -inf).amax(1, keepdim=True)
            nearest_positive = distances.masked_fill(~positives, inf).amin(1, keepdim=True)
            return HardPairs(
                positives & ~(farthest_negative - distances <= settings.margin),
                negatives & ~(distances - nearest_positive <= settings.margin),
            )
        case "semihard":
            next_negative = _next_above(distances, negatives)
            previous_positive = -_next_above(-distances, positives)
            limit = settings.margin
        case _:
            next_negative = distances.masked_fill(~negatives, inf).amin(1, keepdim=True)
            previous_positive = distances.masked_fill(~positives, -inf).amax(1, keepdim=True)
            limit = 0.0 if settings.triplets == "hard" else settings.margin
    return HardPairs(
        positives & ~(next_negative - distances > limit),
        negatives & ~(distances - previous_positive > limit),
    )


def _next_above(values: Tensor, among: Tensor) -> Tensor:
    """For each value the next greater one of its row in the mask `among`, else infinity.  # (n, m)"""
    ascending = values.masked_fill(~among, inf).sort(dim=1).values
    # Only a row that is `among` throughout has no infinity to end on, and then none of it is asked for.
    after = torch.searchsorted(ascending, values, right=True).clamp(max=values.shape[1] - 1)
    return ascending.gather(1, after)
