"""Settings of an index, which are the options of `sapbert index`; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from sapbert.errors import ConfigError
from sapbert.options import Option

ANN_FROM = 20_000
"""Number of names from which `ann` is the default; below it an exact search takes milliseconds."""


class Kind(StrEnum):
    """How an index searches."""

    FLAT = "flat"
    ANN = "ann"
    SIGNS = "signs"


class Precision(StrEnum):
    """Data type of the stored vectors."""

    FP32 = "fp32"
    FP16 = "fp16"
    INT8 = "int8"
    INT4 = "int4"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSettings:
    """How an index is built; every field but the last is also an option of `sapbert index`."""

    kind: Annotated[Kind | None, Option(default="by number of names")] = None
    """`flat` compares all vectors exactly; `ann` searches binary codes first (approximate); `signs` does the
    same with the signs of the stored vectors, which need no space."""
    precision: Annotated[Precision | None, Option(default="fp32 for flat, else int8")] = None
    """Precision of the stored vectors."""
    dimensions: Annotated[int | None, Option(min=1, default="all")] = None
    """Stored dimensions per vector, reduced by PCA on the names. Recall (`sapbert show`) is measured after
    the reduction, so it does not show what the reduction loses."""
    inverted: bool = True
    """Keep inverted names (`Infarction, Myocardial`) of concepts that also have the name without comma."""
    hybrid: Annotated[bool | None, Option(default="if the encoder was trained with it")] = None
    """Also index character n-grams, for `sapbert link --sparse-weight`."""
    sparse_weight: Annotated[float, Option(hidden=True)] = 0.0
    """Weight of the n-gram score relative to the dense score that linking uses by default: the weight that
    the encoder has learned."""

    def __post_init__(self) -> None:
        if self.dimensions is not None and self.dimensions < 1:
            raise ConfigError(f"dimensions must be at least 1, got {self.dimensions}")

    def resolved(self, names: int) -> tuple[Kind, Precision]:
        """Return kind and precision, with defaults for an index of so many names."""
        kind = self.kind or (Kind.ANN if names >= ANN_FROM else Kind.FLAT)
        return kind, self.precision or (Precision.FP32 if kind is Kind.FLAT else Precision.INT8)
