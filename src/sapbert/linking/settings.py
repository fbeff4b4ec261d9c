"""Settings of linking and calibration: every field is also a command-line option.

This module imports nothing heavy, so `--help` is fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from sapbert.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """How mentions are linked; every field is also an option of `sapbert link`."""

    k: int = 5
    """Candidates per mention."""
    exact: bool = True
    """Rank names that equal the mention (ignoring case and spacing) before all others."""
    threshold: float | None = None
    """Leave out candidates with a lower score; a mention without candidates is NIL."""
    types: tuple[str, ...] = ()
    """Only concepts of one of these types."""
    sources: tuple[str, ...] = ()
    """Only names from one of these sources."""
    prefixes: tuple[str, ...] = ()
    """Only concepts whose identifier has one of these prefixes, such as mesh."""

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ConfigError(f"k is the number of candidates per mention, at least 1, got {self.k}")
        if self.threshold is not None and not -1 <= self.threshold <= 1:
            raise ConfigError(f"threshold is a cosine between -1 and 1, got {self.threshold}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkerSettings:
    """How a linker is opened; every field is also an option of `sapbert link`."""

    calibration: Path | None = None
    """Calibration written by `sapbert calibrate`; adds a confidence to the best candidate."""
    sparse_weight: float | None = None
    """Weight of the n-gram score relative to the dense score, in a hybrid index."""
    reranker: str | None = None
    """Reranker that reorders the candidates: a folder written by `sapbert export`, or MODULE:ATTRIBUTE."""
    labelled_mentions: Path | None = None
    """TSV with columns mention and concept_ids; its mentions are matched like names of their concepts."""
    labelled_prefix: str | None = None
    """Prefix for identifiers in the labelled mentions that have none."""
    threads: int | None = None
    """Threads for encoding and search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSettings:
    """Which columns of the input are used, and how; every field is also an option of `sapbert link`."""

    column: str | None = None
    """Column with the mentions."""
    context_column: str | None = None
    """Column with the text around the mention, for a reranker."""
    document_column: str | None = None
    """Column with the text of the document; abbreviations that it defines are expanded in the mention."""
    split_composites: bool = False
    """Link a composite mention such as 'breast and ovarian cancer' as two mentions."""


class Method(StrEnum):
    """Curve that maps scores to confidence."""

    AUTO = "auto"
    PLATT = "platt"
    ISOTONIC = "isotonic"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrateSettings:
    """What is fitted; every field is also an option of `sapbert calibrate`."""

    method: Method = Method.AUTO
    """Curve from score to confidence; auto selects the better one on held-out mentions."""
    precision: float | None = None
    """Target precision: answers with a confidence too low to reach it become NIL."""
    exact: bool = True
    """Rank names that equal the mention (ignoring case and spacing) before all others."""
    sparse_weight: float | None = None
    """Weight of the n-gram score relative to the dense score, in a hybrid index; fitted if not given."""

    def __post_init__(self) -> None:
        if self.precision is not None and not 0 < self.precision <= 1:
            raise ConfigError(
                f"precision is a fraction above 0 and at most 1, got {self.precision}; 0.95 means 95%"
            )
