"""`sapbert read KIND PATH -o OUT`: one command per kind of vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapbert.cli.options import command_group, with_options
from sapbert.cli.output import progress_bar, report_manifest
from sapbert.cli.parameters import Output
from sapbert.vocab.readers.settings import (
    MeshSettings,
    OboSettings,
    OmopSettings,
    RrfSettings,
    SnomedSettings,
    TableSettings,
)
from sapbert.vocab.settings import OnError

if TYPE_CHECKING:
    from sapbert.vocab.readers.registry import ReaderSettings

app, command = command_group("Read a vocabulary from its publisher's files.")

Release = Annotated[Path, typer.Argument(help="Folder, file or zip of the release.", show_default=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOutput(Output):
    """Output of a reader, and how it treats bad rows."""

    on_error: Annotated[
        OnError, typer.Option(help="At a bad row, stop with an error, or skip, count and report it.")
    ] = "stop"


@command()
@with_options()
def umls(path: Release, output: ReadOutput, settings: RrfSettings) -> None:
    """UMLS: a META folder, MRCONSO.RRF or a zip from NLM.

    MRREL (parents, tradenames), MRSTY (types), MRDEF (definitions), MRRANK (preferred names) and MRCUI
    (retired ids) are read if present.
    """
    _read("umls", path, settings, output)


@command()
@with_options(without=("languages",))
def rxnorm(path: Release, output: ReadOutput, settings: RrfSettings) -> None:
    """RxNorm: a release folder or zip.

    RXNREL (parents, tradenames) and RXNSTY (types) are read if present.
    """
    _read("rxnorm", path, settings, output)


@command()
@with_options()
def obo(
    path: Annotated[Path, typer.Argument(help="OBO, OBO Graphs JSON or OWL (RDF/XML) file, also .gz.")],
    output: ReadOutput,
    settings: OboSettings,
) -> None:
    """HPO, Mondo, GO, ChEBI …: OBO, OBO Graphs JSON or OWL."""
    _read("obo", path, settings, output)


@command()
@with_options()
def snomed(path: Release, output: ReadOutput, settings: SnomedSettings) -> None:
    """SNOMED CT: the RF2 Snapshot of a release folder or zip."""
    _read("snomed", path, settings, output)


@command()
@with_options()
def mesh(
    path: Annotated[Path, typer.Argument(help="desc*.xml or supp*.xml (.gz, .zip), or a folder of them.")],
    output: ReadOutput,
    settings: MeshSettings,
) -> None:
    """MeSH: descriptor and supplementary XML.

    The letters of the MeSH trees become types, tree numbers parents and scope notes definitions.
    """
    _read("mesh", path, settings, output)


@command()
@with_options()
def omop(path: Release, output: ReadOutput, settings: OmopSettings) -> None:
    """OMOP: an Athena download, folder or zip.

    Reads CONCEPT.csv and CONCEPT_SYNONYM.csv, and parents from CONCEPT_RELATIONSHIP.csv if present, else from
    CONCEPT_ANCESTOR.csv.
    """
    _read("omop", path, settings, output)


@command()
@with_options()
def table(
    path: Annotated[
        Path, typer.Argument(help="TSV, CSV, JSONL (.gz) or Parquet file, or BioSyn's id||name text.")
    ],
    output: ReadOutput,
    settings: TableSettings,
) -> None:
    """Your own TSV, CSV, JSONL or Parquet, or BioSyn's dictionary.

    One row per name, or one row per concept with a synonyms column.
    """
    _read("table", path, settings, output)


def _read(kind: str, path: Path, settings: ReaderSettings, output: ReadOutput) -> None:
    """Read a vocabulary and report what it contains."""
    from sapbert.vocab.readers.registry import read_vocabulary

    with progress_bar() as progress:
        vocabulary = read_vocabulary(
            kind,
            path,
            output.out,
            settings,
            on_error=output.on_error,
            overwrite=output.overwrite,
            progress=progress,
        )
    report_manifest(vocabulary.manifest, output)
