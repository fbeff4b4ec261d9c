from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from sapbert.encoder.transformer import TransformerEncoder
from sapbert.errors import ConfigError
from sapbert.pairs.artifact import Pairs
from sapbert.paper.settings import SimilaritySettings
from sapbert.paper.similarities import BINS, EDGES, Distribution, count_similarities, similarities
from sapbert.training.alignment.mining import MiningSettings


def counts(**at: int) -> np.ndarray:
    """So many cosines in the bins from these on: `counts(at_0=3)`."""
    made = np.zeros(BINS, np.int64)
    for name, number in at.items():
        made[int(np.flatnonzero(np.isclose(EDGES, float(name.removeprefix("at_").replace("_", "."))))[0])] = (
            number
        )
    return made


def ignore(_done: int) -> None:
    """Tell nobody."""


def test_well_separated_pairs_are_counted_before_mining_and_gone_after_it() -> None:
    vectors = torch.eye(4)[[0, 0, 1, 1]]
    labels = torch.tensor([7, 7, 8, 8])
    found = similarities(vectors, labels, labels[:, None] == labels, MiningSettings())

    np.testing.assert_array_equal(found.all_pairs.positives, counts(at_0_98=4))
    np.testing.assert_array_equal(found.all_pairs.negatives, counts(at_0=8))
    assert found.all_pairs.overlap == 0
    assert found.mined.positives.sum() == found.mined.negatives.sum() == 0
    assert found.mined.overlap == 0


def test_pairs_that_cannot_be_told_apart_overlap_and_are_all_kept() -> None:
    labels = torch.tensor([7, 7, 8, 8])
    found = similarities(torch.eye(4)[[0, 0, 0, 0]], labels, labels[:, None] == labels, MiningSettings())

    assert found.all_pairs.overlap == found.mined.overlap == 1
    np.testing.assert_array_equal(found.mined.negatives, found.all_pairs.negatives)


def test_a_cosine_above_one_by_rounding_is_counted() -> None:
    labels = torch.tensor([7, 7])
    vectors = torch.tensor([[1.000001, 0.0], [1.000001, 0.0]])
    found = similarities(vectors, labels, labels[:, None] == labels, MiningSettings())
    np.testing.assert_array_equal(found.all_pairs.positives, counts(at_0_98=2))


def test_half_of_the_area_may_be_shared() -> None:
    mixed = Distribution(counts(at_0=1, at_0_5=1), counts(at_0=100))
    assert mixed.overlap == 0.5


@settings(max_examples=30)
@given(st.lists(st.integers(0, 3), min_size=2, max_size=9), st.integers(0, 1000), st.floats(0, 2))
def test_every_pair_is_counted_once_for_each_anchor_as_in_a_slow_loop(
    labels: list[int], seed: int, margin: float
) -> None:
    vectors = normalize(torch.randn(len(labels), 3, generator=torch.Generator().manual_seed(seed)))
    numbers = torch.tensor(labels)
    # The first two names share a text, so they are no negatives of each other.
    share = numbers[:, None] == numbers
    share[0, 1] = share[1, 0] = True
    found = similarities(vectors, numbers, share, MiningSettings(margin=margin))
    positives, negatives = [], []
    for a in range(len(labels)):
        for b in range(len(labels)):
            if a != b and labels[a] == labels[b]:
                positives.append(float(vectors[a] @ vectors[b]))
            elif a != b and not share[a, b]:
                negatives.append(float(vectors[a] @ vectors[b]))

    assert found.all_pairs.positives.sum() == len(positives)
    assert found.all_pairs.negatives.sum() == len(negatives)
    for counted, cosines in ((found.all_pairs.positives, positives), (found.all_pairs.negatives, negatives)):
        if cosines:
            # A cosine that rounding carries over an edge moves the mean by less than a bin.
            assert (counted * (EDGES[:-1] + 0.01)).sum() / len(cosines) == pytest.approx(
                np.mean(cosines), abs=0.02
            )
    assert (found.mined.positives <= found.all_pairs.positives).all()
    assert (found.mined.negatives <= found.all_pairs.negatives).all()


@pytest.fixture(scope="module")
def encoder(tiny_base: object) -> TransformerEncoder:
    return TransformerEncoder.open(str(tiny_base), device="cpu")


def test_batches_depend_on_the_seed_and_add_up(tiny_pairs: Pairs, encoder: TransformerEncoder) -> None:
    told: list[int] = []
    sample = SimilaritySettings(batches=3, batch_size=8)
    first = count_similarities(tiny_pairs, encoder, sample, on_batch=told.append)
    again = count_similarities(tiny_pairs, encoder, sample, on_batch=ignore)
    one = count_similarities(
        tiny_pairs, encoder, SimilaritySettings(batches=1, batch_size=8), on_batch=ignore
    )
    other = count_similarities(
        tiny_pairs, encoder, SimilaritySettings(batches=3, batch_size=8, seed=5), on_batch=ignore
    )

    assert told == [1, 2, 3]
    np.testing.assert_array_equal(first.all_pairs.negatives, again.all_pairs.negatives)
    assert (one.all_pairs.negatives <= first.all_pairs.negatives).all()
    assert (first.all_pairs.negatives != 3 * one.all_pairs.negatives).any()
    assert (first.all_pairs.negatives != other.all_pairs.negatives).any()
    # Two names a pair, each the anchor of the other.
    assert first.all_pairs.positives.sum() >= 3 * 8 * 2


def test_mining_makes_the_kinds_overlap_more(tiny_pairs: Pairs, encoder: TransformerEncoder) -> None:
    sample = SimilaritySettings(batches=5, batch_size=16)
    found = count_similarities(tiny_pairs, encoder, sample, on_batch=ignore)
    assert found.mined.overlap > found.all_pairs.overlap


def test_a_batch_larger_than_the_data_is_refused(tiny_pairs: Pairs, encoder: TransformerEncoder) -> None:
    sample = SimilaritySettings(batch_size=len(tiny_pairs) + 1)
    with pytest.raises(ConfigError, match="is more than the"):
        count_similarities(tiny_pairs, encoder, sample, on_batch=ignore)
