"""What every evaluation set is made of: mentions with their gold ids, and a dictionary of names.

Benchmarks write them in many ways and mean the same. Here `parts` are what must be right together ("breast
and ovarian cancer" has two), `ids` are what counts as right, and no ids means NIL. All text is folded, as the
linker folds it, so that a benchmark that forgot to lowercase its dictionary does not punish a model for it. A
dictionary has one row a folded name: names that fold alike are one name with the ids of all, or which of them
comes first would decide what is right.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from sapbert.mentions import is_nil, split_ids
from sapbert.vocab.text_columns import fold_names, to_curies

MENTIONS = {
    "fold": pl.String,
    "document": pl.String,
    "type": pl.String,
    "raw": pl.String,
    "context": pl.String,
    "parts": pl.List(pl.String),
    "ids": pl.List(pl.String),
}
"""Columns of a split; `fold`, `document`, `type` and `context`, the text around, are empty where unknown."""


def mention_table(
    columns: dict[str, pl.Series], *, composite: bool = False, prefix: str | None = None
) -> pl.DataFrame:
    """Make the table of a split from `mention`, `ids` and whichever other columns there are, as text.

    Several ids are joined by `|` or `+`, and any of them is right. Where `composite` is true, `|` parts a
    mention. Ids without a prefix get `prefix`, if there is one.
    """
    given = pl.DataFrame(columns).with_columns(pl.all().cast(pl.String))
    mention = given["mention"].fill_null("")
    texts = mention.str.split("|") if composite else mention.str.split("\0")
    rows = given.with_columns(
        parts=_folded_lists(texts),
        ids=_id_lists(given["ids"].fill_null(""), prefix),
        raw=given["raw"] if "raw" in given.columns else mention,
    )
    absent = {"fold", "document", "type", "context"} - set(rows.columns)
    return rows.with_columns(pl.lit("").alias(name) for name in absent).select(
        pl.col(name).fill_null("") if kind == pl.String else pl.col(name) for name, kind in MENTIONS.items()
    )


@dataclass(frozen=True)
class Dictionary:
    """The names among which a mention's candidates are sought."""

    table: pl.DataFrame
    """`name`, folded and distinct, in order of first appearance, and its `ids`."""

    def __len__(self) -> int:
        return self.table.height

    @property
    def names(self) -> list[str]:
        """All names, in order of rows."""
        names: list[str] = self.table["name"].to_list()
        return names

    @cached_property
    def ids(self) -> pl.Series:
        """Every id that a name has, once."""
        return self.table["ids"].explode().unique()

    @cached_property
    def concepts(self) -> int:
        """How many concepts the ids stand for: those that name the same rows are one."""
        return int(concept_numbers(self)["concept"].n_unique())

    def with_mentions(self, mentions: pl.DataFrame) -> Dictionary:
        """Return this dictionary with `mentions` as further names of their gold ids: BioSyn's enlarged one.

        A composite mention is one name with all its ids: corpora list these in any order, and pairing them
        with the parts would make names of the wrong concepts.
        """
        labelled = mentions.filter(pl.col("ids").list.len() > 0)
        added = labelled.select(name=pl.col("parts").list.join(" "), ids="ids")
        return Dictionary(_merged(pl.concat([self.table, added])))


def make_dictionary(names: pl.Series, ids: pl.Series, *, prefix: str | None = None) -> Dictionary:
    """Make a dictionary of names and the ids each has, joined by `|` or `+`."""
    table = pl.DataFrame(
        {"name": fold_names(names.fill_null("")), "ids": _id_lists(ids.fill_null(""), prefix)}
    )
    return Dictionary(_merged(table.filter(pl.col("name") != "", pl.col("ids").list.len() > 0)))


def concept_numbers(dictionary: Dictionary) -> pl.DataFrame:
    """Say which ids of a dictionary are one concept: `id`, `concept`.

    MEDIC gives many diseases a MeSH and an OMIM id. Two ids that have exactly the same names cannot be told
    apart by any of them, so they are one concept; an id of a homonym has names of its own.
    """
    links = dictionary.table.with_row_index("row").explode("ids").select("row", id="ids")
    sets = links.group_by("id", maintain_order=True).agg("row")
    alike = sets.group_by("row", maintain_order=True).agg("id").with_row_index("concept")
    return alike.explode("id").select("id", "concept")


def _merged(table: pl.DataFrame) -> pl.DataFrame:
    distinct = table.group_by("name", maintain_order=True).agg(pl.col("ids").explode())
    return distinct.with_columns(pl.col("ids").list.unique(maintain_order=True))


def _folded_lists(texts: pl.Series) -> pl.Series:
    """Fold every text of a column of lists."""
    flat = texts.to_frame("text").with_row_index("row").explode("text")
    folded = flat.with_columns(fold_names(flat["text"]).alias("text"))
    return folded.group_by("row", maintain_order=True).agg("text")["text"]


def _id_lists(ids: pl.Series, prefix: str | None) -> pl.Series:
    """Part joined ids, leave out those that mean NIL, and spell the others in one way."""
    flat = split_ids(ids).to_frame("id").with_row_index("row").explode("id")
    stripped = flat["id"].str.strip_chars()
    curies = to_curies(stripped, prefix=prefix).fill_null(stripped)
    known = flat.with_columns(pl.when(~is_nil(stripped)).then(curies).otherwise(None).alias("id"))
    return known.group_by("row", maintain_order=True).agg(
        pl.col("id").drop_nulls().unique(maintain_order=True)
    )["id"]
