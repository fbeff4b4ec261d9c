"""Read the dictionary of a benchmark that is built from raw corpora, in the forms that people have it in.

- `id|id||name|name` text, a line a concept: BioSyn's MEDIC
- CTD's own table of diseases or chemicals, `.csv` or `.tsv`, a row a concept; its header is a comment
- any other `.csv` or `.tsv` with `concept_id` and `name`, a row a name: the dictionary of a benchmark

Corpora and CTD write `MESH:D003693` where BioSyn has the bare id, so these prefixes are dropped everywhere.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Literal

import polars as pl

from sapbert.errors import FormatError
from sapbert.vocab.input_files import InputFile, InputReader
from sapbert.vocab.tables import csv_records, table_source, text_lines

_PREFIX = re.compile(r"(?:MESH|OMIM|MIM):", re.IGNORECASE)
_FIELDS = b"# Fields:"
"""The line before the header in CTD's files."""
_LAYOUTS = (
    (("concept_id",), ("name",)),
    (("DiseaseID", "AltDiseaseIDs"), ("DiseaseName", "Synonyms")),
    (("ChemicalID",), ("ChemicalName", "Synonyms")),
)
"""Columns of ids and of names; all but the first of each may be missing, and may hold several."""


def read_raw_dictionary(path: Path, inputs: InputReader) -> tuple[pl.DataFrame, int | None]:
    """Return `name` and its `ids`, joined by `|`, a row a name; and how many concepts, where these were rows.

    They were if any has several names: rows of one name each may repeat a concept, or be of several.
    """
    source = table_source(path)
    is_table = PurePosixPath(source.name).suffix.lower() in (".csv", ".tsv")
    rows = (_table if is_table else _lines)(source, inputs)
    bare = {ids: bare_ids(ids) for ids in rows["ids"].unique()}
    rows = rows.with_columns(pl.col("ids").replace_strict(bare, return_dtype=pl.String))
    heads = rows["ids"].str.extract(r"^([^|+]*)", 1).n_unique()
    are_concepts = (rows["names"].list.len() > 1).any()
    return rows.explode("names").rename({"names": "name"}), heads if are_concepts else None


def bare_ids(joined: str) -> str:
    """Drop blanks and the prefixes of MeSH and OMIM from ids joined by `|` or `+`."""
    return "".join(_PREFIX.sub("", one.strip(), count=1) for one in re.split(r"([|+])", joined))


def _lines(source: InputFile, inputs: InputReader) -> pl.DataFrame:
    first, blocks = 1, []
    for block in inputs.blocks(source):
        blocks.append(text_lines(block, first, source, inputs))
        first += block.count(b"\n")
    halves = pl.concat(blocks).with_columns(
        pl.col("text").str.splitn("||", 2).struct.rename_fields(["ids", "names"])
    )
    lines = halves.unnest("text")
    for line in lines.filter(pl.col("names").is_null())["line"].head(1):
        hint = "id||name is wanted, or a table called .csv or .tsv"
        raise FormatError(source.name, line, "no || in this line", hint=hint)
    return lines.select("ids", pl.col("names").str.split("|"))


def _table(source: InputFile, inputs: InputReader) -> pl.DataFrame:
    is_tsv = source.name.lower().endswith(".tsv")
    quoting: Literal[0, 3] = csv.QUOTE_NONE if is_tsv else csv.QUOTE_MINIMAL
    ids, names = [], []
    with inputs.stream(source) as stream:
        lines = _uncommented(stream)
        delimiter = "\t" if is_tsv else ","
        records = csv_records(lines, source.name, inputs, delimiter=delimiter, quoting=quoting)
        filled = (record for _, record in records if record)
        own, further = _places(next(filled, []), source)
        for record in filled:
            ids.append("|".join(record[place] for place in own if record[place]))
            many = (name for place in further[1:] for name in record[place].split("|"))
            names.append([record[further[0]], *many])
    return pl.DataFrame({"ids": ids, "names": names}, schema={"ids": pl.String, "names": pl.List(pl.String)})


def _places(header: list[str], source: InputFile) -> tuple[list[int], list[int]]:
    """Where the columns of ids and of names stand."""
    for layout in _LAYOUTS:
        if all(columns[0] in header for columns in layout):
            ids, names = ([header.index(one) for one in columns if one in header] for columns in layout)
            return ids, names
    found = ", ".join(header)[:200] or "nothing"
    hint = "concept_id and name are wanted, or CTD's own file"
    raise FormatError(source.name, None, f"no columns of a dictionary among: {found}", hint=hint)


def _uncommented(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Make a header of the comment that is one; others become blank, so that lines keep their numbers."""
    before, is_head = b"", True
    for line in lines:
        is_head = is_head and line.startswith(b"#")
        if not is_head:
            yield line
        else:
            yield line.lstrip(b"# ") if before.strip() == _FIELDS else b"\n"
        before = line
