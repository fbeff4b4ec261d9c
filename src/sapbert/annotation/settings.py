"""Settings of annotation, which are options of `sapbert annotate`; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from sapbert.errors import ConfigError
from sapbert.options import Option


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotateSettings:
    """How texts are annotated; every field is also an option of `sapbert annotate`."""

    min_confidence: Annotated[float, Option(min=0, max=1)] = 0.5
    """Minimum confidence of an annotation."""
    nested: bool = True
    """Keep annotations inside longer ones; `--no-nested` keeps the longest of overlapping annotations."""
    abbreviations: bool = True
    """Resolve abbreviations that the text defines, everywhere in the text."""
    context: bool = True
    """Find out whether a mention is negated, possible, hypothetical, historical or about the family, by rules
    for English, and its section."""
    types: Annotated[
        tuple[str, ...],
        Option(flags=("--types",), metavar="TYPE", default="for MeSH diseases, chemicals and psychiatry"),
    ] = ()
    """Only concepts of this type."""
    sources: Annotated[tuple[str, ...], Option(flags=("--sources",), metavar="SOURCE")] = ()
    """Only names from this source."""
    kinds: Annotated[
        tuple[str, ...],
        Option(
            flags=("--kinds",), metavar="KIND", default="all but translations and ambiguous abbreviations"
        ),
    ] = ()
    """Only names of this kind: `own` (of the vocabulary itself), synonym, abbreviation, brand, lay, spelling
    or translation."""
    prefixes: Annotated[tuple[str, ...], Option(flags=("--prefix",), metavar="PREFIX")] = ()
    """Only concepts whose id has this prefix, such as `mesh`."""

    def __post_init__(self) -> None:
        if not 0 <= self.min_confidence <= 1:
            raise ConfigError(f"min_confidence is between 0 and 1, got {self.min_confidence}")
