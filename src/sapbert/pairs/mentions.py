"""Pairs for fine-tuning: each labelled mention with every name of its concept.

A mention that a table repeats makes its pairs once: how often a corpus repeats it says nothing about its
names.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sapbert.artifacts import create
from sapbert.errors import SapbertError
from sapbert.mentions import (
    LabelledMention,
    in_vocabulary,
    no_known_concept,
    read_labelled_mentions,
    resolve_concepts,
    text_concept_pairs,
)
from sapbert.pairs.artifact import KIND, Pairs
from sapbert.pairs.draw import Names, PairsWriter
from sapbert.vocab.input_files import InputReader
from sapbert.vocab.text_columns import fold_names
from sapbert.vocab.vocabulary import Vocabulary


def pair_mentions(
    vocabulary: Vocabulary, table: Path, target: Path, *, prefix: str | None = None, overwrite: bool = False
) -> Pairs:
    """Write the pairs of the labelled mentions in `table` (`sapbert.mentions`) to `target` and open them.

    `prefix` is for ids without one. Mentions without a concept of the vocabulary are left out and counted.
    """
    inputs = InputReader()
    mentions = read_labelled_mentions(table, inputs, prefix=prefix)
    labelled = [
        mention for mention in resolve_concepts(mentions, in_vocabulary(vocabulary)) if mention.concept_ids
    ]
    if not labelled:
        raise no_known_concept(mentions, vocabulary.path, table=table)
    names = _names(labelled, vocabulary)
    rows = _pair_rows(names)
    if not len(rows):
        raise SapbertError(f"{table}: no mention has a concept of {vocabulary.path} with another name")
    with create(target, overwrite=overwrite) as draft:
        with PairsWriter(draft) as writer:
            writer.add(Names.of(names["concept_id"], names["text"]), rows)
        unknown = mentions.rows - len({mention.row for mention in labelled})
        counts = {**writer.counts(), "mentions": mentions.rows, "mentions without a known concept": unknown}
        origin = {vocabulary.path.name: {"fingerprint": vocabulary.fingerprint}, **inputs.checksums}
        draft.seal(KIND, settings={"mentions": table.name, "prefix": prefix}, inputs=origin, counts=counts)
    return Pairs.open(target, verify=False)


def _names(mentions: Sequence[LabelledMention], vocabulary: Vocabulary) -> pl.DataFrame:
    """The distinct texts of the gold concepts: `concept_id`, `text`, `is_mention`, `is_name`."""
    labelled = pl.DataFrame(
        text_concept_pairs(mentions), {"text": pl.String, "concept_id": pl.String}, orient="row"
    )
    names = (
        vocabulary.names.join(labelled.lazy(), on="concept_id", how="semi")
        .select("concept_id", "name")
        .collect()
    )
    both = pl.concat(
        [
            names.select("concept_id", text=fold_names(names["name"]), is_mention=False, is_name=True),
            labelled.select("concept_id", "text", is_mention=True, is_name=False),
        ]
    )
    distinct = both.filter(pl.col("text") != "").group_by("concept_id", "text")
    return distinct.agg(pl.any("is_mention", "is_name")).sort("concept_id", "text")


def _pair_rows(names: pl.DataFrame) -> NDArray[np.int64]:
    """Each mention with each other name of its concept, as row numbers, each pair once.  # (pairs, 2)"""
    numbered = names.with_row_index("row")
    mentions = numbered.filter("is_mention").select("concept_id", mention="row")
    named = numbered.filter("is_name").select("concept_id", name="row")
    pairs = mentions.join(named, on="concept_id").filter(pl.col("mention") != pl.col("name"))
    ordered = pairs.select(
        left=pl.min_horizontal("mention", "name"), right=pl.max_horizontal("mention", "name")
    )
    return ordered.unique().sort("left", "right").to_numpy().astype(np.int64)
