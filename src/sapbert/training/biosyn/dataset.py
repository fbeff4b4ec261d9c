"""Labelled mentions beside all names of their vocabulary: what BioSyn learns from. numpy only, mapped.

A mention is here once for each set of concepts that it was labelled with, however often a corpus repeats it,
as in BioSyn. `labelled_writer` writes all this, and needs polars; training from it does not.

| file | type | what |
|---|---|---|
| `entries/` | | names and concepts (`index.name_table`) |
| `mentions` | texts | folded mentions |
| `gold_offsets.npy` | int64 (mentions + 1) | where the concepts of each mention begin |
| `gold_concepts.npy` | int64 | numbers of concepts, any of which is right |
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sapbert.arrays import Texts, map_array
from sapbert.artifacts import Manifest, load_manifest
from sapbert.index.name_table import NameTable

KIND = "labelled mentions"
ENTRIES = "entries"
MENTIONS = "mentions"


@dataclass(frozen=True, slots=True)
class BiosynDataset:
    """The artifact at `path`."""

    path: Path
    manifest: Manifest
    name_table: NameTable
    mentions: Texts
    gold_offsets: NDArray[np.int64]
    gold_concepts: NDArray[np.int64]

    @classmethod
    def open(cls, path: Path) -> BiosynDataset:
        """Open what `write_biosyn_dataset` wrote, checking that it is whole."""
        return cls(
            path,
            load_manifest(path, kind=KIND),
            NameTable.open(path / ENTRIES),
            Texts.open(path, MENTIONS),
            map_array(path / "gold_offsets.npy"),
            map_array(path / "gold_concepts.npy"),
        )

    def __len__(self) -> int:
        return len(self.mentions)

    def right(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say of each candidate whether it names what its mention means; a row of -1 does not.

        # rows and result: (mentions, k)
        """
        concepts = len(self.name_table.concepts)
        owner = np.repeat(np.arange(len(self)), np.diff(self.gold_offsets))
        gold = owner * concepts + self.gold_concepts
        mention, column = np.nonzero(rows >= 0)
        place, link = self.name_table.links_behind(rows[mention, column])
        named = mention[place] * concepts + self.name_table.link_concepts[link]
        hit = place[np.isin(named, gold)]
        right = np.zeros(rows.shape, np.bool_)
        right[mention[hit], column[hit]] = True
        return right
