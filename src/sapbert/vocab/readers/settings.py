"""Settings of the vocabulary readers; imports nothing heavy, so `sapbert read --help` is fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sapbert.curies import parse_curie
from sapbert.errors import ConfigError
from sapbert.vocab.settings import SCOPES, Format


@dataclass(frozen=True, slots=True, kw_only=True)
class RrfSettings:
    """What to take from a release; every field is also an option of `sapbert read umls` and `rxnorm`."""

    languages: tuple[str, ...] = ("ENG",)
    """Languages to keep, as UMLS (`ENG`) or ISO codes (`en`); `all` keeps every one."""
    sources: tuple[str, ...] = ()
    """Source abbreviations (SAB) to keep; none given keeps every one."""
    keep_suppressed: bool = False
    """Also take rows that the release marks as suppressed or obsolete."""
    tradenames: bool = True
    """Join the names of a drug and its brands."""

    def __post_init__(self) -> None:
        if not self.languages:
            raise ConfigError("no language is given; `all` takes every one")


@dataclass(frozen=True, slots=True, kw_only=True)
class OboSettings:
    """What to take from an ontology; every field is also an option of `sapbert read obo`."""

    scopes: tuple[str, ...] = ("exact", "related")
    """Scopes of the synonyms to keep, of exact, related, narrow and broad; a concept's own name always is."""

    def __post_init__(self) -> None:
        for scope in self.scopes:
            if scope not in SCOPES:
                raise ConfigError(f"there is no synonym scope {scope!r}; choose of {', '.join(SCOPES)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SnomedSettings:
    """What to take from a release; every field is also an option of `sapbert read snomed`."""

    languages: tuple[str, ...] = ("all",)
    """Languages to keep, as ISO codes (`en`, `es`); `all` keeps every one of the release."""
    refsets: tuple[str, ...] = ()
    """Language refsets by id, the most important first: 900000000000509007 is American English,
    900000000000508004 British. Only names that one of them accepts are kept, and what the first prefers is
    preferred. None given: every active name is kept, and what most refsets prefer is preferred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshSettings:
    """What to take from MeSH; every field is also an option of `sapbert read mesh`."""

    level: Literal["descriptor", "concept"] = "descriptor"
    """`descriptor`: one concept a record (`mesh:D008881`), its looser terms marked by their scope.
    `concept`: one a MeSH concept (`mesh:M0013739`), whose terms are strict synonyms; the record is its
    cross-reference, and an alias of its preferred concept."""
    keep_permuted: bool = False
    """Also take terms that only put the words of another in another order (`Headache, Migraine`)."""

    def __post_init__(self) -> None:
        if self.level not in ("descriptor", "concept"):
            raise ConfigError(f"level is descriptor or concept, got {self.level!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OmopSettings:
    """What to take from an Athena download; every field is also an option of `sapbert read omop`."""

    vocabularies: tuple[str, ...] = ()
    """Vocabularies to keep, as `vocabulary_id` spells them (`SNOMED`); none given keeps every one."""
    domains: tuple[str, ...] = ()
    """Domains to keep (`Condition`); none given keeps every one."""
    standard_only: bool = False
    """Keep only standard concepts (`standard_concept` is `S`), the ones OMOP data is mapped to."""
    keep_invalid: bool = False
    """Also take concepts that OMOP calls deleted or replaced (`invalid_reason`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    """How to read a table; every field is also an option of `sapbert read table`."""

    format: Format | None = None
    """`tsv`, `csv`, `jsonl`, `parquet` or `biosyn`; none given, told by the file's name."""
    id_column: str | None = None
    """Column of the concept's id; by default the first of concept_id, id, curie, code, cui, identifier."""
    name_column: str | None = None
    """By default the first of name, label, preferred_label, term, concept_name, str."""
    synonyms_column: str | None = None
    """More names of the row's concept; by default the first of synonyms, synonym, aliases."""
    preferred_column: str | None = None
    """1/0, true/false or yes/no; by default the first of is_preferred, preferred."""
    language_column: str | None = None
    """By default the first of language, lang."""
    source_column: str | None = None
    """By default the first of source, sab."""
    types_column: str | None = None
    """By default the first of types, type, semantic_types, semantic_type, categories, category."""
    separator: str = "|"
    """Parts the synonyms, types or ids of one field."""
    prefix: str | None = None
    """Prefix of ids that come without one: `mesh` makes `D009203` `mesh:D009203`."""
    language: str | None = None
    """Language of all names; by default what the column says, `en` without one."""
    source: str | None = None
    """Source of all names; by default what the column says, the id's prefix without one."""

    def __post_init__(self) -> None:
        if self.prefix is not None and parse_curie("1", prefix=self.prefix) is None:
            raise ConfigError(
                f"{self.prefix!r} is no prefix; it is what stands before the colon in mesh:D009203"
            )
        if not self.separator:
            raise ConfigError("separator is empty; '|' is the usual one")
        for what in ("language", "source"):
            if getattr(self, what) is not None and getattr(self, f"{what}_column") is not None:
                raise ConfigError(f"give {what} or {what}_column, not both")
