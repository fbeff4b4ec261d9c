"""Settings for drawing pairs; imports nothing heavy, so `sapbert pairs --help` is fast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from sapbert.errors import ConfigError


class Languages(StrEnum):
    """Which names of a concept may be paired."""

    ANY = "any"
    WITHIN = "within"
    """Only names of one language."""
    ACROSS = "across"
    """Only names of different languages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSettings:
    """How pairs are drawn; every field is also an option of `sapbert pairs`."""

    limit: int = 50
    """Most pairs drawn from one concept."""
    seed: int = 33
    """Same vocabulary and seed, same pairs."""
    languages: Languages = Languages.ANY
    """Pair names of any languages, only within one language, or only across languages."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """How often pairs with a name of a source come: 2 is twice, 0.25 every fourth; once where it is not told.
    A pair of two sources comes as often as the larger says."""

    def __post_init__(self) -> None:
        for source, weight in self.weights.items():
            if not 0 <= weight < inf:
                raise ConfigError(
                    f"the weight of {source} is how often its pairs come, at least 0, got {weight}"
                )
        if self.limit < 1:
            raise ConfigError(f"limit is the most pairs of a concept, at least 1, got {self.limit}")
        if not 0 <= self.seed < 2**64:
            raise ConfigError(f"seed is a number from 0 to 2**64 - 1, got {self.seed}")
