"""The loss of a batch of names and its gradient, computed in blocks of rows.

For each name the other name of its pair must score highest among all names of the batch that do not share a
concept with it (InfoNCE in both directions, with the names of the same side as negatives too). With a
teacher, the similarities of a name to all others are also compared with the teacher's, by the
Kullback-Leibler divergence of their softmax.

The gradient is written out because autograd would keep several matrices with an entry per two names; a block
fits in a core's cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

_TEACHER_TEMPERATURE = 0.05
_BLOCK = 256
"""Names per block on a CPU."""


class LossGradient(NamedTuple):
    """The loss of a batch, and its gradient with respect to the vectors."""

    loss: Tensor
    gradient: Tensor
    """# (names, dimension)"""


@dataclass(frozen=True, slots=True)
class ContrastiveLoss:
    """Settings of the loss."""

    temperature: float
    teacher_weight: float = 0.0
    """Weight of the divergence from the teacher; the contrastive loss has the rest."""

    def __call__(self, vectors: Tensor, shared: Tensor, teacher: Tensor | None = None) -> LossGradient:
        """Return the mean loss per name, and its gradient.

        The first half of the unit `vectors` are the left names of the pairs, the second half the right names.
        `shared` says which names share a concept; they are not negatives. `teacher` are the teacher's unit
        vectors of the same names.

        # (names, dimension), (names, names), (names, teacher's dimension)
        """
        names = len(vectors)
        partners = torch.arange(names, device=vectors.device).roll(names // 2)
        total, gradient = vectors.new_zeros(()), torch.zeros_like(vectors)
        block = names if vectors.is_cuda else _BLOCK
        for start in range(0, names, block):
            rows = slice(start, min(start + block, names))
            similarities = vectors[rows] @ vectors.T
            loss, weights = self._contrast(similarities, shared[rows], partners[rows])
            if teacher is not None:
                share = self.teacher_weight
                divergence, change = _divergence(similarities, teacher[rows] @ teacher.T)
                loss = (1 - share) * loss + share * divergence
                weights = weights.mul_(1 - share).add_(change, alpha=share)
            total += loss
            gradient[rows].addmm_(weights, vectors, alpha=1 / names)
            gradient.addmm_(weights.T, vectors[rows], alpha=1 / names)
        return LossGradient(total / names, gradient)

    def _contrast(self, similarities: Tensor, shared: Tensor, partners: Tensor) -> tuple[Tensor, Tensor]:
        """Return the summed loss of some names, and its gradient with respect to their similarities."""
        at = torch.arange(len(partners), device=partners.device)
        logits = similarities / self.temperature
        positives = logits[at, partners]
        logits.masked_fill_(shared, -torch.inf)
        logits[at, partners] = positives
        totals = logits.logsumexp(dim=1, keepdim=True)
        weights = logits.sub_(totals).exp_()
        weights[at, partners] -= 1
        return totals.sum() - positives.sum(), weights.div_(self.temperature)


def _divergence(similarities: Tensor, teacher: Tensor) -> tuple[Tensor, Tensor]:
    """Return the summed divergence of some names from the teacher, and its gradient."""
    expected = (teacher / _TEACHER_TEMPERATURE).log_softmax(dim=1)
    found = (similarities / _TEACHER_TEMPERATURE).log_softmax(dim=1)
    probabilities = expected.exp()
    loss = (probabilities * (expected - found)).sum()
    return loss, found.exp_().sub_(probabilities).div_(_TEACHER_TEMPERATURE)
