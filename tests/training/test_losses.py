from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cosine_embedding_loss, normalize

from sapbert.errors import ConfigError, MissingExtraError
from sapbert.training.losses import Loss, LossName, MultiSimilarity, make_loss
from sapbert.training.mining import HardPairs, MiningSettings, mine, pair_masks

library: Any = pytest.importorskip("pytorch_metric_learning.losses")
miners: Any = pytest.importorskip("pytorch_metric_learning.miners")

NAMES: tuple[LossName, ...] = get_args(LossName)
every_loss = pytest.mark.parametrize("name", NAMES)


@dataclass(frozen=True)
class Batch:
    """Vectors as an encoder gives them, and which pairs of them are positives and negatives."""

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
    """Names scattered around the centre of their concept, the last `copies` of them copies of the first."""
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
    """Names on a circle, and all their pairs."""
    radians = torch.deg2rad(torch.tensor(degrees))
    concepts = torch.tensor(labels)
    masks = pair_masks(concepts, concepts[:, None] == concepts)
    return torch.stack([radians.cos(), radians.sin()], 1), HardPairs(*masks)


def test_the_multi_similarity_loss_of_three_names_is_as_worked_out_by_hand() -> None:
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


def test_a_single_hard_triplet_counts_though_the_library_drops_it() -> None:
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


Row = dict[int, float]
"""Of an anchor: reference -> cosine."""


def distance(cosine: float) -> float:
    return math.sqrt(max(0.0, 2 - 2 * cosine))


def mean(terms: list[float]) -> float:
    return sum(terms) / len(terms) if terms else 0.0


def slow_multi_similarity(positives: list[Row], negatives: list[Row]) -> float:
    return mean(
        [
            math.log(1 + sum(math.exp(0.5 - s) for s in near.values()))
            + math.log(1 + sum(math.exp(60 * (s - 0.5)) for s in far.values())) / 60
            for near, far in zip(positives, negatives, strict=True)
        ]
    )


def slow_circle(positives: list[Row], negatives: list[Row]) -> float:
    terms = []
    for near, far in zip(positives, negatives, strict=True):
        pull = sum(math.exp(-256 * max(0, 1.25 - s) * (s - 0.75)) for s in near.values())
        push = sum(math.exp(256 * max(0, s + 0.25) * (s - 0.25)) for s in far.values())
        terms.append(math.log(1 + pull * push))
    return mean([term for term in terms if term > 0])


def slow_nca(positives: list[Row], negatives: list[Row]) -> float:
    terms = []
    for near, far in zip(positives, negatives, strict=True):
        if near:
            pull = sum(math.exp(-20 * distance(s) ** 2) for s in near.values())
            push = sum(math.exp(-20 * distance(s) ** 2) for s in far.values())
            terms.append(-math.log(pull / (pull + push)))
    return mean(terms)


def slow_lifted(positives: list[Row], negatives: list[Row]) -> float:
    terms = []
    for a, near in enumerate(positives):
        for p, s in near.items():
            both = [*negatives[a].values(), *negatives[p].values()]
            push = math.log(sum(math.exp(0.5 - distance(other)) for other in both))
            terms.append(max(0, push + distance(s)) ** 2 / 2)
    return mean(terms)


def slow_infonce(positives: list[Row], negatives: list[Row]) -> float:
    terms = []
    for near, far in zip(positives, negatives, strict=True):
        push = sum(math.exp(s / 0.07) for s in far.values())
        terms += [-math.log(math.exp(s / 0.07) / (math.exp(s / 0.07) + push)) for s in near.values()]
    return mean(terms)


def slow_triplet(positives: list[Row], negatives: list[Row]) -> float:
    terms = [
        distance(s) - distance(other) + 0.2
        for near, far in zip(positives, negatives, strict=True)
        for s in near.values()
        for other in far.values()
    ]
    return mean([term for term in terms if term > 0])


def slow_cosine(positives: list[Row], negatives: list[Row]) -> float:
    parts = []
    for goal, rows in ((1.0, positives), (-1.0, negatives)):
        angles = torch.tensor([s for row in rows for s in row.values()], dtype=torch.float64).acos()
        left = torch.stack([angles.cos(), angles.sin()], 1)
        right = torch.tensor([[1.0, 0.0]]).expand_as(left)
        parts.append(cosine_embedding_loss(left, right, torch.full((len(left),), goal)).item())
    return sum(parts)


SLOW: dict[LossName, Callable[[list[Row], list[Row]], float]] = {
    "ms": slow_multi_similarity,
    "circle": slow_circle,
    "nca": slow_nca,
    "lifted": slow_lifted,
    "infonce": slow_infonce,
    "triplet": slow_triplet,
    "cosine": slow_cosine,
}


@every_loss
@pytest.mark.parametrize("seed", range(5))
def test_each_loss_is_its_formula_over_the_mined_pairs(name: LossName, seed: int) -> None:
    batch = a_batch([i % 7 for i in range(18)], seed=seed, spread=1.2, ambiguous=0.1, dtype=torch.float64)
    units, pairs = normalize(batch.vectors.detach()), batch.pairs()
    cosines = (units @ units.T).tolist()
    positives, negatives = (
        [{j: cosines[i][j] for j, kept in enumerate(row) if kept} for i, row in enumerate(mask.tolist())]
        for mask in (pairs.positives, pairs.negatives)
    )

    loss = make_loss(name)(units, units, pairs).item()

    assert min(pairs.counts()) > 9
    assert loss == pytest.approx(SLOW[name](positives, negatives), rel=1e-5)


def test_over_all_pairs_the_nca_loss_is_that_of_the_library() -> None:
    batch = a_batch([i % 5 for i in range(30)] + [7], dtype=torch.float64)
    reference = library.NCALoss(softmax_scale=20)(batch.vectors, batch.labels)
    expected, expected_gradient = value_and_gradient(reference, batch.vectors)

    loss = batch.loss(make_loss("nca"), MiningSettings(triplets="off"))
    value, gradient = value_and_gradient(loss, batch.vectors)

    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient, expected_gradient)


LIBRARY: dict[LossName, Any] = {
    "lifted": library.LiftedStructureLoss(neg_margin=0.5),
    "infonce": library.NTXentLoss(temperature=0.07),
}


def assert_equal_to_library(name: LossName, batch: Batch) -> None:
    mined = batch.pairs()
    rows = (*mined.positives.nonzero(as_tuple=True), *mined.negatives.nonzero(as_tuple=True))
    reference = LIBRARY[name](batch.vectors, None, rows)
    expected, expected_gradient = value_and_gradient(reference, batch.vectors)

    value, gradient = value_and_gradient(batch.loss(make_loss(name)), batch.vectors)

    if mined.counts() != (1, 1):  # The library takes a single triplet for none.
        torch.testing.assert_close(value, expected, atol=1e-6, rtol=0)
        torch.testing.assert_close(gradient, expected_gradient, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", LIBRARY)
@pytest.mark.parametrize("kind", BATCHES)
def test_lifted_and_infonce_equal_the_library_over_the_mined_pairs(name: LossName, kind: str) -> None:
    batch = BATCHES[kind]
    exact = batch.vectors.detach().double().requires_grad_()
    assert_equal_to_library(name, Batch(exact, batch.labels, batch.positives, batch.negatives))


@pytest.mark.parametrize("name", LIBRARY)
@given(
    labels=st.lists(st.integers(0, 8), min_size=1, max_size=30),
    seed=st.integers(0, 2**32),
    spread=st.sampled_from((0.05, 0.3, 0.7, 2.0)),
    data=st.data(),
)
@settings(max_examples=50)
def test_lifted_and_infonce_equal_the_library_on_any_labels(
    name: LossName, labels: list[int], seed: int, spread: float, data: st.DataObject
) -> None:
    copies = data.draw(st.integers(0, len(labels) // 2))
    exact = a_batch(labels, seed=seed, spread=spread, copies=copies, dtype=torch.float64)
    assert_equal_to_library(name, exact)


@every_loss
@pytest.mark.parametrize(
    "labels", [[0], [0, 1], list(range(9)), [0, 0, 1, 1, 2, 2]], ids=["one", "two", "no positives", "learned"]
)
def test_a_batch_without_hard_pairs_costs_nothing(name: LossName, labels: list[int]) -> None:
    batch = a_batch(labels, spread=0.001)
    assert batch.pairs().counts() == (0, 0)

    value, gradient = value_and_gradient(batch.loss(make_loss(name)), batch.vectors)

    assert value.item() == 0
    assert torch.equal(gradient, torch.zeros_like(batch.vectors))


@every_loss
def test_names_of_one_concept_only_do_not_crash_without_mining(name: LossName) -> None:
    batch = a_batch([0] * 6)

    value, gradient = value_and_gradient(
        batch.loss(make_loss(name), MiningSettings(triplets="off")), batch.vectors
    )

    assert value.isfinite()
    assert gradient.isfinite().all()


@every_loss
def test_ambiguous_names_are_not_pushed_apart(name: LossName) -> None:
    # Names 0 and 1 have one vector: were they negatives, no loss could overlook it.
    names, pairs = pairs_of_labels(0, 0, 5, 180, labels=[0, 1, 0, 2])
    pairs.negatives[0, 1] = pairs.negatives[1, 0] = False
    pairs.negatives[1, 2] = pairs.negatives[2, 1] = False

    with_both = make_loss(name)(names, names, pairs)

    alone, their_pairs = pairs_of_labels(0, 5, 180, labels=[0, 0, 2])
    anchors = 4 / 3 if name == "ms" else 1
    expected = make_loss(name)(alone, alone, their_pairs).item()
    assert with_both.item() * anchors == pytest.approx(expected, abs=1e-6)


@every_loss
def test_a_small_step_down_the_gradient_lowers_the_loss(name: LossName) -> None:
    batch = a_batch([i // 2 for i in range(24)], dtype=torch.float64)
    loss, pairs = make_loss(name), batch.pairs()

    def at(vectors: Tensor) -> Tensor:
        units = normalize(vectors)
        return loss(units, units, pairs)

    before, gradient = value_and_gradient(at(batch.vectors), batch.vectors)

    after = at(batch.vectors.detach() - 1e-4 * gradient / gradient.norm())
    assert 0 < after.item() < before.item()


@every_loss
def test_mixed_precision_does_not_round_the_loss(name: LossName) -> None:
    batch = a_batch([i // 2 for i in range(24)])
    units = normalize(batch.vectors.detach())

    with torch.autocast("cpu", torch.bfloat16):
        inside = make_loss(name)(units, units, batch.pairs())

    assert torch.equal(inside, make_loss(name)(units, units, batch.pairs()))


@every_loss
def test_vectors_that_are_not_numbers_give_a_loss_that_is_none(name: LossName) -> None:
    batch = a_batch([i // 2 for i in range(24)])
    broken = Batch(batch.vectors * math.nan, batch.labels, batch.positives, batch.negatives)

    assert broken.loss(make_loss(name)).isnan()


def test_the_lifted_structure_loss_refuses_some_of_the_anchors() -> None:
    batch = a_batch([0, 0, 1, 1])
    units, pairs = normalize(batch.vectors), batch.pairs()

    with pytest.raises(ValueError, match="all must be anchors"):
        make_loss("lifted")(units[:2], units, HardPairs(pairs.positives[:2], pairs.negatives[:2]))


@pytest.mark.parametrize("name", ["circle", "triplet"])
def test_a_loss_of_the_library_names_the_missing_extra(
    name: LossName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning.losses", None)

    with pytest.raises(MissingExtraError, match=r"sapbert\[train\]"):
        make_loss(name)


@pytest.mark.parametrize("name", ["ms", "nca", "lifted", "infonce", "cosine"])
def test_our_own_losses_need_no_library(name: LossName, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = a_batch([i // 2 for i in range(24)])
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning.losses", None)

    assert batch.loss(make_loss(name)).item() > 0


def test_parameters_replace_the_defaults() -> None:
    assert make_loss("ms", {"negative_scale": 50, "positive_scale": 2}) == MultiSimilarity.of_table_9()


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("ms", {"negative_scales": 50.0}, "did you mean negative_scale?"),
        ("cosine", {"margin": 0.1}, "it has none"),
        ("ms", {"positive_scale": 0.0}, "positive_scale must be above 0"),
        ("ms", {"offset": 1.5}, "offset is a cosine"),
        ("nca", {"scale": -1.0}, "scale must be above 0"),
        ("circle", {"margin": math.nan}, "margin is a cosine"),
        ("circle", {"scale": 0.0}, "scale must be above 0"),
        ("infonce", {"temperature": 0.0}, "temperature must be above 0"),
        ("lifted", {"margin": math.inf}, "margin must be above 0"),
        ("triplet", {"margin": -0.2}, "margin must be above 0"),
        ("mse", {}, "one of ms, circle, nca"),
    ],
)
def test_settings_that_cannot_work_are_refused(
    name: LossName, parameters: dict[str, float], message: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        make_loss(name, parameters)

    assert message in str(raised.value)
