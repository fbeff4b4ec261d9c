"""Measure a ranker on an evaluation set, with each of its dictionaries, and keep every mention's result.

Both dictionaries are always measured, because the enlarged one is worth more than most models: character
tf-idf alone gains eleven points on NCBI from it. Results are kept a mention, not only a figure, so that
two runs can be compared on the same mentions and errors can be looked at.

| table | one row | columns |
|---|---|---|
| `mentions.parquet` | a dictionary and mention | `dictionary` and those of `metrics.RESULTS` |
| `candidates.parquet` | a candidate | `dictionary`, `mention`, `part`, `position`, `name`, `ids`, `score` |
| `gold.parquet` | a name of a gold concept | `dictionary`, `id`, `name` |
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
"""Candidates kept of each part of a mention: no accuracy further down is known, and 1 / rank counts as 0."""


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
        """Open what `write_evaluation` wrote."""
        manifest = load_manifest(path, kind=KIND)
        if missing := [name for name in _TABLES if f"{name}.parquet" not in manifest.files]:
            raise ArtifactError(
                f"{path} has no table {missing[0]}: an earlier sapbert wrote none; run sapbert evaluate again"
            )
        results, candidates, gold = (pl.read_parquet(path / f"{name}.parquet") for name in _TABLES)
        return cls(results, candidates, gold, manifest)

    @property
    def dictionaries(self) -> list[str]:
        """Which dictionaries were measured."""
        names: list[str] = self.results["dictionary"].unique(maintain_order=True).to_list()
        return names

    def for_dictionary(self, dictionary: str) -> pl.DataFrame:
        """Return the results with one dictionary."""
        return self.results.filter(pl.col("dictionary") == dictionary)


def evaluate(
    benchmark: EvaluationSet,
    build: RankerFactory,
    *,
    split: str = "test",
    depth: int = DEPTH,
    reranker: Reranker | None = None,
) -> Evaluation:
    """Rank the names of each dictionary for the mentions of a split, and mention_results the candidates.

    A `reranker` then puts the first `depth` names of a mention in order.
    """
    mentions = benchmark.split(split)
    if not benchmark.dictionaries:
        raise ConfigError(f"{benchmark.name} comes without a dictionary; give one (--dictionary)")
    train = benchmark.splits.get("train") if split != "train" else None
    # Training mentions carry one id of several, so only the vocabulary's own names tell which ids are one.
    concepts = concept_numbers(next(iter(benchmark.dictionaries.values())))
    results, candidates, gold = [], [], []
    for name, dictionary in benchmark.dictionaries.items():
        found = rank_mentions(mentions, dictionary, build, depth=depth, reranker=reranker)
        judged = mention_results(mentions, found, dictionary, concepts=concepts, train=train)
        results.append(judged.select(pl.lit(name).alias("dictionary"), pl.all()))
        named = found.with_columns(
            name=dictionary.table["name"][found["row"]],
            ids=dictionary.table["ids"].list.join("|")[found["row"]],
        )
        candidates.append(named.select(pl.lit(name).alias("dictionary"), pl.exclude("row")))
        gold.append(_gold_names(mentions, dictionary).select(pl.lit(name).alias("dictionary"), pl.all()))
    return Evaluation(pl.concat(results), pl.concat(candidates), pl.concat(gold))


def _gold_names(mentions: pl.DataFrame, dictionary: Dictionary) -> pl.DataFrame:
    """Every name of the gold concepts, in order of the dictionary: what a reader of errors needs of it."""
    wanted = mentions.select(id="ids").explode("id").unique()
    names = dictionary.table.explode("ids").select("name", id="ids")
    return names.join(wanted, on="id", how="semi", maintain_order="left").select("id", "name")


def rank_mentions(
    mentions: pl.DataFrame,
    dictionary: Dictionary,
    build: RankerFactory,
    *,
    depth: int,
    reranker: Reranker | None = None,
) -> pl.DataFrame:
    """Return the candidates of every part of every mention, as `metrics.mention_results` takes them."""
    parts = (
        mentions.with_row_index("mention")
        .select(
            "mention",
            part=pl.int_ranges(pl.col("parts").list.len(), dtype=pl.UInt32),
            text="parts",
            # Without a reranker a mention is the same in any context.
            context=pl.lit("") if reranker is None else pl.col("context"),
        )
        .explode("part", "text")
    )
    asked = parts.select("text", "context").unique(maintain_order=True)
    texts = asked["text"].unique(maintain_order=True)
    scores, rows = build(dictionary.names).rank(texts.to_list(), depth)
    if reranker is not None:
        place = dict(zip(texts, range(len(texts)), strict=True))
        own = [place[text] for text in asked["text"]]
        scores, rows = _reranked(reranker, dictionary.names, asked, (scores[own], rows[own]))
    mention, position = np.nonzero(rows >= 0)
    found = pl.DataFrame(
        {
            "text": asked["text"][mention],
            "context": asked["context"][mention],
            "position": (position + 1).astype(np.uint32),
            "row": rows[mention, position].astype(np.uint32),
            "score": scores[mention, position],
        }
    )
    found = parts.join(found, on=["text", "context"]).drop("text", "context")
    return found.sort("mention", "part", "position")


def _reranked(reranker: Reranker, names: Sequence[str], asked: pl.DataFrame, ranked: Ranked) -> Ranked:
    """Put the ranked names of each mention in the order of a reranker, with its scores.

    As in `link`, a name that is the mention stays in front; it gets the best score.
    """
    scores, rows = ranked
    found = [own >= 0 for own in rows]
    requests = [
        RerankRequest(
            text, tuple(names[row] for row in own[there].tolist()), tuple(first[there].tolist()), context
        )
        for (text, context), own, first, there in zip(asked.iter_rows(), rows, scores, found, strict=True)
    ]
    given, order = np.full_like(scores, -np.inf), np.full_like(rows, -1)
    for number, (request, new) in enumerate(zip(requests, rerank_scores(reranker, requests), strict=True)):
        equal = np.array([name == request.mention for name in request.names], np.bool_)
        lifted = np.where(equal, new.max(initial=-np.inf), new)
        best = np.lexsort((-lifted, ~equal))
        given[number, : len(best)] = lifted[best]
        order[number, : len(best)] = rows[number][found[number]][best]
    return given, order


def write_evaluation(
    evaluation: Evaluation,
    target: Path,
    *,
    benchmark: EvaluationSet,
    settings: Mapping[str, object],
    ranker: str,
    overwrite: bool = False,
) -> Manifest:
    """Write the results of a run as an artifact; `ranker` is the fingerprint or name of what was measured."""
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
