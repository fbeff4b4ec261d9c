"""The fusion ranker: one hidden layer over the features of a candidate, then a softmax over the candidates.

The softmax has one more outcome, that no candidate is right, whose logit is 0. So the score of a candidate is
the probability that it is right, as far as the mentions of the fit are like those to be linked; a calibration
corrects the rest. Parameters are a few hundred numbers in JSON, and numpy suffices to evaluate them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from sapbert.linking.fusion.features import FEATURES, features
from sapbert.linking.fusion.words import WordTable
from sapbert.protocols import RerankRequest

Floats = NDArray[np.float32]
RANK_DEPTH: Final = 50
"""Candidates per mention that are ranked, or k if it is larger."""
_DECIMALS: Final = 5


@dataclass(frozen=True, slots=True)
class Layers:
    """Weights of the network: `tanh(x @ hidden + hidden_bias) @ output + x @ direct + bias`."""

    hidden: Floats
    """# (features, units)"""
    hidden_bias: Floats
    output: Floats
    """# (units,)"""
    direct: Floats
    """# (features,)"""
    bias: Floats
    """# (1,)"""

    def logits(self, table: Floats) -> Floats:
        """Return the logit of each row.  # table: (names, features)"""
        units = np.tanh(table @ self.hidden + self.hidden_bias)
        logits: Floats = units @ self.output + table @ self.direct + self.bias
        return logits


@dataclass(frozen=True, slots=True)
class FusionRanker:
    """Orders the candidates of mentions; implements `protocols.Reranker`."""

    words: WordTable
    layers: Layers
    encoder: str = ""
    """Fingerprint of the encoder of the fit; the scores of another differ."""
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        content = json.dumps(self.parameters(), sort_keys=True).encode()
        object.__setattr__(self, "fingerprint", hashlib.blake2b(content, digest_size=16).hexdigest())

    def rerank(self, requests: Sequence[RerankRequest]) -> list[Floats]:
        """Return the probability of each candidate of each request.  # (names,) each"""
        counts = np.array([len(request.names) for request in requests], np.int64)
        logits = self.layers.logits(features(requests, self.words))
        return np.split(probabilities(logits, counts), np.cumsum(counts)[:-1])

    def parameters(self) -> dict[str, Any]:
        """Return the JSON parameters from which `load` restores the ranker."""
        layers = {
            name: np.asarray(getattr(self.layers, name), np.float64).round(_DECIMALS).tolist()
            for name in Layers.__slots__
        }
        return {
            "encoder": self.encoder,
            "features": list(FEATURES),
            "words": dict(self.words.words),
            **layers,
        }

    @classmethod
    def load(cls, parameters: Mapping[str, Any]) -> Self:
        """Restore a ranker from its `parameters`; raise `ValueError` if they are of another version."""
        if tuple(parameters["features"]) != FEATURES:
            raise ValueError("the ranker has other features than this version")
        arrays = {name: np.array(parameters[name], np.float32) for name in Layers.__slots__}
        layers = Layers(**arrays)
        units = len(layers.output)
        expected = {
            "hidden": (len(FEATURES), units),
            "hidden_bias": (units,),
            "output": (units,),
            "direct": (len(FEATURES),),
            "bias": (1,),
        }
        for name, shape in expected.items():
            if arrays[name].shape != shape or not np.isfinite(arrays[name]).all():
                raise ValueError(f"{name} of the ranker is not an array of {shape} numbers")
        words = {str(word): float(weight) for word, weight in parameters["words"].items()}
        return cls(WordTable.of(words), layers, str(parameters["encoder"]))


def probabilities(logits: Floats, counts: NDArray[np.int64]) -> Floats:
    """Return the softmax of the logits of each mention and of a logit of 0.  # logits: (names,)"""
    owner = np.repeat(np.arange(len(counts)), counts)
    largest = np.zeros(len(counts), np.float32)
    np.maximum.at(largest, owner, logits)
    shares = np.exp(logits - largest[owner])
    totals = np.bincount(owner, shares, len(counts)) + np.exp(-largest)
    result: Floats = (shares / totals[owner]).astype(np.float32)
    return result
