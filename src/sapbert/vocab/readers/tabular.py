"""Read a vocabulary from a table: one row per name (long), or one row per concept with its synonyms (wide).

Columns are recognized by their usual names (`COLUMNS`) or given by the user. A table with a synonyms column
is wide: its names are preferred, its synonyms are not. In a long table a column may say which names are
preferred; without it, the first name of a concept in file order is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import polars as pl

from sapbert.errors import FormatError
from sapbert.vocab.input_files import InputFile, InputReader
from sapbert.vocab.readers.biosyn import BiosynSettings, read_biosyn
from sapbert.vocab.readers.rrf_relations import LANGUAGES
from sapbert.vocab.readers.settings import TableSettings
from sapbert.vocab.settings import Format
from sapbert.vocab.tables import (
    ChooseColumns,
    TableBatch,
    csv_batches,
    detect_format,
    find_table,
    jsonl_batches,
    parquet_batches,
    tsv_batches,
)
from sapbert.vocab.text_columns import to_curies
from sapbert.vocab.writer import VocabularyWriter

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "id": ("concept_id", "id", "curie", "code", "cui", "identifier"),
    "name": ("name", "label", "preferred_label", "term", "concept_name", "str"),
    "synonyms": ("synonyms", "synonym", "aliases"),
    "preferred": ("is_preferred", "preferred"),
    "language": ("language", "lang"),
    "source": ("source", "sab"),
    "types": ("types", "type", "semantic_types", "semantic_type", "categories", "category"),
    "parents": ("parents", "parent_ids", "parent_id", "parent"),
    "definition": ("definition", "scope_note"),
}
"""Role → usual_names column names, in any case; the first one found in a table is used."""
FLAGS = {
    **dict.fromkeys(("1", "1.0", "true", "t", "yes", "y"), True),
    **dict.fromkeys(("0", "0.0", "false", "f", "no", "n", ""), False),
}
"""Values of a preferred column, in any case."""
_HIGHEST_RANK = 2**31 - 1


def read_table(path: Path, writer: VocabularyWriter, inputs: InputReader, settings: TableSettings) -> None:
    """Read a TSV, CSV, JSONL or Parquet table or a BioSyn dictionary, plain or `.gz`."""
    source = find_table(path)
    kind = settings.format or detect_format(source, inputs, hint="give --format")
    if kind == "biosyn":
        biosyn_settings = BiosynSettings(
            prefix=settings.prefix, language=settings.language or "en", source=settings.source
        )
        read_biosyn(source, writer, inputs, biosyn_settings)
        return
    rows = 0
    for batch in _batches(path, source, kind, inputs, settings):
        _add_batch(batch, rows, source, writer, inputs, settings)
        rows += batch.frame.height
    if not rows and not inputs.skipped_rows:
        raise FormatError(source.name, None, "there are no rows below the header")


def _batches(
    path: Path, source: InputFile, kind: Format, inputs: InputReader, settings: TableSettings
) -> Iterator[TableBatch]:
    choose: ChooseColumns = partial(_choose_columns, settings, source)
    if kind == "tsv":
        return tsv_batches(source, inputs, choose)
    if kind == "csv":
        return csv_batches(source, inputs, choose)
    if kind == "jsonl":
        return jsonl_batches(source, inputs, choose, settings.separator)
    return parquet_batches(path, source, inputs, choose)


def _choose_columns(settings: TableSettings, source: InputFile, header: list[str]) -> dict[str, str]:
    """Map roles to columns; only an id and a name are required."""
    by_lowercase = {column.strip().lstrip("#").strip().lower(): column for column in reversed(header)}
    roles: dict[str, str] = {}
    for role, usual_names in COLUMNS.items():
        requested: str | None = getattr(settings, f"{role}_column")
        column = next((by_lowercase[name] for name in usual_names if name in by_lowercase), None)
        if requested is not None:
            column = requested if requested in header else by_lowercase.get(requested.lower())
        elif role in ("language", "source") and getattr(settings, role) is not None:
            continue
        if column is not None:
            roles[role] = column
        elif requested is not None or role in ("id", "name"):
            problem = f"no {role} column" if requested is None else f"no column {requested!r}"
            columns = ", ".join(header)[:300] or "none"
            raise FormatError(
                source.name,
                None,
                f"{problem}; found {columns}",
                hint=f"give --{role}-column with one of these",
            )
    return roles


def _add_batch(
    batch: TableBatch,
    before: int,
    source: InputFile,
    writer: VocabularyWriter,
    inputs: InputReader,
    settings: TableSettings,
) -> None:
    frame = _one_id_per_row(batch.frame.with_row_index("row"), settings.separator)
    frame = frame.with_columns(to_curies(frame["id"], prefix=settings.prefix).alias("concept_id"))
    if "preferred" in frame.columns:
        flag = pl.col("preferred").fill_null("").str.strip_chars().str.to_lowercase()
        frame = frame.with_columns(flag=flag.replace_strict(FLAGS, default=None, return_dtype=pl.Boolean))
    else:
        frame = frame.with_columns(flag=pl.lit(value=True))
    good = pl.col("concept_id").is_not_null() & pl.col("flag").is_not_null()
    for row in frame.filter(~good).iter_rows(named=True):
        inputs.reject_row(_bad_row_error(row, source, batch.line(row["row"]), settings))
    rank = pl.when("flag").then(_HIGHEST_RANK - before - pl.col("row").cast(pl.Int64)).otherwise(0)
    _write(frame.filter(good).with_columns(rank=rank.cast(pl.Int32)), writer, settings)


def _one_id_per_row(frame: pl.DataFrame, separator: str) -> pl.DataFrame:
    if not frame["id"].str.contains(separator, literal=True).any():
        return frame
    return frame.with_columns(pl.col("id").str.split(separator)).explode("id")


def _bad_row_error(
    row: Mapping[str, str | None], source: InputFile, line: int, settings: TableSettings
) -> FormatError:
    text = (row["id"] or "").strip()
    if row["concept_id"] is not None:
        problem = f"preferred is {row['preferred']!r}"
        return FormatError(
            source.name, line, problem, hint="use 1/0, true/false or yes/no, or choose another column"
        )
    if not text:
        hint = "fill it in, or skip such rows with --on-error skip"
        return FormatError(source.name, line, "the id is empty", hint=hint)
    if ":" not in text and settings.prefix is None:
        return FormatError(
            source.name, line, f"the id {text[:80]!r} has no prefix", hint="give one: --prefix mesh"
        )
    return FormatError(source.name, line, f"{text[:80]!r} is not an id", hint="an id looks like mesh:D009203")


def _write(rows: pl.DataFrame, writer: VocabularyWriter, settings: TableSettings) -> None:
    rows = rows.with_columns(_language(rows, settings), _source(rows, settings))
    shared_columns = ["concept_id", "rank", "language", "source"]
    names = rows.select(*shared_columns, "name").filter(pl.col("name").str.strip_chars() != "")
    if nameless := rows.height - names.height:
        writer.count("rows without a name", nameless)
    if "synonyms" in rows.columns:
        synonyms = _exploded(rows, "synonyms", settings.separator).select(*shared_columns, name="synonyms")
        names = pl.concat([names, synonyms.with_columns(rank=pl.lit(0, pl.Int32))]).sort("concept_id")
    writer.add(names)
    if "types" in rows.columns:
        types = _exploded(rows, "types", settings.separator).select("concept_id", type="types")
        writer.add_facts("types", types.unique(maintain_order=True))
    if "parents" in rows.columns:
        _write_parents(_exploded(rows, "parents", settings.separator), writer, settings)
    if "definition" in rows.columns:
        defined = rows.select("concept_id", "language", "source", text="definition").drop_nulls("text")
        # A long table repeats the definition with each name.
        writer.add_definitions(defined.unique(["concept_id", "text"], keep="first", maintain_order=True))


def _write_parents(rows: pl.DataFrame, writer: VocabularyWriter, settings: TableSettings) -> None:
    parents = rows.with_columns(parent_id=to_curies(rows["parents"], prefix=settings.prefix))
    if bad := parents["parent_id"].null_count():
        writer.count("parents without a prefix dropped", bad)
    writer.add_facts("parents", parents.with_columns(relation=pl.lit("broader")).drop_nulls("parent_id"))


def _exploded(rows: pl.DataFrame, column: str, separator: str) -> pl.DataFrame:
    if rows[column].dtype == pl.String:
        rows = rows.with_columns(pl.col(column).str.split(separator))
    each = rows.explode(column).with_columns(pl.col(column).str.strip_chars())
    return each.filter(pl.col(column) != "")


def _language(rows: pl.DataFrame, settings: TableSettings) -> pl.Expr:
    if "language" not in rows.columns:
        return pl.lit((settings.language or "en").lower()).alias("language")
    value = pl.col("language").fill_null("").str.strip_chars()
    iso = value.str.to_uppercase().replace(LANGUAGES).str.to_lowercase()
    return pl.when(value == "").then(pl.lit("en")).otherwise(iso).alias("language")


def _source(rows: pl.DataFrame, settings: TableSettings) -> pl.Expr:
    if settings.source is not None:
        return pl.lit(settings.source).alias("source")
    prefix = pl.col("concept_id").str.extract("^([^:]*)", 1)
    if "source" not in rows.columns:
        return prefix.alias("source")
    value = pl.col("source").fill_null("").str.strip_chars()
    return pl.when(value == "").then(prefix).otherwise(value).alias("source")
