"""The training data of BioSyn: labelled mentions and all names of a vocabulary, as memory-mapped arrays.

As in BioSyn, a mention occurs once per set of concepts that it is labelled with, however often a corpus
repeats it. `dataset_writer` writes the files and needs polars; training does not.

| file | type | content |
|---|---|---|
| `entries/` | | names and concepts (`index.name_table`) |
| `mentions` | texts | folded mentions |
| `gold_offsets.npy` | int64 (mentions + 1) | start of the concepts of each mention |
| `gold_concepts.npy` | int64 | numbers of gold concepts, any of which is right |
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
        """Open the files that `write_biosyn_dataset` wrote, and compare their checksums."""
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
        """Return whether each candidate is a name of a gold concept of its mention; False for a row of -1.

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
