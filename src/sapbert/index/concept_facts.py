"""Parents and definitions of the concepts of an index: memory-mapped arrays beside its names.

| file | type | what |
|---|---|---|
| `parent_offsets.npy`, `parent_numbers.npy` | offsets (concepts + 1), int32 | the parents of each concept |
| `child_offsets.npy`, `child_numbers.npy` | offsets (concepts + 1), int32 | its children |
| `definitions` | texts | the definition to display, empty if there is none |

The files are missing if the vocabulary has no parents or no definitions, and in indexes of older versions.
Parents that the vocabulary does not have are left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sapbert.arrays import Texts, TextsWriter, map_numbers, map_offsets, offset_type
from sapbert.hierarchy import Hierarchy, Neighbours

if TYPE_CHECKING:
    import polars as pl

    from sapbert.vocab.vocabulary import Vocabulary

DEFINITIONS = "definitions"


def write_concept_facts(folder: Path, vocabulary: Vocabulary, concepts: pl.Series) -> None:
    """Write the parents and definitions of `concepts`, the sorted identifiers of all concepts."""
    hierarchy = vocabulary.hierarchy.graph
    if hierarchy:
        _save(folder, "parent", hierarchy.parents_of)
        _save(folder, "child", hierarchy.children_of)
    _write_definitions(folder, vocabulary, concepts)


def open_hierarchy(folder: Path, concepts: int) -> Hierarchy:
    """Map the parents of an index with so many concepts."""
    if not (folder / "parent_offsets.npy").exists():
        return Hierarchy.empty(concepts)
    return Hierarchy(_open(folder, "parent", concepts), _open(folder, "child", concepts))


def open_definitions(folder: Path, concepts: int) -> Texts | None:
    """Map the definitions of an index with so many concepts; None if it has none."""
    if not (folder / f"{DEFINITIONS}.npy").exists():
        return None
    return Texts.open(folder, DEFINITIONS, rows=concepts)


def _save(folder: Path, name: str, neighbours: Neighbours) -> None:
    np.save(folder / f"{name}_offsets.npy", neighbours.offsets)
    np.save(folder / f"{name}_numbers.npy", neighbours.numbers)


def _open(folder: Path, name: str, concepts: int) -> Neighbours:
    numbers = map_numbers(folder / f"{name}_numbers.npy", np.int32, rows=None, below=concepts)
    return Neighbours(map_offsets(folder / f"{name}_offsets.npy", rows=concepts, end=len(numbers)), numbers)


def _write_definitions(folder: Path, vocabulary: Vocabulary, concepts: pl.Series) -> None:
    import polars as pl

    from sapbert.vocab.text_columns import append_texts

    # The same choice as `Vocabulary.concept` makes.
    order = ("concept_id", pl.col("language") != "en", "language", "source", "text")
    shown = vocabulary.definitions.sort(order).unique("concept_id", keep="first", maintain_order=True)
    rows = concepts.to_frame("concept_id").join(
        shown.collect(), on="concept_id", how="left", maintain_order="left"
    )
    texts = rows["text"].fill_null("")
    total = int(texts.str.len_bytes().sum())
    if total:
        files = (folder / f"{DEFINITIONS}.npy", folder / f"{DEFINITIONS}_offsets.npy")
        with TextsWriter(*files, offset_type(total)) as writer:
            append_texts(texts, writer)
