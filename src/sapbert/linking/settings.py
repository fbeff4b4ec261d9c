"""Settings of linking and calibration, which are options of `link` and `calibrate`; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from numbers import Integral
from pathlib import Path
from typing import Annotated

from sapbert.errors import ConfigError
from sapbert.options import Option

MAX_K = 10_000
"""Most candidates per mention; memory is proportional to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """How mentions are linked; every field is also an option of `sapbert link`."""

    k: Annotated[int, Option(flags=("--k", "-k"), min=1, max=MAX_K)] = 5
    """Candidates per mention."""
    exact: bool = True
    """Rank names equal to the mention before all others; case and repeated spaces do not matter."""
    threshold: Annotated[float | None, Option(min=-1, max=1)] = None
    """Minimum score of a candidate; a mention without candidates is NIL."""
    language: Annotated[str | None, Option(metavar="CODE", default="that of the vocabulary")] = None
    """Language of preferred_name (ISO 639-1, such as `es`), if the vocabulary has a preferred name in it."""
    types: Annotated[tuple[str, ...], Option(flags=("--types",), metavar="TYPE")] = ()
    """Only concepts of this type."""
    sources: Annotated[tuple[str, ...], Option(flags=("--sources",), metavar="SOURCE")] = ()
    """Only names from this source."""
    kinds: Annotated[tuple[str, ...], Option(flags=("--kinds",), metavar="KIND")] = ()
    """Only names of this kind: `own` (of the vocabulary itself), synonym, abbreviation, brand, lay, spelling
    or translation."""
    prefixes: Annotated[tuple[str, ...], Option(flags=("--prefix",), metavar="PREFIX")] = ()
    """Only concepts whose id has this prefix, such as `mesh`."""
    within: Annotated[tuple[str, ...], Option(flags=("--within",), metavar="ID")] = ()
    """Only this concept and those below it."""
    exclude: Annotated[tuple[str, ...], Option(flags=("--exclude",), metavar="ID")] = ()
    """Neither this concept nor those below it."""
    back_off: Annotated[float | None, Option(min=0, max=1, metavar="CONFIDENCE")] = None
    """If no candidate has this confidence, answer with the closest ancestor that has; the confidences of the
    candidates below it add up. Needs a calibration with a ranker."""

    def __post_init__(self) -> None:
        if self.back_off is not None and not 0 <= self.back_off <= 1:
            raise ConfigError(f"back_off is a confidence between 0 and 1, got {self.back_off}")
        if not isinstance(self.k, Integral) or not 1 <= self.k <= MAX_K:
            raise ConfigError(f"k is a whole number from 1 to {MAX_K:,}, got {self.k}")
        if self.threshold is not None and not -1 <= self.threshold <= 1:
            raise ConfigError(f"threshold is a cosine between -1 and 1, got {self.threshold}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkerSettings:
    """How a linker is opened; every field is also an option of `sapbert link`."""

    calibration: Annotated[Path | None, Option(default="that of the bundled index")] = None
    """Calibration written by `sapbert calibrate`; adds a confidence to candidates."""
    sparse_weight: Annotated[
        float | None, Option(min=0, default="that of the calibration, else of the encoder, else 0")
    ] = None
    """Weight of the n-gram score relative to the dense score, in a hybrid index."""
    reranker: str | None = None
    """Rerank candidates: a reranker written by `sapbert export`, or MODULE:ATTRIBUTE, a Python object that
    implements `sapbert.protocols.Reranker`."""
    labelled_mentions: Annotated[Path | None, Option(flags=("--mentions",))] = None
    """TSV file of labelled mentions (columns mention, concept_ids), matched like names of their concepts."""
    labelled_prefix: Annotated[str | None, Option(flags=("--mentions-prefix",))] = None
    """Prefix for concept ids without one in --mentions, such as `mesh`."""
    threads: Annotated[int | None, Option(min=1, default="all cores")] = None
    """CPU threads of the encoder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSettings:
    """Which columns of the input are used, and how; every field is also an option of `sapbert link`."""

    column: Annotated[str | None, Option(metavar="COLUMN", default="mention")] = None
    """Column of --file with the mentions."""
    context_column: Annotated[str | None, Option(metavar="COLUMN")] = None
    """Column of --file with the text around the mention, for --reranker."""
    document_column: Annotated[str | None, Option(metavar="COLUMN")] = None
    """Column of --file with the text of the document; abbreviations it defines are expanded in mentions."""
    split_composites: bool = False
    """Link a composite mention such as 'breast and ovarian cancer' as two mentions."""


class Method(StrEnum):
    """Curve from scores to confidence."""

    AUTO = "auto"
    PLATT = "platt"
    ISOTONIC = "isotonic"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrateSettings:
    """What is fitted; every field is also an option of `sapbert calibrate`."""

    method: Method = Method.AUTO
    """Curve from scores to confidence; `auto` selects the one with the lower error on held-out mentions."""
    precision: float | None = None
    """Target precision: answers below the confidence that reaches it become NIL."""
    exact: bool = True
    """Rank names equal to the mention before all others; case and repeated spaces do not matter."""
    sparse_weight: Annotated[float | None, Option(min=0, default="fitted for a hybrid index")] = None
    """Weight of the n-gram score relative to the dense score."""
    ranker: bool = False
    """Fit a ranker too, which orders the nearest concepts; takes about 1,000 mentions or more."""

    def __post_init__(self) -> None:
        if self.precision is not None and not 0 < self.precision <= 1:
            raise ConfigError(
                f"precision is a fraction above 0 and at most 1, got {self.precision}; 0.95 means 95%"
            )
