"""`sapbert plot FIGURE`: one command a figure."""

from __future__ import annotations

import json as json_module
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapbert.cli.encoders import open_encoder
from sapbert.cli.output import Overwrite, progress_bar
from sapbert.errors import MissingExtraError

if TYPE_CHECKING:
    from sapbert.evaluation.thresholds import ThresholdCurve
    from sapbert.pairs.artifact import Pairs
    from sapbert.paper.settings import ProjectionSettings, SimilaritySettings
    from sapbert.paper.similarities import Distribution, Similarities

Models = Annotated[
    list[str],
    typer.Option(
        "--model",
        metavar="ENCODER",
        help="A folder or a Hugging Face id; repeat to compare, such as before and after training.",
        show_default=False,
    ),
]
Figure = Annotated[
    Path, typer.Option("--out", "-o", help="Figure to write: .png, .svg or .pdf.", show_default=False)
]
Batches = Annotated[int, typer.Option(min=1, help="Batches to draw and encode.")]
BatchSize = Annotated[int, typer.Option(min=2, help="Pairs a batch.")]
Concepts = Annotated[int, typer.Option(help="Concepts to draw, from 2 to 56.")]
NamesOfEach = Annotated[
    int, typer.Option("--names", min=2, help="Names of each; concepts with fewer are not drawn.")
]
Perplexity = Annotated[
    float, typer.Option(min=1, help="How many neighbours a name has in the eyes of t-SNE.")
]
_FOR_FIGURES = ("matplotlib", "sklearn")
app = typer.Typer(no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})


@app.callback()
def plot() -> None:
    """Draw a figure."""


@contextmanager
def extras() -> Iterator[None]:
    """Name the extra that a figure needs where its imports fail."""
    try:
        yield
    except ImportError as error:
        module = (error.name or "torch").partition(".")[0]
        raise MissingExtraError(module, "plot" if module in _FOR_FIGURES else "train") from error


@app.command()
def similarities(
    pairs: Annotated[Path, typer.Argument(help="Written by `sapbert pairs`.", show_default=False)],
    models: Models,
    out: Figure,
    batches: Batches = 20,
    batch_size: BatchSize = 256,
    margin: Annotated[
        float, typer.Option(help="A triplet counts as learned if its negative is so much farther.")
    ] = 0.2,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same batches for every model.")] = 33,
    overwrite: Overwrite = False,
    json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON as well.")] = False,
) -> None:
    """Cosines of pairs, before and after mining.

    Fig. 2 of the paper: how alike are two names of one concept, and of different ones? Batches are drawn and
    mined as in training. The less the two kinds overlap, the more the encoder knows; mining keeps the pairs
    that it still confuses.
    """
    with extras():
        from sapbert.paper.settings import SimilaritySettings

    settings = SimilaritySettings(batches=batches, batch_size=batch_size, margin=margin, seed=seed)
    titled = {model: model for model in models}
    found = figure_of_similarities(pairs, titled, out, settings, overwrite=overwrite)
    if json:
        typer.echo(json_module.dumps({**asdict(settings), **_numbers(found)}))


def figure_of_similarities(
    pairs: Path, models: Mapping[str, str], out: Path, settings: SimilaritySettings, *, overwrite: bool
) -> dict[str, Similarities]:
    """Count and draw the similarities of `models`, a panel's title → its encoder."""
    with extras():
        from sapbert.plots.figures import check_figure_target
        from sapbert.plots.similarities import draw_similarities
    from sapbert.pairs.artifact import Pairs

    check_figure_target(out, overwrite=overwrite)
    found = _count(Pairs.open(pairs), models, settings)
    draw_similarities(found, out, batches=settings.batches, overwrite=overwrite)
    for title, counted in found.items():
        overlaps = f"{counted.all_pairs.overlap:.0%} before mining, {counted.mined.overlap:.0%} after"
        typer.echo(f"{title}: positive and negative pairs overlap by {overlaps}", err=True)
    typer.echo(f"figure -> {out}", err=True)
    return found


@app.command()
def tsne(
    names: Annotated[
        Path, typer.Argument(help="A vocabulary or pairs: where names come from.", show_default=False)
    ],
    models: Models,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help="Figure to write: .png, .svg or .pdf; .html for a page to point and click at.",
            show_default=False,
        ),
    ],
    concepts: Concepts = 14,
    per_concept: NamesOfEach = 8,
    perplexity: Perplexity = 15,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same names for every model.")] = 33,
    overwrite: Overwrite = False,
) -> None:
    """Names in the plane, coloured by concept.

    Fig. 1 of the paper: names of one concept lie together if the encoder knows that they are one. How many
    names have a name of their own concept nearest is told beside each picture, since t-SNE bends distances.
    """
    with extras():
        from sapbert.paper.settings import ProjectionSettings

    settings = ProjectionSettings(concepts=concepts, names=per_concept, perplexity=perplexity, seed=seed)
    figures_of_names(names, {model: model for model in models}, [out], settings, overwrite=overwrite)


def figures_of_names(
    names: Path,
    models: Mapping[str, str],
    outs: Sequence[Path],
    settings: ProjectionSettings,
    *,
    overwrite: bool,
) -> None:
    """Lay names out once and draw them to all of `outs`; `models` is a panel's title → its encoder."""
    with extras():
        from sapbert.paper.projection import project, sample_names
        from sapbert.plots.figures import check_figure_target
        from sapbert.plots.tsne import draw_tsne
    from sapbert.artifacts import create_file, require_free
    from sapbert.plots.tsne_page import tsne_page

    pages = [out for out in outs if out.suffix.lower() == ".html"]
    for out in outs:
        (require_free if out in pages else check_figure_target)(out, overwrite=overwrite)
    sample = sample_names(names, settings)
    found = {title: project(sample, open_encoder(model), settings) for title, model in models.items()}
    for out in outs:
        if out in pages:
            with create_file(out, overwrite=overwrite) as partial:
                partial.write_text(tsne_page(sample, found), encoding="utf-8", errors="replace")
        else:
            draw_tsne(sample, found, out, overwrite=overwrite)
    for title, own in found.items():
        typer.echo(f"{title}: {own.nearest:.1%} of names have a name of their concept nearest", err=True)
    for out in outs:
        typer.echo(f"figure -> {out}", err=True)


@app.command()
def thresholds(
    evaluations: Annotated[
        list[Path], typer.Argument(help="Written by `sapbert evaluate -o`.", show_default=False)
    ],
    out: Figure,
    overwrite: Overwrite = False,
    json: Annotated[bool, typer.Option("--json", help="Print the curves as JSON as well.")] = False,
) -> None:
    """What answering only from a score on costs and brings.

    Answers below a threshold are taken for NIL: fewer mentions are answered, and more of the answers are
    right. Scores of different systems are not comparable; the shares in the last column are.
    """
    with extras():
        from sapbert.plots.figures import check_figure_target
        from sapbert.plots.thresholds import draw_thresholds
    from sapbert.evaluation.run import Evaluation
    from sapbert.evaluation.thresholds import threshold_curve

    check_figure_target(out, overwrite=overwrite)
    opened = {str(path): Evaluation.open(path) for path in evaluations}
    found = {
        path: {name: threshold_curve(evaluation, name) for name in evaluation.dictionaries}
        for path, evaluation in opened.items()
    }
    draw_thresholds(found, out, overwrite=overwrite)
    for path, curves in found.items():
        for dictionary, curve in curves.items():
            typer.echo(f"{path}, {dictionary}: {_reached(curve)}", err=True)
    if json:
        curves_by_run = {
            path: {name: _listed(own) for name, own in curves.items()} for path, curves in found.items()
        }
        typer.echo(json_module.dumps(curves_by_run))
    typer.echo(f"figure -> {out}", err=True)


@app.command()
def reliability(
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="Evaluations (`sapbert evaluate -o`) or calibrations (`sapbert calibrate`).",
            show_default=False,
        ),
    ],
    out: Figure,
    overwrite: Overwrite = False,
) -> None:
    """What confidence promises, and what it keeps.

    Of answers with a confidence of 80 %, 80 % should be right. For an evaluation, confidence is fitted here,
    and told of mentions held out of the fit.
    """
    with extras():
        from sapbert.plots.figures import check_figure_target
        from sapbert.plots.reliability import draw_reliability
    from sapbert.evaluation.run import Evaluation
    from sapbert.evaluation.thresholds import reliability
    from sapbert.linking.calibration.file import Calibration

    check_figure_target(out, overwrite=overwrite)
    reports = {}
    for source in sources:
        if source.is_dir():
            evaluation = Evaluation.open(source)
            for dictionary in evaluation.dictionaries:
                reports[f"{source}, {dictionary}"] = reliability(evaluation, dictionary)
        else:
            reports[str(source)] = Calibration.read(source).report
    draw_reliability(reports, out, overwrite=overwrite)
    for title, report in reports.items():
        error = report["calibration error"]
        told = f"{error['score']:.3f} of the score, {error['confidence']:.3f} of the confidence"
        typer.echo(f"{title}: calibration error {told}", err=True)
    typer.echo(f"figure -> {out}", err=True)


def _reached(curve: ThresholdCurve) -> str:
    """Say from which score some shares of the answers are right."""
    told = []
    for wanted in (0.9, 0.95, 0.99):
        at = curve.lowest_reaching(wanted)
        answered = "" if at is None else f" from {curve.scores[at]:.3f} on, {curve.coverage[at]:.1%} answered"
        told.append(f"{wanted:.0%} right{answered or ' at no score'}")
    return "; ".join(told)


def _listed(curve: ThresholdCurve) -> dict[str, list[float]]:
    return {name: array.tolist() for name, array in asdict(curve).items()}


def _count(pairs: Pairs, models: Mapping[str, str], settings: SimilaritySettings) -> dict[str, Similarities]:
    """Count the similarities of the same batches for each model."""
    from sapbert.encoder.transformer import TransformerEncoder
    from sapbert.paper.similarities import count_similarities

    found: dict[str, Similarities] = {}
    with progress_bar() as progress:
        for title, model in models.items():

            def on_batch(done: int, title: str = title) -> None:
                progress(title, done, settings.batches)

            encoder = TransformerEncoder.open(model)
            found[title] = count_similarities(pairs, encoder, settings, on_batch=on_batch)
    return found


def _numbers(found: dict[str, Similarities]) -> dict[str, Any]:
    from sapbert.paper.similarities import EDGES

    def of(distribution: Distribution) -> dict[str, Any]:
        return {
            "positives": distribution.positives.tolist(),
            "negatives": distribution.negatives.tolist(),
            "overlap": distribution.overlap,
        }

    models = {
        model: {"all": of(counted.all_pairs), "hard": of(counted.mined)} for model, counted in found.items()
    }
    return {"edges": EDGES.tolist(), "models": models}
