"""`sapbert export`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapbert.cli.output import Json, Out, Overwrite, progress_bar, refuse_input, tell
from sapbert.errors import ConfigError, needing

if TYPE_CHECKING:
    from sapbert.protocols import Encoder
    from sapbert.tokens.pooling import Pooling


class ExportFormat(StrEnum):
    """What an encoder is written as."""

    ONNX = "onnx"
    HUGGINGFACE = "huggingface"


def export(
    model: Annotated[
        str,
        typer.Argument(help="Encoder to export: a folder or a Hugging Face id; `default`; or a reranker."),
    ],
    out: Out,
    format: Annotated[
        ExportFormat, typer.Option(help="huggingface turns an exported encoder back, to train it on.")
    ] = ExportFormat.ONNX,
    pooling: Annotated[
        str | None,
        typer.Option(help="cls, mean, mean-all-tokens, first-token, no-special; else the model's."),
    ] = None,
    max_length: Annotated[int | None, typer.Option(help="Tokens of a name; else the model's, or 64.")] = None,
    benchmark: Annotated[
        list[Path],
        typer.Option(help="Folder with dictionary.tsv and test.tsv: link it with fp32 and int8, print both."),
    ] = [],
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Write an encoder or a reranker for use without torch (ONNX).

    In fp32 and int8. --benchmark measures what int8 costs in linking accuracy; give it several times for
    several sets.
    """
    from sapbert.defaults import resolve_default
    from sapbert.encoder.onnx import is_exported

    refuse_input(out, model)
    if _is_reranker(model):
        if format is ExportFormat.HUGGINGFACE or pooling or max_length or benchmark:
            raise ConfigError("a reranker is exported as it was trained; leave other options out")
        _export_reranker(Path(model), out, overwrite=overwrite, as_json=json)
        return
    if format is ExportFormat.HUGGINGFACE:
        if pooling or max_length or benchmark:
            raise ConfigError("--format huggingface turns an encoder back as it is; leave other options out")
        _restore(resolve_default(model, "encoder"), out, overwrite=overwrite, as_json=json)
        return
    if is_exported(resolve_default(model, "encoder")):
        raise ConfigError(f"{model} is exported already; --format huggingface turns it back")
    benchmarks = {str(folder): _measure(folder) for folder in benchmark}
    with needing("train"):
        from sapbert.encoder.onnx_export.export import export_model
    with progress_bar() as on_progress:
        manifest = export_model(
            model,
            out,
            pooling=_pooling(pooling),
            max_length=max_length,
            benchmarks=benchmarks,
            on_progress=on_progress,
            overwrite=overwrite,
        )
    tell(manifest, out, as_json=json)
    if not json:
        _tell_accuracy(manifest.details["accuracy"])


def _measure(folder: Path) -> Callable[[Encoder], Mapping[str, float]]:
    from sapbert.evaluation.encoder_accuracy import encoder_accuracy, open_benchmark

    return partial(encoder_accuracy, open_benchmark(folder))


def _is_reranker(model: str) -> bool:
    from sapbert.encoder.cross_encoder import HEAD_FILE

    return (Path(model) / HEAD_FILE).is_file()


def _export_reranker(source: Path, out: Path, *, overwrite: bool, as_json: bool) -> None:
    with needing("train"):
        from sapbert.encoder.onnx_export.export import export_reranker
    tell(export_reranker(source, out, overwrite=overwrite), out, as_json=as_json)


def _restore(source: Path, out: Path, *, overwrite: bool, as_json: bool) -> None:
    with needing("train"):
        from sapbert.encoder.onnx_export.restore import restore_model
    tell(restore_model(source, out, overwrite=overwrite), out, as_json=as_json)


def _pooling(name: str | None) -> Pooling | None:
    from sapbert.tokens.pooling import Pooling

    if name is not None and name not in list(Pooling):
        raise ConfigError(f"unknown pooling {name!r}, expected one of {', '.join(Pooling)}")
    return None if name is None else Pooling(name)


def _tell_accuracy(accuracy: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    for name, variants in accuracy.items():
        for variant, found in variants.items():
            typer.echo(f"{name}  {variant}  Acc@1 {found['first']:.1%}  Acc@5 {found['fifth']:.1%}")
