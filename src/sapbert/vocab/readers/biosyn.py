"""Read a BioSyn dictionary: one `id||name` per line, where `|` separates several ids or several names.

There are two forms. A raw dictionary has one line per concept with all its names; further ids are other ids
of the same concept. A processed dictionary has one line per name; further ids are other concepts with that
name. A dictionary is raw if any line has several names. In both, an id that is never first in a line is an
alias of the first id of its line. An id that is first in some line is a concept: the raw form refers to it,
and in the processed form the name is also one of its names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from sapbert.errors import FormatError
from sapbert.vocab.input_files import InputFile, InputReader
from sapbert.vocab.tables import text_lines
from sapbert.vocab.text_columns import to_curies
from sapbert.vocab.writer import VocabularyWriter

# MEDIC, the dictionary BioSyn ships, mixes MeSH and OMIM ids without prefixes; `C` is its root.
_MESH_ID = r"^(?:C|[CD]\d{6}(?:\d{3})?)$"
_OMIM_ID = r"^\d{6}$"
_HIGHEST_RANK = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BiosynSettings:
    """Settings for what a dictionary does not contain."""

    prefix: str | None = None
    """Prefix of ids without one; by default, ids of MeSH and OMIM are recognized by their form."""
    language: str = "en"
    source: str | None = None
    """Source of the names; by default the prefix of their concept."""


def read_biosyn(
    source: InputFile, writer: VocabularyWriter, inputs: InputReader, settings: BiosynSettings
) -> None:
    """Read the dictionary `source`."""
    heads: list[pl.Series] = []
    others: list[pl.DataFrame] = []
    several_names = False
    names_read = 0
    for rows in _rows(source, inputs, settings.prefix):
        several_names |= bool((rows["names"].list.len() > 1).any())
        heads.append(rows["head"].unique())
        others.append(rows.filter(pl.col("others").list.len() > 0))
        names = rows.select(concept_id="head", name="names").explode("name")
        writer.add(_with_defaults(names, _HIGHEST_RANK - names_read - pl.int_range(pl.len()), settings))
        names_read += names.height
    linked = pl.concat(others).explode("others").filter(pl.col("others") != pl.col("head"))
    is_head = linked["others"].is_in(pl.concat(heads).unique().implode())
    writer.add_facts("aliases", linked.filter(~is_head).select(concept_id="head", alias="others"))
    if several_names:
        writer.add_facts("xrefs", linked.filter(is_head).select(concept_id="head", xref="others"))
    else:
        shared = linked.filter(is_head).select(concept_id="others", name="names").explode("name")
        writer.add_late(_with_defaults(shared, pl.lit(0), settings))


def _with_defaults(names: pl.DataFrame, rank: pl.Expr, settings: BiosynSettings) -> pl.DataFrame:
    prefix = pl.col("concept_id").str.extract("^([^:]*)", 1)
    source = prefix if settings.source is None else pl.lit(settings.source)
    named = names.filter(pl.col("name").str.strip_chars() != "")
    return named.with_columns(rank=rank, language=pl.lit(settings.language), source=source)


def _rows(source: InputFile, inputs: InputReader, prefix: str | None) -> Iterator[pl.DataFrame]:
    """Yield the lines as `head` (an id), `others` (ids) and `names`."""
    first = 1
    for block in inputs.blocks(source):
        lines = text_lines(block, first, source, inputs)
        first += block.count(b"\n")
        halves = lines.with_columns(pl.col("text").str.splitn("||", 2).struct.rename_fields(["ids", "names"]))
        rows = halves.unnest("text").with_columns(
            pl.col("ids").str.split("|"), pl.col("names").str.strip_chars().str.split("|")
        )
        bad = pl.col("names").is_null()
        for line, ids in rows.filter(bad).select("line", "ids").iter_rows():
            text = "|".join(ids)[:80]
            inputs.reject_row(FormatError(source.name, line, f"no || in {text!r}", hint="expected id||name"))
        yield _with_curies(rows.filter(~bad), source, inputs, prefix)


def _with_curies(
    rows: pl.DataFrame, source: InputFile, inputs: InputReader, prefix: str | None
) -> pl.DataFrame:
    each = rows.with_row_index("row").explode("ids")
    each = each.with_columns(medic_curies(each["ids"].str.strip_chars(), prefix).alias("id"))
    for line, text in each.filter(pl.col("id").is_null()).select("line", "ids").iter_rows():
        problem = (
            f"{text[:80]!r} is not an id of MeSH or OMIM" if prefix is None else f"{text[:80]!r} is not an id"
        )
        inputs.reject_row(FormatError(source.name, line, problem, hint="give --prefix for ids without one"))
    ids = each.drop_nulls("id").group_by("row", maintain_order=True).agg("id", pl.col("names").first())
    return ids.select(
        pl.col("id").list.first().alias("head"), pl.col("id").list.slice(1).alias("others"), "names"
    )


def medic_curies(ids: pl.Series, prefix: str | None) -> pl.Series:
    """Return identifiers as CURIEs; those of MEDIC (MeSH and OMIM) need no `prefix`. Null if not an id."""
    if prefix is None:
        mesh, omim = ids.str.contains(_MESH_ID), ids.str.contains(_OMIM_ID)
        ids = pl.select(
            pl.when(mesh).then("mesh:" + ids).when(omim).then("omim:" + ids).otherwise(ids)
        ).to_series()
    return to_curies(ids, prefix=prefix)
