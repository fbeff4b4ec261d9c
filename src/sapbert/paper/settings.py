"""Settings of the paper's figures; imports nothing heavy, so `--help` is fast."""

from __future__ import annotations

from dataclasses import dataclass

from sapbert.errors import ConfigError

MOST_CONCEPTS = 56
"""Looks that can be told apart: seven colours by eight shapes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionSettings:
    """Which names are laid out, and how."""

    concepts: int = 14
    names: int = 8
    """Names of each concept; concepts with fewer are not drawn."""
    perplexity: float = 15
    """How many neighbours a name has in the eyes of t-SNE."""
    seed: int = 33
    """Same seed, same names for every model."""

    def __post_init__(self) -> None:
        if not 2 <= self.concepts <= MOST_CONCEPTS:
            raise ConfigError(f"from 2 to {MOST_CONCEPTS} concepts can be told apart, not {self.concepts}")
        if self.names < 2:
            raise ConfigError(f"a concept needs two names to lie together, got {self.names}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilaritySettings:
    """Which batches are looked at, and what mining keeps of them."""

    batches: int = 20
    batch_size: int = 256
    """Pairs a batch."""
    margin: float = 0.2
    """As in `MiningSettings`."""
    seed: int = 33
    """Same seed, same batches whatever the encoder."""
