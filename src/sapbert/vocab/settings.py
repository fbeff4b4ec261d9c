"""Settings shared by the vocabulary stage; imports nothing heavy, so `--help` is fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from sapbert.errors import ConfigError
from sapbert.options import Option

Format = Literal["tsv", "csv", "jsonl", "parquet", "biosyn"]
"""File formats of a table of names."""
OnError = Literal["stop", "skip"]
"""What to do with a bad row: stop with an error, or skip and count it."""
Trust = Literal["one-to-one", "any"]
"""Which cross-references join concepts: one-to-one references between two vocabularies, or all."""
SCOPES = ("exact", "related", "narrow", "broad")
"""How a name relates to its concept, in OBO's terms; `exact` if the source does not say."""
RELATIONS = ("is_a", "part_of", "broader")
"""How a concept relates to its parent; `broader` if the source does not say."""
KINDS = ("", "synonym", "abbreviation", "brand", "lay", "spelling", "translation")
"""Kinds of names: empty for a name of the vocabulary itself, `synonym` for one of another vocabulary that is
of no other kind."""
OWN = "own"
"""Stands for the empty kind in filters and counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSettings:
    """How vocabularies are merged; every field is also an option of `sapbert merge`."""

    trust: Trust = "one-to-one"
    """`one-to-one` never joins two concepts with the same prefix; `any` accepts every cross-reference."""
    max_cluster: Annotated[int, Option(min=2)] = 20
    """Maximum number of concepts joined into one; larger clusters are not joined."""

    def __post_init__(self) -> None:
        if self.max_cluster < 2:
            raise ConfigError(f"max_cluster is at least 2, got {self.max_cluster}; 2 joins only pairs")
