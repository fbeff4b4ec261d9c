"""Fit a fusion ranker on labelled mentions and their candidates.

The loss is the negative logarithm of the probability of the correct candidates, or of "none is right" if the
correct concept is not among them. It is minimized by Adam on batches of mentions. Each set of examples (a
corpus with its index) has the same weight, however many mentions it has, so that a ranker does not become one
for the largest corpus.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sapbert.linking.fusion.features import FEATURES, features
from sapbert.linking.fusion.ranker import FusionRanker, Layers, probabilities
from sapbert.linking.fusion.words import WordTable
from sapbert.protocols import RerankRequest

Floats = NDArray[np.float32]
UNITS: Final = 16
_EPOCHS: Final = 10
_BATCH: Final = 128
_RATE: Final = 0.03
_DECAY: Final = 0.02
"""Weight decay per unit of the learning rate."""
_COMMON_WORDS: Final = 1000
_WORD: Final = re.compile("[a-z]+")


class LabelledRequest(NamedTuple):
    """A mention with candidates, and which of them are right."""

    request: RerankRequest
    correct: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """Features and labels of the candidates of some mentions."""

    table: Floats
    """# (candidates, features)"""
    correct: NDArray[np.bool_]
    """# (candidates,)"""
    counts: NDArray[np.int64]
    """Candidates of each mention, at least 1.  # (mentions,)"""
    weights: Floats
    """# (mentions,)"""

    @classmethod
    def join(cls, parts: Sequence[TrainingSet]) -> TrainingSet:
        """Return the mentions of several sets, each with the same total weight."""
        shares = np.concatenate([np.full(len(part.counts), 1 / len(part.counts)) for part in parts])
        return cls(
            np.concatenate([part.table for part in parts]),
            np.concatenate([part.correct for part in parts]),
            np.concatenate([part.counts for part in parts]),
            (shares / shares.mean()).astype(np.float32),
        )

    def take(self, mentions: NDArray[np.int64]) -> TrainingSet:
        """Return some of the mentions."""
        starts = np.cumsum(self.counts) - self.counts
        counts = self.counts[mentions]
        ends = np.cumsum(counts)
        rows = np.arange(ends[-1]) + np.repeat(starts[mentions] - (ends - counts), counts)
        return TrainingSet(self.table[rows], self.correct[rows], counts, self.weights[mentions])


def word_weights(names: Iterable[str], common: int = _COMMON_WORDS) -> WordTable:
    """Return the inverse document frequency of the most common words of `names`, relative to a rare word."""
    frequency: Counter[str] = Counter()
    total = 0
    for name in names:
        frequency.update(set(_WORD.findall(name.casefold())))
        total += 1
    largest = np.log(max(total, 2))
    weights = {
        word: round(float(np.log((1 + total) / (1 + count)) / largest), 3)
        for word, count in sorted(frequency.items(), key=lambda item: (-item[1], item[0]))[:common]
    }
    return WordTable.of(weights)


def training_set(examples: Sequence[LabelledRequest], words: WordTable) -> TrainingSet:
    """Compute the features of labelled requests; those without candidates are left out."""
    examples = [example for example in examples if example.correct]
    return TrainingSet(
        features([example.request for example in examples], words),
        np.array([right for example in examples for right in example.correct], np.bool_),
        np.array([len(example.correct) for example in examples], np.int64),
        np.ones(len(examples), np.float32),
    )


def fit_ranker(
    data: TrainingSet, words: WordTable, *, encoder: str = "", epochs: int = _EPOCHS, seed: int = 0
) -> FusionRanker:
    """Fit a ranker; the same data and seed give the same ranker.

    `encoder` is the fingerprint of the encoder that computed the scores of the search.
    """
    generator = np.random.default_rng(seed)
    parameters = _initial(generator)
    moments = {name: (np.zeros_like(array), np.zeros_like(array)) for name, array in parameters.items()}
    mentions = len(data.counts)
    steps = epochs * -(-mentions // _BATCH)
    step = 0
    for _ in range(epochs):
        order = generator.permutation(mentions)
        for start in range(0, mentions, _BATCH):
            step += 1
            gradients = _gradients(parameters, data.take(order[start : start + _BATCH]))
            _adam(parameters, gradients, moments, step, _RATE * (1 - (step - 1) / steps))
    return FusionRanker(words, Layers(**parameters), encoder)


def _initial(generator: np.random.Generator) -> dict[str, Floats]:
    width = len(FEATURES)
    direct = np.zeros(width, np.float32)
    direct[FEATURES.index("lead")] = 10
    return {
        "hidden": generator.normal(0, width**-0.5, (width, UNITS)).astype(np.float32),
        "hidden_bias": np.zeros(UNITS, np.float32),
        "output": generator.normal(0, UNITS**-0.5, UNITS).astype(np.float32),
        "direct": direct,
        "bias": np.zeros(1, np.float32),
    }


def _gradients(parameters: dict[str, Floats], data: TrainingSet) -> dict[str, Floats]:
    """Return the gradient of the mean loss of some mentions."""
    table = data.table
    units = np.tanh(table @ parameters["hidden"] + parameters["hidden_bias"])
    logits = units @ parameters["output"] + table @ parameters["direct"] + parameters["bias"]
    error = _logit_gradient(logits, data)
    inner = np.outer(error, parameters["output"]) * (1 - units**2)
    return {
        "hidden": table.T @ inner,
        "hidden_bias": inner.sum(axis=0),
        "output": units.T @ error,
        "direct": table.T @ error,
        "bias": error.sum(keepdims=True),
    }


def _logit_gradient(logits: Floats, data: TrainingSet) -> Floats:
    """Return the derivative of the mean loss by each logit.  # (candidates,)"""
    owner = np.repeat(np.arange(len(data.counts)), data.counts)
    share = probabilities(logits, data.counts)
    right = share * data.correct
    total = np.bincount(owner, right, len(data.counts))[owner]
    # What the shares should be: those of the correct candidates, scaled to 1; all 0 if there is none.
    target = np.divide(right, total, out=np.zeros_like(right), where=total > 0)
    gradient: Floats = ((share - target) * data.weights[owner] / len(data.counts)).astype(np.float32)
    return gradient


def _adam(
    parameters: dict[str, Floats],
    gradients: dict[str, Floats],
    moments: dict[str, tuple[Floats, Floats]],
    step: int,
    rate: float,
) -> None:
    """Update parameters in place."""
    for name, gradient in gradients.items():
        first, second = moments[name]
        first += 0.1 * (gradient - first)
        second += 0.001 * (gradient**2 - second)
        mean, spread = first / (1 - 0.9**step), np.sqrt(second / (1 - 0.999**step))
        parameters[name] -= rate * (mean / (spread + 1e-8) + _DECAY * parameters[name])
