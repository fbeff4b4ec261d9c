"""`sapbert export`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapbert.cli.options import with_options
from sapbert.cli.output import forbid_overwriting_input, progress_bar, report_manifest
from sapbert.cli.parameters import Output
from sapbert.errors import ConfigError, needing

if TYPE_CHECKING:
    from sapbert.protocols import Encoder
    from sapbert.tokens.pooling import Pooling


_BLOCK = 16_384
"""Names read at once."""


class ExportFormat(StrEnum):
    """File format of the exported encoder."""

    ONNX = "onnx"
    HUGGINGFACE = "huggingface"
    STATIC = "static"


@with_options()
def export(
    model: Annotated[
        str,
        typer.Argument(
            help="Encoder (a folder, a Hugging Face id, `default` or `open-mini`) or reranker.",
            show_default=False,
        ),
    ],
    output: Output,
    format: Annotated[
        ExportFormat,
        typer.Option(
            help="`huggingface` converts an exported encoder back, to continue training it. `static` "
            "converts a flash encoder without pairs of words for sentence-transformers and model2vec."
        ),
    ] = ExportFormat.ONNX,
    pairs: Annotated[
        Path | None,
        typer.Option(help="Written by `sapbert pairs`: names whose words `--format static` contains."),
    ] = None,
    pooling: Annotated[
        str | None,
        typer.Option(
            help="cls, mean, mean-all-tokens, first-token or no-special.", show_default="the model's"
        ),
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(help="Maximum tokens per name.", show_default="the model's, or 64")
    ] = None,
    benchmark: Annotated[
        list[Path],
        typer.Option(
            help="Folder with dictionary.tsv and test.tsv; prints the accuracy of fp32 and int8 on it. "
            "Repeatable."
        ),
    ] = [],
) -> None:
    """Export an encoder or a reranker to ONNX, for use without torch.

    Writes an fp32 and an int8 variant.
    """
    from sapbert.defaults import resolve_default
    from sapbert.encoder.exported import is_exported

    forbid_overwriting_input(output.out, model, pairs)
    options = bool(pooling or max_length or benchmark)
    if (format is ExportFormat.STATIC) != (pairs is not None):
        raise ConfigError("--format static needs --pairs, and --pairs needs --format static")
    if pairs is not None:
        _export_static(resolve_default(model, "encoder"), pairs, output)
        return
    _forbid_flash(model)
    if _is_reranker(model):
        if format is ExportFormat.HUGGINGFACE or options:
            raise ConfigError("a reranker is exported as trained; remove the other options")
        _export_reranker(Path(model), output)
        return
    if format is ExportFormat.HUGGINGFACE:
        if options:
            raise ConfigError("--format huggingface converts an encoder unchanged; remove the other options")
        _restore(resolve_default(model, "encoder"), output)
        return
    if is_exported(resolve_default(model, "encoder")):
        raise ConfigError(f"{model} is already exported; --format huggingface converts it back")
    benchmarks = {str(folder): _measure(folder) for folder in benchmark}
    with needing("train"):
        from sapbert.encoder.onnx_export.export import export_model
    with progress_bar() as on_progress:
        manifest = export_model(
            model,
            output.out,
            pooling=_pooling(pooling),
            max_length=max_length,
            benchmarks=benchmarks,
            on_progress=on_progress,
            overwrite=output.overwrite,
        )
    report_manifest(manifest, output)
    if not output.json:
        _print_accuracy(manifest.details["accuracy"])


def _measure(folder: Path) -> Callable[[Encoder], Mapping[str, float]]:
    from sapbert.evaluation.encoder_accuracy import encoder_accuracy, open_benchmark

    return partial(encoder_accuracy, open_benchmark(folder))


def _is_reranker(model: str) -> bool:
    from sapbert.encoder.cross_encoder import HEAD_FILE

    return (Path(model) / HEAD_FILE).is_file()


def _export_reranker(source: Path, output: Output) -> None:
    with needing("train"):
        from sapbert.encoder.onnx_export.export import export_reranker
    report_manifest(export_reranker(source, output.out, overwrite=output.overwrite), output)


def _forbid_flash(model: str) -> None:
    from sapbert.defaults import resolve_default
    from sapbert.encoder.exported import is_exported, read_exported
    from sapbert.encoder.flash.encoder import FLASH

    folder = resolve_default(model, "encoder")
    if is_exported(folder) and read_exported(folder).get("kind") == FLASH:
        raise ConfigError(
            f"{model} is a flash encoder, which runs without torch as it is; "
            "--format static converts it for sentence-transformers"
        )


def _export_static(source: Path, pairs: Path, output: Output) -> None:
    with needing("train"):
        from sapbert.encoder.flash.static_export import export_static
    from sapbert.encoder.flash.encoder import FlashEncoder
    from sapbert.pairs.artifact import Pairs

    names = Pairs.open(pairs).names
    blocks = (names.span(start, min(start + _BLOCK, len(names))) for start in range(0, len(names), _BLOCK))
    report_manifest(
        export_static(FlashEncoder.open(source), blocks, output.out, overwrite=output.overwrite), output
    )


def _restore(source: Path, output: Output) -> None:
    with needing("train"):
        from sapbert.encoder.onnx_export.restore import restore_model
    report_manifest(restore_model(source, output.out, overwrite=output.overwrite), output)


def _pooling(name: str | None) -> Pooling | None:
    from sapbert.tokens.pooling import Pooling

    if name is not None and name not in list(Pooling):
        raise ConfigError(f"unknown pooling {name!r}, expected one of {', '.join(Pooling)}")
    return None if name is None else Pooling(name)


def _print_accuracy(accuracy: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    for name, variants in accuracy.items():
        for variant, measured in variants.items():
            typer.echo(f"{name}  {variant}  Acc@1 {measured['first']:.1%}  Acc@5 {measured['fifth']:.1%}")
