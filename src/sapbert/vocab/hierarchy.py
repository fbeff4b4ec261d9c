"""The hierarchy of a vocabulary: its table of parents as a graph of numbered concepts.

A parent may be given by an alias of its concept. A parent that the vocabulary does not have is counted and
left out; it stays in the table, because another vocabulary may have it after a merge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import polars as pl

from sapbert.hierarchy import Hierarchy


@dataclass(frozen=True, slots=True)
class ConceptHierarchy:
    """Parents and children by identifier."""

    ids: pl.Series
    """Identifiers of all concepts, sorted; their positions are the numbers in `graph`."""
    graph: Hierarchy
    missing: int
    """Rows of the table whose parent is not a concept of the vocabulary."""

    @classmethod
    def of(cls, ids: pl.Series, parents: pl.DataFrame, aliases: pl.DataFrame) -> Self:
        """Number the concepts in `parents`; rows about other concepts than `ids` are left out."""
        numbers = pl.DataFrame({"id": ids}).with_row_index("number")
        children = parents.select("parent_id", id="concept_id").join(numbers, on="id")
        # As everywhere, an alias of several concepts refers to the first of them.
        owners = aliases.filter(pl.col("alias").is_in(children["parent_id"].unique().implode()))
        by_alias = (
            owners.join(numbers, left_on="concept_id", right_on="id")
            .group_by(id="alias")
            .agg(pl.col("number").min())
        )
        known = pl.concat([numbers, by_alias.select("number", "id").join(numbers, on="id", how="anti")])
        edges = children.select("number", id="parent_id").join(known, on="id", suffix="_above")
        graph = Hierarchy.from_edges(
            len(ids),
            edges["number"].to_numpy().astype("int64"),
            edges["number_above"].to_numpy().astype("int64"),
        )
        return cls(ids, graph, children.height - edges.height)

    def number(self, curie: str) -> int | None:
        """Return the number of a concept; None if the vocabulary does not have it."""
        place = self.ids.search_sorted(curie, side="left")
        return place if place < len(self.ids) and self.ids[place] == curie else None

    def identifiers(self, numbers: Sequence[int]) -> tuple[str, ...]:
        """Return the identifiers of numbered concepts."""
        return tuple(self.ids.gather(list(numbers))) if numbers else ()
