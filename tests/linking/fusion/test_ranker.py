"""The ranker: what it learns, and how it is stored."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from sapbert.linking.fusion import fit
from sapbert.linking.fusion.features import FEATURES
from sapbert.linking.fusion.fit import LabelledRequest, TrainingSet, fit_ranker, training_set, word_weights
from sapbert.linking.fusion.ranker import FusionRanker, probabilities
from sapbert.linking.fusion.words import WordTable
from sapbert.protocols import RerankRequest

NAMES = ("asthma", "bronchitis", "migraine", "psoriasis", "eczema", "cataract")
WORDS = WordTable.of({})


def misspelt(number: int) -> LabelledRequest:
    """A misspelt name whose candidates the search has in the wrong order."""
    word = NAMES[number % len(NAMES)]
    mention = word[: 3 + number % 3] + "x" + word[4 + number % 3 :]
    others = tuple(name for name in NAMES if name != word)
    return LabelledRequest(
        RerankRequest(mention, (*others, word), tuple(0.9 - 0.01 * place for place in range(len(NAMES)))),
        (*(False for _ in others), True),
    )


def unanswerable(number: int) -> LabelledRequest:
    request = RerankRequest(f"zq{number}", NAMES, tuple(0.9 - 0.01 * place for place in range(len(NAMES))))
    return LabelledRequest(request, (False,) * len(NAMES))


@pytest.fixture(scope="module")
def ranker() -> FusionRanker:
    groups = [[misspelt(number) for number in range(30)], [unanswerable(number) for number in range(10)]]
    data = TrainingSet.join([training_set(group, WORDS) for group in groups])
    return fit_ranker(data, WORDS, epochs=60)


def test_the_ranker_prefers_the_similar_name_to_the_order_of_the_search(ranker: FusionRanker) -> None:
    example = misspelt(31)
    [scores] = ranker.rerank([example.request])
    assert int(np.argmax(scores)) == example.correct.index(True)
    assert scores.max() > 0.8


def test_the_probability_is_low_if_no_name_is_similar(ranker: FusionRanker) -> None:
    [scores] = ranker.rerank([unanswerable(77).request])
    assert scores.sum() < 0.3


def test_the_same_data_and_seed_give_the_same_ranker() -> None:
    data = training_set([misspelt(number) for number in range(10)], WORDS)
    assert fit_ranker(data, WORDS, epochs=2).fingerprint == fit_ranker(data, WORDS, epochs=2).fingerprint


def test_scores_of_a_stored_ranker_are_equal(ranker: FusionRanker) -> None:
    stored = FusionRanker.load(json.loads(json.dumps(ranker.parameters())))
    assert stored.fingerprint == ranker.fingerprint
    [expected], [scores] = (each.rerank([misspelt(3).request]) for each in (ranker, stored))
    np.testing.assert_allclose(scores, expected, atol=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": ["score"]}, "other features"),
        ({"output": [1.0]}, "hidden"),
        ({"bias": [float("nan")]}, "bias"),
        ({"direct": [1.0]}, "direct"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(
    ranker: FusionRanker, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        FusionRanker.load({**ranker.parameters(), **change})


def test_probabilities_are_a_softmax_with_a_logit_of_zero() -> None:
    logits = np.array([1.0, -2.0, 1000.0], np.float32)
    expected = np.exp([1, -2]) / (1 + np.exp([1, -2]).sum())
    result = probabilities(logits, np.array([2, 0, 1]))
    np.testing.assert_allclose(result, [*expected, 1], rtol=1e-6)


def test_the_gradient_is_that_of_the_loss() -> None:
    data = TrainingSet.join(
        [training_set([misspelt(1), unanswerable(2)], WORDS), training_set([misspelt(3)], WORDS)]
    )
    parameters = fit._initial(np.random.default_rng(1))

    def loss(changed: dict[str, Any]) -> float:
        units = np.tanh(data.table @ changed["hidden"] + changed["hidden_bias"])
        logits = units @ changed["output"] + data.table @ changed["direct"] + changed["bias"]
        shares = probabilities(logits, data.counts).astype(np.float64)
        owner = np.repeat(np.arange(len(data.counts)), data.counts)
        right = np.bincount(owner, shares * data.correct)
        none = 1 - np.bincount(owner, shares)
        answered = np.bincount(owner, data.correct) > 0
        return float(np.mean(data.weights * -np.log(np.where(answered, right, none))))

    gradients = fit._gradients(parameters, data)
    for name, place in [("hidden", (0, 3)), ("hidden_bias", (2,)), ("output", (5,)), ("bias", (0,))]:
        changed = {key: array.astype(np.float64) for key, array in parameters.items()}
        changed[name][place] += 1e-3
        above = loss(changed)
        changed[name][place] -= 2e-3
        slope = (above - loss(changed)) / 2e-3
        assert gradients[name][place] == pytest.approx(slope, rel=0.02, abs=1e-4)


def test_common_words_weigh_less() -> None:
    words = word_weights(["kidney disease", "Crohn Disease", "disease, heart", "asthma"], common=2).words
    assert list(words) == ["disease", "asthma"]
    assert words["disease"] < words["asthma"] < 1


def test_features_are_named_once() -> None:
    assert len(set(FEATURES)) == len(FEATURES)
