"""Names of a few concepts laid out in the plane: the numbers of the paper's Fig. 1.

All models lay out the same names, and each concept has the same number of them, so that no concept fills the
picture. t-SNE keeps neighbours and bends distances, so a picture alone proves little: how many names have
a name of their own concept nearest is counted before anything is bent.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.manifold import TSNE

from sapbert.artifacts import load_manifest
from sapbert.errors import ArtifactError, ConfigError
from sapbert.pairs.artifact import KIND as PAIRS
from sapbert.pairs.artifact import Pairs
from sapbert.paper.settings import ProjectionSettings
from sapbert.protocols import Encoder
from sapbert.text import fold
from sapbert.vocab.vocabulary import Vocabulary
from sapbert.vocab.writer import KIND as VOCABULARY

_EXACT = 800


@dataclass(frozen=True, slots=True)
class NameSample:
    """Names of some concepts, those of a concept together."""

    ids: tuple[str, ...]
    labels: tuple[str, ...]
    """What each concept is called."""
    names: tuple[str, ...]
    """Folded."""
    concepts: NDArray[np.int64]
    """The number of each name's concept.  # (names,)"""


@dataclass(frozen=True, slots=True)
class Projection:
    """How one model lays the names of a sample out."""

    points: NDArray[np.float64]
    """Between 0 and 1.  # (names, 2)"""
    nearest: float
    """The share of names whose nearest other name, by cosine, is of the same concept."""


def sample_names(path: Path, settings: ProjectionSettings) -> NameSample:
    """Draw concepts and names of them from a vocabulary or from pairs."""
    kind = load_manifest(path, verify=False).kind
    if kind not in _READERS:
        raise ArtifactError(
            f"{path} is an artifact of kind {kind}; names come from a vocabulary or from pairs"
        )
    found = _READERS[kind](path, settings)
    rng = np.random.default_rng(settings.seed)
    drawn = [sorted(rng.permutation(names)[: settings.names].tolist()) for _, _, names in found]
    return NameSample(
        tuple(concept for concept, _, _ in found),
        tuple(label for _, label, _ in found),
        tuple(name for names in drawn for name in names),
        np.repeat(np.arange(len(drawn)), [len(names) for names in drawn]),
    )


def project(sample: NameSample, encoder: Encoder, settings: ProjectionSettings) -> Projection:
    """Lay the names of a sample out as an encoder sees them."""
    vectors = encoder.encode(sample.names)  # (names, dimension)
    most = (len(vectors) - 1) / 3  # beyond it t-SNE takes all names for neighbours
    # Approximate forces pay off for many names alone: of a hundred, exact ones take a seventh of the time.
    tsne = TSNE(
        perplexity=min(settings.perplexity, most),
        init="pca",
        method="exact" if len(vectors) <= _EXACT else "barnes_hut",
        random_state=settings.seed,
    )
    points = tsne.fit_transform(vectors).astype(np.float64)
    low, high = points.min(axis=0), points.max(axis=0)
    extent = max(float((high - low).max()), 1e-9)
    return Projection(
        (points - (low + high) / 2) / extent + 0.5, nearest_neighbour_share(vectors, sample.concepts)
    )


def nearest_neighbour_share(vectors: NDArray[np.float32], concepts: NDArray[np.int64]) -> float:
    """Return the share of unit vectors whose nearest other one is of the same concept."""
    cosines = vectors @ vectors.T  # (names, names)
    np.fill_diagonal(cosines, -np.inf)
    return float((concepts[cosines.argmax(axis=1)] == concepts).mean())


_Found = list[tuple[str, str, list[str]]]
"""Identifier, label and folded names of each concept."""


def _from_vocabulary(path: Path, settings: ProjectionSettings) -> _Found:
    vocabulary = Vocabulary.open(path)
    spellings = pl.col("name").str.to_lowercase().n_unique()
    large = vocabulary.names.group_by("concept_id").agg(spellings).filter(pl.col("name") >= settings.names)
    eligible = large.select("concept_id").sort("concept_id").collect(engine="streaming").to_series()
    chosen = eligible[_choose(len(eligible), path, settings)]
    rows = vocabulary.names.filter(pl.col("concept_id").is_in(chosen.implode())).collect()
    shown_first = rows.sort(
        pl.col("preferred"), pl.col("language") == "en", descending=True, maintain_order=True
    )
    grouped = shown_first.group_by("concept_id").agg("name").sort("concept_id")
    return [
        (concept, names[0], list(dict.fromkeys(map(fold, names)))) for concept, names in grouped.iter_rows()
    ]


def _from_pairs(path: Path, settings: ProjectionSettings) -> _Found:
    pairs = Pairs.open(path)
    counts = np.bincount(pairs.concepts)
    eligible = np.flatnonzero(counts >= settings.names)
    chosen = eligible[_choose(len(eligible), path, settings)]
    starts = np.searchsorted(pairs.concepts, chosen)
    found = []
    for concept, start in zip(chosen.tolist(), starts.tolist(), strict=True):
        names = pairs.names.span(start, start + int(counts[concept]))
        # Pairs know no preferred name; the shortest is often an abbreviation, the longest a sentence.
        label = sorted(names, key=len)[len(names) // 2]
        found.append((pairs.concept_ids[concept], label, names))
    return found


def _choose(eligible: int, path: Path, settings: ProjectionSettings) -> list[int]:
    """Choose concepts by their place."""
    if eligible < settings.concepts:
        raise ConfigError(
            f"{path}: {eligible} concepts have {settings.names} names or more, not {settings.concepts}; "
            "ask for fewer concepts or fewer names of each"
        )
    rng = np.random.default_rng(settings.seed)
    return sorted(rng.choice(eligible, settings.concepts, replace=False).tolist())


_READERS = {VOCABULARY: _from_vocabulary, PAIRS: _from_pairs}
