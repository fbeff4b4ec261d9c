"""`sapbert plot FIGURE`: one command per figure."""

from __future__ import annotations

import json as json_module
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapbert.cli.evaluation.figures import draw_name_figures, draw_similarity_figure, figure_extras
from sapbert.cli.options import command_group, with_options
from sapbert.cli.parameters import JsonResults, Overwrite, PairsPath
from sapbert.paper.settings import ProjectionSettings, SimilaritySettings

if TYPE_CHECKING:
    from sapbert.evaluation.thresholds import ThresholdCurve
    from sapbert.paper.similarities import Distribution, Similarities

app, command = command_group("Draw a figure.")

Models = Annotated[
    list[str],
    typer.Option(
        "--model",
        metavar="ENCODER",
        help="Folder or Hugging Face id. Repeatable, to compare encoders such as before and after training.",
        show_default=False,
    ),
]
Figure = Annotated[
    Path, typer.Option("--out", "-o", help="Figure to write: .png, .svg or .pdf.", show_default=False)
]
FigureOrPage = Annotated[
    Path,
    typer.Option(
        "--out",
        "-o",
        help="Figure to write: .png, .svg or .pdf, or .html for an interactive page.",
        show_default=False,
    ),
]
Evaluations = Annotated[
    list[Path], typer.Argument(help="Written by `sapbert evaluate -o`.", show_default=False)
]
NamesPath = Annotated[
    Path, typer.Argument(help="Vocabulary or pairs that the names are taken from.", show_default=False)
]


@command()
@with_options()
def similarities(
    pairs: PairsPath,
    models: Models,
    out: Figure,
    settings: SimilaritySettings,
    overwrite: Overwrite = False,
    json: JsonResults = False,
) -> None:
    """Cosine similarities of pairs before and after mining.

    Figure 2 of the paper: the similarity of two names of one concept and of two names of different concepts.
    Batches are drawn and mined as in training. The smaller the overlap of the two distributions, the better
    the encoder; mining keeps the pairs that the encoder still confuses.
    """
    titles = {model: model for model in models}
    counts = draw_similarity_figure(pairs, titles, out, settings, overwrite=overwrite)
    if json:
        typer.echo(json_module.dumps({**asdict(settings), **_similarity_counts(counts)}))


@command()
@with_options()
def tsne(
    names: NamesPath,
    models: Models,
    out: FigureOrPage,
    settings: ProjectionSettings,
    overwrite: Overwrite = False,
) -> None:
    """t-SNE projection of names, coloured by concept.

    Figure 1 of the paper: a good encoder places the names of a concept together. t-SNE distorts distances, so
    each panel also states how many names have a name of their own concept nearest.
    """
    draw_name_figures(names, {model: model for model in models}, [out], settings, overwrite=overwrite)


@command()
def thresholds(
    evaluations: Evaluations, out: Figure, overwrite: Overwrite = False, json: JsonResults = False
) -> None:
    """Precision and coverage by score threshold.

    Answers below the threshold become NIL: coverage falls and precision rises. The scores of different
    systems are not comparable; precision by coverage, in the last column, is.
    """
    with figure_extras():
        from sapbert.plots.figures import check_figure_target
        from sapbert.plots.thresholds import draw_thresholds
    from sapbert.evaluation.run import Evaluation
    from sapbert.evaluation.thresholds import threshold_curve

    check_figure_target(out, overwrite=overwrite)
    opened = {str(path): Evaluation.open(path) for path in evaluations}
    curves = {
        path: {name: threshold_curve(evaluation, name) for name in evaluation.dictionaries}
        for path, evaluation in opened.items()
    }
    draw_thresholds(curves, out, overwrite=overwrite)
    for path, by_dictionary in curves.items():
        for dictionary, curve in by_dictionary.items():
            typer.echo(f"{path}, {dictionary}: {_target_precisions(curve)}", err=True)
    if json:
        typer.echo(json_module.dumps({path: _lists(by_name) for path, by_name in curves.items()}))
    typer.echo(f"figure -> {out}", err=True)


@command()
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
    """Reliability diagram: accuracy by confidence.

    Of answers with a confidence of 80%, 80% should be correct. For an evaluation, confidence is fitted here
    and measured on mentions held out of the fit.
    """
    with figure_extras():
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
        errors = f"{error['score']:.3f} (score), {error['confidence']:.3f} (confidence)"
        typer.echo(f"{title}: calibration error {errors}", err=True)
    typer.echo(f"figure -> {out}", err=True)


def _target_precisions(curve: ThresholdCurve) -> str:
    """Describe the threshold and the coverage of some target precisions."""
    texts = []
    for target in (0.9, 0.95, 0.99):
        at = curve.lowest_reaching(target)
        reached = (
            "at no threshold"
            if at is None
            else f"from score {curve.scores[at]:.3f}, coverage {curve.coverage[at]:.1%}"
        )
        texts.append(f"precision {target:.0%} {reached}")
    return "; ".join(texts)


def _lists(curves: Mapping[str, ThresholdCurve]) -> dict[str, dict[str, list[float]]]:
    return {
        name: {field: array.tolist() for field, array in asdict(curve).items()}
        for name, curve in curves.items()
    }


def _similarity_counts(similarities: Mapping[str, Similarities]) -> dict[str, Any]:
    from sapbert.paper.similarities import EDGES

    def counts(distribution: Distribution) -> dict[str, Any]:
        return {
            "positives": distribution.positives.tolist(),
            "negatives": distribution.negatives.tolist(),
            "overlap": distribution.overlap,
        }

    models = {
        model: {"all": counts(before_and_after.all_pairs), "hard": counts(before_and_after.mined)}
        for model, before_and_after in similarities.items()
    }
    return {"edges": EDGES.tolist(), "models": models}
