"""Rankers with given weights."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sapbert.linking.fusion.features import FEATURES
from sapbert.linking.fusion.ranker import FusionRanker, Layers
from sapbert.linking.fusion.words import WordTable


def ranker_of(weights: Mapping[str, float], *, bias: float = 0.0, encoder: str = "") -> FusionRanker:
    """Create a linear ranker from the weights of some features."""
    direct = np.array([weights.get(name, 0.0) for name in FEATURES], np.float32)
    hidden = np.zeros((len(FEATURES), 1), np.float32)
    zero = np.zeros(1, np.float32)
    return FusionRanker(
        WordTable.of({}), Layers(hidden, zero, zero, direct, np.array([bias], np.float32)), encoder
    )
