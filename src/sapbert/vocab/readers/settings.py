"""Settings of the vocabulary readers, which are the options of `sapbert read`; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from sapbert.curies import parse_curie
from sapbert.errors import ConfigError
from sapbert.options import Option
from sapbert.vocab.settings import SCOPES, Format

_Column = Annotated[str | None, Option(metavar="COLUMN")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RrfSettings:
    """What to read from a release; every field is also an option of `sapbert read umls` and `rxnorm`."""

    languages: Annotated[tuple[str, ...], Option(metavar="CODE")] = ("ENG",)
    """Language to keep, as a UMLS (`ENG`) or ISO code (`en`), or `all`."""
    sources: Annotated[tuple[str, ...], Option(metavar="SAB", default="all")] = ()
    """Source abbreviation (SAB) to keep."""
    keep_suppressed: bool = False
    """Also read rows that the release marks as suppressed or obsolete."""
    tradenames: bool = True
    """Join the names of a drug and its brands."""

    def __post_init__(self) -> None:
        if not self.languages:
            raise ConfigError("languages is empty; `all` keeps every language")


@dataclass(frozen=True, slots=True, kw_only=True)
class OboSettings:
    """What to read from an ontology; every field is also an option of `sapbert read obo`."""

    scopes: Annotated[tuple[str, ...], Option(metavar="SCOPE")] = ("exact", "related")
    """Scope of the synonyms to keep: exact, related, narrow or broad. The concept's label is always kept."""

    def __post_init__(self) -> None:
        for scope in self.scopes:
            if scope not in SCOPES:
                raise ConfigError(f"unknown synonym scope {scope!r}; expected one of {', '.join(SCOPES)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SnomedSettings:
    """What to read from a release; every field is also an option of `sapbert read snomed`."""

    languages: Annotated[tuple[str, ...], Option(metavar="CODE")] = ("all",)
    """Language to keep, as an ISO code (`en`, `es`), or `all`."""
    refsets: Annotated[tuple[str, ...], Option(metavar="ID", default="all")] = ()
    """Language refset, most important first: 900000000000509007 is American English, 900000000000508004
    British English. Only names that one of them accepts are kept, and the preferred name is the first
    refset's. Without refsets every active name is kept, and the name that most refsets prefer is
    preferred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshSettings:
    """What to read from MeSH; every field is also an option of `sapbert read mesh`."""

    level: Literal["descriptor", "concept"] = "descriptor"
    """What becomes a concept. `descriptor`: a record (`mesh:D008881`); its broader, narrower and related
    terms keep their scope. `concept`: a MeSH concept (`mesh:M0013739`), whose terms are strict synonyms; the
    record becomes a cross-reference, and an alias of its preferred concept."""
    keep_permuted: bool = False
    """Also read word-order variants of other terms (`Headache, Migraine`)."""

    def __post_init__(self) -> None:
        if self.level not in ("descriptor", "concept"):
            raise ConfigError(f"level is descriptor or concept, got {self.level!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OmopSettings:
    """What to read from an Athena download; every field is also an option of `sapbert read omop`."""

    vocabularies: Annotated[
        tuple[str, ...], Option(flags=("--vocabulary",), metavar="ID", default="all")
    ] = ()
    """Vocabulary to keep, as in the column vocabulary_id (`SNOMED`)."""
    domains: Annotated[tuple[str, ...], Option(metavar="ID", default="all")] = ()
    """Domain to keep, as in the column domain_id (`Condition`)."""
    standard_only: bool = False
    """Keep only standard concepts (standard_concept is `S`), to which OMOP data is mapped."""
    keep_invalid: bool = False
    """Also read concepts that are deleted or replaced (invalid_reason)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    """How to read a table; every field is also an option of `sapbert read table`."""

    format: Annotated[Format | None, Option(default="by file name")] = None
    """File format; `biosyn` is BioSyn's id||name text."""
    id_column: _Column = None
    """Column with the concept id; default: the first of concept_id, id, curie, code, cui, identifier."""
    name_column: _Column = None
    """Column with the name; default: the first of name, label, preferred_label, term, concept_name, str."""
    synonyms_column: _Column = None
    """Column with further names of the concept; default: the first of synonyms, synonym, aliases."""
    preferred_column: _Column = None
    """Column that marks the preferred name (1/0, true/false, yes/no); default: the first of is_preferred,
    preferred."""
    language_column: _Column = None
    """Column with the language of the name; default: the first of language, lang."""
    source_column: _Column = None
    """Column with the source of the name; default: the first of source, sab."""
    types_column: _Column = None
    """Column with semantic types; default: the first of types, type, semantic_types, semantic_type,
    categories, category."""
    parents_column: _Column = None
    """Column with the ids of the parents; default: the first of parents, parent_ids, parent_id, parent."""
    definition_column: _Column = None
    """Column with the definition; default: the first of definition, scope_note."""
    separator: str = "|"
    """Separates several synonyms, types, parents or ids within a field."""
    prefix: str | None = None
    """Prefix for ids without one: `mesh` turns D009203 into mesh:D009203."""
    language: str | None = None
    """Language of all names; default: the language column, else `en`."""
    source: str | None = None
    """Source of all names; default: the source column, else the prefix of the id."""

    def __post_init__(self) -> None:
        if self.prefix is not None and parse_curie("1", prefix=self.prefix) is None:
            raise ConfigError(f"{self.prefix!r} is not a valid prefix; in mesh:D009203 the prefix is mesh")
        if not self.separator:
            raise ConfigError("separator is empty; '|' is the usual one")
        for name in ("language", "source"):
            if getattr(self, name) is not None and getattr(self, f"{name}_column") is not None:
                raise ConfigError(f"give {name} or {name}_column, not both")
