"""The pairs artifact: plain numpy arrays, mapped into memory, read without polars.

Training runs on bare GPU machines, so this needs numpy and nothing else; and it must start at once on
twelve million pairs, so nothing is parsed: names are UTF-8 bytes with offsets, pairs are row numbers.

| file | type | what |
|---|---|---|
| `names.npy` | uint8 | the folded names, one after the other, as UTF-8 |
| `offsets.npy` | int64 (names + 1) | where each begins |
| `concepts.npy` | int32 (names) | the number of the concept each belongs to; rows of a concept lie together |
| `concept_ids.npy`, `concept_offsets.npy` | uint8, int64 | the identifiers of the concepts, stored likewise |
| `pairs.npy` | int32 (pairs, 2) | two rows of names of one concept |
| `homonyms.npy` | int32 (rows, 2) | a row whose text names several concepts, and the group with that text |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sapbert.arrays import Texts, map_array
from sapbert.artifacts import Manifest, load_manifest

KIND = "pairs"


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs artifact at `path`."""

    path: Path
    manifest: Manifest
    names: Texts
    concepts: NDArray[np.int32]
    """Concept number of each name.  # (names,)"""
    concept_ids: Texts
    pairs: NDArray[np.int32]
    """Rows of two names of one concept.  # (pairs, 2)"""
    homonyms: NDArray[np.int32]
    """Rows of ambiguous names, ascending, with the group of each.  # (rows, 2)"""
    _members: dict[int, NDArray[np.int32]] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path | str, *, verify: bool = True) -> Pairs:
        """Map the artifact written by `sapbert pairs` into memory, checking that it is whole."""
        folder = Path(path)
        manifest = load_manifest(folder, kind=KIND, verify=verify)

        def load(name: str) -> NDArray[Any]:
            return map_array(folder / f"{name}.npy")

        return cls(
            folder,
            manifest,
            Texts(load("names"), load("offsets")),
            load("concepts"),
            Texts(load("concept_ids"), load("concept_offsets")),
            load("pairs"),
            load("homonyms"),
        )

    def __len__(self) -> int:
        return len(self.pairs)

    def share_concept(self, rows: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
        """Tell which of some names have a concept in common, also through an ambiguous text.

        "cold" names an infection and a temperature: it is no negative of the names of either, whichever
        of the two it was drawn for.  # (rows, rows)
        """
        own = self.concepts[rows]
        position, concept = np.arange(len(rows)), own
        at = np.minimum(np.searchsorted(self.homonyms[:, 0], rows), max(len(self.homonyms) - 1, 0))
        known = self.homonyms[at, 0] == rows if len(self.homonyms) else np.zeros(len(rows), np.bool_)
        for index in np.flatnonzero(known):
            others = self.concepts[self._rows_like(int(self.homonyms[at[index], 1]))]
            position = np.append(position, np.full(len(others), index))
            concept = np.append(concept, others)
        _, column = np.unique(concept, return_inverse=True)
        incidence = np.zeros((len(rows), int(column.max(initial=0)) + 1), np.float32)
        incidence[position, column] = 1
        shared: NDArray[np.bool_] = incidence @ incidence.T > 0
        return shared

    def _rows_like(self, group: int) -> NDArray[np.int32]:
        """The rows of the names table that have the text of `group`."""
        if not self._members:
            order = np.argsort(self.homonyms[:, 1], kind="stable")
            cuts = np.flatnonzero(np.diff(self.homonyms[order, 1])) + 1
            self._members.update(enumerate(np.split(self.homonyms[order, 0], cuts)))
        return self._members[group]
