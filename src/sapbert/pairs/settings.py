"""Settings for drawing pairs, which are the options of `sapbert pairs`; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Annotated

from sapbert.errors import ConfigError
from sapbert.options import Option


class Languages(StrEnum):
    """Which names of a concept may be paired."""

    ANY = "any"
    WITHIN = "within"
    """Only names of the same language."""
    ACROSS = "across"
    """Only names of different languages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSettings:
    """How pairs are drawn; every field is also an option of `sapbert pairs`."""

    limit: Annotated[int, Option(min=1)] = 50
    """Maximum number of pairs per concept."""
    seed: Annotated[int, Option(min=0)] = 33
    """Random seed; the same vocabulary and seed give the same pairs."""
    languages: Languages = Languages.ANY
    """Pair names of any languages, within one language, or across languages."""
    weights: Annotated[Mapping[str, float], Option(metavar="SOURCE=NUMBER")] = field(default_factory=dict)
    """How often pairs with a name from this source are drawn: 2 is twice, 0.25 every fourth pair; other
    sources have weight 1. A pair of two sources has the larger weight."""

    def __post_init__(self) -> None:
        for source, weight in self.weights.items():
            if not 0 <= weight < inf:
                raise ConfigError(
                    f"the weight of source {source} must be at least 0 and finite, got {weight}"
                )
        if self.limit < 1:
            raise ConfigError(f"limit must be at least 1 pair per concept, got {self.limit}")
        if not 0 <= self.seed < 2**64:
            raise ConfigError(f"seed must be from 0 to 2**64 - 1, got {self.seed}")
