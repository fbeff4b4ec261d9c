"""Rankers of encoders that are given by name, with cached vectors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from sapbert.artifacts import fingerprint_of
from sapbert.cache import cache_folder
from sapbert.encoder.open import open_encoder
from sapbert.errors import ConfigError
from sapbert.evaluation import rankers
from sapbert.evaluation.rankers import RankerFactory
from sapbert.evaluation.vector_cache import CachedEncoder


def require_distinct(fingerprint: str, model: str, evaluated: dict[str, str]) -> None:
    """Raise if an encoder is a copy of one that was already evaluated as another seed."""
    if fingerprint in evaluated:
        raise ConfigError(f"{model} and {evaluated[fingerprint]} are the same encoder, not two seeds of one")
    evaluated[fingerprint] = model


def model_ranker(
    model: str,
    cache: Path | None,
    progress: Callable[[int, int], None] | None = None,
    sparse_weight: float | None = None,
) -> tuple[str, RankerFactory]:
    """Open a model with cached vectors; returns the fingerprint of its ranker, and what builds the ranker.

    `progress` is called with the names encoded and the names to encode. Without `sparse_weight` the n-gram
    score has the weight that the model has learned.
    """
    opened = open_encoder(model)
    encoder = CachedEncoder(opened, cache or cache_folder() / "vectors", progress=progress)
    weight = opened.sparse_weight if sparse_weight is None else sparse_weight
    if not weight:
        return encoder.fingerprint, partial(rankers.EncoderRanker, encoder=encoder)
    parts = {"encoder": encoder.fingerprint, "sparse_weight": repr(weight)}
    build = partial(rankers.HybridRanker, encoder=encoder, weight=weight)
    return fingerprint_of(parts), build
