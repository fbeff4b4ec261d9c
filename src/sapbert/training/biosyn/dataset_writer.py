"""Write a `training.biosyn.dataset` from a vocabulary and a table of labelled mentions. Needs polars."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sapbert.arrays import TextsWriter
from sapbert.artifacts import create
from sapbert.index.name_table import NameTable
from sapbert.index.name_table_writer import write_name_table
from sapbert.mentions import (
    LabelledMention,
    distinct_ids,
    no_known_concept,
    read_labelled_mentions,
    resolve_concepts,
)
from sapbert.training.biosyn.dataset import ENTRIES, KIND, MENTIONS, BiosynDataset
from sapbert.vocab.input_files import InputReader
from sapbert.vocab.vocabulary import Vocabulary


def write_biosyn_dataset(
    vocabulary: Vocabulary, table: Path, target: Path, *, prefix: str | None = None, overwrite: bool = False
) -> BiosynDataset:
    """Write the labelled mentions in `table` (`sapbert.mentions`) and all names of `vocabulary`; open them.

    `prefix` is for ids without one. Mentions without a concept of the vocabulary are left out and counted.
    """
    inputs = InputReader()
    # Without duplicates: how often a corpus repeats a mention says nothing about its meaning.
    mentions = list(dict.fromkeys(read_labelled_mentions(table, inputs, prefix=prefix)))
    with create(target, overwrite=overwrite) as draft:
        (draft.path / ENTRIES).mkdir()
        name_table = write_name_table(vocabulary, draft.path / ENTRIES)
        labelled = [
            mention for mention in resolve_concepts(mentions, name_table.resolve) if mention.concept_ids
        ]
        if not labelled:
            raise no_known_concept(mentions, vocabulary.path, table=table)
        _write_mentions(draft.path, name_table, labelled)
        draft.seal(
            KIND,
            settings={"mentions": table.name, "prefix": prefix},
            inputs={vocabulary.path.name: {"fingerprint": vocabulary.fingerprint}, **inputs.checksums},
            counts={
                "mentions": len(labelled),
                "mentions without a known concept": len(mentions) - len(labelled),
                "names": len(name_table),
                "concepts": len(name_table.concepts),
            },
        )
    return BiosynDataset.open(target)


def _write_mentions(folder: Path, name_table: NameTable, mentions: Sequence[LabelledMention]) -> None:
    encoded = [mention.text.encode() for mention in mentions]
    with TextsWriter(folder / f"{MENTIONS}.npy", folder / f"{MENTIONS}_offsets.npy") as writer:
        writer.append(b"".join(encoded), np.array([len(text) for text in encoded]))
    ids = distinct_ids(mentions)
    number_of = dict(zip(ids, name_table.concepts_of(ids).tolist(), strict=True))
    numbers = [sorted(number_of[curie] for curie in mention.concept_ids) for mention in mentions]
    np.save(folder / "gold_offsets.npy", np.cumsum([0, *map(len, numbers)], dtype=np.int64))
    np.save(folder / "gold_concepts.npy", np.concatenate(numbers).astype(np.int64))
