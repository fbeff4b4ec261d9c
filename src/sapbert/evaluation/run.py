"""Evaluate a ranker on a benchmark, with each of its dictionaries, and store the result of every mention.

Both dictionaries are always evaluated, because the enlarged one matters more than most models: it gives
character tf-idf alone eleven points on NCBI. Results are stored per mention and not only as metrics, so that
two runs can be compared on the same mentions and errors can be analysed.

| table | one row per | columns |
|---|---|---|
| `mentions.parquet` | dictionary and mention | `dictionary` and those of `metrics.RESULTS` |
| `candidates.parquet` | candidate | `dictionary`, `mention`, `part`, `position`, `name`, `ids`, `score` |
| `gold.parquet` | name of a gold concept | `dictionary`, `id`, `name` |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from sapbert.artifacts import Manifest, create, load_manifest
from sapbert.errors import ArtifactError, ConfigError
from sapbert.evaluation.benchmarks.dataset import Dictionary, concept_numbers
from sapbert.evaluation.benchmarks.loader import EvaluationSet
from sapbert.evaluation.metrics import mention_results
from sapbert.evaluation.rankers import Ranked, RankerFactory
from sapbert.linking.reranking import rerank_scores
from sapbert.protocols import Reranker, RerankRequest
from sapbert.vocab.parquet import polars_os_errors

KIND = "evaluation"
_TABLES = ("mentions", "candidates", "gold")
DEPTH = 20
"""Candidates stored per part of a mention. A correct candidate beyond this counts as not found."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The results of one run."""

    results: pl.DataFrame
    """`mentions.parquet`."""
    candidates: pl.DataFrame
    """`candidates.parquet`."""
    gold: pl.DataFrame
    """`gold.parquet`."""
    manifest: Manifest | None = None

    @classmethod
    def open(cls, path: Path) -> Evaluation:
        """Open an evaluation written by `write_evaluation`."""
        manifest = load_manifest(path, kind=KIND)
        if missing := [name for name in _TABLES if f"{name}.parquet" not in manifest.files]:
            raise ArtifactError(
                f"{path} has no table {missing[0]}, because an earlier version of sapbert wrote it; "
                "run `sapbert evaluate` again"
            )
        results, candidates, gold = (pl.read_parquet(path / f"{name}.parquet") for name in _TABLES)
        return cls(results, candidates, gold, manifest)

    @property
    def dictionaries(self) -> list[str]:
        """Names of the dictionaries that were evaluated."""
        names: list[str] = self.results["dictionary"].unique(maintain_order=True).to_list()
        return names

    def for_dictionary(self, dictionary: str) -> pl.DataFrame:
        """Return the results with one dictionary."""
        return self.results.filter(pl.col("dictionary") == dictionary)


def evaluate(
    benchmark: EvaluationSet,
    make_ranker: RankerFactory,
    *,
    split: str = "test",
    depth: int = DEPTH,
    reranker: Reranker | None = None,
) -> Evaluation:
    """Rank the names of each dictionary for the mentions of a split, and check the candidates.

    A `reranker` then reorders the first `depth` names per mention.
    """
    mentions = benchmark.split(split)
    if not benchmark.dictionaries:
        raise ConfigError(f"{benchmark.name} has no dictionary; provide one (--dictionary)")
    train = benchmark.splits.get("train") if split != "train" else None
    # A training mention has only one of the ids of its concept, so only the names of the vocabulary itself
    # tell which ids are the same concept.
    concepts = concept_numbers(next(iter(benchmark.dictionaries.values())))
    results, candidates, gold = [], [], []
    for name, dictionary in benchmark.dictionaries.items():
        ranked = rank_mentions(mentions, dictionary, make_ranker, depth=depth, reranker=reranker)
        result = mention_results(mentions, ranked, dictionary, concepts=concepts, train=train)
        results.append(result.select(pl.lit(name).alias("dictionary"), pl.all()))
        named = ranked.with_columns(
            name=dictionary.table["name"][ranked["row"]],
            ids=dictionary.table["ids"].list.join("|")[ranked["row"]],
        )
        candidates.append(named.select(pl.lit(name).alias("dictionary"), pl.exclude("row")))
        gold.append(_gold_names(mentions, dictionary).select(pl.lit(name).alias("dictionary"), pl.all()))
    return Evaluation(pl.concat(results), pl.concat(candidates), pl.concat(gold))


def _gold_names(mentions: pl.DataFrame, dictionary: Dictionary) -> pl.DataFrame:
    """All names of the gold concepts, in the order of the dictionary; the error analysis shows them."""
    gold_ids = mentions.select(id="ids").explode("id").unique()
    names = dictionary.table.explode("ids").select("name", id="ids")
    return names.join(gold_ids, on="id", how="semi", maintain_order="left").select("id", "name")


def rank_mentions(
    mentions: pl.DataFrame,
    dictionary: Dictionary,
    make_ranker: RankerFactory,
    *,
    depth: int,
    reranker: Reranker | None = None,
) -> pl.DataFrame:
    """Return the candidates of all parts of all mentions, in the form that `mention_results` expects."""
    parts = (
        mentions.with_row_index("mention")
        .select(
            "mention",
            part=pl.int_ranges(pl.col("parts").list.len(), dtype=pl.UInt32),
            text="parts",
            # Only a reranker uses the context.
            context=pl.lit("") if reranker is None else pl.col("context"),
        )
        .explode("part", "text")
    )
    distinct = parts.select("text", "context").unique(maintain_order=True)
    texts = distinct["text"].unique(maintain_order=True)
    scores, rows = make_ranker(dictionary.names).rank(texts.to_list(), depth)
    if reranker is not None:
        place = dict(zip(texts, range(len(texts)), strict=True))
        places = [place[text] for text in distinct["text"]]
        scores, rows = _rerank(reranker, dictionary.names, distinct, (scores[places], rows[places]))
    mention, position = np.nonzero(rows >= 0)
    candidates = pl.DataFrame(
        {
            "text": distinct["text"][mention],
            "context": distinct["context"][mention],
            "position": (position + 1).astype(np.uint32),
            "row": rows[mention, position].astype(np.uint32),
            "score": scores[mention, position],
        }
    )
    candidates = parts.join(candidates, on=["text", "context"]).drop("text", "context")
    return candidates.sort("mention", "part", "position")


def _rerank(reranker: Reranker, names: Sequence[str], distinct: pl.DataFrame, ranked: Ranked) -> Ranked:
    """Reorder the ranked names of each mention by the scores of a reranker.

    As in `link`, a name that is equal to the mention stays first and gets the best score.
    """
    scores, rows = ranked
    is_candidate = rows >= 0
    requests = [
        RerankRequest(
            text,
            tuple(names[row] for row in mention_rows[valid].tolist()),
            tuple(first_scores[valid].tolist()),
            context,
        )
        for (text, context), mention_rows, first_scores, valid in zip(
            distinct.iter_rows(), rows, scores, is_candidate, strict=True
        )
    ]
    new_scores, new_rows = np.full_like(scores, -np.inf), np.full_like(rows, -1)
    for number, (request, reranked) in enumerate(
        zip(requests, rerank_scores(reranker, requests), strict=True)
    ):
        exact = np.array([name == request.mention for name in request.names], np.bool_)
        raised = np.where(exact, reranked.max(initial=-np.inf), reranked)
        best = np.lexsort((-raised, ~exact))
        new_scores[number, : len(best)] = raised[best]
        new_rows[number, : len(best)] = rows[number][is_candidate[number]][best]
    return new_scores, new_rows


def write_evaluation(
    evaluation: Evaluation,
    target: Path,
    *,
    benchmark: EvaluationSet,
    settings: Mapping[str, object],
    ranker: str,
    overwrite: bool = False,
) -> Manifest:
    """Write the results of a run as an artifact; `ranker` is the fingerprint or name of the ranker."""
    with create(target, overwrite=overwrite) as draft:
        tables = (evaluation.results, evaluation.candidates, evaluation.gold)
        for name, table in zip(_TABLES, tables, strict=True):
            with polars_os_errors(file := draft.path / f"{name}.parquet"):
                table.write_parquet(file)
        return draft.seal(
            KIND,
            settings=settings,
            inputs={
                benchmark.name: {"fingerprint": benchmark.fingerprint},
                "ranker": {"fingerprint": ranker},
            },
            counts={"mentions": evaluation.for_dictionary(evaluation.dictionaries[0]).height},
            details={"benchmark": benchmark.fingerprint},
        )
