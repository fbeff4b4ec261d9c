"""`sapbert calibrate`."""

from __future__ import annotations

import json as json_module
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapbert.cli.output import Out, Overwrite, aligned, refuse_input
from sapbert.errors import needing

if TYPE_CHECKING:
    from sapbert.linking.calibration.file import Calibration


class CalibrationMethod(StrEnum):
    """Spelled like `linking.calibration.model.Method`, which is not loaded for --help."""

    AUTO = "auto"
    PLATT = "platt"
    ISOTONIC = "isotonic"


def calibrate(
    index: Annotated[
        str, typer.Argument(help="Written by `sapbert index`; or `default`.", show_default=False)
    ],
    mentions: Annotated[
        Path,
        typer.Argument(
            help="TSV with columns mention and concept_ids, none of which the encoder has learned from.",
            show_default=False,
        ),
    ],
    out: Out,
    precision: Annotated[
        float | None, typer.Option(help="Answer only what reaches this share of right answers; else NIL.")
    ] = None,
    method: Annotated[
        CalibrationMethod, typer.Option(help="The curve; auto takes the better on mentions held out.")
    ] = CalibrationMethod.AUTO,
    prefix: Annotated[str | None, typer.Option(help="For identifiers without one.")] = None,
    exact: Annotated[
        bool, typer.Option("--exact/--no-exact", help="Names that equal the mention answer first.")
    ] = True,
    sparse_weight: Annotated[
        float | None,
        typer.Option(min=0, help="What spelling counts.", show_default="fitted, in a hybrid index"),
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(help="Reliability diagram to draw: .png, .svg or .pdf.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, show_default="all cores")] = None,
    overwrite: Overwrite = False,
    json: Annotated[bool, typer.Option("--json", help="Print what was measured as JSON.")] = False,
) -> None:
    """Learn how sure an answer is from labelled mentions.

    `sapbert link --calibration` uses what is written. Everything reported is measured on mentions held out of
    the fit, five parts in turn.
    """
    from sapbert.artifacts import require_free
    from sapbert.defaults import resolve_default
    from sapbert.index.folder import damage_explained
    from sapbert.linking.calibration.fit import calibrate
    from sapbert.linking.linker import Linker
    from sapbert.linking.settings import CalibrateSettings, Method
    from sapbert.mentions import read_labelled_mentions
    from sapbert.vocab.input_files import InputReader

    settings = CalibrateSettings(
        method=Method(method), precision=precision, exact=exact, sparse_weight=sparse_weight
    )
    refuse_input(out, mentions)
    require_free(out, overwrite=overwrite)
    if figure is not None:
        _require_figure(figure, overwrite=overwrite)
    labelled = read_labelled_mentions(mentions, InputReader(), prefix=prefix)
    with damage_explained(resolve_default(index, "index")):
        linker = Linker.open(index, threads=threads, sparse_weight=_weight(index, sparse_weight))
        fitted = calibrate(linker, labelled, settings)
    fitted.write(out, overwrite=overwrite)
    if figure is not None:
        from sapbert.plots.reliability import draw_reliability

        draw_reliability({mentions.name: fitted.report}, figure, overwrite=overwrite)
    if json:
        typer.echo(json_module.dumps(fitted.report))
    _tell(fitted, out)


def _weight(index: str, asked: float | None) -> float:
    """Return the weight to open an index with: any but 0 where it is to be fitted."""
    from sapbert.defaults import resolve_default
    from sapbert.index.sparse import SPARSE

    return asked if asked is not None else float((resolve_default(index, "index") / SPARSE).is_dir())


def _require_figure(target: Path, *, overwrite: bool) -> None:
    with needing("plot"):
        from sapbert.plots.figures import check_figure_target
    check_figure_target(target, overwrite=overwrite)


def _tell(fitted: Calibration, out: Path) -> None:
    report = fitted.report
    lines = {
        "mentions": f"{report['mentions']:,}, {report['mentions answered']:,} answered",
        "right": f"{report['right']:.1%} of the answers",
        "curve": str(fitted.method),
        "calibration error": _change(report["calibration error"]),
        "Brier score": _change(report["brier"]),
    }
    if "sparse weight" in report:
        weighed = report["sparse weight"]
        lines["sparse weight"] = (
            f"{fitted.sparse_weight:g}: of {weighed['mentions']:,} mentions left to the search, "
            f"{weighed['right by vectors alone']:.1%} -> {weighed['right by both']:.1%} right"
        )
    if (chosen := report["chosen"]) is not None:
        lines["NIL"] = (
            f"below {chosen['threshold']:.3f}: {chosen['precision']:.1%} right, "
            f"{chosen['coverage']:.1%} of the mentions answered"
        )
    typer.echo(f"calibration -> {out}", err=True)
    for line in aligned(lines):
        typer.echo(f"  {line}", err=True)
    typer.echo("  confidence from   right   answered", err=True)
    for cut in report["thresholds"]:
        typer.echo(
            f"  {cut['threshold']:>15.2f}  {cut['precision']:>6.1%}  {cut['coverage']:>9.1%}", err=True
        )


def _change(measured: dict[str, float]) -> str:
    return f"{measured['score']:.3f} of the score, {measured['confidence']:.3f} of the confidence"
