"""Read benchmarks that are lists of mentions and ids.

- plain: `{train,dev,test}.tsv`, also in `fold0/` …, with the columns mention, concept_ids and optionally
  raw_mention, doc_id, context and type or sem_group; `dictionary.tsv` and `test_dictionary.tsv` with
  concept_id and name
- BioSyn: `processed_{train,dev,test}/*.concept`, lines `pmid||start|end||type||mention||id`;
  `train_dictionary.txt` and `test_dictionary.txt`, lines `id||name`
- queries (XL-BEL, SapBERT's AskAPatient): `*_query.txt`, lines `id||mention`
- folds (AskAPatient, TwADR-L): `NAME.fold-0.{train,validation,test}.txt`, tab-separated id, concept name and
  mention; the concept names are the dictionary
- COMETA: `{train,dev,test}.csv`, tab-separated, with the columns Term and General SNOMED ID

The last three use a `*dict*.txt` in the same folder as their dictionary. In the first two formats, `|`
separates the parts of a composite mention; in the others it is an ordinary character.
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
from sapbert.vocab.tables import detect_format, find_table, tsv_batches
from sapbert.vocab.vocabulary import Vocabulary

SPLITS = {"train": "train", "trng": "train", "dev": "dev", "validation": "dev", "test": "test"}
"""Split name in a benchmark → split name in this package."""
_SPLIT = re.compile(rf"(?:^|[._/-])({'|'.join(SPLITS)})(?=[._/-]|$)")
"""Use the last match in a path, because a folder may be called `test-data`."""
_FOLD = re.compile(r"fold-?(\d+)")
_COMETA_ID = "General SNOMED ID"
"""Column with the literal meaning, used in the SapBERT paper; the specific id is the meaning in context."""


@dataclass(frozen=True)
class BenchmarkContents:
    """The contents of a benchmark, as returned by all readers."""

    splits: Mapping[str, pl.DataFrame]
    dictionary: Dictionary | None = None
    test_dictionary: Dictionary | None = None


def read_plain(release: Release, inputs: InputReader, prefix: str | None) -> BenchmarkContents:
    """Read the plain format, which `sapbert benchmark` writes."""
    renamed = {"concept_ids": "ids", "raw_mention": "raw", "doc_id": "document", "sem_group": "type"}
    tables = []
    for source in _sources(release, r"(train|dev|test)\.tsv"):
        optional = ("raw_mention", "doc_id", "type", "sem_group", "context")
        rows = _tsv(source, inputs, ("mention", "concept_ids"), optional)
        if "type" in rows.columns:
            rows = rows.drop("sem_group", strict=False)
        tables.append(_table(source, rows.rename(renamed, strict=False), composite=True, prefix=prefix))
    names, enlarged = (release.find(rf"{name}\.tsv") for name in ("dictionary", "test_dictionary"))
    return BenchmarkContents(
        concat_by_split(tables),
        _tsv_dictionary(names, inputs, prefix) if names else None,
        _tsv_dictionary(enlarged, inputs, prefix) if enlarged else None,
    )


def read_biosyn(release: Release, inputs: InputReader, prefix: str | None) -> BenchmarkContents:
    """Read a BioSyn folder: one folder per split, one `.concept` file per document."""
    columns = ("document", "span", "type", "mention", "ids")
    hint = "expected pmid||start|end||type||mention||id"
    tables = []
    for source in _sources(release, r".*\.concept"):
        # `processed_traindev` repeats two splits.
        if re.search(r"(?<!train)(train|dev|test)/[^/]*$", source.name):
            rows = _rows(source, inputs, columns, "||", hint)
            tables.append(_table(source, rows, composite=True, prefix=prefix))
    names, enlarged = (release.find(rf"{name}_dictionary\.txt") for name in ("train", "test"))
    return BenchmarkContents(
        concat_by_split(tables),
        _biosyn_dictionary(names, inputs, prefix) if names else None,
        _biosyn_dictionary(enlarged, inputs, prefix) if enlarged else None,
    )


def read_queries(release: Release, inputs: InputReader, prefix: str | None) -> BenchmarkContents:
    """Read `id||mention` files, such as XL-BEL; a file without a split in its name is a test split."""
    tables = []
    for source in _sources(release, r".*_query\.txt"):
        rows = _rows(source, inputs, ("ids", "mention"), "||", "expected id||mention")
        tables.append(_table(source, rows, prefix=prefix))
    return BenchmarkContents(concat_by_split(tables), _find_dictionary(release, inputs, prefix))


def read_folds(release: Release, inputs: InputReader, prefix: str | None) -> BenchmarkContents:
    """Read AskAPatient or TwADR-L as published; the concept names of all folds are the dictionary."""
    tables, concepts = [], []
    for source in _sources(release, r".*fold-\d+\.(train|validation|test)\.txt"):
        hint = "expected id, concept name and mention"
        rows = _rows(source, inputs, ("ids", "name", "mention"), "\t", hint)
        concepts.append(rows.select("name", "ids").unique(maintain_order=True))
        tables.append(_table(source, rows, prefix=prefix))
    names = pl.concat(concepts).unique(maintain_order=True)
    of_folds = make_dictionary(names["name"], names["ids"], prefix=prefix)
    return BenchmarkContents(concat_by_split(tables), _find_dictionary(release, inputs, prefix) or of_folds)


def read_cometa(release: Release, inputs: InputReader, prefix: str | None) -> BenchmarkContents:
    """Read COMETA: tab-separated despite the file names, with an unnamed column of row numbers."""
    tables = []
    for source in _sources(release, r"(train|dev|test)\.csv"):
        rows = _tsv(source, inputs, ("Term", _COMETA_ID), ())
        tables.append(_table(source, rows.rename({"Term": "mention", _COMETA_ID: "ids"}), prefix=prefix))
    return BenchmarkContents(concat_by_split(tables), _find_dictionary(release, inputs, prefix))


def read_dictionary(path: Path, inputs: InputReader, prefix: str | None) -> Dictionary:
    """Read a dictionary: a vocabulary artifact, a TSV with `concept_id` and `name`, or `id||name` lines."""
    if (path / MANIFEST).is_file():
        vocabulary = Vocabulary.open(path)
        inputs.checksums[path.name] = {"xxh3": vocabulary.fingerprint}
        aliases = vocabulary.aliases.group_by("concept_id").agg(pl.col("alias").sort().str.join("|"))
        names = vocabulary.names.select("name", "concept_id").join(
            aliases, on="concept_id", how="left", maintain_order="left"
        )
        ids = pl.concat_str("concept_id", "alias", separator="|", ignore_nulls=True)
        rows = names.select("name", ids=ids).collect()
        return make_dictionary(rows["name"], rows["ids"])
    source = find_table(path)
    if detect_format(source, inputs) == "biosyn":
        return _biosyn_dictionary(source, inputs, prefix)
    return _tsv_dictionary(source, inputs, prefix)


def concat_by_split(tables: Iterable[tuple[str, pl.DataFrame]]) -> dict[str, pl.DataFrame]:
    """Concatenate the tables of each split; a split has several if it has folds."""
    grouped: dict[str, list[pl.DataFrame]] = {}
    for split, table in tables:
        grouped.setdefault(split, []).append(table)
    return {split: pl.concat(grouped[split]) for split in ("train", "dev", "test") if split in grouped}


def _sources(release: Release, pattern: str) -> Iterator[InputFile]:
    """Yield all files with a matching name, in all folders; the name of a source includes its folder."""
    for member in release.members:
        if re.fullmatch(pattern, member.plain_name, re.IGNORECASE):
            yield InputFile(member.name.removesuffix(".gz"), (member,))


def _table(
    source: InputFile, rows: pl.DataFrame, *, composite: bool = False, prefix: str | None
) -> tuple[str, pl.DataFrame]:
    """Return the split of a file and its mentions."""
    split, fold = _SPLIT.findall(source.name), _FOLD.search(source.name)
    named = rows.with_columns(fold=pl.lit(fold[1] if fold else ""))
    table = mention_table(named.to_dict(), composite=composite, prefix=prefix)
    return SPLITS[split[-1]] if split else "test", table


def _find_dictionary(release: Release, inputs: InputReader, prefix: str | None) -> Dictionary | None:
    source = release.find(r".*dict.*\.txt")
    return _biosyn_dictionary(source, inputs, prefix) if source else None


def _biosyn_dictionary(source: InputFile, inputs: InputReader, prefix: str | None) -> Dictionary:
    rows = _rows(source, inputs, ("ids", "name"), "||", "expected id||name")
    return make_dictionary(rows["name"], rows["ids"], prefix=prefix)


def _tsv_dictionary(source: InputFile, inputs: InputReader, prefix: str | None) -> Dictionary:
    rows = _tsv(source, inputs, ("concept_id", "name"), ())
    return make_dictionary(rows["name"], rows["concept_id"], prefix=prefix)


def _tsv(
    source: InputFile, inputs: InputReader, required: tuple[str, ...], optional: tuple[str, ...]
) -> pl.DataFrame:
    def choose(header: list[str]) -> dict[str, str]:
        for column in required:
            if column not in header:
                problem = f"no column {column!r} among: {', '.join(header)[:200]}"
                raise FormatError(source.name, 1, problem, hint="expected a TSV with a header")
        return {column: column for column in (*required, *optional) if column in header}

    return pl.concat(batch.frame for batch in tsv_batches(source, inputs, choose))


def _rows(
    source: InputFile, inputs: InputReader, columns: tuple[str, ...], separator: str, hint: str
) -> pl.DataFrame:
    """Read lines of separated fields into `columns`; the last field takes the rest of the line."""
    rows: list[list[str]] = []
    with inputs.stream(source) as stream:
        for number, raw in enumerate(stream, 1):
            fields = _decoded(raw).rstrip("\r\n").split(separator, len(columns) - 1)
            if len(fields) == len(columns):
                rows.append(fields)
            elif raw.strip():
                problem = f"expected {len(columns)} fields separated by {separator!r}, found {len(fields)}"
                raise FormatError(source.name, number, problem, hint=hint)
    return pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.String), orient="row")


def _decoded(raw: bytes) -> str:
    """Decode a line: AskAPatient is UTF-8 in some folds and Latin-1 in others."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("latin-1")
