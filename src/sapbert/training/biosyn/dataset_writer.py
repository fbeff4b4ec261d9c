"""From a vocabulary and a table of labelled mentions to `training.biosyn.dataset`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sapbert.arrays import TextsWriter
from sapbert.artifacts import create
from sapbert.errors import SapbertError
from sapbert.index.entries import Entries
from sapbert.index.entries_writer import write_entries
from sapbert.pairs.mentions import Labelled, read_labelled_mentions
from sapbert.training.biosyn.dataset import ENTRIES, KIND, MENTIONS, LabelledMentions
from sapbert.vocab.intake import Intake
from sapbert.vocab.vocabulary import Vocabulary


def write_labelled(
    vocabulary: Vocabulary, table: Path, target: Path, *, prefix: str | None = None, overwrite: bool = False
) -> LabelledMentions:
    """Write the mentions in `table` (TSV, may be gzip) and all names of `vocabulary`; open them.

    `prefix` is for identifiers that come without one; those of MeSH and OMIM are known by their form. A
    mention whose concept the vocabulary does not have is left out and counted.
    """
    intake = Intake()
    # Each once: how often a corpus repeats a mention says nothing about what it means.
    labelled = list(dict.fromkeys(read_labelled_mentions(table, prefix, intake)))
    with create(target, overwrite=overwrite) as draft:
        (draft.path / ENTRIES).mkdir()
        entries = write_entries(vocabulary, draft.path / ENTRIES)
        gold = [own for own in _numbered(entries, labelled) if own[1]]
        if not gold:
            raise SapbertError(
                f"{table}: no mention has a concept of {vocabulary.path} (give --prefix if its identifiers "
                "have none: mesh makes D009203 mesh:D009203)"
            )
        _write_mentions(draft.path, gold)
        draft.seal(
            KIND,
            settings={"mentions": table.name, "prefix": prefix},
            inputs={vocabulary.path.name: {"fingerprint": vocabulary.fingerprint}, **intake.inputs},
            counts={
                "mentions": len(gold),
                "mentions without a known concept": len(labelled) - len(gold),
                "names": len(entries),
                "concepts": len(entries.concepts),
            },
        )
    return LabelledMentions.open(target)


def _numbered(entries: Entries, labelled: Sequence[Labelled]) -> list[tuple[str, list[int]]]:
    """Tell concepts by number, in order; those that the vocabulary does not have are dropped."""
    curies = sorted(set().union(*(mention.concepts for mention in labelled)))
    number_of = dict(zip(curies, entries.concepts_of(curies).tolist(), strict=True))
    numbered = ((mention.text, {number_of[curie] for curie in mention.concepts}) for mention in labelled)
    return [(text, sorted(numbers - {-1})) for text, numbers in numbered]


def _write_mentions(folder: Path, gold: Sequence[tuple[str, list[int]]]) -> None:
    encoded = [text.encode() for text, _ in gold]
    with TextsWriter(folder / f"{MENTIONS}.npy", folder / f"{MENTIONS}_offsets.npy") as writer:
        writer.append(b"".join(encoded), np.array([len(text) for text in encoded]))
    numbers = [own for _, own in gold]
    np.save(folder / "gold_offsets.npy", np.cumsum([0, *map(len, numbers)], dtype=np.int64))
    np.save(folder / "gold_concepts.npy", np.concatenate(numbers).astype(np.int64))
