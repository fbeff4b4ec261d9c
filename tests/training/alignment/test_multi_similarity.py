from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import normalize

from sapbert.training.alignment.losses import MultiSimilarity
from sapbert.training.alignment.mining import HardPairs, MiningSettings, mine
from tests.training.alignment.mined import (
    BATCHES,
    Batch,
    a_batch,
    library,
    pairs_of_labels,
    value_and_gradient,
)

miners: Any = pytest.importorskip("pytorch_metric_learning.miners")


def test_the_multi_similarity_loss_of_three_names_equals_the_value_computed_by_hand() -> None:
    # Cosines: 0.5 of the two names of concept 0, 0 and -0.5 of each to the name of concept 1 (150°, 90° off).
    names, pairs = pairs_of_labels(0, 60, 150, labels=[0, 0, 1])

    loss = MultiSimilarity(positive_scale=2, negative_scale=10, offset=0.5)(names, names, pairs)

    pull = 2 * math.log(1 + 1) / 2
    low, zero = math.exp(10 * (-math.sqrt(0.75) - 0.5)), math.exp(10 * (0 - 0.5))
    push = (math.log(1 + low) + math.log(1 + zero) + math.log(1 + low + zero)) / 10
    assert loss.item() == pytest.approx((pull + push) / 3, abs=1e-6)


def library_step(batch: Batch, *, alpha: float = 1, beta: float = 60) -> tuple[Tensor, Tensor, int]:
    """The reference code's objective: value, gradient, and the number of triplets it mined."""
    triplets = miners.TripletMarginMiner(margin=0.2, type_of_triplets="all")(batch.vectors, batch.labels)
    loss = library.MultiSimilarityLoss(alpha=alpha, beta=beta, base=0.5)
    return (
        *value_and_gradient(loss(batch.vectors, batch.labels, triplets), batch.vectors),
        len(triplets[0]),
    )


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES.keys())
def test_mining_and_multi_similarity_equal_the_library_in_value_and_gradient(batch: Batch) -> None:
    expected, expected_gradient, triplets = library_step(batch)

    value, gradient = value_and_gradient(batch.loss(MultiSimilarity()), batch.vectors)

    assert triplets != 1
    torch.testing.assert_close(value, expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(gradient, expected_gradient, atol=1e-6, rtol=0)


@given(
    labels=st.lists(st.integers(0, 8), min_size=1, max_size=40),
    seed=st.integers(0, 2**32),
    spread=st.sampled_from((0.05, 0.3, 0.7, 2.0)),
    data=st.data(),
)
@settings(max_examples=100)
def test_multi_similarity_equals_the_library_on_any_labels(
    labels: list[int], seed: int, spread: float, data: st.DataObject
) -> None:
    copies = data.draw(st.integers(0, len(labels) // 2))
    batch = a_batch(labels, seed=seed, spread=spread, copies=copies)
    expected, expected_gradient, triplets = library_step(batch)

    value, gradient = value_and_gradient(batch.loss(MultiSimilarity()), batch.vectors)

    if triplets != 1:  # The library takes a single triplet for none; see below.
        torch.testing.assert_close(value, expected, atol=1e-6, rtol=0)
        torch.testing.assert_close(gradient, expected_gradient, atol=1e-6, rtol=0)


def test_a_single_hard_triplet_counts_although_the_library_ignores_it() -> None:
    names, pairs = pairs_of_labels(0, 20, -25, labels=[0, 0, 1])
    mined = mine(names, names, pairs.positives, pairs.negatives, MiningSettings())
    rows = (*mined.positives.nonzero(as_tuple=True), *mined.negatives.nonzero(as_tuple=True))

    assert mined.counts() == (1, 1)
    assert library.MultiSimilarityLoss(alpha=1, beta=60, base=0.5)(names, None, rows).item() == 0
    pull = math.log(1 + math.exp(0.5 - math.cos(math.radians(20))))
    push = math.log(1 + math.exp(60 * (math.cos(math.radians(25)) - 0.5))) / 60
    assert MultiSimilarity()(names, names, mined).item() == pytest.approx((pull + push) / 3, abs=1e-6)


def test_the_settings_of_table_9_scale_the_positives_by_two() -> None:
    batch = BATCHES["concepts of all sizes"]
    expected, expected_gradient, _ = library_step(batch, alpha=2, beta=50)

    value, gradient = value_and_gradient(batch.loss(MultiSimilarity.of_table_9()), batch.vectors)

    torch.testing.assert_close(value, expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(gradient, expected_gradient, atol=1e-6, rtol=0)


def test_multi_similarity_does_not_overflow() -> None:
    batch = BATCHES["names far apart"]

    value, gradient = value_and_gradient(
        batch.loss(MultiSimilarity(positive_scale=1e5, negative_scale=1e5)), batch.vectors
    )

    assert 0 < value < 3
    assert gradient.isfinite().all()


@given(labels=st.lists(st.integers(0, 5), min_size=2, max_size=20), seed=st.integers(0, 2**32))
@settings(max_examples=40)
def test_the_multi_similarity_loss_of_a_batch_is_the_mean_over_its_halves(
    labels: list[int], seed: int
) -> None:
    batch = a_batch(labels[: len(labels) // 2 * 2], seed=seed, ambiguous=0.1, dtype=torch.float64)
    units, pairs = normalize(batch.vectors), batch.pairs()
    halves = [
        MultiSimilarity()(units[rows], units, HardPairs(pairs.positives[rows], pairs.negatives[rows]))
        for rows in (slice(None, len(units) // 2), slice(len(units) // 2, None))
    ]

    value, gradient = value_and_gradient(MultiSimilarity()(units, units, pairs), batch.vectors)
    parts, parts_gradient = value_and_gradient((halves[0] + halves[1]) / 2, batch.vectors)

    torch.testing.assert_close(parts, value)
    torch.testing.assert_close(parts_gradient, gradient)
