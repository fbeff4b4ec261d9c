"""Write a vocabulary artifact from names in any order.

Readers `add` names as they read them. Names are spooled first, because a concept is complete only at the end
(a tradename link can add names to any concept) and because the tables have one order (`schema`). The spool
is in memory up to a limit, which saves three CPU seconds of thirty, and on disk beyond it. Then whole
concepts are taken from the spool piece by piece, completed, sorted, deduplicated and written as Parquet. If
the input is sorted by concept, as UMLS is, memory does not grow with it; other input is sorted in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sapbert.artifacts import Draft, create, fingerprint_of
from sapbert.errors import SapbertError
from sapbert.parallel import ordered_map
from sapbert.vocab.hierarchy import ConceptHierarchy
from sapbert.vocab.input_files import InputReader
from sapbert.vocab.names_by_concept import NamesByConcept, regroup_by_concept, run_starts
from sapbert.vocab.parquet import polars_os_errors
from sapbert.vocab.schema import (
    ALIASES,
    DEFINITIONS,
    NAMES,
    OPTIONAL_COLUMNS,
    PARENTS,
    TYPES,
    XREFS,
    HashInput,
    Kind,
    Schema,
    Scope,
    TableDigest,
    hash_input,
)
from sapbert.vocab.sorting import sort_distinct_names
from sapbert.vocab.text_columns import tidy_names

KIND = "vocabulary"
ROWS_PER_PART = 250_000
"""Rows in memory at a time; each part of the names table but the last has at least so many."""
SPOOL_MEMORY_BYTES = 7 << 27
"""Bytes of names spooled in memory; further names are spooled to disk."""
MAX_NAME_BYTES = 1 << 20
"""Longest name; the longest names of UMLS have some thousand characters."""
_VIEW_BYTES = 16
"""Bytes per string that the estimates of polars omit: the view that points to its text."""
COMPRESSION: Literal["uncompressed"] = "uncompressed"
"""Compression took half of the total writing time and saved 40% of the bytes."""
_NAME: Schema = {
    "name": pl.String,
    "rank": pl.Int32,
    "language": pl.Categorical,
    "source": pl.Categorical,
    "scope": Scope,
    "kind": Kind,
    "count": pl.UInt32,
}
SPOOL: Schema = {"concept_id": pl.String, **_NAME}
"""Columns that readers add. Per concept and language, the name of highest rank above 0 is preferred."""
OPTIONAL: Mapping[str, Schema] = {"parents": PARENTS, "definitions": DEFINITIONS}
"""Tables that older vocabularies do not have; they are part of the fingerprint only if they have rows."""
FACTS: Mapping[str, Schema] = {"types": TYPES, "xrefs": XREFS, "aliases": ALIASES, **OPTIONAL}
TABLES: Mapping[str, Schema] = {"names": NAMES, **FACTS}


class Spooled(NamedTuple):
    """Names in the spool."""

    names: NamesByConcept | Path | None
    """The names, or the file they were written to; None if there are none."""
    first_id: str
    last_id: str
    in_order: bool


class VocabularyWriter:
    """Collects the names and facts that a reader finds; `write_vocabulary` writes the artifact."""

    def __init__(self, draft: Draft) -> None:
        self.counts: dict[str, int] = {}
        """Counts for the report, by label."""
        self.type_labels: dict[str, str] = {}
        """Type code → its label."""
        self._draft = draft
        self._spool = draft.path / "spool"
        self._spool.mkdir()
        self._numbers = count()
        self._memory_left = SPOOL_MEMORY_BYTES
        self._memory_lock = Lock()
        self._spooled: deque[NamesByConcept | Path] = deque()
        self._sorted = True
        self._last_id = ""
        self._late: list[pl.DataFrame] = [pl.DataFrame(schema=SPOOL)]
        self._facts = {table: [pl.DataFrame(schema=schema)] for table, schema in FACTS.items()}

    def add(self, names: pl.DataFrame) -> None:
        """Add names with the columns of `SPOOL`; all but `concept_id` and `name` are optional."""
        self.add_spooled(
            self.spool(NamesByConcept.of(names.with_columns(pl.col("concept_id").cast(pl.String))))
        )

    def spool(self, concepts: NamesByConcept) -> Spooled:
        """Do the slow part of `add`, on any thread; `add_spooled` does the rest."""
        conform = concepts._replace(names=_conform(concepts.names, {**_NAME, "concept": pl.UInt32}))
        named = conform.with_names(_tidy(conform.names))
        ids = named.ids
        if ids.is_empty():
            return Spooled(None, "", "", in_order=True)
        return Spooled(self._store(named), ids[0], ids[-1], in_order=ids.is_sorted())

    def _store(self, concepts: NamesByConcept) -> NamesByConcept | Path:
        names, ids = concepts.names, concepts.ids
        size = names.estimated_size() + ids.estimated_size() + _VIEW_BYTES * (names.height + len(ids))
        with self._memory_lock:
            self._memory_left -= int(size)
            if self._memory_left >= 0:
                return concepts
        path = self._spool / f"{next(self._numbers):05}.arrow"
        concepts.with_ids().write_ipc(path)
        return path

    def add_spooled(self, spooled: Spooled) -> None:
        """Add spooled names; the order of the calls is the order of the names."""
        if spooled.names is not None:
            self._sorted = self._sorted and spooled.in_order and spooled.first_id >= self._last_id
            self._last_id = spooled.last_id
            self._spooled.append(spooled.names)

    def add_late(self, names: pl.DataFrame) -> None:
        """Add names to concepts that have other names; for other concepts they are dropped."""
        self._late.append(_tidy(_conform(names, SPOOL)))

    def add_facts(self, table: str, rows: pl.DataFrame) -> None:
        """Add rows to one of `FACTS`; rows of concepts without names are dropped."""
        conform = rows.select(pl.col(column).cast(dtype) for column, dtype in FACTS[table].items())
        self._facts[table].append(conform.drop_nulls())

    def add_definitions(self, rows: pl.DataFrame) -> None:
        """Add `schema.DEFINITIONS`; texts are tidied, and empty ones dropped."""
        tidy = rows.with_columns(tidy_names(rows["text"]))
        self.add_facts("definitions", tidy.filter(pl.col("text") != ""))

    def count(self, what: str, number: int) -> None:
        """Add to a count of the report."""
        self.counts[what] = self.counts.get(what, 0) + int(number)

    def finish(self, settings: Mapping[str, Any], inputs: InputReader) -> None:
        """Write everything that was added as the tables of the artifact and seal it."""
        late = _sorted_by_concept(self._late)
        facts = {table: _sorted_by_concept(frames) for table, frames in self._facts.items()}
        tables = {name: _TableWriter(self._draft, name, schema) for name, schema in TABLES.items()}

        def write_part(numbered: tuple[int, NamesByConcept]) -> tuple[pl.Series, dict[str, HashInput]]:
            number, piece = numbered
            grouped = _sorted_and_marked(_with_late_names(piece, late))
            rows = {"names": grouped.with_ids().select(list(NAMES))}
            rows |= {table: _facts_of(grouped.ids, frame) for table, frame in facts.items()}
            return grouped.ids, {name: tables[name].write(number, part) for name, part in rows.items()}

        ids = [pl.Series(dtype=pl.String)]
        parts = enumerate(regroup_by_concept(self._take_spool(), ROWS_PER_PART))
        for concepts, written in ordered_map(write_part, parts):
            ids.append(concepts)
            for name, part in written.items():
                tables[name].digest.update(part)
        self._spool.rmdir()
        tables = {name: table for name, table in tables.items() if table.digest.rows or name not in OPTIONAL}
        if not tables["names"].digest.rows:
            raise SapbertError("no names to write; is a filter too narrow?")
        self._count_hierarchy(pl.concat(ids), facts["parents"], facts["aliases"])
        if inputs.skipped_rows:
            self.count("bad rows skipped", inputs.skipped_rows)
        self._draft.seal(
            KIND,
            fingerprint=fingerprint_of({name: table.digest.hexdigest() for name, table in tables.items()}),
            settings=settings,
            inputs=inputs.checksums,
            counts={
                "concepts": sum(map(len, ids)),
                **{name: table.digest.rows for name, table in tables.items()},
                **self.counts,
            },
            details={
                "type_labels": dict(sorted(self.type_labels.items())),
                "skipped": inputs.skipped_examples,
            },
        )

    def _count_hierarchy(self, ids: pl.Series, parents: pl.DataFrame, aliases: pl.DataFrame) -> None:
        """Report what is unusual about the parents; nothing is dropped."""
        if parents.is_empty():
            return
        hierarchy = ConceptHierarchy.of(ids, parents, aliases)
        roots, orphans, in_cycles = hierarchy.graph.counts()
        self.count("roots", roots)
        self.count("concepts without parents and children", orphans)
        self.count("parents that are not in the vocabulary", hierarchy.missing)
        self.count("concepts in cycles of parents", in_cycles)

    def _take_spool(self) -> Iterator[NamesByConcept]:
        """Yield the spool sorted by concept, freeing each piece."""
        pieces = (_load(self._spooled.popleft()) for _ in range(len(self._spooled)))
        if self._sorted:
            yield from pieces
        else:
            joined = pl.concat(piece.with_ids() for piece in pieces).sort("concept_id")
            yield from map(NamesByConcept.of, joined.iter_slices(ROWS_PER_PART))


def _load(names: NamesByConcept | Path) -> NamesByConcept:
    if isinstance(names, NamesByConcept):
        return names
    frame = pl.read_ipc(names)
    names.unlink()
    return NamesByConcept.of(frame)


class _TableWriter:
    """Writes one table of the artifact, one Parquet file per part."""

    def __init__(self, draft: Draft, name: str, schema: Schema) -> None:
        self._draft = draft
        self._folder = draft.path / name
        self._folder.mkdir()
        self.digest = TableDigest(schema)

    def write(self, number: int, part: pl.DataFrame) -> HashInput:
        """Write a part, on any thread; pass the results to the digest in the order of the parts."""
        if not part.is_empty():
            file = self._folder / f"{number:05}.parquet"
            with polars_os_errors(file):
                # Statistics would take a quarter of the time, and no query here uses them.
                part.write_parquet(file, compression=COMPRESSION, statistics=False)
            self._draft.sync_in_background(file)
        return hash_input(part)


@contextmanager
def write_vocabulary(
    target: Path, settings: Mapping[str, Any], inputs: InputReader, *, overwrite: bool = False
) -> Iterator[VocabularyWriter]:
    """Yield a writer; at the end of the block, what was added becomes the vocabulary at `target`."""
    with create(target, overwrite=overwrite) as draft:
        writer = VocabularyWriter(draft)
        yield writer
        writer.finish(settings, inputs)


def _conform(names: pl.DataFrame, schema: Schema) -> pl.DataFrame:
    defaults = {"rank": 0, "language": "en", "source": "", "scope": "exact", **OPTIONAL_COLUMNS}
    missing = [
        pl.lit(value).alias(column) for column, value in defaults.items() if column not in names.columns
    ]
    return names.with_columns(missing).select(pl.col(column).cast(dtype) for column, dtype in schema.items())


def _sorted_by_concept(frames: list[pl.DataFrame]) -> pl.DataFrame:
    joined = pl.concat(frames, rechunk=True)
    frames.clear()
    return joined if joined["concept_id"].is_sorted() else joined.sort("concept_id").rechunk()


def _rows_between(ids: pl.Series, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows between the first and the last of `ids`; both are sorted by concept."""
    concepts = rows["concept_id"]
    return rows[concepts.search_sorted(ids[0], side="left") : concepts.search_sorted(ids[-1], side="right")]


def _facts_of(ids: pl.Series, facts: pl.DataFrame) -> pl.DataFrame:
    """Return the distinct rows of `facts` about the concepts `ids`, in order."""
    concepts = pl.DataFrame({"concept_id": ids, "matched": ids})
    # Both are sorted; `join_asof` takes a third of the time of a semi-join.
    near = _rows_between(ids, facts).join_asof(concepts, on="concept_id", check_sortedness=False)
    about = near.filter(pl.col("matched") == pl.col("concept_id")).drop("matched")
    concept, fact = about.get_columns()[:2]
    if ((concept == concept.shift()) & (fact <= fact.shift())).any():
        return about.unique().sort(about.columns)
    return about


def _tidy(names: pl.DataFrame) -> pl.DataFrame:
    """Tidy names and drop empty ones."""
    tidy = names.with_columns(tidy_names(names["name"]))
    lengths = tidy["name"].str.len_bytes()
    kept = (lengths > 0).fill_null(value=False)
    if (lengths > MAX_NAME_BYTES).any():
        name = tidy["name"].filter(lengths > MAX_NAME_BYTES)[0]
        raise SapbertError(f"a name is longer than {MAX_NAME_BYTES >> 20} MB: {name[:60]!r}; is it a name?")
    return tidy if kept.all() else tidy.filter(kept)


def _with_late_names(piece: NamesByConcept, late: pl.DataFrame) -> NamesByConcept:
    """Add late names to the concepts of a piece."""
    near = _rows_between(piece.ids, late)
    owners = pl.DataFrame({"concept_id": piece.ids}).with_row_index("concept")
    added = near.join(owners, on="concept_id").select(piece.names.columns)
    return piece._replace(names=pl.concat([piece.names, added])) if len(added) else piece


def _sorted_and_marked(piece: NamesByConcept) -> NamesByConcept:
    """Sort the tidy names of whole concepts, drop duplicates and mark the preferred names."""
    names = sort_distinct_names(piece.names)
    preferred = _mark_preferred(names["rank"], run_starts(names["concept"], names["language"]))
    return piece._replace(names=names.with_columns(preferred=preferred))


def _mark_preferred(rank: pl.Series, first: NDArray[np.int64]) -> pl.Series:
    """In each run of rows, given by its first row, mark the first row of highest rank if that is above 0."""
    lengths = np.diff(first, append=len(rank))
    ranks = rank.to_numpy()
    best = ranks == np.repeat(np.maximum.reduceat(ranks, first), lengths)
    ordinal = np.cumsum(best)
    ordinal -= np.repeat(ordinal[first] - best[first], lengths)
    return pl.Series(best & (ordinal == 1) & (ranks > 0))
