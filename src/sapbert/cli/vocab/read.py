"""`sapbert read KIND PATH -o OUT`: one command a kind of vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapbert.cli.output import Json, Out, Overwrite, progress_bar, tell

if TYPE_CHECKING:
    from sapbert.vocab.input_files import InputReader
    from sapbert.vocab.writer import VocabularyWriter

app = typer.Typer(
    no_args_is_help=True,
    help="Read a vocabulary from the files its publisher hands out.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Release = Annotated[Path, typer.Argument(help="Folder, file or zip of the release.", show_default=False)]
Languages = Annotated[
    list[str],
    typer.Option(
        "--language", metavar="CODE", help="Language to keep (repeat for more); all keeps every one."
    ),
]


Sources = Annotated[
    list[str],
    typer.Option("--source", metavar="SAB", help="Source (SAB) to keep; repeat for more. Default: all."),
]
KeepSuppressed = Annotated[bool, typer.Option("--keep-suppressed", help="Take suppressed rows too.")]
Tradenames = Annotated[bool, typer.Option(help="Join the names of a drug and its brands.")]


class OnError(StrEnum):
    """What to do with a bad row."""

    STOP = "stop"
    SKIP = "skip"


Bad = Annotated[OnError, typer.Option("--on-error", help="Stop at a bad row, or skip, count and report it.")]


class Level(StrEnum):
    """What a MeSH concept is."""

    DESCRIPTOR = "descriptor"
    CONCEPT = "concept"


class TableFormat(StrEnum):
    """How a table is written."""

    TSV = "tsv"
    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"
    BIOSYN = "biosyn"


@app.command()
def umls(
    path: Release,
    out: Out,
    languages: Languages = ["ENG"],
    sources: Sources = [],
    keep_suppressed: KeepSuppressed = False,
    tradenames: Tradenames = True,
    on_error: Bad = OnError.STOP,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """UMLS: a META folder, MRCONSO.RRF or any zip of NLM's.

    MRREL (tradenames), MRSTY (types), MRRANK (preferred names) and MRCUI (retired ids) are used if there.
    """
    from sapbert.vocab.readers.rrf import read_umls
    from sapbert.vocab.readers.settings import RrfSettings

    settings = RrfSettings(
        languages=tuple(languages),
        sources=tuple(sources),
        keep_suppressed=keep_suppressed,
        tradenames=tradenames,
    )
    _run("umls", lambda w, i: read_umls(path, w, i, settings), settings, out, on_error, overwrite, json)


@app.command()
def rxnorm(
    path: Release,
    out: Out,
    sources: Sources = [],
    keep_suppressed: KeepSuppressed = False,
    tradenames: Tradenames = True,
    on_error: Bad = OnError.STOP,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """RxNorm: a release folder or zip.

    RXNREL (tradenames) and RXNSTY (types) are used if there.
    """
    from sapbert.vocab.readers.rrf import read_rxnorm
    from sapbert.vocab.readers.settings import RrfSettings

    settings = RrfSettings(sources=tuple(sources), keep_suppressed=keep_suppressed, tradenames=tradenames)
    _run("rxnorm", lambda w, i: read_rxnorm(path, w, i, settings), settings, out, on_error, overwrite, json)


@app.command()
def obo(
    path: Annotated[Path, typer.Argument(help="OBO, OBO Graphs JSON or OWL (RDF/XML); may be .gz.")],
    out: Out,
    scopes: Annotated[
        list[str],
        typer.Option(
            "--scope",
            metavar="SCOPE",
            help="Synonyms to keep: exact, related, narrow, broad; repeat for more.",
        ),
    ] = ["exact", "related"],
    on_error: Bad = OnError.STOP,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """HPO, Mondo, GO, ChEBI …: OBO, OBO Graphs JSON or OWL."""
    from sapbert.vocab.readers.obo import read_obo
    from sapbert.vocab.readers.settings import OboSettings

    settings = OboSettings(scopes=tuple(scopes))
    _run("obo", lambda w, i: read_obo(path, w, i, settings), settings, out, on_error, overwrite, json)


@app.command()
def snomed(
    path: Release,
    out: Out,
    languages: Languages = ["all"],
    refsets: Annotated[
        list[str],
        typer.Option(
            "--refset", metavar="ID", help="Language refset that decides; repeat, most important first."
        ),
    ] = [],
    on_error: Bad = OnError.STOP,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """SNOMED CT: the RF2 Snapshot of a release folder or zip."""
    from sapbert.vocab.readers.rf2 import read_snomed
    from sapbert.vocab.readers.settings import SnomedSettings

    settings = SnomedSettings(languages=tuple(languages), refsets=tuple(refsets))
    _run("snomed", lambda w, i: read_snomed(path, w, i, settings), settings, out, on_error, overwrite, json)


@app.command()
def mesh(
    path: Annotated[Path, typer.Argument(help="desc*.xml or supp*.xml (.gz, .zip), or a folder of them.")],
    out: Out,
    level: Annotated[
        Level, typer.Option(help="One concept a descriptor, or a MeSH concept (strict synonyms).")
    ] = Level.DESCRIPTOR,
    keep_permuted: Annotated[
        bool, typer.Option("--keep-permuted", help="Take word-order variants too.")
    ] = False,
    on_error: Bad = OnError.STOP,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """MeSH: descriptor and supplementary XML.

    Tree letters become types.
    """
    from sapbert.vocab.readers.mesh import read_mesh
    from sapbert.vocab.readers.settings import MeshSettings

    settings = MeshSettings(level=level.value, keep_permuted=keep_permuted)
    _run("mesh", lambda w, i: read_mesh(path, w, i, settings), settings, out, on_error, overwrite, json)


@app.command()
def omop(
    path: Release,
    out: Out,
    vocabularies: Annotated[
        list[str],
        typer.Option(
            "--vocabulary", metavar="ID", help="vocabulary_id to keep; repeat for more. Default: all."
        ),
    ] = [],
    domains: Annotated[
        list[str],
        typer.Option("--domain", metavar="ID", help="domain_id to keep; repeat for more. Default: all."),
    ] = [],
    standard_only: Annotated[
        bool, typer.Option("--standard-only", help="Keep standard concepts only.")
    ] = False,
    keep_invalid: Annotated[
        bool, typer.Option("--keep-invalid", help="Take deleted and replaced too.")
    ] = False,
    on_error: Bad = OnError.STOP,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """OMOP: an Athena download, folder or zip.

    CONCEPT.csv and CONCEPT_SYNONYM.csv are read.
    """
    from sapbert.vocab.readers.omop import read_omop
    from sapbert.vocab.readers.settings import OmopSettings

    settings = OmopSettings(
        vocabularies=tuple(vocabularies),
        domains=tuple(domains),
        standard_only=standard_only,
        keep_invalid=keep_invalid,
    )
    _run("omop", lambda w, i: read_omop(path, w, i, settings), settings, out, on_error, overwrite, json)


def _column(holds: str) -> Any:
    return typer.Option(help=holds, metavar="COLUMN", show_default="found by its name")


@app.command()
def table(
    path: Annotated[Path, typer.Argument(help="TSV, CSV, JSONL (.gz), Parquet, or BioSyn's id||name text.")],
    out: Out,
    format: Annotated[TableFormat | None, typer.Option(help="Where the file's name does not tell.")] = None,
    id_column: Annotated[str | None, _column("Identifier of the concept.")] = None,
    name_column: Annotated[str | None, _column("The name; of a concept a row, the preferred one.")] = None,
    synonyms_column: Annotated[str | None, _column("Further names, joined by the separator.")] = None,
    preferred_column: Annotated[str | None, _column("Whether the name is preferred: true, yes, 1.")] = None,
    language_column: Annotated[str | None, _column("Language of the name.")] = None,
    source_column: Annotated[str | None, _column("Source of the name.")] = None,
    types_column: Annotated[str | None, _column("Semantic types, joined by the separator.")] = None,
    separator: Annotated[str, typer.Option(help="Parts synonyms, types or ids inside a field.")] = "|",
    prefix: Annotated[
        str | None, typer.Option(help="For ids without one: mesh makes D009203 mesh:D009203.")
    ] = None,
    language: Annotated[str | None, typer.Option(help="Language of all names.")] = None,
    source: Annotated[str | None, typer.Option(help="Source of all names.")] = None,
    on_error: Bad = OnError.STOP,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Your own TSV, CSV, JSONL or Parquet; BioSyn's dictionary.

    One row a name, or one a concept with its synonyms joined.
    """
    from sapbert.vocab.readers.settings import TableSettings
    from sapbert.vocab.readers.tabular import read_table

    settings = TableSettings(
        format=format.value if format else None,
        id_column=id_column,
        name_column=name_column,
        synonyms_column=synonyms_column,
        preferred_column=preferred_column,
        language_column=language_column,
        source_column=source_column,
        types_column=types_column,
        separator=separator,
        prefix=prefix,
        language=language,
        source=source,
    )
    _run("table", lambda w, i: read_table(path, w, i, settings), settings, out, on_error, overwrite, json)


def _run(
    kind: str,
    reader: Callable[[VocabularyWriter, InputReader], None],
    settings: Any,
    out: Path,
    on_error: OnError,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Run a reader into the artifact at `out` and report."""
    from sapbert.artifacts import load_manifest
    from sapbert.vocab.input_files import InputReader
    from sapbert.vocab.writer import write_vocabulary

    with progress_bar() as progress:
        inputs = InputReader(on_error=on_error.value, progress=progress)
        described = {"kind": kind, **asdict(settings)}
        with write_vocabulary(out, described, inputs, overwrite=overwrite) as writer:
            reader(writer, inputs)
    tell(load_manifest(out, verify=False), out, as_json=as_json)
