"""The pairs artifact: plain numpy arrays, mapped into memory, read without polars.

Training runs on bare GPU machines, so this needs numpy alone; and it must start at once on
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
    _by_group: list[NDArray[Any]] = field(default_factory=list)
    """Rows of ambiguous names by group, and where each group begins; made when first asked for."""

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
        position, concept = self._other_concepts(rows)
        position = np.concatenate([np.arange(len(rows)), position])
        concept = np.concatenate([own, concept])
        shared: NDArray[np.bool_] = own[:, None] == own
        # Of names with several concepts there are few, so each of these concepts is held against all.
        some, every = np.nonzero(concept[len(rows) :, None] == concept)
        some = position[len(rows) + some]
        shared[some, position[every]] = shared[position[every], some] = True
        return shared

    def _other_concepts(self, rows: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """The concepts that ambiguous texts among some names have, and the position of each in `rows`."""
        if not len(self.homonyms):
            return np.empty(0, np.int64), np.empty(0, np.int32)
        at = np.minimum(np.searchsorted(self.homonyms[:, 0], rows), len(self.homonyms) - 1)
        ambiguous = np.flatnonzero(self.homonyms[at, 0] == rows)
        groups = self.homonyms[at[ambiguous], 1]
        if not self._by_group:
            order = np.argsort(self.homonyms[:, 1], kind="stable")
            starts = np.searchsorted(self.homonyms[order, 1], np.arange(self.homonyms[order[-1], 1] + 2))
            self._by_group.extend([self.homonyms[order, 0], starts])
        members, starts = self._by_group
        sizes = starts[groups + 1] - starts[groups]
        ends = np.cumsum(sizes)
        places = np.arange(sizes.sum()) + np.repeat(starts[groups + 1] - ends, sizes)
        return np.repeat(ambiguous, sizes), self.concepts[members[places]]
