"""`sapbert evaluate`."""

from __future__ import annotations

import json as json_module
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapbert.cli.options import with_options
from sapbert.cli.output import progress_bar
from sapbert.cli.parameters import JsonResults, Overwrite, Prefix, VectorCache
from sapbert.errors import ArtifactError, ConfigError

if TYPE_CHECKING:
    from sapbert.evaluation.benchmarks.loader import EvaluationSet
    from sapbert.evaluation.run import Evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkOptions:
    """The mentions to evaluate on, and the names to search."""

    benchmark: Annotated[
        Path,
        typer.Option(help="Benchmark: a folder or a file, in any supported format.", show_default=False),
    ]
    split: Annotated[
        str, typer.Option(help="Split to evaluate: select models on dev, report results on test.")
    ] = "test"
    dictionary: Annotated[
        Path | None,
        typer.Option(help="Names to search if the benchmark has none: a vocabulary or a table."),
    ] = None
    prefix: Prefix = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemOptions:
    """The system to evaluate."""

    models: Annotated[
        list[str],
        typer.Option(
            "--model",
            help="Encoder: a folder, a Hugging Face id, `default` or `open-mini`. Repeatable, for one system "
            "trained with several seeds.",
        ),
    ] = field(default_factory=list)
    baseline: Annotated[
        str | None, typer.Option(help="Evaluate a baseline instead: exact, tfidf, bm25 or edit.")
    ] = None
    sparse_weight: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Weight of the n-gram score (tf-idf) relative to the dense score.",
            show_default="learned with the model, or 0",
        ),
    ] = None
    reranker: Annotated[
        str | None,
        typer.Option(help="Rerank the first 20 names: an exported reranker, or MODULE:ATTRIBUTE."),
    ] = None
    cache: VectorCache = None

    def __post_init__(self) -> None:
        if bool(self.models) == (self.baseline is not None):
            raise ConfigError("give either --model or --baseline")
        if self.baseline is not None and self.sparse_weight is not None:
            raise ConfigError("--sparse-weight needs --model: a baseline has no dense score")


@with_options()
def evaluate(
    source: BenchmarkOptions,
    system: SystemOptions,
    threshold: Annotated[
        float | None, typer.Option(help="Count a best candidate with a lower score as NIL.")
    ] = None,
    by_type: Annotated[bool, typer.Option("--by-type", help="Also report each type of mention.")] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write the result of every mention, for `sapbert compare`."),
    ] = None,
    overwrite: Overwrite = False,
    json: JsonResults = False,
) -> None:
    """Measure the accuracy of an encoder or a baseline.

    Reports accuracy at 1 and 5 with confidence intervals, for the benchmark's dictionary alone and, if its
    protocol has one, for the dictionary extended by training mentions; published figures use the latter.
    Several models are one system trained with several seeds: their mean and standard deviation are reported,
    and OUT is a folder with one evaluation per model.
    """
    from sapbert.artifacts import refuse_occupied
    from sapbert.evaluation import report
    from sapbert.evaluation.benchmarks.loader import open_evaluation_set
    from sapbert.evaluation.compare import System
    from sapbert.evaluation.run import write_evaluation

    targets = _targets(out, len(system.models))
    for target in targets:
        refuse_occupied(target, overwrite=overwrite, kind="evaluation")
    benchmark = open_evaluation_set(source.benchmark, dictionary=source.dictionary, prefix=source.prefix)
    runs = list(_runs(benchmark, source.split, system))
    for target, (model, ranker, run) in zip(targets, runs, strict=False):
        settings = {
            "benchmark": benchmark.name,
            "split": source.split,
            "model": model,
            "baseline": system.baseline,
            "sparse_weight": system.sparse_weight,
            "reranker": system.reranker,
        }
        write_evaluation(
            run, target, benchmark=benchmark, settings=settings, ranker=ranker, overwrite=overwrite
        )
    if out is not None:
        typer.echo(f"evaluation -> {out}", err=True)
    evaluated = System(benchmark.name, tuple(run for *_, run in runs))
    if json:
        typer.echo(json_module.dumps(report.summarise(evaluated, threshold=threshold)))
        return
    reranked = f", reranked by {system.reranker}" if system.reranker else ""
    typer.echo(f"{benchmark.name}, {source.split}: {', '.join(system.models) or system.baseline}{reranked}")
    for line in report.evaluation_lines(evaluated, threshold=threshold, by_type=by_type):
        typer.echo(line)


def _runs(
    benchmark: EvaluationSet, split: str, system: SystemOptions
) -> Iterator[tuple[str | None, str, Evaluation]]:
    """Evaluate the models or the baseline; yields model, fingerprint of its ranker, and results."""
    from sapbert.artifacts import fingerprint_of
    from sapbert.evaluation import rankers
    from sapbert.evaluation.model_ranker import model_ranker, require_distinct
    from sapbert.evaluation.run import evaluate
    from sapbert.linking.reranking import open_reranker

    reranker = open_reranker(system.reranker) if system.reranker else None

    def fingerprint(ranker: str) -> str:
        return fingerprint_of({"ranker": ranker, "reranker": reranker.fingerprint}) if reranker else ranker

    if system.baseline is not None:
        build = rankers.baseline(system.baseline)
        yield None, fingerprint(system.baseline), evaluate(benchmark, build, split=split, reranker=reranker)
    evaluated: dict[str, str] = {}
    for model in system.models:
        with progress_bar() as progress:
            ranker, build = model_ranker(
                model, system.cache, partial(progress, "encode"), system.sparse_weight
            )
            require_distinct(ranker, model, evaluated)
            yield model, fingerprint(ranker), evaluate(benchmark, build, split=split, reranker=reranker)


def _targets(out: Path | None, models: int) -> list[Path]:
    """Return where evaluations are written: one to OUT itself, several into OUT, which must be free."""
    if out is None or models < 2:
        return [] if out is None else [out]
    targets = [out / f"{number:02}" for number in range(1, models + 1)]
    others = sorted(set(out.iterdir()) - set(targets)) if out.is_dir() else []
    if others:
        raise ArtifactError(f"{others[0]} would count as another run; choose another name or remove it")
    return targets
