"""Names grouped by concept: each identifier is stored once, and every row has the number of its concept.

Of fifteen million rows of UMLS, four million begin a new concept. Numbers are compared, sorted and moved much
faster than strings, so identifiers are put back into the rows only when they are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray


class NamesByConcept(NamedTuple):
    """Some concepts and their names."""

    ids: pl.Series
    """Identifier of each concept. It is repeated if the rows of a concept are not adjacent."""
    names: pl.DataFrame
    """One row per name. `concept` is an index into `ids`, ascending except for names added late."""

    @classmethod
    def of(cls, names: pl.DataFrame, prefix: str = "") -> Self:
        """Group names with a column `concept_id`; `prefix` is prepended to each identifier."""
        ids = names["concept_id"]
        numbers = ids.rle_id().alias("concept")
        return cls(prefix + ids.gather(run_starts(numbers)), names.drop("concept_id").with_columns(numbers))

    @classmethod
    def concat(cls, pieces: Iterable[Self]) -> Self:
        """Concatenate pieces; the last concept of one piece may continue in the next."""
        ids: list[pl.Series] = []
        names: list[pl.DataFrame] = []
        count, last = 0, None
        for piece in pieces:
            repeated = int(piece.ids[0] == last)
            names.append(piece.names.with_columns(pl.col("concept") + (count - repeated)))
            ids.append(piece.ids[repeated:])
            count += len(piece.ids) - repeated
            last = piece.ids[-1]
        return cls(pl.concat(ids, rechunk=True), pl.concat(names, rechunk=True))

    def with_names(self, names: pl.DataFrame) -> Self:
        """Return the same concepts with only these `names`; concepts without names are dropped."""
        some = self._replace(names=names)
        return some if names.height == self.names.height else type(self).of(some.with_ids())

    def with_ids(self) -> pl.DataFrame:
        """Return the names with their `concept_id`, the inverse of `of`."""
        return self.names.drop("concept").with_columns(concept_id=self.ids.gather(self.names["concept"]))

    def split_last(self) -> tuple[Self, Self]:
        """Return all concepts but the last, and the last."""
        start = self.names["concept"].search_sorted(len(self.ids) - 1, side="left")
        last = self.names[start:].with_columns(concept=pl.lit(0, pl.UInt32))
        return self._replace(ids=self.ids[:-1], names=self.names[:start]), self._replace(
            ids=self.ids[-1:], names=last
        )


def run_starts(*columns: pl.Series) -> NDArray[np.int64]:
    """Return the first row of each run of rows that are equal in all `columns` (numbers or categories)."""
    differs = np.ones(len(columns[0]), np.bool_)
    differs[1:] = False
    for column in columns:
        values = column.to_physical().to_numpy()
        differs[1:] |= values[1:] != values[:-1]
    return np.flatnonzero(differs)


def regroup_by_concept(pieces: Iterable[NamesByConcept], rows_per_part: int) -> Iterator[NamesByConcept]:
    """Regroup pieces that are sorted by concept so that no concept is split over two pieces."""
    pending: list[NamesByConcept] = []
    rows = 0
    for piece in pieces:
        pending.append(piece)
        rows += piece.names.height
        if rows < rows_per_part:
            continue
        whole, last = NamesByConcept.concat(pending).split_last()
        if len(whole.ids):
            yield whole
        pending, rows = [last], last.names.height
    if pending:
        yield NamesByConcept.concat(pending)
