"""Settings of the paper's figures, which are options of `plot` and `reproduce`; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from sapbert.errors import ConfigError
from sapbert.options import Option

MAX_CONCEPTS = 56
"""Marker styles a reader can distinguish: seven colours times eight shapes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionSettings:
    """Which names are projected, and how."""

    concepts: int = 14
    """Number of concepts, from 2 to 56."""
    names: Annotated[int, Option(min=2)] = 8
    """Names per concept; concepts with fewer names are not drawn."""
    perplexity: Annotated[float, Option(min=1)] = 15
    """Perplexity of t-SNE: the effective number of neighbours of a name."""
    seed: Annotated[int, Option(min=0)] = 33
    """Random seed; the same seed selects the same names for every model."""

    def __post_init__(self) -> None:
        if not 2 <= self.concepts <= MAX_CONCEPTS:
            raise ConfigError(f"concepts must be from 2 to {MAX_CONCEPTS}, got {self.concepts}")
        if self.names < 2:
            raise ConfigError(f"names must be at least 2 per concept, got {self.names}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilaritySettings:
    """Which batches are sampled, and how they are mined."""

    batches: Annotated[int, Option(min=1)] = 20
    """Number of batches to encode."""
    batch_size: Annotated[int, Option(min=2)] = 256
    """Pairs per batch."""
    margin: float = 0.2
    """Margin of mining: a triplet is kept unless its negative is farther than its positive by this much."""
    seed: Annotated[int, Option(min=0)] = 33
    """Random seed; the same seed selects the same batches for every model."""
