"""`sapbert evaluate`."""

from __future__ import annotations

import json as json_module
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapbert.cli.encoders import open_encoder
from sapbert.cli.output import Overwrite, progress_bar
from sapbert.errors import ArtifactError, ConfigError

if TYPE_CHECKING:
    from sapbert.evaluation.benchmarks.loader import EvaluationSet
    from sapbert.evaluation.rankers import RankerFactory
    from sapbert.evaluation.run import Evaluation
    from sapbert.protocols import Reranker


def evaluate(
    benchmark: Annotated[
        Path,
        typer.Option(help="A benchmark: a folder in any of its formats, or one file.", show_default=False),
    ],
    models: Annotated[
        list[str],
        typer.Option(
            "--model",
            help="Encoder: `default`, a folder or a Hugging Face id. Given again: another seed of it.",
        ),
    ] = [],
    baseline: Annotated[
        str | None, typer.Option(help="Measure this instead: exact, tfidf, bm25 or edit.")
    ] = None,
    sparse_weight: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="What spelling (tf-idf) counts beside vectors.",
            show_default="what the model has learned, or nothing",
        ),
    ] = None,
    reranker: Annotated[
        str | None,
        typer.Option(help="Puts the first 20 names in order: an exported reranker, or MODULE:ATTRIBUTE."),
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
    by_type: Annotated[bool, typer.Option("--by-type", help="Tell each type of mention too.")] = False,
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
    are with the latter. Several models are one system trained with several seeds: their mean and deviation
    are told, and OUT is a folder of their evaluations.
    """
    from sapbert.artifacts import refuse_occupied
    from sapbert.evaluation import report
    from sapbert.evaluation.benchmarks.loader import open_evaluation_set
    from sapbert.evaluation.compare import System
    from sapbert.evaluation.run import write_evaluation
    from sapbert.linking.reranking import open_reranker

    if bool(models) == (baseline is not None):
        raise ConfigError("give either --model or --baseline")
    if baseline is not None and sparse_weight is not None:
        raise ConfigError("--sparse-weight goes with --model: a baseline has no vectors")
    targets = _targets(out, len(models))
    for target in targets:
        refuse_occupied(target, overwrite=overwrite)
    found = open_evaluation_set(benchmark, dictionary=dictionary, prefix=prefix)
    second = open_reranker(reranker) if reranker else None
    runs = list(_runs(found, models, baseline, split, cache, sparse_weight, second))
    for target, (model, ranker, run) in zip(targets, runs, strict=False):
        settings = {
            "benchmark": found.name,
            "split": split,
            "model": model,
            "baseline": baseline,
            "sparse_weight": sparse_weight,
            "reranker": reranker,
        }
        write_evaluation(run, target, benchmark=found, settings=settings, ranker=ranker, overwrite=overwrite)
    if out is not None:
        typer.echo(f"evaluation -> {out}", err=True)
    system = System(found.name, tuple(run for *_, run in runs))
    if json:
        typer.echo(json_module.dumps(report.summarise(system, threshold=threshold)))
        return
    told = f"{', '.join(models) or baseline}{f', reranked by {reranker}' if reranker else ''}"
    typer.echo(f"{found.name}, {split}: {told}")
    for line in report.evaluation_lines(system, threshold=threshold, by_type=by_type):
        typer.echo(line)


def _runs(
    benchmark: EvaluationSet,
    models: list[str],
    baseline: str | None,
    split: str,
    cache: Path | None,
    sparse_weight: float | None,
    reranker: Reranker | None,
) -> Iterator[tuple[str | None, str, Evaluation]]:
    """Measure one after the other; yields the model, what identifies its ranker, and the results."""
    from sapbert.artifacts import fingerprint_of
    from sapbert.evaluation import rankers
    from sapbert.evaluation.run import evaluate

    def named(ranker: str) -> str:
        return fingerprint_of({"ranker": ranker, "reranker": reranker.fingerprint}) if reranker else ranker

    if baseline is not None:
        build = rankers.baseline(baseline)
        yield None, named(baseline), evaluate(benchmark, build, split=split, reranker=reranker)
    measured: dict[str, str] = {}
    for model in models:
        with progress_bar() as progress:
            identity, build = model_ranker(model, cache, partial(progress, "encode"), sparse_weight)
            require_another(identity, model, measured)
            yield model, named(identity), evaluate(benchmark, build, split=split, reranker=reranker)


def _targets(out: Path | None, models: int) -> list[Path]:
    """Where evaluations go: one to OUT itself, several into it, where nothing else may be."""
    if out is None or models < 2:
        return [] if out is None else [out]
    targets = [out / f"{number:02}" for number in range(1, models + 1)]
    others = sorted(set(out.iterdir()) - set(targets)) if out.is_dir() else []
    if others:
        raise ArtifactError(f"{others[0]} would count as another run; choose another name or remove it")
    return targets


def require_another(fingerprint: str, model: str, measured: dict[str, str]) -> None:
    """Refuse a copy of an encoder that was measured as another seed: they would not differ."""
    if fingerprint in measured:
        raise ConfigError(f"{model} and {measured[fingerprint]} are the same encoder, not two seeds of one")
    measured[fingerprint] = model


def model_ranker(
    model: str,
    cache: Path | None,
    progress: Callable[[int, int], None] | None = None,
    sparse_weight: float | None = None,
) -> tuple[str, RankerFactory]:
    """Open a model whose vectors are kept; returns what identifies its ranker, and what builds one.

    `progress` is told of names encoded and names to encode. Spelling counts what `sparse_weight` says, or
    what the model has learned.
    """
    from sapbert.artifacts import fingerprint_of
    from sapbert.cache import cache_folder
    from sapbert.evaluation import rankers
    from sapbert.evaluation.vector_cache import CachedEncoder

    opened = open_encoder(model)
    encoder = CachedEncoder(opened, cache or cache_folder() / "vectors", progress=progress)
    weight = opened.sparse_weight if sparse_weight is None else sparse_weight
    if not weight:
        return encoder.fingerprint, partial(rankers.EncoderRanker, encoder=encoder)
    parts = {"encoder": encoder.fingerprint, "sparse_weight": repr(weight)}
    build = partial(rankers.HybridRanker, encoder=encoder, weight=weight)
    return fingerprint_of(parts), build
