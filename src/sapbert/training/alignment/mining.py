"""Hard-pair mining: select the pairs of a batch that belong to triplets the encoder still gets wrong.

A triplet is an anchor a, a name p of the same concept and a name n of another concept. With d the Euclidean
distance of unit vectors, the paper keeps triplets with d(a, n) - d(a, p) <= 0.2 (its lambda is -0.2, `margin`
here is 0.2), and trains on their pairs (a, p) and (a, n).

Triplets are never listed: time and memory are those of the (n, m) distances. A pair is in some kept triplet
exactly if the triplet with its most critical counterpart is kept, so (a, p) is compared with the nearest
negative of a, and (a, n) with the farthest positive. If the difference must also be above 0 ("semihard"), the
counterpart depends on the pair and is looked up in the sorted distances of the row. The kept pairs equal
those of pytorch-metric-learning's `TripletMarginMiner` for the same distances.

Anchors may be a part of the references (the names of one process among those of all): masks are (n, m).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import get_args

import torch
from torch import Tensor

from sapbert.errors import ConfigError
from sapbert.training.settings import Triplets


@dataclass(frozen=True, slots=True, kw_only=True)
class MiningSettings:
    """Which pairs of a batch are used for training."""

    margin: float = 0.2
    """Distance by which a negative must be farther than the positive for a triplet to satisfy the margin."""
    triplets: Triplets = "all"
    """Triplets whose pairs are kept: `all` that violate the margin; of these only the `hard` ones (the
    negative is at most as far as the positive) or the `semihard` ones (it is farther); the `easy` ones, which
    satisfy the margin; or `off`, which keeps every pair of the batch."""

    def __post_init__(self) -> None:
        if self.triplets not in get_args(Triplets):
            raise ConfigError(f"triplets is one of {', '.join(get_args(Triplets))}; got {self.triplets!r}")
        if not 0 <= self.margin <= 2:
            raise ConfigError(
                f"margin must be a difference of distances in [0, 2], got {self.margin}; "
                "the paper writes a margin of 0.2 as lambda = -0.2"
            )


@dataclass(frozen=True, slots=True)
class HardPairs:
    """Masks of the pairs used by a loss; a pair in neither mask is ignored."""

    positives: Tensor
    """Pairs to pull together.  # (n, m) bool"""
    negatives: Tensor
    """Pairs to push apart.  # (n, m) bool"""

    def counts(self) -> tuple[int, int]:
        """Return the numbers of positive and negative pairs; waits for the device."""
        positives, negatives = torch.stack([self.positives.sum(), self.negatives.sum()]).tolist()
        return positives, negatives


def pair_masks(labels: Tensor, shared_concept: Tensor) -> tuple[Tensor, Tensor]:
    """Return masks of the positive and of the negative pairs of a batch.

    `labels` (n,) is the number of the concept each name was drawn for; `shared_concept` (n, n) marks names
    with any concept in common (`Pairs.share_concept`). Names that share a concept only through an ambiguous
    text are in neither mask.  # (n, n), (n, n)
    """
    same = labels[:, None] == labels
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    return same & ~itself, ~(same | shared_concept)


def mine(
    anchors: Tensor, references: Tensor, positives: Tensor, negatives: Tensor, settings: MiningSettings
) -> HardPairs:
    """Keep the pairs of the triplets that `settings` selects; the selection has no gradient.

    `anchors` (n, d) and `references` (m, d) are unit vectors in full precision, `positives` and `negatives`
    are (n, m) masks.
    """
    if settings.triplets == "off":
        return HardPairs(positives, negatives)
    # From cosines, so that torch.compile computes them once for mining and loss.
    cosines = anchors.detach() @ references.detach().T
    distances = (2 - 2 * cosines).clamp(min=0).sqrt()  # (n, m)
    # A comparison with NaN is False; negated, such pairs are kept and the loss becomes NaN visibly.
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
    """Return for each value the next greater one of its row in the mask `among`, else infinity.  # (n, m)"""
    ascending = values.masked_fill(~among, inf).sort(dim=1).values
    # Only a row that is entirely in the mask has no infinity at its end, and its values are not used.
    after = torch.searchsorted(ascending, values, right=True).clamp(max=values.shape[1] - 1)
    return ascending.gather(1, after)
