"""How an index is made. Loads nothing, so that the command line can offer these choices at once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sapbert.errors import ConfigError

ANN_FROM = 20_000
"""Names from which codes are worth their small loss; below, an exact search takes some milliseconds."""


class Kind(StrEnum):
    """How an index searches."""

    FLAT = "flat"
    ANN = "ann"


class Precision(StrEnum):
    """How a component of a vector is stored."""

    FP32 = "fp32"
    FP16 = "fp16"
    INT8 = "int8"
    INT4 = "int4"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSettings:
    """How an index is made; every field but the last is also an option of `sapbert index`."""

    kind: Kind | None = None
    """Exact or by codes; by default as the number of names suggests."""
    precision: Precision | None = None
    """How vectors are stored; by default fp32 for flat and int8 for ann."""
    dimensions: int | None = None
    """Components of a vector that are stored, along axes that suit the names; by default all."""
    inverted: bool = True
    """Keep names such as `Infarction, Myocardial` of concepts that are also named without the comma."""
    hybrid: bool = False
    """Know spelling too, for `sapbert link --sparse-weight`."""
    sparse_weight: float = 0.0
    """What spelling counts unless linking is told otherwise: what the encoder learned with its vectors."""

    def __post_init__(self) -> None:
        if self.dimensions is not None and self.dimensions < 1:
            raise ConfigError(f"dimensions is a number of components, at least 1, got {self.dimensions}")

    def resolved(self, names: int) -> tuple[Kind, Precision]:
        """Decide what was left open."""
        kind = self.kind or (Kind.ANN if names >= ANN_FROM else Kind.FLAT)
        return kind, self.precision or (Precision.INT8 if kind is Kind.ANN else Precision.FP32)
