"""`sapbert evaluate`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapbert.cli.report import Overwrite, progress_bar
from sapbert.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from sapbert.evaluation.cache import CachedEncoder
    from sapbert.protocols import Encoder
    from sapbert.vocab.intake import Progress


def evaluate(
    benchmark: Annotated[
        Path,
        typer.Option(help="A benchmark: a folder in any of its formats, or one file.", show_default=False),
    ],
    model: Annotated[
        str | None, typer.Option(help="Encoder to measure: `default`, a folder or a Hugging Face id.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="Measure this instead: exact, tfidf, bm25 or edit.")
    ] = None,
    split: Annotated[str, typer.Option(help="Choose by dev; look at test once.")] = "test",
    dictionary: Annotated[
        Path | None,
        typer.Option(help="Names to find, where the benchmark has none: a vocabulary or a table."),
    ] = None,
    prefix: Annotated[str | None, typer.Option(help="For identifiers without one.")] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Take a best candidate with a lower score for NIL.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Keep every mention's result, for `sapbert compare`.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Where vectors are kept.", show_default="under SAPBERT_HOME")
    ] = None,
    overwrite: Overwrite = False,
    json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON.")] = False,
) -> None:
    """Measure how often the right concept is found.

    For an encoder or a baseline: accuracy at 1 and 5 with intervals, with the benchmark's dictionary alone
    and, where its protocol has one, with the dictionary enlarged by training mentions: the papers' figures
    are with the latter.
    """
    from sapbert.evaluation import rankers, report, run
    from sapbert.evaluation.benchmarks import open_evaluation_set
    from sapbert.home import home

    if (model is None) == (baseline is None):
        raise ConfigError("give either --model or --baseline")
    if baseline is not None:
        build, ranker = rankers.baseline(baseline), baseline
        found = open_evaluation_set(benchmark, dictionary=dictionary, prefix=prefix)
        measured = run.evaluate(found, build, split=split)
    else:
        found = open_evaluation_set(benchmark, dictionary=dictionary, prefix=prefix)
        with progress_bar() as progress:
            encoder = _open_encoder(str(model), cache or home() / "vectors", progress)
            ranker = encoder.fingerprint
            measured = run.evaluate(found, lambda names: rankers.EncoderRanker(names, encoder), split=split)
    if out is not None:
        settings = {"benchmark": found.name, "split": split, "model": model, "baseline": baseline}
        run.write_evaluation(
            measured, out, benchmark=found, settings=settings, ranker=ranker, overwrite=overwrite
        )
        typer.echo(f"evaluation -> {out}", err=True)
    if json:
        typer.echo(json_module.dumps(report.summarise(measured, threshold=threshold)))
        return
    typer.echo(f"{found.name}, {split}: {model or baseline}")
    for line in report.evaluation_lines(measured, threshold=threshold):
        typer.echo(line)


def _open_encoder(model: str, cache: Path, progress: Progress) -> CachedEncoder:
    """Open what `sapbert export` wrote without torch, and any other model with it."""
    from sapbert.defaults import chosen
    from sapbert.encoder.onnx import OnnxEncoder, is_exported
    from sapbert.evaluation.cache import CachedEncoder

    encoder: Encoder
    folder = chosen(model, "encoder")
    if is_exported(folder):
        encoder = OnnxEncoder.open(folder)
    else:
        try:
            from sapbert.encoder.transformer import TransformerEncoder
        except ImportError as error:
            raise MissingExtraError(error.name or "torch", "train") from error
        encoder = TransformerEncoder.open(model)
    return CachedEncoder(encoder, cache, progress=lambda done, total: progress("encode", done, total))
