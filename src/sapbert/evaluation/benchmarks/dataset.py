"""The two tables of an evaluation set: mentions with gold ids, and a dictionary of names.

All benchmark formats are converted to these. `parts` are the texts that must all be correct ("breast and
ovarian cancer" has two), `ids` are the gold ids, any of which is correct, and a mention without ids is NIL.
All text is folded as in the linker, so that a dictionary that is not lowercase does not lower the accuracy of
a model. A dictionary has one row per folded name: names that fold to the same text become one name with the
ids of all of them. Otherwise their order would decide whether a candidate is correct.
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
"""Columns of a split; `fold`, `document`, `type` and `context` (surrounding text) are empty if unknown."""


def mention_table(
    columns: dict[str, pl.Series], *, composite: bool = False, prefix: str | None = None
) -> pl.DataFrame:
    """Return the table of a split, given the columns `mention`, `ids` and any others of `MENTIONS` as text.

    Several ids are joined by `|` or `+`, and any of them is correct. If `composite` is true, `|` separates
    the parts of a mention. Ids without a prefix get `prefix`, if one is given.
    """
    source = pl.DataFrame(columns).with_columns(pl.all().cast(pl.String))
    mention = source["mention"].fill_null("")
    texts = mention.str.split("|") if composite else mention.str.split("\0")
    rows = source.with_columns(
        parts=_folded_lists(texts),
        ids=_id_lists(source["ids"].fill_null(""), prefix),
        raw=source["raw"] if "raw" in source.columns else mention,
    )
    missing = {"fold", "document", "type", "context"} - set(rows.columns)
    return rows.with_columns(pl.lit("").alias(name) for name in missing).select(
        pl.col(name).fill_null("") if kind == pl.String else pl.col(name) for name, kind in MENTIONS.items()
    )


@dataclass(frozen=True)
class Dictionary:
    """The names that are searched for candidates."""

    table: pl.DataFrame
    """Columns `name` (folded, distinct, in order of first appearance) and `ids`."""

    def __len__(self) -> int:
        return self.table.height

    @property
    def names(self) -> list[str]:
        """All names, in order of rows."""
        names: list[str] = self.table["name"].to_list()
        return names

    @cached_property
    def ids(self) -> pl.Series:
        """All distinct ids."""
        return self.table["ids"].explode().unique()

    @cached_property
    def concepts(self) -> int:
        """Number of concepts; ids with the same names are one concept (`concept_numbers`)."""
        return int(concept_numbers(self)["concept"].n_unique())

    def with_mentions(self, mentions: pl.DataFrame) -> Dictionary:
        """Return BioSyn's enlarged dictionary: this one with `mentions` as names of their gold ids.

        A composite mention becomes one name with all its ids. Corpora list the ids in any order, so pairing
        them with the parts could assign names to wrong concepts.
        """
        labelled = mentions.filter(pl.col("ids").list.len() > 0)
        added = labelled.select(name=pl.col("parts").list.join(" "), ids="ids")
        return Dictionary(_merged(pl.concat([self.table, added])))


def make_dictionary(names: pl.Series, ids: pl.Series, *, prefix: str | None = None) -> Dictionary:
    """Return a dictionary of names with their ids, which are joined by `|` or `+`."""
    table = pl.DataFrame(
        {"name": fold_names(names.fill_null("")), "ids": _id_lists(ids.fill_null(""), prefix)}
    )
    return Dictionary(_merged(table.filter(pl.col("name") != "", pl.col("ids").list.len() > 0)))


def concept_numbers(dictionary: Dictionary) -> pl.DataFrame:
    """Return the number of the concept of each id: columns `id`, `concept`.

    MEDIC gives many diseases a MeSH and an OMIM id. Ids with exactly the same names cannot be distinguished
    by name, so they are one concept. The ids of homonyms are not merged, because each has other names too.
    """
    links = dictionary.table.with_row_index("row").explode("ids").select("row", id="ids")
    rows_per_id = links.group_by("id", maintain_order=True).agg("row")
    same_rows = rows_per_id.group_by("row", maintain_order=True).agg("id").with_row_index("concept")
    return same_rows.explode("id").select("id", "concept")


def _merged(table: pl.DataFrame) -> pl.DataFrame:
    distinct = table.group_by("name", maintain_order=True).agg(pl.col("ids").explode())
    return distinct.with_columns(pl.col("ids").list.unique(maintain_order=True))


def _folded_lists(texts: pl.Series) -> pl.Series:
    """Fold all texts in a column of lists."""
    flat = texts.to_frame("text").with_row_index("row").explode("text")
    folded = flat.with_columns(fold_names(flat["text"]).alias("text"))
    return folded.group_by("row", maintain_order=True).agg("text")["text"]


def _id_lists(ids: pl.Series, prefix: str | None) -> pl.Series:
    """Split joined ids, drop those that mean NIL, and normalize the others to CURIEs."""
    flat = split_ids(ids).to_frame("id").with_row_index("row").explode("id")
    stripped = flat["id"].str.strip_chars()
    curies = to_curies(stripped, prefix=prefix).fill_null(stripped)
    known = flat.with_columns(pl.when(~is_nil(stripped)).then(curies).otherwise(None).alias("id"))
    return known.group_by("row", maintain_order=True).agg(
        pl.col("id").drop_nulls().unique(maintain_order=True)
    )["id"]
