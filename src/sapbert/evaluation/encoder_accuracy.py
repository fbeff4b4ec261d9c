"""Accuracy of an encoder on the test split of a benchmark, by exact search over its plain dictionary.

`sapbert export` compares fp32 and int8 by it, not by the distance between their vectors: a small shift may
swap neighbours, and a large one need not.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from sapbert.errors import ConfigError
from sapbert.evaluation.benchmarks.loader import EvaluationSet, open_evaluation_set
from sapbert.evaluation.metrics import compute_metrics
from sapbert.evaluation.rankers import EncoderRanker
from sapbert.evaluation.run import evaluate
from sapbert.protocols import Encoder


def open_benchmark(folder: Path) -> EvaluationSet:
    """Open the evaluation set in `folder`, which must have a dictionary and labelled test mentions."""
    benchmark = open_evaluation_set(folder)
    if benchmark.dictionary is None or not len(benchmark.dictionary):
        raise ConfigError(f"{folder}: no dictionary.tsv with names (is this a benchmark?)")
    if not (benchmark.split("test")["ids"].list.len() > 0).any():
        raise ConfigError(f"{folder}: no mention of the test split has a concept id")
    return replace(benchmark, test_dictionary=None)


def encoder_accuracy(benchmark: EvaluationSet, encoder: Encoder) -> dict[str, float]:
    """Return the share of mentions whose `first`, and one of whose first `fifth`, names is right."""
    evaluation = evaluate(benchmark, partial(EncoderRanker, encoder=encoder), depth=5)
    accuracy = compute_metrics(evaluation.results, ks=(1, 5)).accuracy
    return {"first": accuracy[1] or 0.0, "fifth": accuracy[5] or 0.0}
