from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from sapbert.training.flash import loss as module
from sapbert.training.flash.loss import ContrastiveLoss


def slow_loss(vectors: Tensor, shared: Tensor, temperature: float) -> Tensor:
    """The mean over names of -log of the softmax probability of the other name of the pair."""
    names, losses = len(vectors), []
    for name in range(names):
        partner = (name + names // 2) % names
        scores = {
            other: vectors[name] @ vectors[other] / temperature
            for other in range(names)
            if other == partner or not shared[name, other]
        }
        losses.append(torch.stack(list(scores.values())).logsumexp(dim=0) - scores[partner])
    return torch.stack(losses).mean()


def slow_divergence(vectors: Tensor, teacher: Tensor) -> Tensor:
    total = vectors.new_zeros(())
    for name in range(len(vectors)):
        expected = (teacher[name] @ teacher.T / 0.05).softmax(dim=0)
        found = (vectors[name] @ vectors.T / 0.05).softmax(dim=0)
        for p, q in zip(expected, found, strict=True):
            total = total + p * (p / q).log()
    return total / len(vectors)


def batch(pairs: int, dimension: int) -> tuple[Tensor, Tensor]:
    """Unit vectors in float64, and concepts such that some pairs share one."""
    torch.manual_seed(pairs)
    vectors = normalize(torch.randn(2 * pairs, dimension, dtype=torch.float64))
    concepts = torch.arange(pairs).repeat(2) // 2
    return vectors, concepts[:, None] == concepts


@pytest.mark.parametrize("teacher_weight", [0.0, 0.7])
@pytest.mark.parametrize("block", [3, 256])
def test_loss_and_gradient_equal_slow_loops(
    monkeypatch: pytest.MonkeyPatch, block: int, teacher_weight: float
) -> None:
    monkeypatch.setattr(module, "_BLOCK", block)
    vectors, shared = batch(5, 4)
    teacher = normalize(torch.randn(10, 3, dtype=torch.float64)) if teacher_weight else None
    variable = vectors.clone().requires_grad_()
    expected = slow_loss(variable, shared, 0.1)
    if teacher is not None:
        expected = (1 - teacher_weight) * expected + teacher_weight * slow_divergence(variable, teacher)
    expected.backward()
    found = ContrastiveLoss(0.1, teacher_weight)(vectors, shared, teacher)
    torch.testing.assert_close(found.loss, expected.detach())
    torch.testing.assert_close(found.gradient, variable.grad)


def test_a_teacher_with_the_same_similarities_changes_nothing() -> None:
    vectors, shared = batch(4, 6)
    rotated = vectors @ torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64)).Q
    found = ContrastiveLoss(0.1, 1.0)(vectors, shared, rotated)
    assert math.isclose(found.loss.item(), 0, abs_tol=1e-9)
    assert found.gradient.abs().max() < 1e-9
