"""A vocabulary: concepts and their names, read lazily from an artifact.

The tables are polars LazyFrames over Parquet files. Opening costs a checksum, and a query reads only what it
needs, whatever the size. Concepts become Python objects one at a time, on request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from sapbert.artifacts import Manifest, load_manifest
from sapbert.curies import parse_curie
from sapbert.text import fold
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


@dataclass(frozen=True, slots=True)
class Concept:
    """One concept with everything that a vocabulary says about it."""

    concept_id: str
    names: tuple[Name, ...]
    """Preferred names first, and English ones first among those."""
    types: tuple[str, ...]
    xrefs: tuple[str, ...]
    aliases: tuple[str, ...]

    @property
    def preferred_name(self) -> str:
        """The name to display."""
        return self.names[0].text


@dataclass(frozen=True, slots=True)
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

    @property
    def names(self) -> pl.LazyFrame:
        """`schema.NAMES`; the rows of a concept are adjacent."""
        return self._table("names")

    @property
    def types(self) -> pl.LazyFrame:
        """`schema.TYPES`."""
        return self._table("types")

    @property
    def xrefs(self) -> pl.LazyFrame:
        """`schema.XREFS`."""
        return self._table("xrefs")

    @property
    def aliases(self) -> pl.LazyFrame:
        """`schema.ALIASES`."""
        return self._table("aliases")

    def parts(self, table: str = "names") -> list[Path]:
        """The Parquet files of a table in order; none cuts a concept in two."""
        return sorted(self.path / file for file in self.manifest.files if file.startswith(f"{table}/"))

    def _table(self, table: str) -> pl.LazyFrame:
        parts = self.parts(table)
        return pl.scan_parquet(parts) if parts else pl.LazyFrame(schema=TABLES[table])

    def concept(self, id: str) -> Concept | None:
        """Return the concept with this identifier or alias, in any spelling of its prefix."""
        curie = parse_curie(id)
        if curie is None:
            return None
        if (concept := self._concept(curie)) is not None:
            return concept
        owners = self.aliases.filter(pl.col("alias") == curie).collect()["concept_id"]
        return None if owners.is_empty() else self._concept(owners[0])

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
        )

    def find(self, name: str) -> list[Concept]:
        """Return every concept with a name that folds like `name`."""
        folded = fold(name)
        same = pl.col("name").map_batches(
            lambda names: fold_tidy_names(names) == folded, return_dtype=pl.Boolean
        )
        ids = self.names.filter(same).select("concept_id").unique().collect().to_series().sort()
        return [concept for curie in ids if (concept := self._concept(curie)) is not None]

    def count_names(self, column: str, most: int) -> dict[str, int]:
        """How many names each language or source has, the most frequent `most`."""
        return _count(self.names, column, most)

    def count_types(self, most: int) -> dict[str, int]:
        """How many concepts each type has, the most frequent `most`."""
        return _count(self.types, "type", most)

    @staticmethod
    def _facts(table: pl.LazyFrame, curie: str) -> tuple[str, ...]:
        return tuple(table.filter(pl.col("concept_id") == curie).drop("concept_id").collect().to_series())


def _count(table: pl.LazyFrame, column: str, most: int) -> dict[str, int]:
    counts = table.group_by(pl.col(column).cast(pl.String)).len()
    return dict(counts.sort(["len", column], descending=[True, False]).head(most).collect().iter_rows())
