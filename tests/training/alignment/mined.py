"""Batches of vectors with labels, and the pairs mined from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from sapbert.training.alignment.losses import Loss
from sapbert.training.alignment.mining import HardPairs, MiningSettings, mine, pair_masks

library: Any = pytest.importorskip("pytorch_metric_learning.losses")


@dataclass(frozen=True)
class Batch:
    """Vectors of an encoder, and masks of their positive and negative pairs."""

    vectors: Tensor
    labels: Tensor
    positives: Tensor
    negatives: Tensor

    def loss(self, loss: Loss, mining: MiningSettings | None = None) -> Tensor:
        """Normalise, mine and take the loss, as a training step does."""
        units = normalize(self.vectors)
        pairs = mine(units, units, self.positives, self.negatives, mining or MiningSettings())
        return loss(units, units, pairs)

    def pairs(self) -> HardPairs:
        units = normalize(self.vectors.detach())
        return mine(units, units, self.positives, self.negatives, MiningSettings())


def a_batch(
    labels: list[int],
    *,
    seed: int = 0,
    spread: float = 0.7,
    copies: int = 0,
    ambiguous: float = 0.0,
    dtype: torch.dtype = torch.float32,
) -> Batch:
    """Return names around the centre of their concept; the last `copies` are copies of the first."""
    generator = torch.Generator().manual_seed(seed)
    concepts = torch.tensor(labels)
    centres = torch.randn(max(labels) + 1, 16, generator=generator, dtype=dtype)
    vectors = centres[concepts] + spread * torch.randn(len(labels), 16, generator=generator, dtype=dtype)
    if copies:
        vectors[-copies:] = vectors[:copies]
    extra = torch.rand(len(labels), len(labels), generator=generator) < ambiguous
    share = (concepts[:, None] == concepts) | extra | extra.T
    return Batch((4 * vectors).requires_grad_(), concepts, *pair_masks(concepts, share))


def value_and_gradient(loss: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    (gradient,) = torch.autograd.grad(loss, vectors, retain_graph=True)
    return loss.detach(), gradient


def pairs_of_labels(*degrees: float, labels: list[int]) -> tuple[Tensor, HardPairs]:
    """Return names on a circle, and all their pairs."""
    radians = torch.deg2rad(torch.tensor(degrees))
    concepts = torch.tensor(labels)
    masks = pair_masks(concepts, concepts[:, None] == concepts)
    return torch.stack([radians.cos(), radians.sin()], 1), HardPairs(*masks)


BATCHES = {
    "two names a concept": a_batch([i // 2 for i in range(64)]),
    "many names a concept": a_batch([i % 3 for i in range(40)], spread=1.5),
    "concepts of all sizes": a_batch([0] * 9 + [1] * 5 + [2, 2, 3, 4, 4, 4]),
    "names far apart": a_batch([i // 2 for i in range(32)], spread=3.0),
    "names learned": a_batch([i // 2 for i in range(32)], spread=0.01),
    "no positives": a_batch(list(range(20))),
    "no negatives": a_batch([0] * 20),
    "a batch of one": a_batch([0]),
    "duplicate names of a concept": a_batch([0, 0, 1, 1, 2, 2, 0, 0, 1], copies=3),
    "duplicate names of two concepts": a_batch([0, 0, 1, 1, 2, 2], copies=2),
    "duplicate names in a large batch": a_batch([i // 2 for i in range(62)] + [0, 0, 1, 5], copies=4),
}
