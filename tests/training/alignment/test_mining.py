from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import normalize
from torch.utils._python_dispatch import TorchDispatchMode

from sapbert.errors import ConfigError
from sapbert.training.alignment.mining import HardPairs, MiningSettings, mine, pair_masks
from sapbert.training.settings import Triplets

KINDS: tuple[Triplets, ...] = ("all", "hard", "semihard", "easy")
Pairs = set[tuple[int, int]]


@dataclass(frozen=True)
class Names:
    """A batch: unit vectors, labels, and which names share a concept."""

    vectors: Tensor
    labels: Tensor
    share: Tensor


@st.composite
def batches(draw: st.DrawFn, *, dtype: torch.dtype = torch.float64, ambiguous: bool = True) -> Names:
    """Names around the centre of their concept, some of them twice, in some batches more than 25.

    Up to 25 rows torch takes differences, above it multiplies matrices.
    """
    labels = torch.tensor(
        draw(st.lists(st.integers(0, 9), min_size=1, max_size=draw(st.sampled_from((8, 40)))))
    )
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    centres = torch.randn(10, 6, generator=generator, dtype=dtype)
    spread = draw(st.sampled_from((0.0, 0.1, 0.5, 2.0)))
    vectors = centres[labels] + spread * torch.randn(len(labels), 6, generator=generator, dtype=dtype)
    copies = torch.tensor(draw(st.lists(st.integers(0, len(labels) - 1), max_size=3)), dtype=torch.int64)
    vectors[: len(copies)] = vectors[copies][: len(labels)]
    share = labels[:, None] == labels
    if ambiguous:
        extra = torch.rand(len(labels), len(labels), generator=generator) < draw(st.sampled_from((0.0, 0.2)))
        share = share | extra | extra.T
    return Names(normalize(vectors), labels, share)


def mined(names: Names, kind: Triplets = "all", margin: float = 0.2) -> HardPairs:
    masks = pair_masks(names.labels, names.share)
    return mine(names.vectors, names.vectors, *masks, MiningSettings(margin=margin, triplets=kind))


def on_a_circle(*degrees: float) -> Tensor:
    return torch.tensor([[math.cos(math.radians(d)), math.sin(math.radians(d))] for d in degrees])


def listed(mask: Tensor) -> Pairs:
    return {(int(a), int(b)) for a, b in mask.nonzero()}


def keeps(kind: Triplets, difference: float, margin: float) -> bool:
    """Apply the rule of the paper to one triplet; `difference` is d(a, n) - d(a, p)."""
    match kind:
        case "all":
            return difference <= margin
        case "hard":
            return difference <= min(margin, 0)
        case "semihard":
            return 0 < difference <= margin
        case "easy":
            return difference > margin
        case _:
            return True


def by_listing_triplets(
    distances: Tensor, positives: Tensor, negatives: Tensor, kind: Triplets, margin: float
) -> tuple[Pairs, Pairs]:
    """Mine by listing all triplets, slowly but obviously correct."""
    near, far = set(), set()
    for a, row in enumerate(distances.tolist()):
        for p in positives[a].nonzero().flatten().tolist():
            for n in negatives[a].nonzero().flatten().tolist():
                if keeps(kind, row[n] - row[p], margin):
                    near.add((a, p))
                    far.add((a, n))
    return near, far


def test_pairs_of_a_triplet_within_the_margin_are_hard() -> None:
    # 20 degrees are a distance of 0.35, 25 of 0.43, 180 of 2.
    names = on_a_circle(0, 20, -25, 180)
    labels = torch.tensor([0, 0, 1, 2])
    positives, negatives = pair_masks(labels, labels[:, None] == labels)

    pairs = mine(names, names, positives, negatives, MiningSettings())

    assert listed(pairs.positives) == {(0, 1)}
    assert listed(pairs.negatives) == {(0, 2)}
    assert pairs.counts() == (1, 1)


def test_ambiguous_names_are_neither_positives_nor_negatives() -> None:
    # Row 2 was drawn for concept 1, but its text names concept 0 as well.
    labels = torch.tensor([0, 0, 1])
    share = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 1]]).bool()

    positives, negatives = pair_masks(labels, share)

    assert listed(positives) == {(0, 1), (1, 0)}
    assert listed(negatives) == {(1, 2), (2, 1)}


@pytest.mark.parametrize("kind", KINDS)
@given(names=batches(), margin=st.sampled_from((0.0, 0.05, 0.2, 1.0)))
@settings(max_examples=40)
def test_mining_equals_the_listing_of_all_triplets(kind: Triplets, names: Names, margin: float) -> None:
    positives, negatives = pair_masks(names.labels, names.share)
    distances = torch.cdist(names.vectors, names.vectors)

    pairs = mined(names, kind, margin)

    expected = by_listing_triplets(distances, positives, negatives, kind, margin)
    assert (listed(pairs.positives), listed(pairs.negatives)) == expected


@pytest.mark.parametrize("kind", KINDS)
@given(names=batches(dtype=torch.float32, ambiguous=False), margin=st.sampled_from((0.0, 0.2, 1.0)))
@settings(max_examples=40)
def test_mining_equals_the_established_library(kind: Triplets, names: Names, margin: float) -> None:
    miners: Any = pytest.importorskip("pytorch_metric_learning.miners")
    raw = 3 * names.vectors

    vectors = normalize(raw)
    pairs = mined(Names(vectors, names.labels, names.share), kind, margin)

    a, p, n = miners.TripletMarginMiner(margin=margin, type_of_triplets=kind)(raw, names.labels)
    assert listed(pairs.positives) == listed_indices(a, p)
    assert listed(pairs.negatives) == listed_indices(a, n)


def listed_indices(anchors: Tensor, others: Tensor) -> Pairs:
    return set(zip(anchors.tolist(), others.tolist(), strict=True))


@given(names=batches(), data=st.data(), kind=st.sampled_from(KINDS))
@settings(max_examples=60)
def test_mining_some_anchors_gives_their_rows_of_all_pairs(
    names: Names, data: st.DataObject, kind: Triplets
) -> None:
    start = data.draw(st.integers(0, len(names.labels) - 1))
    stop = data.draw(st.integers(start + 1, len(names.labels)))
    positives, negatives = pair_masks(names.labels, names.share)

    some = mine(
        names.vectors[start:stop],
        names.vectors,
        positives[start:stop],
        negatives[start:stop],
        MiningSettings(triplets=kind),
    )

    # torch may round distances of few rows differently, so compare with the listing, not with `mined`.
    distances = torch.cdist(names.vectors[start:stop], names.vectors)
    expected = by_listing_triplets(distances, positives[start:stop], negatives[start:stop], kind, 0.2)
    assert (listed(some.positives), listed(some.negatives)) == expected


@given(names=batches(), margin=st.floats(0, 2))
@settings(max_examples=60)
def test_all_triplets_are_the_hard_and_the_semihard(names: Names, margin: float) -> None:
    whole, hard, semihard = (mined(names, kind, margin) for kind in ("all", "hard", "semihard"))

    assert torch.equal(whole.positives, hard.positives | semihard.positives)
    assert torch.equal(whole.negatives, hard.negatives | semihard.negatives)


@given(names=batches(), kind=st.sampled_from(KINDS))
@settings(max_examples=60)
def test_an_anchor_has_hard_positives_exactly_if_it_has_hard_negatives(names: Names, kind: Triplets) -> None:
    positives, negatives = pair_masks(names.labels, names.share)

    pairs = mined(names, kind)

    assert torch.equal(pairs.positives.any(1), pairs.negatives.any(1))
    assert not (pairs.positives & ~positives).any()
    assert not (pairs.negatives & ~negatives).any()


def test_without_mining_every_pair_is_kept() -> None:
    labels = torch.tensor([0, 0, 1, 1, 2])
    positives, negatives = pair_masks(labels, labels[:, None] == labels)

    pairs = mine(torch.eye(5), torch.eye(5), positives, negatives, MiningSettings(triplets="off"))

    assert torch.equal(pairs.positives, positives)
    assert torch.equal(pairs.negatives, negatives)
    assert pairs.counts() == (4, 16)


def test_names_with_one_vector_in_two_concepts_are_hard_and_not_semihard() -> None:
    names = on_a_circle(0, 40, 40)
    labels = torch.tensor([0, 0, 1])
    batch = Names(names, labels, labels[:, None] == labels)

    assert (0, 1) in listed(mined(batch, "hard").positives)
    assert (0, 2) in listed(mined(batch, "hard").negatives)
    assert mined(batch, "semihard").counts() == (0, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_of_nan_vectors_are_kept_so_that_the_loss_is_nan(kind: Triplets) -> None:
    names = on_a_circle(0, 20, 90, 110)
    names[0] = math.nan
    labels = torch.tensor([0, 0, 1, 1])

    pairs = mined(Names(names, labels, labels[:, None] == labels), kind)

    assert pairs.positives[0, 1]
    assert pairs.negatives[0].tolist() == [False, False, True, True]


class LargestTensor(TorchDispatchMode):
    """Records the size of the largest tensor."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple) else (result,):
            if isinstance(tensor, Tensor):
                self.elements = max(self.elements, tensor.numel())
        return result


@pytest.mark.parametrize("kind", KINDS)
def test_mining_allocates_no_tensor_larger_than_the_square_of_the_batch(kind: Triplets) -> None:
    labels = torch.arange(120) // 3
    vectors = normalize(torch.randn(120, 8, generator=torch.Generator().manual_seed(1)))

    with LargestTensor() as largest:
        mined(Names(vectors, labels, labels[:, None] == labels), kind)

    assert largest.elements == 120 * 120


@pytest.mark.parametrize("margin", [-0.2, 2.5, math.nan])
def test_a_margin_outside_the_distances_is_refused(margin: float) -> None:
    with pytest.raises(ConfigError, match=r"lambda = -0\.2"):
        MiningSettings(margin=margin)


def test_an_unknown_type_of_triplets_is_refused() -> None:
    with pytest.raises(ConfigError, match="semihard"):
        MiningSettings(triplets="softest")  # type: ignore[arg-type]  # what a recipe may hold
