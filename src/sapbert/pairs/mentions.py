"""Pairs for fine-tuning: each labelled mention with every name of its concept.

The table has a `mention` and a `concept_ids` column. In the benchmarks' way of writing, `|` parts a
composite mention ("breast cancer|ovarian cancer") and its identifiers, part by part; a mention in one
part with several identifiers, joined by `|` or `+`, may mean any of them. A mention seen many times
makes its pairs once: how often a corpus repeats it says nothing about its names.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sapbert.artifacts import create
from sapbert.errors import FormatError, SapbertError
from sapbert.pairs.artifact import KIND, Pairs
from sapbert.pairs.draw import Names, PairsWriter
from sapbert.vocab.columns import fold_names
from sapbert.vocab.intake import Intake
from sapbert.vocab.readers.biosyn import medic_curies
from sapbert.vocab.tables import table_source, tsv_batches
from sapbert.vocab.vocabulary import Vocabulary

_COLUMNS = ("mention", "concept_ids")


def pair_mentions(
    vocabulary: Vocabulary, table: Path, target: Path, *, prefix: str | None = None, overwrite: bool = False
) -> Pairs:
    """Write the pairs of the mentions in `table` (TSV, may be gzip) to `target` and open them.

    `prefix` is for identifiers that come without one; those of MeSH and OMIM are known by their form. A
    mention whose concept the vocabulary does not have is left out and counted.
    """
    intake = Intake()
    mentions = read_mentions(table, intake)
    labelled = _known(label_mentions(mentions, prefix), vocabulary)
    names = _names(labelled, vocabulary)
    rows = _pair_rows(names)
    if not len(rows):
        _explain_nothing(mentions, table, vocabulary, prefix)
    with create(target, overwrite=overwrite) as draft:
        with PairsWriter(draft) as writer:
            writer.add(Names.of(names["concept_id"], names["text"]), rows)
        unknown = mentions.height - labelled["row"].n_unique()
        counts = {**writer.counts(), "mentions": mentions.height, "mentions without a known concept": unknown}
        inputs = {vocabulary.path.name: {"fingerprint": vocabulary.fingerprint}, **intake.inputs}
        draft.seal(KIND, settings={"mentions": table.name, "prefix": prefix}, inputs=inputs, counts=counts)
    return Pairs.open(target, verify=False)


def read_mentions(table: Path, intake: Intake, context: str | None = None) -> pl.DataFrame:
    """Read labelled mentions: `row`, `mention`, `concept_ids`, and `context` where its column is named."""
    source = table_source(table)
    wanted = {column: column for column in _COLUMNS} | ({} if context is None else {"context": context})

    def choose(header: list[str]) -> dict[str, str]:
        for column in wanted.values():
            if column not in header:
                found = ", ".join(header)[:200]
                problem = f"no column {column!r} among: {found}"
                raise FormatError(source.name, 1, problem, hint="give a TSV with a header")
        return wanted

    rows = pl.concat(batch.frame for batch in tsv_batches(source, intake, choose))
    return rows.with_row_index("row")


def label_mentions(mentions: pl.DataFrame, prefix: str | None) -> pl.DataFrame:
    """One row a mention part and identifier: `row`, `text`, `concept_id` (null where it is no CURIE)."""
    parts = mentions.select(
        "row",
        text=pl.col("mention").str.split("|"),
        id=pl.col("concept_ids").str.replace_all("+", "|", literal=True).str.split("|"),
    )
    part_by_part = parts.filter(pl.col("text").list.len() == pl.col("id").list.len()).explode("text", "id")
    any_of = (
        parts.filter(pl.col("text").list.len() == 1, pl.col("id").list.len() > 1)
        .explode("text")
        .explode("id")
    )
    labelled = pl.concat([part_by_part, any_of])
    return labelled.select(
        "row", text=fold_names(labelled["text"]), concept_id=medic_curies(labelled["id"], prefix)
    ).filter(pl.col("text") != "")


class Labelled(NamedTuple):
    """A mention and what it means."""

    text: str
    """Folded."""
    concepts: frozenset[str]
    """Identifiers of which any is right; none where it means no concept."""
    context: str = ""
    """Text that it stands in, where that was asked for."""


def read_labelled_mentions(
    table: Path, prefix: str | None, intake: Intake, *, context: str | None = None
) -> list[Labelled]:
    """Read mentions as `sapbert pairs --mentions` takes them; parts of a composite one come one by one.

    `context` names the column with the text around them, if that is wanted.
    """
    mentions = read_mentions(table, intake, context)
    around = [""] * mentions.height if context is None else mentions["context"].fill_null("").to_list()
    grouped = label_mentions(mentions, prefix).group_by("row", "text", maintain_order=True).agg("concept_id")
    return [
        Labelled(text, frozenset(filter(None, concepts)), around[row])
        for row, text, concepts in grouped.iter_rows()
    ]


def _explain_nothing(
    mentions: pl.DataFrame, table: Path, vocabulary: Vocabulary, prefix: str | None
) -> NoReturn:
    ids = mentions["concept_ids"]
    if prefix is None and not medic_curies(ids, None).is_not_null().any():
        problem = f"the id {ids[0]!r} has no prefix"
        raise FormatError(table, 2, problem, hint="give --prefix: mesh makes D009203 mesh:D009203")
    raise SapbertError(f"{table}: no mention has a concept of {vocabulary.path} with another name")


def _known(labelled: pl.DataFrame, vocabulary: Vocabulary) -> pl.DataFrame:
    """Keep the mentions of concepts that the vocabulary has; an identifier it has not may be an alias."""
    own = labelled.lazy().join(vocabulary.names, on="concept_id", how="semi")
    others = labelled.lazy().join(vocabulary.names, on="concept_id", how="anti")
    moved = others.join(vocabulary.aliases, left_on="concept_id", right_on="alias")
    return pl.concat([own, moved.select("row", "text", concept_id="concept_id_right")]).collect()


def _names(labelled: pl.DataFrame, vocabulary: Vocabulary) -> pl.DataFrame:
    """The distinct texts of the concepts concerned: `concept_id`, `text`, `is_mention`, `is_name`."""
    own = (
        vocabulary.names.join(labelled.lazy(), on="concept_id", how="semi")
        .select("concept_id", "name")
        .collect()
    )
    both = pl.concat(
        [
            own.select("concept_id", text=fold_names(own["name"]), is_mention=False, is_name=True),
            labelled.select("concept_id", "text", is_mention=True, is_name=False),
        ]
    )
    distinct = both.filter(pl.col("text") != "").group_by("concept_id", "text")
    return distinct.agg(pl.any("is_mention", "is_name")).sort("concept_id", "text")


def _pair_rows(names: pl.DataFrame) -> NDArray[np.int64]:
    """Each mention with each other name of its concept, as row numbers, each pair once.  # (pairs, 2)"""
    numbered = names.with_row_index("row")
    mentions = numbered.filter("is_mention").select("concept_id", mention="row")
    own = numbered.filter("is_name").select("concept_id", name="row")
    pairs = mentions.join(own, on="concept_id").filter(pl.col("mention") != pl.col("name"))
    ordered = pairs.select(
        left=pl.min_horizontal("mention", "name"), right=pl.max_horizontal("mention", "name")
    )
    return ordered.unique().sort("left", "right").to_numpy().astype(np.int64)
