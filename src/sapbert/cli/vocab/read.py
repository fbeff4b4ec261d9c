"""`sapbert read KIND PATH -o OUT`: one command per kind of vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

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

    MRREL (tradenames), MRSTY (types), MRRANK (preferred names) and MRCUI (retired ids) are read if present.
    """
    from sapbert.vocab.readers.rrf import read_umls

    _write("umls", read_umls, path, settings, output)


@command()
@with_options(without=("languages",))
def rxnorm(path: Release, output: ReadOutput, settings: RrfSettings) -> None:
    """RxNorm: a release folder or zip.

    RXNREL (tradenames) and RXNSTY (types) are read if present.
    """
    from sapbert.vocab.readers.rrf import read_rxnorm

    _write("rxnorm", read_rxnorm, path, settings, output)


@command()
@with_options()
def obo(
    path: Annotated[Path, typer.Argument(help="OBO, OBO Graphs JSON or OWL (RDF/XML) file, also .gz.")],
    output: ReadOutput,
    settings: OboSettings,
) -> None:
    """HPO, Mondo, GO, ChEBI …: OBO, OBO Graphs JSON or OWL."""
    from sapbert.vocab.readers.obo import read_obo

    _write("obo", read_obo, path, settings, output)


@command()
@with_options()
def snomed(path: Release, output: ReadOutput, settings: SnomedSettings) -> None:
    """SNOMED CT: the RF2 Snapshot of a release folder or zip."""
    from sapbert.vocab.readers.rf2 import read_snomed

    _write("snomed", read_snomed, path, settings, output)


@command()
@with_options()
def mesh(
    path: Annotated[Path, typer.Argument(help="desc*.xml or supp*.xml (.gz, .zip), or a folder of them.")],
    output: ReadOutput,
    settings: MeshSettings,
) -> None:
    """MeSH: descriptor and supplementary XML.

    The letters of the MeSH trees become types.
    """
    from sapbert.vocab.readers.mesh import read_mesh

    _write("mesh", read_mesh, path, settings, output)


@command()
@with_options()
def omop(path: Release, output: ReadOutput, settings: OmopSettings) -> None:
    """OMOP: an Athena download, folder or zip.

    Reads CONCEPT.csv and CONCEPT_SYNONYM.csv.
    """
    from sapbert.vocab.readers.omop import read_omop

    _write("omop", read_omop, path, settings, output)


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
    from sapbert.vocab.readers.tabular import read_table

    _write("table", read_table, path, settings, output)


def _write(kind: str, read: Callable[..., None], path: Path, settings: Any, output: ReadOutput) -> None:
    """Write what a reader reads to an artifact, and report it."""
    from sapbert.artifacts import load_manifest
    from sapbert.vocab.input_files import InputReader
    from sapbert.vocab.writer import write_vocabulary

    with progress_bar() as progress:
        inputs = InputReader(on_error=output.on_error, progress=progress)
        recorded = {"kind": kind, **asdict(settings)}
        with write_vocabulary(output.out, recorded, inputs, overwrite=output.overwrite) as writer:
            read(path, writer, inputs, settings)
    report_manifest(load_manifest(output.out, verify=False), output)
