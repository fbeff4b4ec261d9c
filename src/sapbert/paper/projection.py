"""Project names of a few concepts to two dimensions with t-SNE: the data of Fig. 1 of the paper.

All models project the same names, and every concept has the same number of names, so that no concept
dominates the figure. t-SNE preserves neighbours but distorts distances, so a figure alone proves little.
Therefore the share of names whose nearest neighbour is of the same concept is computed from the vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.manifold import TSNE

from sapbert.artifacts import kind_with_article, load_manifest
from sapbert.errors import ArtifactError, ConfigError
from sapbert.pairs.artifact import KIND as PAIRS
from sapbert.pairs.artifact import Pairs
from sapbert.paper.settings import ProjectionSettings
from sapbert.protocols import Encoder
from sapbert.text import fold
from sapbert.vocab.vocabulary import Vocabulary
from sapbert.vocab.writer import KIND as VOCABULARY

_EXACT_LIMIT = 800
"""Use exact t-SNE for at most this many names."""


@dataclass(frozen=True, slots=True)
class NameSample:
    """Names of some concepts, grouped by concept."""

    ids: tuple[str, ...]
    labels: tuple[str, ...]
    """Label of each concept."""
    names: tuple[str, ...]
    """Folded."""
    concepts: NDArray[np.int64]
    """Number of the concept of each name.  # (names,)"""


@dataclass(frozen=True, slots=True)
class Projection:
    """The names of a sample projected by one model."""

    points: NDArray[np.float64]
    """Between 0 and 1.  # (names, 2)"""
    nearest: float
    """Share of names whose nearest other name, by cosine, is of the same concept."""


def sample_names(path: Path, settings: ProjectionSettings) -> NameSample:
    """Draw random concepts and their names from a vocabulary or from pairs."""
    kind = load_manifest(path, verify=False).kind
    if kind not in _READERS:
        raise ArtifactError(f"{path} is {kind_with_article(kind)}; expected a vocabulary or pairs")
    concepts = _READERS[kind](path, settings)
    rng = np.random.default_rng(settings.seed)
    drawn = [sorted(rng.permutation(names)[: settings.names].tolist()) for _, _, names in concepts]
    return NameSample(
        tuple(concept for concept, _, _ in concepts),
        tuple(label for _, label, _ in concepts),
        tuple(name for names in drawn for name in names),
        np.repeat(np.arange(len(drawn)), [len(names) for names in drawn]),
    )


def project(sample: NameSample, encoder: Encoder, settings: ProjectionSettings) -> Projection:
    """Encode the names of a sample and project them."""
    vectors = encoder.encode(sample.names)  # (names, dimension)
    most = (len(vectors) - 1) / 3  # With a higher perplexity, t-SNE treats all names as neighbours.
    # Barnes-Hut is only faster for many names; with a hundred, the exact method takes a seventh of the time.
    tsne = TSNE(
        perplexity=min(settings.perplexity, most),
        init="pca",
        method="exact" if len(vectors) <= _EXACT_LIMIT else "barnes_hut",
        random_state=settings.seed,
    )
    points = tsne.fit_transform(vectors).astype(np.float64)
    low, high = points.min(axis=0), points.max(axis=0)
    extent = max(float((high - low).max()), 1e-9)
    return Projection(
        (points - (low + high) / 2) / extent + 0.5, nearest_neighbour_share(vectors, sample.concepts)
    )


def nearest_neighbour_share(vectors: NDArray[np.float32], concepts: NDArray[np.int64]) -> float:
    """Return the share of unit vectors whose nearest other vector is of the same concept."""
    cosines = vectors @ vectors.T  # (names, names)
    np.fill_diagonal(cosines, -np.inf)
    return float((concepts[cosines.argmax(axis=1)] == concepts).mean())


_ConceptNames = list[tuple[str, str, list[str]]]
"""Identifier, label and folded names of each concept."""


def _from_vocabulary(path: Path, settings: ProjectionSettings) -> _ConceptNames:
    vocabulary = Vocabulary.open(path)
    spellings = pl.col("name").str.to_lowercase().n_unique()
    large = vocabulary.names.group_by("concept_id").agg(spellings).filter(pl.col("name") >= settings.names)
    eligible = large.select("concept_id").sort("concept_id").collect(engine="streaming").to_series()
    chosen = eligible[_choose(len(eligible), path, settings)]
    rows = vocabulary.names.filter(pl.col("concept_id").is_in(chosen.implode())).collect()
    label_first = rows.sort(
        pl.col("preferred"), pl.col("language") == "en", descending=True, maintain_order=True
    )
    grouped = label_first.group_by("concept_id").agg("name").sort("concept_id")
    return [
        (concept, names[0], list(dict.fromkeys(map(fold, names)))) for concept, names in grouped.iter_rows()
    ]


def _from_pairs(path: Path, settings: ProjectionSettings) -> _ConceptNames:
    pairs = Pairs.open(path)
    counts = np.bincount(pairs.concepts)
    eligible = np.flatnonzero(counts >= settings.names)
    chosen = eligible[_choose(len(eligible), path, settings)]
    starts = np.searchsorted(pairs.concepts, chosen)
    concepts = []
    for concept, start in zip(chosen.tolist(), starts.tolist(), strict=True):
        names = pairs.names.span(start, start + int(counts[concept]))
        # Pairs have no preferred name. The shortest name is often an abbreviation, the longest a sentence.
        label = sorted(names, key=len)[len(names) // 2]
        concepts.append((pairs.concept_ids[concept], label, names))
    return concepts


def _choose(eligible: int, path: Path, settings: ProjectionSettings) -> list[int]:
    """Choose random numbers of eligible concepts, in ascending order."""
    if eligible < settings.concepts:
        raise ConfigError(
            f"{path}: only {eligible} concepts have {settings.names} names or more, expected "
            f"{settings.concepts}; use fewer concepts or fewer names per concept"
        )
    rng = np.random.default_rng(settings.seed)
    return sorted(rng.choice(eligible, settings.concepts, replace=False).tolist())


_READERS = {VOCABULARY: _from_vocabulary, PAIRS: _from_pairs}
