"""Write `index.name_table` for a vocabulary: distinct folded names, sorted, and their concepts.

A vocabulary is sorted by concept and the table by name, so all names are sorted once, in memory. Only that
grows with the vocabulary; the files are written from it piece by piece.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from sapbert.arrays import ArrayWriter, TextsWriter, offset_type
from sapbert.errors import SapbertError
from sapbert.index.concept_facts import write_concept_facts
from sapbert.index.name_table import COUNTED_LINKS, LINK_COUNTS, WORDS, NameTable
from sapbert.index.spellings import SpellingWriter
from sapbert.parallel import ordered_map
from sapbert.vocab.schema import NAMES, Kind
from sapbert.vocab.settings import KINDS
from sapbert.vocab.text_columns import append_texts, fold_tidy_names
from sapbert.vocab.vocabulary import Vocabulary, scan_parts

ROWS_PER_PIECE = 1_000_000
"""Links written at a time."""
_LINK_COLUMNS = {
    "concept": "link_concepts",
    "source": "link_sources",
    "kind": "link_kinds",
    "language": "link_languages",
    "preferred": "link_preferred",
}
"""Columns of a link, and the files they are written to."""


def write_name_table(vocabulary: Vocabulary, folder: Path, *, inverted: bool = True) -> NameTable:
    """Write the name table of a vocabulary to `folder`, which must exist, and open it.

    Unless `inverted`, names with a comma are left out if their concept has a name of the same words without
    one; preferred names are kept.
    """
    concepts, links = _read_names(vocabulary, inverted=inverted)
    if links.is_empty():
        raise SapbertError(f"{vocabulary.path}: all names are empty after folding")
    words = {f"{column}s": _words(links[column]) for column in ("source", "kind", "language")}
    links = links.with_columns(
        pl.col(name[:-1]).cast(pl.Enum(known)).to_physical() for name, known in words.items()
    )
    _write_rows(folder, links, words)
    del links
    _write_texts(folder, "concepts", concepts["concept_id"])
    _write_texts(folder, "preferred", concepts["preferred"])
    _write_aliases(folder, vocabulary, concepts)
    types = words["types"] = _write_types(folder, vocabulary, concepts)
    write_concept_facts(folder, vocabulary, concepts["concept_id"])
    labels = {code: label for code, label in vocabulary.type_labels.items() if code in types}
    text = json.dumps({**words, "type_labels": labels}, ensure_ascii=False)
    (folder / WORDS).write_text(text + "\n", encoding="utf-8")
    return NameTable.open(folder)


def _read_names(vocabulary: Vocabulary, *, inverted: bool) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return all concepts, numbered, and all distinct links: folded, name and `_LINK_COLUMNS`."""
    concepts, links = [], []
    before = 0
    for own_concepts, own_links in ordered_map(partial(_read_part, inverted=inverted), vocabulary.parts()):
        concepts.append(own_concepts)
        links.append(own_links.with_columns(pl.col("concept") + before))
        before += own_concepts.height
    return pl.concat(concepts).with_row_index("concept"), pl.concat(links, rechunk=True)


def _read_part(part: Path, *, inverted: bool) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the concepts and links of a part of the vocabulary; called on several threads."""
    frame = scan_parts(part, NAMES).drop("scope").collect()
    frame = frame.with_columns(
        concept=pl.col("concept_id").rle_id(),
        folded=fold_tidy_names(frame["name"]),
        row=pl.int_range(pl.len()),
    )
    # The same choice as `Vocabulary.concept` makes.
    shown = [pl.col("preferred"), pl.col("language") == "en"]
    best = frame.sort("concept", *shown, "row", descending=[False, True, True, False])
    first = best.unique("concept", keep="first", maintain_order=True)
    if not inverted:
        frame = frame.filter(~_is_inverted())
    links = frame.filter(pl.col("folded") != "").unique(
        ["folded", "concept", "source", "language"], keep="first", maintain_order=True
    )
    return first.select("concept_id", preferred="name"), links.select(
        "folded", "name", "count", *_LINK_COLUMNS
    )


def _is_inverted() -> pl.Expr:
    """Return whether a name has a comma, and its concept a name of the same words without a comma."""
    words = pl.col("folded").str.extract_all(r"[\p{L}\p{N}]+").list.sort().list.join(" ")
    comma = pl.col("folded").str.contains(",", literal=True)
    return comma & ~pl.col("preferred") & (~comma).any().over("concept", "source", words)


def _words(column: pl.Series) -> list[str]:
    """Return the distinct words of a column: kinds in the order of `KINDS`, others sorted."""
    words = column.unique().cast(pl.String)
    return sorted(words, key=KINDS.index) if column.dtype == Kind else sorted(words)


def _own_spelling() -> pl.Expr:
    """Return the spelling of each folded name: the first in the vocabulary, own names first."""
    return pl.col("name").sort_by("kind", maintain_order=True).first().over("folded")


def _write_rows(folder: Path, links: pl.DataFrame, words: Mapping[str, Sequence[str]]) -> None:
    """Write names sorted, each with its links; of several spellings the first in the vocabulary is kept."""
    if len(words["kinds"]) > 1:
        links = links.with_columns(name=_own_spelling())
    order = links.select(pl.arg_sort_by("folded", maintain_order=True)).to_series()
    _write_counts(folder, links["count"].gather(order))
    last = pl.Series([None], dtype=pl.String)
    types = {"concept": np.int32, "preferred": np.bool_}
    types |= {name[:-1]: np.min_scalar_type(len(known)).type for name, known in words.items()}
    with (
        ArrayWriter(folder / "link_offsets.npy", offset_type(len(order))) as offsets,
        ExitStack() as stack,
        _texts_writer(folder, "folded", links["folded"]) as folded,
        SpellingWriter(folder) as spellings,
    ):
        writers = {
            column: stack.enter_context(ArrayWriter(folder / f"{file}.npy", types[column]))
            for column, file in _LINK_COLUMNS.items()
        }
        for start in range(0, len(order), ROWS_PER_PIECE):
            piece = links[order[start : start + ROWS_PER_PIECE]]
            above = pl.concat([last, piece["folded"][:-1]])
            last = piece["folded"][-1:]
            first = piece["folded"].ne_missing(above)
            offsets.append(first.arg_true().to_numpy() + start)
            for column, writer in writers.items():
                writer.append(piece[column].to_numpy())
            append_texts(piece["folded"].filter(first), folded)
            spellings.append(piece["name"].filter(first), piece["folded"].filter(first))
        offsets.append(np.array([len(order)]))


def _write_counts(folder: Path, counts: pl.Series) -> None:
    """Write the counts that are known; no files if there are none."""
    counted = (counts > 0).arg_true()
    if len(counted):
        np.save(folder / COUNTED_LINKS, counted.to_numpy().astype(np.int32))
        np.save(folder / LINK_COUNTS, counts.gather(counted).to_numpy())


def _write_aliases(folder: Path, vocabulary: Vocabulary, concepts: pl.DataFrame) -> None:
    aliases = vocabulary.aliases.collect().join(concepts, on="concept_id")
    # An alias of several concepts refers to the first, as in `Vocabulary.concept`.
    ordered = aliases.sort("alias", "concept").unique("alias", keep="first", maintain_order=True)
    _write_texts(folder, "aliases", ordered["alias"])
    np.save(folder / "alias_concepts.npy", ordered["concept"].to_numpy().astype(np.int32))


def _write_types(folder: Path, vocabulary: Vocabulary, concepts: pl.DataFrame) -> list[str]:
    rows = vocabulary.types.collect().join(concepts, on="concept_id").sort("concept", "type")
    types = rows["type"].unique().sort().to_list()
    numbers = rows["type"].cast(pl.Enum(types)).to_physical().to_numpy()
    counts = np.bincount(rows["concept"].to_numpy(), minlength=concepts.height)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(offset_type(len(numbers)))
    np.save(folder / "type_offsets.npy", offsets)
    np.save(folder / "type_numbers.npy", numbers.astype(np.int32))
    return types


def _write_texts(folder: Path, name: str, texts: pl.Series) -> None:
    with _texts_writer(folder, name, texts) as writer:
        append_texts(texts, writer)


def _texts_writer(folder: Path, name: str, texts: pl.Series) -> TextsWriter:
    """Open the files for some of `texts`."""
    most = int(texts.str.len_bytes().sum())
    return TextsWriter(folder / f"{name}.npy", folder / f"{name}_offsets.npy", offset_type(most))
