from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from sapbert.pairs.artifact import Pairs
from sapbert.training.flash.batches import TrainingNames
from sapbert.training.flash.loss import ContrastiveLoss
from sapbert.training.flash.step import FlashStep
from sapbert.training.flash.table import feature_spec
from tests.training.flash.test_loss import slow_loss


def test_the_gradient_of_rows_equals_autograd_through_a_dense_table(tiny_pairs: Pairs) -> None:
    spec = feature_spec({"word": 5, "pair": 4, "characters-4": 6})
    names = TrainingNames.prepare(tiny_pairs, np.arange(len(tiny_pairs)), spec, misspelt=0.3, seed=1)
    torch.manual_seed(1)
    table = torch.nn.Parameter(torch.randn(spec.rows, 6, dtype=torch.float64))
    ids = torch.from_numpy(names.features.ids)
    step = FlashStep(table, names, tiny_pairs, ContrastiveLoss(0.1), ids)
    rows = next(names.batches(12, 3, 0, 1))
    report = step.backward(rows, lambda loss: loss)
    assert table.grad is not None
    assert table.grad.is_coalesced()
    found = table.grad.to_dense()

    table.grad = None
    offsets = names.features.offsets
    vectors = [table[ids[offsets[row] : offsets[row + 1]].long()].sum(dim=0) for row in rows]
    shared = torch.from_numpy(tiny_pairs.share_concept(names.originals[rows]))
    expected = slow_loss(normalize(torch.stack(vectors)), shared, 0.1)
    expected.backward()
    torch.testing.assert_close(report.loss, expected.detach())
    torch.testing.assert_close(found, table.grad)
    assert report.negatives.item() == (~shared).sum().item()


def test_copies_have_the_teacher_vector_of_their_name(tiny_pairs: Pairs) -> None:
    spec = feature_spec({"word": 5})
    names = TrainingNames.prepare(tiny_pairs, np.arange(len(tiny_pairs)), spec, misspelt=0.5, seed=1)
    vectors = np.random.default_rng(0).standard_normal((len(tiny_pairs.names), 3)).astype(np.float16)
    table = torch.nn.Parameter(torch.randn(spec.rows, 4))
    step = FlashStep(
        table, names, tiny_pairs, ContrastiveLoss(0.1, 1.0), torch.from_numpy(names.features.ids), vectors
    )
    taught = step._teacher_vectors(names.pairs[-1])
    assert taught is not None
    assert torch.equal(taught[0], taught[1])
    assert torch.linalg.norm(taught[0]).item() == pytest.approx(1, abs=1e-6)
