"""Read benchmarks that list mentions and ids: plain TSV, BioSyn's, SapBERT's, AskAPatient's and COMETA's.

- plain: `{train,dev,test}.tsv`, also in `fold0/` …, with mention, concept_ids and perhaps raw_mention,
  doc_id, context and type or sem_group; `dictionary.tsv` and `test_dictionary.tsv` with concept_id and name
- BioSyn: `processed_{train,dev,test}/*.concept`, lines of pmid, start|end, type, mention, id by double bars;
  `train_dictionary.txt` and `test_dictionary.txt`, id and name by double bars
- queries (XL-BEL, SapBERT's AskAPatient): `*_query.txt`, id and mention by double bars
- folds (AskAPatient, TwADR-L): `NAME.fold-0.{train,validation,test}.txt`, id, concept name, mention by tabs;
  the concept names are the dictionary
- COMETA: `{train,dev,test}.csv` by tabs, with Term and General SNOMED ID

The last three take a `*dict*.txt` beside them for their dictionary. Only in the first two does a bar part a
composite mention; in the others it is a character.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from sapbert.artifacts import MANIFEST
from sapbert.errors import FormatError
from sapbert.evaluation.benchmarks.dataset import Dictionary, make_dictionary, mention_table
from sapbert.vocab.input_files import InputFile, InputReader, Release
from sapbert.vocab.tables import format_of, table_source, tsv_batches
from sapbert.vocab.vocabulary import Vocabulary

SPLITS = {"train": "train", "trng": "train", "dev": "dev", "validation": "dev", "test": "test"}
"""What benchmarks call a split → what it is called here."""
_SPLIT = re.compile(rf"(?:^|[._/-])({'|'.join(SPLITS)})(?=[._/-]|$)")
"""The last in a path counts: a folder called `test-data` says nothing."""
_FOLD = re.compile(r"fold-?(\d+)")
_COMETA_ID = "General SNOMED ID"
"""The id of what a mention says, which the SapBERT paper measures; the other is of what its author meant."""


@dataclass(frozen=True)
class BenchmarkContents:
    """What a reader found."""

    splits: Mapping[str, pl.DataFrame]
    dictionary: Dictionary | None = None
    test_dictionary: Dictionary | None = None


def read_plain(release: Release, inputs: InputReader, prefix: str | None) -> BenchmarkContents:
    """Read the plain TSV folder, which `sapbert benchmark` writes too."""
    ours = {"concept_ids": "ids", "raw_mention": "raw", "doc_id": "document", "sem_group": "type"}
    tables = []
    for source in _sources(release, r"(train|dev|test)\.tsv"):
        further = ("raw_mention", "doc_id", "type", "sem_group", "context")
        rows = _tsv(source, inputs, ("mention", "concept_ids"), further)
        if "type" in rows.columns:
            rows = rows.drop("sem_group", strict=False)
        tables.append(_table(source, rows.rename(ours, strict=False), composite=True, prefix=prefix))
    alone, enlarged = (release.find(rf"{name}\.tsv") for name in ("dictionary", "test_dictionary"))
    return BenchmarkContents(
        concat_by_split(tables),
        _tsv_dictionary(alone, inputs, prefix) if alone else None,
        _tsv_dictionary(enlarged, inputs, prefix) if enlarged else None,
    )


def read_biosyn(release: Release, inputs: InputReader, prefix: str | None) -> BenchmarkContents:
    """Read a BioSyn folder: a `.concept` file a document, in a folder a split."""
    columns = ("document", "span", "type", "mention", "ids")
    hint = "pmid||start|end||type||mention||id is wanted"
    tables = []
    for source in _sources(release, r".*\.concept"):
        # `processed_traindev` repeats two splits.
        if re.search(r"(?<!train)(train|dev|test)/[^/]*$", source.name):
            rows = _rows(source, inputs, columns, "||", hint)
            tables.append(_table(source, rows, composite=True, prefix=prefix))
    alone, enlarged = (release.find(rf"{name}_dictionary\.txt") for name in ("train", "test"))
    return BenchmarkContents(
        concat_by_split(tables),
        _joined_dictionary(alone, inputs, prefix) if alone else None,
        _joined_dictionary(enlarged, inputs, prefix) if enlarged else None,
    )


def read_queries(release: Release, inputs: InputReader, prefix: str | None) -> BenchmarkContents:
    """Read `id||mention` files, as of XL-BEL; a file whose name does not say its split is a test."""
    tables = []
    for source in _sources(release, r".*_query\.txt"):
        rows = _rows(source, inputs, ("ids", "mention"), "||", "id||mention is wanted")
        tables.append(_table(source, rows, prefix=prefix))
    return BenchmarkContents(concat_by_split(tables), _beside(release, inputs, prefix))


def read_folds(release: Release, inputs: InputReader, prefix: str | None) -> BenchmarkContents:
    """Read AskAPatient or TwADR-L as published; concept names of all folds are the dictionary."""
    tables, concepts = [], []
    for source in _sources(release, r".*fold-\d+\.(train|validation|test)\.txt"):
        rows = _rows(source, inputs, ("ids", "name", "mention"), "\t", "id, concept name, mention are wanted")
        concepts.append(rows.select("name", "ids").unique(maintain_order=True))
        tables.append(_table(source, rows, prefix=prefix))
    names = pl.concat(concepts).unique(maintain_order=True)
    own = make_dictionary(names["name"], names["ids"], prefix=prefix)
    return BenchmarkContents(concat_by_split(tables), _beside(release, inputs, prefix) or own)


def read_cometa(release: Release, inputs: InputReader, prefix: str | None) -> BenchmarkContents:
    """Read COMETA: tabs, whatever the file names say, and a column of numbers without a name."""
    tables = []
    for source in _sources(release, r"(train|dev|test)\.csv"):
        rows = _tsv(source, inputs, ("Term", _COMETA_ID), ())
        tables.append(_table(source, rows.rename({"Term": "mention", _COMETA_ID: "ids"}), prefix=prefix))
    return BenchmarkContents(concat_by_split(tables), _beside(release, inputs, prefix))


def read_dictionary(path: Path, inputs: InputReader, prefix: str | None) -> Dictionary:
    """Read a dictionary: a vocabulary artifact, a TSV with `concept_id` and `name`, or `id||name` lines."""
    if (path / MANIFEST).is_file():
        vocabulary = Vocabulary.open(path)
        inputs.checksums[path.name] = {"xxh3": vocabulary.fingerprint}
        other = vocabulary.aliases.group_by("concept_id").agg(pl.col("alias").sort().str.join("|"))
        names = vocabulary.names.select("name", "concept_id").join(
            other, on="concept_id", how="left", maintain_order="left"
        )
        ids = pl.concat_str("concept_id", "alias", separator="|", ignore_nulls=True)
        found = names.select("name", ids=ids).collect()
        return make_dictionary(found["name"], found["ids"])
    source = table_source(path)
    if format_of(source, inputs) == "biosyn":
        return _joined_dictionary(source, inputs, prefix)
    return _tsv_dictionary(source, inputs, prefix)


def concat_by_split(tables: Iterable[tuple[str, pl.DataFrame]]) -> dict[str, pl.DataFrame]:
    """Join the tables of each split, which may come in folds."""
    found: dict[str, list[pl.DataFrame]] = {}
    for split, table in tables:
        found.setdefault(split, []).append(table)
    return {split: pl.concat(found[split]) for split in ("train", "dev", "test") if split in found}


def _sources(release: Release, pattern: str) -> Iterator[InputFile]:
    """Yield every file of that name, in all folders; its name tells the folder too."""
    for member in release.members:
        if re.fullmatch(pattern, member.plain_name, re.IGNORECASE):
            yield InputFile(member.name.removesuffix(".gz"), (member,))


def _table(
    source: InputFile, rows: pl.DataFrame, *, composite: bool = False, prefix: str | None
) -> tuple[str, pl.DataFrame]:
    """The split of a file, and its mentions."""
    split, fold = _SPLIT.findall(source.name), _FOLD.search(source.name)
    named = rows.with_columns(fold=pl.lit(fold[1] if fold else ""))
    table = mention_table(named.to_dict(), composite=composite, prefix=prefix)
    return SPLITS[split[-1]] if split else "test", table


def _beside(release: Release, inputs: InputReader, prefix: str | None) -> Dictionary | None:
    source = release.find(r".*dict.*\.txt")
    return _joined_dictionary(source, inputs, prefix) if source else None


def _joined_dictionary(source: InputFile, inputs: InputReader, prefix: str | None) -> Dictionary:
    rows = _rows(source, inputs, ("ids", "name"), "||", "id||name is wanted")
    return make_dictionary(rows["name"], rows["ids"], prefix=prefix)


def _tsv_dictionary(source: InputFile, inputs: InputReader, prefix: str | None) -> Dictionary:
    rows = _tsv(source, inputs, ("concept_id", "name"), ())
    return make_dictionary(rows["name"], rows["concept_id"], prefix=prefix)


def _tsv(
    source: InputFile, inputs: InputReader, needed: tuple[str, ...], further: tuple[str, ...]
) -> pl.DataFrame:
    def choose(header: list[str]) -> dict[str, str]:
        for column in needed:
            if column not in header:
                found = ", ".join(header)[:200]
                raise FormatError(source.name, 1, f"no column {column!r} among: {found}", hint="give a TSV")
        return {column: column for column in (*needed, *further) if column in header}

    return pl.concat(batch.frame for batch in tsv_batches(source, inputs, choose))


def _rows(
    source: InputFile, inputs: InputReader, columns: tuple[str, ...], separator: str, hint: str
) -> pl.DataFrame:
    """Read lines of fields into `columns`; the last field takes what is left."""
    rows: list[list[str]] = []
    with inputs.stream(source) as stream:
        for number, raw in enumerate(stream, 1):
            fields = _decoded(raw).rstrip("\r\n").split(separator, len(columns) - 1)
            if len(fields) == len(columns):
                rows.append(fields)
            elif raw.strip():
                found = f"{len(fields)} fields by {separator!r} instead of {len(columns)}"
                raise FormatError(source.name, number, found, hint=hint)
    return pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.String), orient="row")


def _decoded(raw: bytes) -> str:
    """Decode a line: AskAPatient is UTF-8 in some folds and Latin-1 in others."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("latin-1")
