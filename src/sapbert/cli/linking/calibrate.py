"""`sapbert calibrate`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapbert.cli.options import with_options
from sapbert.cli.output import forbid_overwriting_input, two_columns
from sapbert.cli.parameters import (
    LABELLED_MENTIONS,
    IndexPath,
    JsonResults,
    Out,
    Overwrite,
    Prefix,
    Threads,
)
from sapbert.errors import needing
from sapbert.linking.settings import CalibrateSettings

if TYPE_CHECKING:
    from sapbert.linking.calibration.file import Calibration


@with_options()
def calibrate(
    index: IndexPath,
    mentions: Annotated[
        Path,
        typer.Argument(
            help=f"{LABELLED_MENTIONS}; the encoder must not be trained on them.", show_default=False
        ),
    ],
    out: Out,
    settings: CalibrateSettings,
    prefix: Prefix = None,
    figure: Annotated[
        Path | None, typer.Option(help="Reliability diagram to write: .png, .svg or .pdf.")
    ] = None,
    reranker: Annotated[
        str | None,
        typer.Option(help="Fit the confidence of reranked candidates: a reranker, as in `sapbert link`."),
    ] = None,
    context_column: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column with the text around the mention, for --reranker."),
    ] = None,
    threads: Threads = None,
    overwrite: Overwrite = False,
    json: JsonResults = False,
) -> None:
    """Fit confidence to labelled mentions, and a ranker on request.

    `sapbert link --calibration` uses the file it writes. All reported figures are measured on mentions held
    out of the fit, by five-fold cross-validation.
    """
    from sapbert.artifacts import require_free
    from sapbert.defaults import resolve_default
    from sapbert.index.folder import damage_explained
    from sapbert.linking.calibration.fit import calibrate
    from sapbert.linking.linker import Linker
    from sapbert.linking.reranking import open_reranker
    from sapbert.mentions import read_labelled_mentions
    from sapbert.vocab.input_files import InputReader

    forbid_overwriting_input(out, mentions)
    require_free(out, overwrite=overwrite)
    if figure is not None:
        _check_figure_target(figure, overwrite=overwrite)
    labelled = read_labelled_mentions(mentions, InputReader(), prefix=prefix, context_column=context_column)
    with damage_explained(resolve_default(index, "index")):
        weight = _initial_weight(index, settings.sparse_weight)
        linker = Linker.open(
            index,
            threads=threads,
            sparse_weight=weight,
            reranker=None if reranker is None else open_reranker(reranker, threads=threads),
        )
        calibration = calibrate(linker, labelled, settings)
    calibration.write(out, overwrite=overwrite)
    if figure is not None:
        from sapbert.plots.reliability import draw_reliability

        draw_reliability({mentions.name: calibration.report}, figure, overwrite=overwrite)
    if json:
        typer.echo(json_module.dumps(calibration.report))
    _report(calibration, out)


def _initial_weight(index: str, weight: float | None) -> float:
    """Return the weight to open an index with: not 0 if it is to be fitted."""
    from sapbert.defaults import resolve_default
    from sapbert.index.sparse import SPARSE

    return weight if weight is not None else float((resolve_default(index, "index") / SPARSE).is_dir())


def _check_figure_target(target: Path, *, overwrite: bool) -> None:
    with needing("plot"):
        from sapbert.plots.figures import check_figure_target
    check_figure_target(target, overwrite=overwrite)


def _report(calibration: Calibration, out: Path) -> None:
    report = calibration.report
    lines = {
        "mentions": f"{report['mentions']:,}, {report['mentions answered']:,} answered",
        "accuracy": f"{report['right']:.1%} of the answers are correct",
        "curve": str(calibration.method),
        "calibration error": _change(report["calibration error"]),
        "Brier score": _change(report["brier"]),
    }
    if "sparse weight" in report:
        fit = report["sparse weight"]
        lines["sparse weight"] = (
            f"{calibration.sparse_weight:g}: accuracy of {fit['mentions']:,} mentions without an exact match "
            f"{fit['right by vectors alone']:.1%} -> {fit['right by both']:.1%}"
        )
    if (chosen := report["chosen"]) is not None:
        lines["NIL"] = (
            f"below {chosen['threshold']:.3f}: precision {chosen['precision']:.1%}, "
            f"coverage {chosen['coverage']:.1%}"
        )
    elif (best := report["highest precision"]) is not None:
        lines["NIL"] = (
            f"no threshold reaches this precision; the highest is {best['precision']:.1%}, "
            f"from {best['threshold']:.3f}, with coverage {best['coverage']:.1%}"
        )
    typer.echo(f"calibration -> {out}", err=True)
    for line in two_columns(lines):
        typer.echo(f"  {line}", err=True)
    typer.echo("  confidence from   precision   coverage", err=True)
    for cut in report["thresholds"]:
        typer.echo(
            f"  {cut['threshold']:>15.2f}  {cut['precision']:>10.1%}  {cut['coverage']:>9.1%}", err=True
        )


def _change(measured: dict[str, float]) -> str:
    return f"{measured['score']:.3f} (score), {measured['confidence']:.3f} (confidence)"
