"""Read UMLS and RxNorm: Rich Release Format, columns separated and terminated by `|`, no quoting.

A release is found in folders, zips, the full-release zip with its nested `.nlm` zips, and files split into
gzip pieces (`input_files.Release`). Tradename links make the names of a brand synonyms of its ingredient and
vice versa. All links are used; the reference code kept only the last link of each concept.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from sapbert.errors import ConfigError, FormatError
from sapbert.vocab.input_files import InputFile, InputReader, Release
from sapbert.vocab.names_by_concept import NamesByConcept
from sapbert.vocab.readers.rrf_relations import (
    LANGUAGES,
    NO_LINKS,
    language_codes,
    read_definitions,
    read_paths,
    read_relations,
    rrf_layout,
)
from sapbert.vocab.readers.settings import RrfSettings
from sapbert.vocab.writer import Spooled, VocabularyWriter


@dataclass(frozen=True, slots=True)
class _Edition:
    """The differences between UMLS and RxNorm."""

    prefix: str
    conso: str
    rel: str
    sty: str

    rank: str = ""
    retired: str = ""
    hier: str = ""
    definitions: str = ""
    sources: str = ""

    @property
    def companions(self) -> list[str]:
        """Files beside the names file that are read if they exist."""
        return [value for value in astuple(self)[2:] if value]


UMLS = _Edition(
    "umls:", "MRCONSO.RRF", "MRREL.RRF", "MRSTY.RRF", "MRRANK.RRF", "MRCUI.RRF", "MRHIER.RRF", "MRDEF.RRF",
    "MRSAB.RRF",
)  # fmt: skip
RXNORM = _Edition("rxnorm:", "RXNCONSO.RRF", "RXNREL.RRF", "RXNSTY.RRF")
RXNORM_TERM_TYPES = (
    "BN", "BPCK", "DF", "DFG", "GPCK", "IN", "MIN", "PIN", "SBD", "SBDC", "SBDF", "SBDFP", "SBDG", "SCD",
    "SCDC", "SCDF", "SCDFP", "SCDG", "SCDGP",
)  # fmt: skip
"""Term types of the one normalized name per concept in RxNorm, which ranks no sources and sets no flags."""


_CONSO = "CUI LAT TS LUI STT SUI ISPREF AUI SAUI SCUI SDUI SAB TTY CODE STR SRL SUPPRESS CVF"
_CONSO_COLUMNS = ["CUI", "LAT", "TS", "STT", "ISPREF", "SAB", "TTY", "STR", "SUPPRESS"]
_STY = rrf_layout("CUI TUI STN STY ATUI CVF")
_RANK = rrf_layout("RANK SAB TTY SUPPRESS")
_RETIRED = rrf_layout("CUI1 VER REL RELA MAPREASON CUI2 MAPIN")


def read_umls(path: Path, writer: VocabularyWriter, inputs: InputReader, settings: RrfSettings) -> None:
    """Read a UMLS release: a META folder, MRCONSO.RRF itself, or a zip from NLM."""
    release = _release(UMLS, path)
    ranks = _ranks(release.find(_exactly(UMLS.rank)), inputs)
    _read(UMLS, release, writer, inputs, settings, ranks)
    if retired := release.find(_exactly(UMLS.retired)):
        _read_retired(retired, writer, inputs)
    if definitions := release.find(_exactly(UMLS.definitions)):
        sources = release.find(_exactly(UMLS.sources))
        read_definitions(definitions, sources, UMLS.prefix, writer, inputs, settings)


def read_rxnorm(path: Path, writer: VocabularyWriter, inputs: InputReader, settings: RrfSettings) -> None:
    """Read a RxNorm release folder or zip, or RXNCONSO.RRF itself."""
    ranks = pl.DataFrame({"TTY": RXNORM_TERM_TYPES}).with_columns(SAB=pl.lit("RXNORM"), rank=1)
    _read(RXNORM, _release(RXNORM, path), writer, inputs, settings, ranks)


def _release(edition: _Edition, path: Path) -> Release:
    """Find the files at `path`; for MRCONSO itself, also the files beside it."""
    release = Release(path)
    if path.name.upper().removesuffix(".GZ") == edition.conso:
        for name in edition.companions:
            beside = (path.with_name(name), path.with_name(f"{name}.gz"))
            release.members += [found for file in beside if file.is_file() for found in Release(file).members]
    return release


def _read(
    edition: _Edition,
    release: Release,
    writer: VocabularyWriter,
    inputs: InputReader,
    settings: RrfSettings,
    ranks: pl.DataFrame,
) -> None:
    conso = _find_conso(edition, release)
    links = _read_relations(edition, release, writer, inputs, settings)
    linked = links["brand"].unique().sort()
    selection = _Selection(settings, ranks)
    brand_name_frames: list[pl.DataFrame] = []
    layout = rrf_layout(_CONSO, hint=f"is this {edition.conso}?")

    def take(frame: pl.DataFrame) -> tuple[_BlockSummary, Spooled, pl.DataFrame]:
        names, summary = selection.apply(frame)
        concepts = NamesByConcept.of(names, edition.prefix)
        return summary, writer.spool(concepts), _names_of_brands(concepts, linked)

    for summary, spooled, brand_names in inputs.frames(conso, layout, _CONSO_COLUMNS, take):
        selection.record(summary, writer)
        writer.add_spooled(spooled)
        brand_name_frames.append(brand_names)
    selection.check(conso, inputs)
    if not links.is_empty():
        _add_tradenames(links, pl.concat(brand_name_frames), writer)
    if sty := release.find(_exactly(edition.sty)):
        _read_types(sty, edition, writer, inputs)


def _find_conso(edition: _Edition, release: Release) -> InputFile:
    if conso := release.find(_exactly(edition.conso)):
        return conso
    # The user may have renamed a single file.
    if len(release.members) == 1 and not release.path.is_dir():
        only = release.members[0]
        return InputFile(only.plain_name, (only,))
    hint = f"give the release folder, its zip, or {edition.conso} itself"
    raise FormatError(release.path, None, f"contains no {edition.conso}", hint=hint)


def _exactly(name: str) -> str:
    return name.replace(".", r"\.")


class _BlockSummary(NamedTuple):
    """Summary of one block, for the report."""

    rows: int
    suppressed: int
    languages: frozenset[str]
    sources: frozenset[str]


class _Selection:
    """Selects rows of MRCONSO, converts them to names, and records which settings matched nothing."""

    def __init__(self, settings: RrfSettings, ranks: pl.DataFrame) -> None:
        self._settings = settings
        self._languages = language_codes(settings.languages)
        self._ranks = _RankTable(ranks)
        self._missing_languages = set(self._languages or ())
        self._missing_sources = set(settings.sources)
        self._any_row = False

    def apply(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, _BlockSummary]:
        """Convert the selected rows of a block to names; called on several threads."""
        unsuppressed = pl.col("SUPPRESS") == "N"
        flags = frame.select(
            requested=pl.all_horizontal(self._conditions()),
            kept=pl.lit(value=True) if self._settings.keep_suppressed else unsuppressed,
        )
        kept = flags["requested"] & flags["kept"]
        summary = _BlockSummary(
            frame.height,
            (flags["requested"] & ~flags["kept"]).arg_true().len(),
            frozenset(frame["LAT"].unique()) if self._missing_languages else frozenset(),
            frozenset(frame["SAB"].unique()) if self._missing_sources else frozenset(),
        )
        names = frame.filter(kept).select(
            concept_id="CUI",
            name="STR",
            rank=self._ranks.rank(),
            language=self._language(),
            source=pl.col("SAB").cast(pl.Categorical),
        )
        return names, summary

    def _language(self) -> pl.Expr:
        if self._languages is not None and len(self._languages) == 1:
            return pl.lit(LANGUAGES.get(self._languages[0], self._languages[0])).cast(pl.Categorical)
        return pl.col("LAT").cast(pl.Categorical).replace(LANGUAGES)

    def _conditions(self) -> list[pl.Expr]:
        """Return conditions on language and source."""
        conditions = [pl.lit(value=True)]
        if self._languages is not None:
            conditions.append(pl.any_horizontal(pl.col("LAT") == language for language in self._languages))
        if self._settings.sources:
            conditions.append(pl.col("SAB").is_in(self._settings.sources))
        return conditions

    def record(self, summary: _BlockSummary, writer: VocabularyWriter) -> None:
        """Add the summary of a block to the report."""
        writer.count("rows read", summary.rows)
        if not self._settings.keep_suppressed:
            writer.count("suppressed rows dropped", summary.suppressed)
        self._any_row |= summary.rows > 0
        self._missing_languages -= summary.languages
        self._missing_sources -= summary.sources

    def check(self, conso: InputFile, inputs: InputReader) -> None:
        """Refuse a file without a valid row, and a requested language or source that does not occur in it."""
        if not self._any_row:
            raise FormatError(
                conso.name,
                None,
                f"all {inputs.skipped_rows:,} rows are invalid",
                hint=inputs.skipped_examples[0],
            )
        if self._missing_languages:
            missing = ", ".join(sorted(self._missing_languages))
            raise ConfigError(f"{conso.name} has no name in {missing}; `--language all` keeps all languages")
        if self._missing_sources:
            raise ConfigError(f"{conso.name} has no name from {', '.join(sorted(self._missing_sources))}")


class _RankTable:
    """MRRANK as an array, so that the rank of a row is one look-up."""

    def __init__(self, ranks: pl.DataFrame) -> None:
        self._sources = pl.Enum(ranks["SAB"].unique().sort())
        self._term_types = pl.Enum(ranks["TTY"].unique().sort())
        self._width = max(len(self._term_types.categories), 1)
        cells = 1 + len(self._sources.categories) * self._width
        table = pl.zeros(cells, pl.Int32, eager=True)
        self._ranks = table.scatter(ranks.select(self._cell()).to_series(), ranks["rank"])

    def rank(self) -> pl.Expr:
        """Return the rank of each row: MRRANK decides which name is preferred, then the flags of the row."""
        flags = (
            (pl.col("TS") == "P").cast(pl.Int32) * 4
            + (pl.col("STT") == "PF").cast(pl.Int32) * 2
            + (pl.col("ISPREF") == "Y").cast(pl.Int32)
        )
        return pl.lit(self._ranks).gather(self._cell()) * 8 + flags + 1

    def _cell(self) -> pl.Expr:
        """Return the position of a source and term type in the array; 0 if MRRANK does not list them."""
        source = pl.col("SAB").cast(self._sources, strict=False).to_physical().cast(pl.Int64)
        term_type = pl.col("TTY").cast(self._term_types, strict=False).to_physical()
        return (source * self._width + term_type + 1).fill_null(0)


def _ranks(source: InputFile | None, inputs: InputReader) -> pl.DataFrame:
    """Read MRRANK: the rank of each source and term type; empty if there is no such file."""
    if source is None:
        return pl.DataFrame(schema={"SAB": pl.String, "TTY": pl.String, "rank": pl.Int32})
    rows = pl.concat(inputs.frames(source, _RANK, ["RANK", "SAB", "TTY"]))
    ranks = rows.with_columns(rank=pl.col("RANK").cast(pl.Int32, strict=False))
    if ranks["rank"].null_count():
        line = ranks["rank"].is_null().arg_true()[0]
        raise FormatError(source.name, line + 1, f"rank {ranks['RANK'][line]!r} is not a number")
    return ranks.group_by("SAB", "TTY").agg(pl.col("rank").max())


def _read_relations(
    edition: _Edition,
    release: Release,
    writer: VocabularyWriter,
    inputs: InputReader,
    settings: RrfSettings,
) -> pl.DataFrame:
    """Add parents; return the links between drugs and brands."""
    if rel := release.find(_exactly(edition.rel)):
        return read_relations(rel, edition.prefix, writer, inputs, settings)
    if edition.hier and (hier := release.find(_exactly(edition.hier))):
        read_paths(hier, edition.prefix, writer, inputs, settings)
    return NO_LINKS


def _names_of_brands(concepts: NamesByConcept, brands: pl.Series) -> pl.DataFrame:
    """Return the names of those concepts that are in `brands`, which is sorted."""
    ids = concepts.ids
    if ids.is_empty() or brands.is_empty():
        return concepts._replace(names=concepts.names.clear()).with_ids()
    first, last = str(ids.min()), str(ids.max())
    near = brands[brands.search_sorted(first, side="left") : brands.search_sorted(last, side="right")]
    is_brand = ids.is_in(near.implode()).to_numpy()
    # Filtering would keep the text of the whole block in memory; gathering does not.
    rows = np.flatnonzero(is_brand[concepts.names["concept"].to_numpy()])
    return concepts._replace(names=concepts.names[rows]).with_ids()


def _add_tradenames(links: pl.DataFrame, brand_name_frames: pl.DataFrame, writer: VocabularyWriter) -> None:
    tradenames = links.join(brand_name_frames.rename({"concept_id": "brand"}), on="brand")
    writer.add_late(tradenames.with_columns(rank=0, scope=pl.lit("related")))
    writer.count("tradename links", links.height // 2)


def _read_types(source: InputFile, edition: _Edition, writer: VocabularyWriter, inputs: InputReader) -> None:
    for frame in inputs.frames(source, _STY, ["CUI", "TUI", "STY"]):
        writer.add_facts("types", frame.select(concept_id=edition.prefix + pl.col("CUI"), type="TUI"))
        unlabelled = frame.filter(~pl.col("TUI").is_in(list(writer.type_labels)))
        writer.type_labels.update(unlabelled.select("TUI", "STY").unique().iter_rows())


def _read_retired(source: InputFile, writer: VocabularyWriter, inputs: InputReader) -> None:
    """Read MRCUI: identifiers of earlier releases whose concept now has another identifier."""
    for frame in inputs.frames(source, _RETIRED, ["CUI1", "REL", "CUI2"]):
        moved = frame.filter(pl.col("REL") == "SY", pl.col("CUI2") != "")
        aliases = moved.select(concept_id=UMLS.prefix + pl.col("CUI2"), alias=UMLS.prefix + pl.col("CUI1"))
        writer.add_facts("aliases", aliases)
