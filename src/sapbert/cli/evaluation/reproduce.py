"""`sapbert reproduce TABLE`: one command per table or figure of the paper."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from sapbert.cli.evaluation.figures import draw_name_figures, draw_similarity_figure
from sapbert.cli.evaluation.plot import NamesPath
from sapbert.cli.options import command_group, with_options
from sapbert.cli.output import progress_bar
from sapbert.cli.parameters import Overwrite, PairsPath, Resume, VectorCache
from sapbert.errors import ArtifactError, ConfigError, needing
from sapbert.paper.settings import ProjectionSettings, SimilaritySettings
from sapbert.resumable import refuse_earlier_results

if TYPE_CHECKING:
    from sapbert.evaluation.benchmarks.loader import EvaluationSet
    from sapbert.evaluation.compare import System
    from sapbert.evaluation.rankers import RankerFactory
    from sapbert.paper.cells import CellProgress, RankerRun
    from sapbert.paper.published import PaperTable
    from sapbert.paper.tables import Reproduction
    from sapbert.progress import Progress

app, command = command_group("Reproduce a table or figure of the SapBERT paper.")
_OUTPUT_FILES = re.compile(r"(table\d|xlbel)\.(md|csv)|figure\d\.(png|html)|cells|\..*")
"""Files that an output folder may contain; hidden files are left by killed processes."""
_ASSIGNMENT = re.compile(r"\s*([^/=]+?)\s*=(.+)")

Models = Annotated[
    list[str],
    typer.Option(
        metavar="NAME=FOLDER[,FOLDER]",
        help="Row name and encoder; further folders are models trained with other seeds. Repeatable.",
    ),
]
PaperRows = Annotated[
    list[str],
    typer.Option(
        "--paper-row",
        "--beside",
        metavar="NAME=ROW",
        help="Row of the paper to compare a model with. Repeatable.",
        show_default="the row with the model's name",
    ),
]
OutFolder = Annotated[
    Path, typer.Option("--out", "-o", help="Folder to write tables and figures to.", show_default=False)
]
Benchmarks = Annotated[
    Path,
    typer.Option(
        help="Folder of evaluation sets, one subfolder each: ncbi-disease, bc5cdr-disease, bc5cdr-chemical, "
        "medmentions, askapatient, cometa, cometa-zeroshot. Missing sets are reported.",
        exists=True,
        file_okay=False,
        show_default=False,
    ),
]


XlBelBenchmarks = Annotated[
    Path,
    typer.Option(
        help="Folder of the sets, one subfolder per language: xl-bel-en, xl-bel-es and so on. Missing sets "
        "are reported.",
        exists=True,
        file_okay=False,
        show_default=False,
    ),
]
Baselines = Annotated[str, typer.Option(help="Baseline rows, separated by commas; may be empty.")]


def table(
    context: typer.Context,
    benchmarks: Benchmarks,
    out: OutFolder,
    models: Models = [],
    baselines: Baselines = "exact,tfidf,bm25,edit",
    paper_rows: PaperRows = [],
    against: Annotated[
        str | None,
        typer.Option(
            help="Row that the other rows are tested against: a row of this table or of the paper.",
            show_default="the paper's supervised SOTA",
        ),
    ] = None,
    cache: VectorCache = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Evaluate models and baselines on the benchmarks of the paper.

    Writes the results next to the paper's figures, as Markdown and CSV. Finished cells are kept in OUT/cells;
    --resume reuses them, also for another table.
    """
    from sapbert.paper.published import BENCHMARKS, SOTA, paper_tables
    from sapbert.paper.tables import Reproduction

    _check_out_folder(out)
    name = str(context.info_name)
    published, named = paper_tables()[name], _named_models(models)
    baseline_names = [baseline for baseline in baselines.split(",") if baseline]
    compared = _compared_rows(named, paper_rows, published)
    reference = published.find(SOTA) if against is None else against
    if against is not None and against not in (*baseline_names, *named):
        reference = published.row(against)
    sets, absent = _find_benchmarks(benchmarks, BENCHMARKS)
    rows = _Rows(baseline_names, named, cache)
    systems = _measure(rows, sets, out, resume=resume, overwrite=overwrite)
    _write(out / f"{name}.md", Reproduction(published, systems, sets, absent, compared, reference))


for _name, _title in {
    "table1": "Encoders before and after SapBERT, and supervised systems.",
    "table2": "SapBERT with and without mining.",
    "table4": "Supervised systems.",
    "table6": "Loss functions.",
}.items():
    command(_name, short_help=_title)(table)


@command()
def xlbel(
    benchmarks: XlBelBenchmarks,
    dictionary: Annotated[
        Path,
        typer.Option(
            help="Names to search, with the ids of the sets: a vocabulary, a TSV with concept_id and name, "
            "or a file with id||name lines.",
            exists=True,
            show_default=False,
        ),
    ],
    out: OutFolder,
    models: Models = [],
    baselines: Baselines = "exact,tfidf",
    cache: VectorCache = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """XL-BEL, cross-lingual linking in ten languages.

    A mention whose id is not in the dictionary counts as wrong, so results with a dictionary other than UMLS
    are lower than published ones.
    """
    from sapbert.paper.published import XL_BEL, xl_bel_table
    from sapbert.paper.tables import Reproduction

    _check_out_folder(out)
    named = _named_models(models)
    sets, absent = _find_benchmarks(benchmarks, XL_BEL, dictionary=dictionary)
    rows = _Rows([baseline for baseline in baselines.split(",") if baseline], named, cache)
    systems = _measure(rows, sets, out, resume=resume, overwrite=overwrite)
    _write(out / "xlbel.md", Reproduction(xl_bel_table(), systems, sets, absent, {}, None))


@command()
def table7(models: Models, out: OutFolder, paper_rows: PaperRows = []) -> None:
    """Number of trained parameters."""
    with needing("train"):
        from sapbert.paper.parameter_counts import parameters_text, trained_parameters
    from sapbert.paper.published import paper_tables
    from sapbert.paper.results_table import write_table

    _check_out_folder(out)
    published, named = paper_tables()["table7"], _named_models(models)
    compared = _compared_rows(named, paper_rows, published)
    counts = {name: trained_parameters(folders[0]) for name, folders in named.items()}
    rows = [{"row": name, **asdict(count)} for name, count in counts.items()]
    _print_table(write_table(out / "table7.md", parameters_text(counts, published, compared), rows))


@command()
@with_options()
def figure1(names: NamesPath, models: Models, out: OutFolder, settings: ProjectionSettings) -> None:
    """t-SNE projection of names, coloured by concept."""
    _check_out_folder(out)
    targets = [out / "figure1.png", out / "figure1.html"]
    draw_name_figures(names, _panels(models), targets, settings, overwrite=True)


@command()
@with_options()
def figure2(pairs: PairsPath, models: Models, out: OutFolder, settings: SimilaritySettings) -> None:
    """Cosine similarities of pairs before and after mining."""
    _check_out_folder(out)
    draw_similarity_figure(pairs, _panels(models), out / "figure2.png", settings, overwrite=True)


def _find_benchmarks(
    folder: Path, names: Iterable[str], *, dictionary: Path | None = None
) -> tuple[dict[str, EvaluationSet], dict[str, str]]:
    from sapbert.paper.cells import find_benchmarks

    sets, absent = find_benchmarks(folder, names, dictionary=dictionary)
    if not sets:
        raise ConfigError(
            f"{folder} contains none of the paper's benchmarks; expected subfolders: {', '.join(names)}"
        )
    return sets, absent


class _Rows(NamedTuple):
    """The rows of a table to measure."""

    baselines: list[str]
    models: Mapping[str, list[str]]
    """Row → the folders of its models."""
    cache: Path | None


def _measure(
    rows: _Rows, sets: Mapping[str, EvaluationSet], out: Path, *, resume: bool, overwrite: bool
) -> dict[tuple[str, str], System]:
    """Evaluate every row on every set; finished cells are kept if the run is interrupted."""
    from sapbert.paper.cells import CELLS, measure_cells

    if not rows.baselines and not rows.models:
        raise ConfigError("nothing to evaluate: give --models or --baselines")
    refuse_earlier_results(out / CELLS, resume=resume, overwrite=overwrite)
    try:
        with progress_bar() as progress:
            runs = list(_runs(rows.baselines, rows.models, rows.cache, progress))
            return measure_cells(runs, sets, out, overwrite=overwrite, on_cell=_report_cell)
    except KeyboardInterrupt:
        typer.echo(f"stopped; finished cells are kept in {out / CELLS}; add --resume to continue", err=True)
        raise typer.Exit(1) from None


def _write(target: Path, reproduction: Reproduction) -> None:
    from sapbert.paper.results_table import write_table
    from sapbert.paper.tables import csv_rows, table_text

    _print_table(write_table(target, table_text(reproduction), list(csv_rows(reproduction))))


def _panels(models: Iterable[str]) -> dict[str, str]:
    """Return the title and the encoder of each panel: one per folder; seeds of one model are numbered."""
    return {
        name if len(folders) == 1 else f"{name}, run {number}": folder
        for name, folders in _named_models(models).items()
        for number, folder in enumerate(folders, 1)
    }


def _check_out_folder(out: Path) -> None:
    """Raise if the folder contains files that this command does not write."""
    if out.exists() and not (
        out.is_dir() and all(_OUTPUT_FILES.fullmatch(path.name) for path in out.iterdir())
    ):
        raise ArtifactError(f"{out} exists and contains other files; choose another name or remove it")


def _named_models(texts: Iterable[str]) -> dict[str, list[str]]:
    """Parse `NAME=FOLDER,FOLDER`; after a comma another `NAME=` starts another row."""
    models: dict[str, list[str]] = {}
    for text in texts:
        name = None
        for part in text.split(","):
            if match := _ASSIGNMENT.fullmatch(part):
                name, part = match[1], match[2]
            if name is None or not part.strip():
                raise ConfigError(f"--models {text}: expected NAME=FOLDER, such as sapbert=out/model")
            models.setdefault(name, []).append(part.strip())
    return models


def _compared_rows(models: Iterable[str], texts: Iterable[str], published: PaperTable) -> dict[str, str]:
    """Return the row of the paper for each model: the row with its name, unless `texts` name another."""
    rows = {name: row for name in models if (row := published.find(name)) is not None}
    for text in texts:
        match = _ASSIGNMENT.fullmatch(text)
        if match is None or match[1] not in models:
            raise ConfigError(f"--paper-row {text}: expected NAME=ROW with the name of a model")
        rows[match[1]] = published.row(match[2])
    return rows


def _runs(
    baselines: Iterable[str], models: Mapping[str, list[str]], cache: Path | None, progress: Progress
) -> Iterator[RankerRun]:
    """Yield every ranker to evaluate; opens each model, so that a wrong one is reported before the first."""
    from sapbert.evaluation import rankers
    from sapbert.evaluation.model_ranker import model_ranker, require_distinct
    from sapbert.paper.cells import RankerRun

    for name in baselines:
        if name in models:
            raise ConfigError(f"{name} is the name of a baseline; give the model another name")
        rankers.baseline(name)  # Raises for an unknown name, before anything is evaluated.
        yield RankerRun(name, name, partial(rankers.baseline, name))
    for name, folders in models.items():
        evaluated: dict[str, str] = {}
        for folder in folders:
            fingerprint, _ = model_ranker(folder, cache)
            require_distinct(fingerprint, folder, evaluated)

            def build(name: str = name, folder: str = folder) -> RankerFactory:
                return model_ranker(folder, cache, partial(progress, name))[1]

            yield RankerRun(name, fingerprint, build)


def _report_cell(cell: CellProgress) -> None:
    left = cell.seconds_left
    remaining = (
        "" if left is None else f", about {left / 60:.0f} min left" if left > 90 else f", {left:.0f} s left"
    )
    typer.echo(f"cell {cell.number} of {cell.total}: {cell.row} on {cell.benchmark}{remaining}", err=True)


def _print_table(written: list[Path]) -> None:
    typer.echo(written[0].read_text(encoding="utf-8"), nl=False)
    for path in written:
        typer.echo(f"table -> {path}", err=True)
