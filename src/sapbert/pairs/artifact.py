"""The pairs artifact: memory-mapped numpy arrays, read without polars.

Training runs on GPU machines with few packages, so this needs only numpy. It must start at once on twelve
million pairs, so nothing is parsed: names are UTF-8 bytes with offsets, pairs are row numbers.

| file | type | content |
|---|---|---|
| `names.npy` | uint8 | the folded names, concatenated, as UTF-8 |
| `offsets.npy` | int64 (names + 1) | start of each name |
| `concepts.npy` | int32 (names) | number of the concept of each name; rows of a concept are contiguous |
| `concept_ids.npy`, `concept_offsets.npy` | uint8, int64 | the ids of the concepts, stored like names |
| `pairs.npy` | int32 (pairs, 2) | rows of two names of one concept |
| `homonyms.npy` | int32 (rows, 2) | row of a name whose text belongs to several concepts, and its group |
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
    """Rows of ambiguous names by group, and the start of each group; computed on first use."""

    @classmethod
    def open(cls, path: Path | str, *, verify: bool = True) -> Pairs:
        """Open the artifact written by `sapbert pairs`; `verify` compares checksums."""
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
        """Return which names share a concept, also through an ambiguous text.

        "cold" is the name of an infection and of a temperature: it is not a negative for the names of either
        concept, whichever of the two it was drawn for.  # (rows, rows)
        """
        concepts = self.concepts[rows]
        shared: NDArray[np.bool_] = concepts[:, None] == concepts
        some, others = self.share_concept_by_homonym(rows)
        shared[some, others] = shared[others, some] = True
        return shared

    def share_concept_by_homonym(
        self, rows: NDArray[np.integer[Any]]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the positions in `rows` of two names each that share a concept through an ambiguous text."""
        position, concept = self._other_concepts(rows)
        position = np.concatenate([np.arange(len(rows)), position])
        concept = np.concatenate([self.concepts[rows], concept])
        order = np.argsort(concept, kind="stable")
        # Few names have several concepts; the names of each of those concepts are a span of `order`.
        first, last = (
            np.searchsorted(concept[order], concept[len(rows) :], side) for side in ("left", "right")
        )
        ends = np.cumsum(last - first)
        others = order[np.arange(ends[-1] if len(ends) else 0) + np.repeat(last - ends, last - first)]
        return np.repeat(position[len(rows) :], last - first), position[others]

    def _other_concepts(self, rows: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return every concept of the ambiguous names in `rows`, and the position of its name in `rows`."""
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
