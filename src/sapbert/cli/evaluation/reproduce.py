"""`sapbert reproduce WHAT`: one command a table or figure of the paper."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapbert.cli.evaluation import plot
from sapbert.cli.evaluation.evaluate import model_ranker, require_another
from sapbert.cli.output import progress_bar
from sapbert.errors import ArtifactError, ConfigError, needing

if TYPE_CHECKING:
    from sapbert.evaluation.rankers import RankerFactory
    from sapbert.paper.cells import CellProgress, RankerRun
    from sapbert.paper.published import PaperTable
    from sapbert.progress import Progress

app = typer.Typer(no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})
_OWN = re.compile(r"table\d\.(md|csv)|figure\d\.(png|html)|cells|\..*")
"""What may lie in a folder of tables; hidden files are left by those who were killed."""
_NAMED = re.compile(r"\s*([^/=]+?)\s*=(.+)")

Models = Annotated[
    list[str],
    typer.Option(
        metavar="NAME=FOLDER[,FOLDER]",
        help="A row and its encoder; further folders are other seeds of it. May be given again.",
    ),
]
Beside = Annotated[
    list[str],
    typer.Option(
        metavar="NAME=ROW", help="The paper's row to stand beside a model; by default that of its name."
    ),
]
OutFolder = Annotated[
    Path, typer.Option("--out", "-o", help="Folder to write to; made or gone on with.", show_default=False)
]


@app.callback()
def reproduce() -> None:
    """Make a table or figure of the SapBERT paper again."""


def table(
    context: typer.Context,
    benchmarks: Annotated[
        Path,
        typer.Option(
            help="Folder of evaluation sets, each under its name: ncbi-disease, bc5cdr-disease, "
            "bc5cdr-chemical, medmentions, askapatient, cometa, cometa-zeroshot. What is missing is told.",
            exists=True,
            file_okay=False,
            show_default=False,
        ),
    ],
    out: OutFolder,
    models: Models = [],
    baselines: Annotated[str, typer.Option(help="Further rows; none where it is empty.")] = (
        "exact,tfidf,bm25,edit"
    ),
    beside: Beside = [],
    against: Annotated[
        str | None,
        typer.Option(
            help="Row that the others are tested against: one of the table's or of the paper's.",
            show_default="the paper's supervised SOTA",
        ),
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Where vectors are kept.", show_default="under SAPBERT_HOME")
    ] = None,
) -> None:
    """Measure models and baselines on every benchmark of the paper that is found.

    The paper's figures stand beside what is measured, as Markdown and CSV. Cells that are done are kept in
    OUT: the same command goes on where it was stopped, and another table takes them from there.
    """
    from sapbert.paper.cells import find_benchmarks, measure_cells
    from sapbert.paper.published import BENCHMARKS, SOTA, paper_tables
    from sapbert.paper.results_table import write_table
    from sapbert.paper.tables import Reproduction, csv_rows, table_text

    _require_own(out)
    name = str(context.info_name)
    printed, named = paper_tables()[name], _named_models(models)
    others = [baseline for baseline in baselines.split(",") if baseline]
    chosen = _chosen_rows(named, beside, printed)
    tested = printed.find(SOTA) if against is None else against
    if against is not None and against not in (*others, *named):
        tested = printed.row(against)
    sets, absent = find_benchmarks(benchmarks, BENCHMARKS)
    if not sets:
        raise ConfigError(
            f"{benchmarks} has no set of the paper; they are sought by these names: {', '.join(BENCHMARKS)}"
        )
    if not others and not named:
        raise ConfigError("nothing to measure: give --models or --baselines")
    try:
        with progress_bar() as progress:
            runs = list(_runs(others, named, cache, progress))
            systems = measure_cells(runs, sets, out, on_cell=_tell)
    except KeyboardInterrupt:
        typer.echo(f"stopped; what is done is kept in {out}, and the same command goes on", err=True)
        raise typer.Exit(1) from None
    found = Reproduction(printed, systems, sets, absent, chosen, tested)
    _report(write_table(out / f"{name}.md", table_text(found), list(csv_rows(found))))


for _name, _of in {
    "table1": "Encoders before and after, and supervised systems.",
    "table2": "With and without mining.",
    "table4": "Supervised systems.",
    "table6": "Losses.",
}.items():
    app.command(_name, short_help=_of)(table)


@app.command()
def table7(models: Models, out: OutFolder, beside: Beside = []) -> None:
    """Parameters that are trained."""
    with needing("train"):
        from sapbert.paper.parameter_counts import parameters_text, trained_parameters
    from sapbert.paper.published import paper_tables
    from sapbert.paper.results_table import write_table

    _require_own(out)
    printed, named = paper_tables()["table7"], _named_models(models)
    chosen = _chosen_rows(named, beside, printed)
    counted = {name: trained_parameters(folders[0]) for name, folders in named.items()}
    rows = [{"row": name, **asdict(found)} for name, found in counted.items()]
    _report(write_table(out / "table7.md", parameters_text(counted, printed, chosen), rows))


@app.command()
def figure1(
    names: Annotated[
        Path, typer.Argument(help="A vocabulary or pairs: where names come from.", show_default=False)
    ],
    models: Models,
    out: OutFolder,
    concepts: plot.Concepts = 14,
    per_concept: plot.NamesOfEach = 8,
    perplexity: plot.Perplexity = 15,
) -> None:
    """Names in the plane, coloured by concept."""
    with plot.extras():
        from sapbert.paper.settings import ProjectionSettings

    _require_own(out)
    settings = ProjectionSettings(concepts=concepts, names=per_concept, perplexity=perplexity)
    outs = [out / "figure1.png", out / "figure1.html"]
    plot.figures_of_names(names, _titled(models), outs, settings, overwrite=True)


@app.command()
def figure2(
    pairs: Annotated[Path, typer.Argument(help="Written by `sapbert pairs`.", show_default=False)],
    models: Models,
    out: OutFolder,
    batches: plot.Batches = 20,
    batch_size: plot.BatchSize = 256,
) -> None:
    """Similarities of pairs, before and after mining."""
    with plot.extras():
        from sapbert.paper.settings import SimilaritySettings

    _require_own(out)
    settings = SimilaritySettings(batches=batches, batch_size=batch_size)
    plot.figure_of_similarities(pairs, _titled(models), out / "figure2.png", settings, overwrite=True)


def _titled(models: Iterable[str]) -> dict[str, str]:
    """A panel a folder, called as its model; seeds of one are numbered."""
    return {
        name if len(folders) == 1 else f"{name}, run {number}": folder
        for name, folders in _named_models(models).items()
        for number, folder in enumerate(folders, 1)
    }


def _require_own(out: Path) -> None:
    """Refuse a folder that holds anything else than what this verb writes."""
    if out.exists() and not (out.is_dir() and all(_OWN.fullmatch(path.name) for path in out.iterdir())):
        raise ArtifactError(f"{out} exists and holds other things; choose another name or remove it")


def _named_models(given: Iterable[str]) -> dict[str, list[str]]:
    """Read `NAME=FOLDER,FOLDER`; after a comma another `NAME=` may begin another row."""
    found: dict[str, list[str]] = {}
    for text in given:
        name = None
        for part in text.split(","):
            if match := _NAMED.fullmatch(part):
                name, part = match[1], match[2]
            if name is None or not part.strip():
                raise ConfigError(f"--models {text}: NAME=FOLDER is wanted, such as sapbert=out/model")
            found.setdefault(name, []).append(part.strip())
    return found


def _chosen_rows(models: Iterable[str], beside: Iterable[str], printed: PaperTable) -> dict[str, str]:
    """The row of the paper that stands beside each model: by its name, unless the user says."""
    chosen = {name: row for name in models if (row := printed.find(name)) is not None}
    for text in beside:
        match = _NAMED.fullmatch(text)
        if match is None or match[1] not in models:
            raise ConfigError(f"--beside {text}: NAME=ROW is wanted, with the name of a model")
        chosen[match[1]] = printed.row(match[2])
    return chosen


def _runs(
    baselines: Iterable[str], models: Mapping[str, list[str]], cache: Path | None, progress: Progress
) -> Iterator[RankerRun]:
    """Everything that is to be measured; models are opened to see that they can be."""
    from sapbert.evaluation import rankers
    from sapbert.paper.cells import RankerRun

    for name in baselines:
        if name in models:
            raise ConfigError(f"{name} is the name of a baseline; give the model another name")
        rankers.baseline(name)  # A wrong name is told before anything is measured.
        yield RankerRun(name, name, partial(rankers.baseline, name))
    for name, folders in models.items():
        measured: dict[str, str] = {}
        for folder in folders:
            fingerprint, _ = model_ranker(folder, cache)
            require_another(fingerprint, folder, measured)

            def build(name: str = name, folder: str = folder) -> RankerFactory:
                return model_ranker(folder, cache, partial(progress, name))[1]

            yield RankerRun(name, fingerprint, build)


def _tell(cell: CellProgress) -> None:
    left = cell.seconds_left
    about = (
        "" if left is None else f", about {left / 60:.0f} min left" if left > 90 else f", {left:.0f} s left"
    )
    typer.echo(f"cell {cell.number} of {cell.total}: {cell.row} on {cell.benchmark}{about}", err=True)


def _report(written: list[Path]) -> None:
    typer.echo(written[0].read_text(encoding="utf-8"), nl=False)
    for path in written:
        typer.echo(f"table -> {path}", err=True)
