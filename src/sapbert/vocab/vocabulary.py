"""A vocabulary: concepts and their names, read lazily from an artifact.

The tables are polars LazyFrames over Parquet files. Opening costs a checksum, and a query reads only what it
needs, whatever the size. Concepts become Python objects one at a time, on request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import polars as pl

from sapbert.artifacts import Manifest, load_manifest
from sapbert.curies import parse_curie
from sapbert.errors import SapbertError
from sapbert.hierarchy import Hierarchy
from sapbert.text import fold
from sapbert.vocab.hierarchy import ConceptHierarchy
from sapbert.vocab.schema import OPTIONAL_COLUMNS, Schema
from sapbert.vocab.text_columns import fold_tidy_names
from sapbert.vocab.writer import KIND, TABLES


@dataclass(frozen=True, slots=True)
class Name:
    """One name of a concept."""

    text: str
    preferred: bool
    language: str
    source: str
    scope: str
    kind: str = ""
    """One of `settings.KINDS`; empty for a name of the vocabulary itself."""
    count: int = 0
    """How often the name was seen with this meaning; 0 if unknown."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One definition of a concept."""

    text: str
    language: str
    source: str


@dataclass(frozen=True, slots=True)
class Concept:
    """One concept with everything that a vocabulary says about it."""

    concept_id: str
    names: tuple[Name, ...]
    """Preferred names first, and English ones first among those."""
    types: tuple[str, ...]
    xrefs: tuple[str, ...]
    aliases: tuple[str, ...]
    parents: tuple[str, ...] = ()
    """Identifiers of the concepts directly above, as the source says; some may not be in the vocabulary."""
    definitions: tuple[Definition, ...] = ()
    """English definitions first."""

    @property
    def definition(self) -> str | None:
        """The definition to display."""
        return self.definitions[0].text if self.definitions else None

    @property
    def preferred_name(self) -> str:
        """The name to display."""
        return self.names[0].text


@dataclass(frozen=True)
class Vocabulary:
    """The vocabulary artifact at `path`."""

    path: Path
    manifest: Manifest

    @classmethod
    def open(cls, path: Path | str, *, verify: bool = True) -> Vocabulary:
        """Open an artifact written by `sapbert read` or `sapbert merge`; `verify` compares its checksums."""
        return cls(Path(path), load_manifest(Path(path), kind=KIND, verify=verify))

    @property
    def fingerprint(self) -> str:
        """Equal for equal content."""
        return self.manifest.fingerprint

    @property
    def type_labels(self) -> Mapping[str, str]:
        """Type code → its label, if the source has one."""
        labels: Mapping[str, str] = self.manifest.details.get("type_labels", {})
        return labels

    def type_label(self, code: str) -> str:
        """Return a type to display: its label and its code, or the code if it has no label."""
        label = self.type_labels.get(code)
        return f"{label} ({code})" if label else code

    @property
    def names(self) -> pl.LazyFrame:
        """`schema.NAMES`; the rows of a concept are adjacent."""
        return self.table("names")

    @property
    def types(self) -> pl.LazyFrame:
        """`schema.TYPES`."""
        return self.table("types")

    @property
    def xrefs(self) -> pl.LazyFrame:
        """`schema.XREFS`."""
        return self.table("xrefs")

    @property
    def aliases(self) -> pl.LazyFrame:
        """`schema.ALIASES`."""
        return self.table("aliases")

    @property
    def parent_links(self) -> pl.LazyFrame:
        """`schema.PARENTS`."""
        return self.table("parents")

    @property
    def definitions(self) -> pl.LazyFrame:
        """`schema.DEFINITIONS`."""
        return self.table("definitions")

    @cached_property
    def hierarchy(self) -> ConceptHierarchy:
        """The parents of all concepts as a graph; takes a second or two for UMLS."""
        ids = self.names.select(pl.col("concept_id").rle().struct.field("value")).collect().to_series()
        return ConceptHierarchy.of(ids, self.parent_links.collect(), self.aliases.collect())

    def parents(self, id: str) -> tuple[str, ...]:
        """Return the concepts directly above a concept; empty if there are none."""
        return self._related(id, Hierarchy.parents)

    def children(self, id: str) -> tuple[str, ...]:
        """Return the concepts directly below a concept."""
        return self._related(id, Hierarchy.children)

    def ancestors(self, id: str) -> tuple[str, ...]:
        """Return all concepts above a concept, nearest first."""
        return self._related(id, Hierarchy.ancestors)

    def descendants(self, id: str) -> tuple[str, ...]:
        """Return all concepts below a concept, nearest first."""
        return self._related(id, Hierarchy.descendants)

    def _related(self, id: str, function: Callable[[Hierarchy, int], list[int]]) -> tuple[str, ...]:
        curie = parse_curie(id) or ""
        number = self.hierarchy.number(curie)
        if number is None and (owner := self._owner(curie)) is not None:
            number = self.hierarchy.number(owner)
        if number is None:
            raise SapbertError(f"{self.path} has no concept {id!r}")
        return self.hierarchy.identifiers(function(self.hierarchy.graph, number))

    def preferred_names(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the name to display of each concept; unknown ids are left out."""
        rows = self.names.filter(pl.col("concept_id").is_in(list(ids)))
        shown_first = [pl.col("preferred"), pl.col("language") == "en"]
        first = rows.sort(shown_first, descending=True, maintain_order=True).unique(
            "concept_id", keep="first", maintain_order=True
        )
        return dict(first.select("concept_id", "name").collect().iter_rows())

    def parts(self, table: str = "names") -> list[Path]:
        """The Parquet files of a table in order; none cuts a concept in two."""
        return sorted(self.path / file for file in self.manifest.files if file.startswith(f"{table}/"))

    def table(self, table: str) -> pl.LazyFrame:
        """A table of `writer.TABLES`; empty if the artifact does not have it."""
        parts = self.parts(table)
        return scan_parts(parts, TABLES[table]) if parts else pl.LazyFrame(schema=TABLES[table])

    def concept(self, id: str) -> Concept | None:
        """Return the concept with this identifier or alias, in any spelling of its prefix."""
        curie = parse_curie(id)
        if curie is None:
            return None
        if (concept := self._concept(curie)) is not None:
            return concept
        owner = self._owner(curie)
        return None if owner is None else self._concept(owner)

    def _owner(self, alias: str) -> str | None:
        """Return the concept of an alias."""
        owners = self.aliases.filter(pl.col("alias") == alias).collect()["concept_id"]
        return None if owners.is_empty() else str(owners[0])

    def _concept(self, curie: str) -> Concept | None:
        rows = self.names.filter(pl.col("concept_id") == curie).collect()
        if rows.is_empty():
            return None
        # Preferred names first, then English names.
        shown_first = [pl.col("preferred"), pl.col("language") == "en"]
        ordered = rows.sort(shown_first, descending=True, maintain_order=True).drop("concept_id")
        names = tuple(Name(*row) for row in ordered.iter_rows())
        return Concept(
            curie,
            names,
            self._facts(self.types, curie),
            self._facts(self.xrefs, curie),
            self._facts(self.aliases, curie),
            self._facts(
                self.parent_links.select("concept_id", "parent_id").unique().sort("parent_id"), curie
            ),
            self._definitions(curie),
        )

    def _definitions(self, curie: str) -> tuple[Definition, ...]:
        rows = self.definitions.filter(pl.col("concept_id") == curie).drop("concept_id")
        ordered = rows.sort(pl.col("language") != "en", "language", "source", "text").collect()
        return tuple(Definition(*row) for row in ordered.iter_rows())

    def find(self, name: str) -> list[Concept]:
        """Return every concept with a name that folds like `name`."""
        folded = fold(name)
        same = pl.col("name").map_batches(
            lambda names: fold_tidy_names(names) == folded, return_dtype=pl.Boolean
        )
        ids = self.names.filter(same).select("concept_id").unique().collect().to_series().sort()
        return [concept for curie in ids if (concept := self._concept(curie)) is not None]

    def count_names(self, column: str, most: int) -> dict[str, int]:
        """How many names each language, source or kind has, the most frequent `most`."""
        return _count(self.names, column, most)

    def count_types(self, most: int) -> dict[str, int]:
        """How many concepts each type has, the most frequent `most`."""
        return _count(self.types, "type", most)

    @staticmethod
    def _facts(table: pl.LazyFrame, curie: str) -> tuple[str, ...]:
        rows = table.filter(pl.col("concept_id") == curie).drop("concept_id").collect()
        return tuple(rows.to_series().unique(maintain_order=True))


def scan_parts(parts: Path | list[Path], schema: Schema) -> pl.LazyFrame:
    """Scan Parquet files of a table; columns that older versions did not write get their default values."""
    scan = pl.scan_parquet(parts)
    missing = schema.keys() - scan.collect_schema().keys()
    added = [
        pl.lit(OPTIONAL_COLUMNS[name]).cast(schema[name]).alias(name) for name in schema if name in missing
    ]
    return scan.with_columns(added) if added else scan


def _count(table: pl.LazyFrame, column: str, most: int) -> dict[str, int]:
    counts = table.group_by(pl.col(column).cast(pl.String)).len()
    return dict(counts.sort(["len", column], descending=[True, False]).head(most).collect().iter_rows())
