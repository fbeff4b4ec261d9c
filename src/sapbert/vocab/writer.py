"""Write a vocabulary artifact from names in any order, in flat memory where the source is sorted.

Readers `add` names as they meet them. Frames wait in a spool, because what a concept holds is only
known at the end (a tradename link can bring names from anywhere) and because the order must be one:
see `schema`. The first of them wait in memory, which spares three CPU seconds in thirty, the others on disk.
Then whole concepts are taken from the spool piece by piece, completed, sorted, freed of duplicates and
written as Parquet. UMLS comes sorted by concept; another source is sorted first, in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from sapbert.artifacts import Draft, create, fingerprint_of
from sapbert.errors import SapbertError
from sapbert.vocab.columns import tidy_names
from sapbert.vocab.intake import Intake, ordered_map
from sapbert.vocab.order import sort_names
from sapbert.vocab.parquet import system_errors
from sapbert.vocab.schema import (
    ALIASES,
    NAME_KEY,
    NAMES,
    TYPES,
    XREFS,
    Digestible,
    Schema,
    Scope,
    TableDigest,
    digestible,
)

KIND = "vocabulary"
ROWS_A_PART = 400_000
"""Rows held at a time; a part of the names table has at least as many, but for the last."""
HELD_BYTES = 1 << 30
"""Names that wait in memory; those beyond wait on disk."""
_VIEWS = 2 * 16
"""Bytes a row that polars leaves out of its estimates: what points to the texts of its two strings."""
COMPRESSION: Literal["uncompressed"] = "uncompressed"
"""Compressing took half the time of all writing and saved four bytes in ten."""
SPOOL: Schema = {
    "concept_id": pl.String,
    "name": pl.String,
    "rank": pl.Int32,
    "language": pl.Categorical,
    "source": pl.Categorical,
    "scope": Scope,
}
"""What readers add. Of a concept's names in one language the one of highest rank above 0 is preferred."""
FACTS: Mapping[str, Schema] = {"types": TYPES, "xrefs": XREFS, "aliases": ALIASES}
TABLES: Mapping[str, Schema] = {"names": NAMES, **FACTS}


class Spooled(NamedTuple):
    """Names that wait."""

    names: pl.DataFrame | Path | None
    """Themselves, or the file they were written to; None where there are none."""
    first_id: str
    last_id: str
    in_order: bool


class VocabularyWriter:
    """Collects what a reader finds; `write_vocabulary` makes it an artifact."""

    def __init__(self, draft: Draft) -> None:
        self.counts: dict[str, int] = {}
        """What the reader wants reported, by name."""
        self.type_labels: dict[str, str] = {}
        """Type code → what it stands for."""
        self._draft = draft
        self._spool = draft.path / "spool"
        self._spool.mkdir()
        self._numbers = count()
        self._room = HELD_BYTES
        self._room_lock = Lock()
        self._spooled: deque[pl.DataFrame | Path] = deque()
        self._sorted = True
        self._last_id = ""
        self._late: list[pl.DataFrame] = [pl.DataFrame(schema=SPOOL)]
        self._facts = {table: [pl.DataFrame(schema=schema)] for table, schema in FACTS.items()}

    def add(self, names: pl.DataFrame) -> None:
        """Add names with the columns of `SPOOL`; `rank`, `language`, `source` and `scope` may be left out."""
        self.keep(self.spool(names))

    def spool(self, names: pl.DataFrame) -> Spooled:
        """Do the part of `add` that takes time, on any thread; `keep` does the rest."""
        frame = _conform(names)
        if frame.is_empty():
            return Spooled(None, "", "", in_order=True)
        ids = frame["concept_id"]
        return Spooled(self._lay_aside(frame), ids[0], ids[-1], in_order=ids.is_sorted())

    def _lay_aside(self, frame: pl.DataFrame) -> pl.DataFrame | Path:
        with self._room_lock:
            self._room -= int(frame.estimated_size()) + _VIEWS * frame.height
            if self._room >= 0:
                return frame
        path = self._spool / f"{next(self._numbers):05}.arrow"
        frame.write_ipc(path)
        return path

    def keep(self, spooled: Spooled) -> None:
        """Add what was spooled; the order of these calls is the order of the names."""
        if spooled.names is not None:
            self._sorted = self._sorted and spooled.in_order and spooled.first_id >= self._last_id
            self._last_id = spooled.last_id
            self._spooled.append(spooled.names)

    def add_late(self, names: pl.DataFrame) -> None:
        """Add names to concepts that have names of their own; others get none from here."""
        self._late.append(_conform(names))

    def add_facts(self, table: str, rows: pl.DataFrame) -> None:
        """Add rows to `types`, `xrefs` or `aliases`; those of a concept without names are dropped."""
        self._facts[table].append(rows.select(list(FACTS[table])).drop_nulls())

    def count(self, what: str, number: int) -> None:
        """Add to a count that is reported at the end."""
        self.counts[what] = self.counts.get(what, 0) + int(number)

    def finish(self, settings: Mapping[str, Any], intake: Intake) -> None:
        """Turn all that was added into the tables of the artifact and seal it."""
        late = _tidied(_sorted_by_concept(self._late))
        facts = {table: _sorted_by_concept(frames) for table, frames in self._facts.items()}
        tables = {name: _TableWriter(self._draft, name, schema) for name, schema in TABLES.items()}

        def write_part(numbered: tuple[int, pl.DataFrame]) -> dict[str, Digestible]:
            number, piece = numbered
            names = _canonical(_complete(_tidied(piece), late))
            own = {table: _about(names, rows) for table, rows in facts.items()}
            return {name: tables[name].write(number, rows) for name, rows in {"names": names, **own}.items()}

        concepts = 0
        for written in ordered_map(write_part, enumerate(_whole_concepts(self._take_spool()))):
            concepts += written["names"].concepts
            for name, part in written.items():
                tables[name].digest.update(part)
        self._spool.rmdir()
        rows = {name: table.digest.rows for name, table in tables.items()}
        if not rows["names"]:
            raise SapbertError("no name is left to write; is a filter too narrow?")
        if intake.skipped:
            self.count("bad rows skipped", intake.skipped)
        self._draft.seal(
            KIND,
            fingerprint=fingerprint_of({name: table.digest.hexdigest() for name, table in tables.items()}),
            settings=settings,
            inputs=intake.inputs,
            counts={"concepts": concepts, **rows, **self.counts},
            details={"type_labels": dict(sorted(self.type_labels.items())), "skipped": intake.examples},
        )

    def _take_spool(self) -> Iterator[pl.DataFrame]:
        """Yield the spooled frames in order of concept, letting go of each."""
        frames = (_fetch(self._spooled.popleft()) for _ in range(len(self._spooled)))
        if self._sorted:
            yield from frames
        else:
            yield from pl.concat(frames).sort("concept_id").iter_slices(ROWS_A_PART)


def _fetch(names: pl.DataFrame | Path) -> pl.DataFrame:
    if isinstance(names, pl.DataFrame):
        return names
    frame = pl.read_ipc(names)
    names.unlink()
    return frame


class _TableWriter:
    """Writes one table of the artifact, a Parquet file a part."""

    def __init__(self, draft: Draft, name: str, schema: Schema) -> None:
        self._draft = draft
        self._folder = draft.path / name
        self._folder.mkdir()
        self.digest = TableDigest(schema)

    def write(self, number: int, part: pl.DataFrame) -> Digestible:
        """Write a part, from any thread; the digest must be given what this returns in order of parts."""
        if not part.is_empty():
            file = self._folder / f"{number:05}.parquet"
            with system_errors(file):
                part.write_parquet(file, compression=COMPRESSION)
            self._draft.settle(file)
        return digestible(part)


@contextmanager
def write_vocabulary(
    target: Path, settings: Mapping[str, Any], intake: Intake, *, overwrite: bool = False
) -> Iterator[VocabularyWriter]:
    """Give out a writer; when the block ends, what was added is the vocabulary artifact at `target`."""
    with create(target, overwrite=overwrite) as draft:
        writer = VocabularyWriter(draft)
        yield writer
        writer.finish(settings, intake)


def _conform(names: pl.DataFrame) -> pl.DataFrame:
    defaults = {"rank": 0, "language": "en", "source": "", "scope": "exact"}
    missing = [
        pl.lit(value).alias(column) for column, value in defaults.items() if column not in names.columns
    ]
    return names.with_columns(missing).select(pl.col(column).cast(dtype) for column, dtype in SPOOL.items())


def _sorted_by_concept(frames: list[pl.DataFrame]) -> pl.DataFrame:
    joined = pl.concat(frames, rechunk=True)
    frames.clear()
    return joined if joined["concept_id"].is_sorted() else joined.sort("concept_id").rechunk()


def _whole_concepts(frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Regroup frames that are sorted by concept so that no concept is cut in two."""
    held: list[pl.DataFrame] = []
    rows = 0
    for frame in frames:
        held.append(frame)
        rows += frame.height
        if rows < ROWS_A_PART:
            continue
        joined = pl.concat(held, rechunk=True)
        ids = joined["concept_id"]
        start = ids.search_sorted(ids[-1], side="left")
        if start:
            yield joined[:start]
        held = [joined[start:]]
        rows = held[0].height
    if held:
        yield pl.concat(held, rechunk=True)


def _near(concepts: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows between the first and the last of `concepts`; both are sorted by concept."""
    ids, own = rows["concept_id"], concepts["concept_id"]
    if own.is_empty():
        return rows.clear()
    return rows[ids.search_sorted(own[0], side="left") : ids.search_sorted(own[-1], side="right")]


def _about(concepts: pl.DataFrame, facts: pl.DataFrame) -> pl.DataFrame:
    """The distinct rows of `facts` about `concepts`, in order."""
    about = _near(concepts, facts).join(concepts, on="concept_id", how="semi", maintain_order="left")
    return about.sort(about.columns).filter(_starts_run(about.columns))


def _complete(piece: pl.DataFrame, late: pl.DataFrame) -> pl.DataFrame:
    """Number the concepts of a piece and add their late names."""
    numbered = piece.with_columns(concept=pl.col("concept_id").rle_id())
    near = _near(piece, late)
    if near.is_empty():
        return numbered
    owners = numbered.select("concept_id", "concept").filter(_starts_run(["concept"]))
    return pl.concat([numbered, near.join(owners, on="concept_id")])


def _tidied(names: pl.DataFrame) -> pl.DataFrame:
    return names.with_columns(tidy_names(names["name"])).filter(pl.col("name").str.len_bytes() > 0)


def _canonical(frame: pl.DataFrame) -> pl.DataFrame:
    """Sort the tidy names of whole, numbered concepts, drop repeated ones and mark the preferred."""
    key = ["concept", *NAME_KEY[1:]]
    distinct = sort_names(frame).filter(_starts_run(key))
    preferred = _first_of_best(distinct["rank"], distinct.select(_starts_run(key[:2])).to_series())
    return distinct.with_columns(preferred=preferred).select(list(NAMES))


def _starts_run(columns: list[str]) -> pl.Expr:
    """True in each row that differs from the one above it in any of `columns`."""
    return pl.any_horizontal(pl.col(column).ne_missing(pl.col(column).shift()) for column in columns)


def _first_of_best(rank: pl.Series, starts: pl.Series) -> pl.Series:
    """In each run of rows, mark the first of highest rank, if that is above 0."""
    if rank.is_empty():
        return pl.Series([], dtype=pl.Boolean)
    first = starts.arg_true().to_numpy()
    lengths = np.diff(first, append=len(rank))
    ranks = rank.to_numpy()
    best = ranks == np.repeat(np.maximum.reduceat(ranks, first), lengths)
    ordinal = np.cumsum(best)
    ordinal -= np.repeat(ordinal[first] - best[first], lengths)
    return pl.Series(best & (ordinal == 1) & (ranks > 0))
