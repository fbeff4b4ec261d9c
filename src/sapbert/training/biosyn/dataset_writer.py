"""Write a `training.biosyn.dataset` from a vocabulary and a table of labelled mentions. Needs polars."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sapbert.arrays import TextsWriter
from sapbert.artifacts import create
from sapbert.index.entries import Entries
from sapbert.index.entries_writer import write_entries
from sapbert.mentions import (
    LabelledMention,
    distinct_ids,
    no_known_concept,
    read_labelled_mentions,
    resolve_concepts,
)
from sapbert.training.biosyn.dataset import ENTRIES, KIND, MENTIONS, BiosynDataset
from sapbert.vocab.intake import Intake
from sapbert.vocab.vocabulary import Vocabulary


def write_biosyn_dataset(
    vocabulary: Vocabulary, table: Path, target: Path, *, prefix: str | None = None, overwrite: bool = False
) -> BiosynDataset:
    """Write the labelled mentions in `table` (`sapbert.mentions`) and all names of `vocabulary`; open them.

    `prefix` is for ids without one. Mentions without a concept of the vocabulary are left out and counted.
    """
    intake = Intake()
    # Each once: how often a corpus repeats a mention says nothing about what it means.
    mentions = list(dict.fromkeys(read_labelled_mentions(table, intake, prefix=prefix)))
    with create(target, overwrite=overwrite) as draft:
        (draft.path / ENTRIES).mkdir()
        entries = write_entries(vocabulary, draft.path / ENTRIES)
        labelled = [own for own in resolve_concepts(mentions, entries.resolve) if own.concept_ids]
        if not labelled:
            raise no_known_concept(mentions, vocabulary.path, table=table)
        _write_mentions(draft.path, entries, labelled)
        draft.seal(
            KIND,
            settings={"mentions": table.name, "prefix": prefix},
            inputs={vocabulary.path.name: {"fingerprint": vocabulary.fingerprint}, **intake.inputs},
            counts={
                "mentions": len(labelled),
                "mentions without a known concept": len(mentions) - len(labelled),
                "names": len(entries),
                "concepts": len(entries.concepts),
            },
        )
    return BiosynDataset.open(target)


def _write_mentions(folder: Path, entries: Entries, mentions: Sequence[LabelledMention]) -> None:
    encoded = [mention.text.encode() for mention in mentions]
    with TextsWriter(folder / f"{MENTIONS}.npy", folder / f"{MENTIONS}_offsets.npy") as writer:
        writer.append(b"".join(encoded), np.array([len(text) for text in encoded]))
    ids = distinct_ids(mentions)
    number_of = dict(zip(ids, entries.concepts_of(ids).tolist(), strict=True))
    numbers = [sorted(number_of[curie] for curie in mention.concept_ids) for mention in mentions]
    np.save(folder / "gold_offsets.npy", np.cumsum([0, *map(len, numbers)], dtype=np.int64))
    np.save(folder / "gold_concepts.npy", np.concatenate(numbers).astype(np.int64))
