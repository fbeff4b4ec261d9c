"""Read the dictionary for a benchmark that is built from raw corpora.

Formats:

- text with one concept per line, `id|id||name|name`: BioSyn's MEDIC
- CTD's table of diseases or chemicals, `.csv` or `.tsv`, one row per concept; its header is a comment
- any other `.csv` or `.tsv` with `concept_id` and `name`, one row per name: the dictionary of a benchmark

Corpora and CTD write `MESH:D003693` where BioSyn has the id without prefix, so these prefixes are removed.
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
from sapbert.vocab.tables import csv_records, find_table, text_lines

_PREFIX = re.compile(r"(?:MESH|OMIM|MIM):", re.IGNORECASE)
_FIELDS = b"# Fields:"
"""The line before the header in the files of CTD."""
_LAYOUTS = (
    (("concept_id",), ("name",)),
    (("DiseaseID", "AltDiseaseIDs"), ("DiseaseName", "Synonyms")),
    (("ChemicalID",), ("ChemicalName", "Synonyms")),
)
"""Columns of ids and of names. All but the first of each are optional and may contain several values."""


def read_raw_dictionary(path: Path, inputs: InputReader) -> tuple[pl.DataFrame, int | None]:
    """Return one row per name, with `name` and `ids` joined by `|`, and the number of concepts if known.

    It is known if the file has one row per concept, which is assumed if any row has several names.
    """
    source = find_table(path)
    is_table = PurePosixPath(source.name).suffix.lower() in (".csv", ".tsv")
    rows = (_table if is_table else _lines)(source, inputs)
    bare = {ids: bare_ids(ids) for ids in rows["ids"].unique()}
    rows = rows.with_columns(pl.col("ids").replace_strict(bare, return_dtype=pl.String))
    first_ids = rows["ids"].str.extract(r"^([^|+]*)", 1).n_unique()
    row_per_concept = (rows["names"].list.len() > 1).any()
    return rows.explode("names").rename({"names": "name"}), first_ids if row_per_concept else None


def bare_ids(joined: str) -> str:
    """Remove spaces and the prefixes of MeSH and OMIM from ids joined by `|` or `+`."""
    return "".join(_PREFIX.sub("", part.strip(), count=1) for part in re.split(r"([|+])", joined))


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
        hint = "expected id||name, or a file that ends in .csv or .tsv"
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
        id_columns, name_columns = _column_numbers(next(filled, []), source)
        for record in filled:
            ids.append("|".join(record[column] for column in id_columns if record[column]))
            synonyms = (name for column in name_columns[1:] for name in record[column].split("|"))
            names.append([record[name_columns[0]], *synonyms])
    return pl.DataFrame({"ids": ids, "names": names}, schema={"ids": pl.String, "names": pl.List(pl.String)})


def _column_numbers(header: list[str], source: InputFile) -> tuple[list[int], list[int]]:
    """Return the numbers of the id columns and of the name columns."""
    for layout in _LAYOUTS:
        if all(columns[0] in header for columns in layout):
            ids, names = ([header.index(name) for name in columns if name in header] for columns in layout)
            return ids, names
    problem = f"not the columns of a dictionary: {', '.join(header)[:200] or 'no header'}"
    hint = "expected concept_id and name, or a file from CTD"
    raise FormatError(source.name, None, problem, hint=hint)


def _uncommented(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Uncomment the header, and blank other comments so that line numbers stay the same."""
    previous, in_comments = b"", True
    for line in lines:
        in_comments = in_comments and line.startswith(b"#")
        if not in_comments:
            yield line
        else:
            yield line.lstrip(b"# ") if previous.strip() == _FIELDS else b"\n"
        previous = line
