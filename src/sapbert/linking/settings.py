"""Settings of linking and calibration; imports nothing heavy, so `--help` is fast."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sapbert.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """How mentions are linked; every field is also an option of `sapbert link`."""

    exact: bool = True
    """A name equal after folding answers before the encoder does."""
    threshold: float | None = None
    """Candidates that score less are left out; a mention without any is NIL."""
    types: tuple[str, ...] = ()
    """Only concepts of one of these types."""
    sources: tuple[str, ...] = ()
    """Only names from one of these sources."""
    prefixes: tuple[str, ...] = ()
    """Only concepts whose identifier has one of these prefixes."""

    def __post_init__(self) -> None:
        if self.threshold is not None and not -1 <= self.threshold <= 1:
            raise ConfigError(f"threshold is a cosine between -1 and 1, got {self.threshold}")


class Method(StrEnum):
    """Which curve is fitted."""

    AUTO = "auto"
    PLATT = "platt"
    ISOTONIC = "isotonic"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrateSettings:
    """What is fitted; every field is also an option of `sapbert calibrate`."""

    method: Method = Method.AUTO
    """The curve from scores to confidence."""
    precision: float | None = None
    """Wanted share of right answers; what is less sure becomes NIL."""
    exact: bool = True
    """Names equal after folding answer first, as in `sapbert link`."""
    sparse_weight: float | None = None
    """What spelling counts beside vectors; not given, it is fitted where the index knows spelling."""

    def __post_init__(self) -> None:
        if self.precision is not None and not 0 < self.precision <= 1:
            raise ConfigError(
                f"precision is a share above 0 and up to 1, got {self.precision}; 0.95 means 95%"
            )
