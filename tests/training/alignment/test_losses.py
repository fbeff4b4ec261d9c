from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cosine_embedding_loss, normalize

from sapbert.errors import ConfigError, MissingExtraError
from sapbert.training.alignment.losses import MultiSimilarity, make_loss
from sapbert.training.alignment.mining import HardPairs, MiningSettings
from sapbert.training.settings import LossName
from tests.training.alignment.mined import (
    BATCHES,
    Batch,
    a_batch,
    library,
    pairs_of_labels,
    value_and_gradient,
)

NAMES: tuple[LossName, ...] = get_args(LossName)
every_loss = pytest.mark.parametrize("name", NAMES)


Row = dict[int, float]
"""Cosines of an anchor, by reference."""


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
def test_each_loss_equals_its_formula_over_the_mined_pairs(name: LossName, seed: int) -> None:
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


def test_over_all_pairs_the_nca_loss_equals_that_of_the_library() -> None:
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
def test_a_batch_without_hard_pairs_has_zero_loss_and_gradient(name: LossName, labels: list[int]) -> None:
    batch = a_batch(labels, spread=0.001)
    assert batch.pairs().counts() == (0, 0)

    value, gradient = value_and_gradient(batch.loss(make_loss(name)), batch.vectors)

    assert value.item() == 0
    assert torch.equal(gradient, torch.zeros_like(batch.vectors))


@every_loss
def test_a_batch_of_one_concept_works_without_mining(name: LossName) -> None:
    batch = a_batch([0] * 6)

    value, gradient = value_and_gradient(
        batch.loss(make_loss(name), MiningSettings(triplets="off")), batch.vectors
    )

    assert value.isfinite()
    assert gradient.isfinite().all()


@every_loss
def test_ambiguous_names_are_not_pushed_apart(name: LossName) -> None:
    # Names 0 and 1 have the same vector: as negatives they would raise every loss.
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
def test_nan_vectors_give_a_nan_loss(name: LossName) -> None:
    batch = a_batch([i // 2 for i in range(24)])
    broken = Batch(batch.vectors * math.nan, batch.labels, batch.positives, batch.negatives)

    assert broken.loss(make_loss(name)).isnan()


def test_the_lifted_structure_loss_needs_all_names_as_anchors() -> None:
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
def test_losses_implemented_here_need_no_library(name: LossName, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = a_batch([i // 2 for i in range(24)])
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning.losses", None)

    assert batch.loss(make_loss(name)).item() > 0


def test_parameters_replace_the_defaults() -> None:
    assert make_loss("ms", {"negative_scale": 50, "positive_scale": 2}) == MultiSimilarity.of_table_9()


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("ms", {"negative_scales": 50.0}, "did you mean 'negative_scale'?"),
        ("cosine", {"margin": 0.1}, "the cosine loss has no settings, got 'margin'"),
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
