"""Names laid by concept: the identifier of each concept once, and its number in every row.

Of fifteen million rows of UMLS four million begin a concept. Numbers are compared, sorted and moved in a
fraction of the time that texts take, so identifiers come back into the rows only where they are written.
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
    """The identifier of each concept; one comes again where its rows do not lie together."""
    names: pl.DataFrame
    """A row a name; `concept` is a place in `ids`, ascending but for names that came late."""

    @classmethod
    def of(cls, names: pl.DataFrame, prefix: str = "") -> Self:
        """Lay names with a column `concept_id` by concept; `prefix` is put before each identifier."""
        own = names["concept_id"]
        numbers = own.rle_id().alias("concept")
        return cls(prefix + own.gather(run_starts(numbers)), names.drop("concept_id").with_columns(numbers))

    @classmethod
    def joined(cls, pieces: Iterable[Self]) -> Self:
        """Lay pieces one after the other; a concept may go on from one to the next."""
        ids: list[pl.Series] = []
        names: list[pl.DataFrame] = []
        count, last = 0, None
        for piece in pieces:
            again = int(piece.ids[0] == last)
            names.append(piece.names.with_columns(pl.col("concept") + (count - again)))
            ids.append(piece.ids[again:])
            count += len(piece.ids) - again
            last = piece.ids[-1]
        return cls(pl.concat(ids, rechunk=True), pl.concat(names, rechunk=True))

    def keeping(self, names: pl.DataFrame) -> Self:
        """The same with some of the names alone; concepts left without any are dropped."""
        some = self._replace(names=names)
        return some if names.height == self.names.height else type(self).of(some.with_ids())

    def with_ids(self) -> pl.DataFrame:
        """The names with their `concept_id`, as `of` takes them."""
        return self.names.drop("concept").with_columns(concept_id=self.ids.gather(self.names["concept"]))

    def split_last(self) -> tuple[Self, Self]:
        """All concepts but the last, and the last."""
        start = self.names["concept"].search_sorted(len(self.ids) - 1, side="left")
        last = self.names[start:].with_columns(concept=pl.lit(0, pl.UInt32))
        return self._replace(ids=self.ids[:-1], names=self.names[:start]), self._replace(
            ids=self.ids[-1:], names=last
        )


def run_starts(*columns: pl.Series) -> NDArray[np.int64]:
    """The first row of each run of rows that are equal in all of some columns of numbers or categories."""
    differs = np.ones(len(columns[0]), np.bool_)
    differs[1:] = False
    for column in columns:
        values = column.to_physical().to_numpy()
        differs[1:] |= values[1:] != values[:-1]
    return np.flatnonzero(differs)


def regroup_by_concept(pieces: Iterable[NamesByConcept], rows_a_part: int) -> Iterator[NamesByConcept]:
    """Regroup pieces that are in order of concept so that no concept is cut in two."""
    held: list[NamesByConcept] = []
    rows = 0
    for piece in pieces:
        held.append(piece)
        rows += piece.names.height
        if rows < rows_a_part:
            continue
        whole, last = NamesByConcept.joined(held).split_last()
        if len(whole.ids):
            yield whole
        held, rows = [last], last.names.height
    if held:
        yield NamesByConcept.joined(held)
