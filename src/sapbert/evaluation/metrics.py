"""Result of each mention, and metrics over these results.

The rules, which papers rarely spell out:

- A candidate name is correct if one of its ids is a gold id. This is BioSyn's rule and the default. By the
  strict rule, all concepts of the name must be gold, because a linker returns one concept and an ambiguous
  name does not determine it. Ids with exactly the same names (a MeSH and an OMIM id of one disease) are one
  concept.
- A composite mention is correct at k if each of its parts has a correct candidate among its first k.
- A mention whose gold id is not in the dictionary counts as wrong; it is not left out. `coverage` is the
  share of mentions that can be correct at all. A mention counts as often as it occurs in the corpus.
- A mention without gold ids is NIL. It counts only for NIL precision and recall.
- If a benchmark has folds, each metric is the mean over the folds, as in papers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sapbert.evaluation.benchmarks.dataset import Dictionary

KS = (1, 5)
RESULTS = ("mention", "fold", "document", "type", "raw", "text", "gold", "seen", "covered", "score")
"""Columns of results, one row per mention; then `rank` and `strict_rank`, null if no candidate is correct.

`mention` is its number in the split, `text` its parts and `gold` its gold ids, both joined by `|`. `seen` is
whether the text occurs in the training split. `score` is that of the best candidate; for a composite mention,
the lowest over its parts.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Metrics over some mentions; None if the denominator is zero."""

    mentions: int
    """Mentions with gold ids. All metrics except those of NIL are over these."""
    nil: int
    """Mentions without gold ids."""
    accuracy: Mapping[int, float | None]
    """k → share of mentions that are correct at k; one gold id is enough."""
    strict: Mapping[int, float | None]
    """The same by the strict rule."""
    mrr: float | None
    """Mean reciprocal rank; 0 for a mention without a correct candidate."""
    coverage: float | None
    """Share of mentions with at least one gold id in the dictionary."""
    nil_precision: float | None
    nil_recall: float | None


def mention_results(
    mentions: pl.DataFrame,
    candidates: pl.DataFrame,
    dictionary: Dictionary,
    *,
    concepts: pl.DataFrame,
    train: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Return one row per mention: its description and the rank of its first correct candidate.

    `candidates` has one row per candidate: `mention`, `part`, `position` from 1, `row` in the dictionary and
    `score`. `concepts` maps ids to concepts (`concept_numbers`).
    """
    gold = mentions.with_row_index("mention").select("mention", id="ids").explode("id")
    ids = dictionary.table.with_row_index("row").select("row", id="ids")
    ranks = _first_correct(_correct(candidates, ids.explode("id"), gold), mentions)
    as_concepts = (_as_concepts(links, concepts) for links in (ids.explode("id"), gold))
    strict = _first_correct(_strictly_correct(candidates, *as_concepts), mentions)
    best = candidates.filter(pl.col("position") == 1).group_by("mention").agg(pl.col("score").min())
    described = mentions.with_row_index("mention").select(
        "mention",
        "fold",
        "document",
        "type",
        "raw",
        text=pl.col("parts").list.join("|"),
        gold=pl.col("ids").list.join("|"),
        seen=_seen(mentions, train),
        covered=pl.col("ids").list.eval(pl.element().is_in(dictionary.ids.implode())).list.any(),
    )
    for column in (best, ranks, strict.rename({"rank": "strict_rank"})):
        described = described.join(column, on="mention", how="left", maintain_order="left")
    return described


def compute_metrics(
    results: pl.DataFrame, *, ks: Sequence[int] = KS, threshold: float | None = None
) -> Metrics:
    """Return the metrics of `results`; a mention with a best score below `threshold` is predicted as NIL."""
    nil = results["gold"] == ""
    predicted_nil = results["score"].is_null()
    if threshold is not None:
        predicted_nil |= results["score"].fill_null(0) < threshold
    true_nil = int((nil & predicted_nil).sum())
    rules = {"any": "rank", "strict": "strict_rank"}
    correct = [
        (pl.col(rank) <= k).fill_null(value=False).alias(f"{rule} {k}")
        for rule, rank in rules.items()
        for k in ks
    ]
    reciprocal = (1 / pl.col("rank")).fill_null(0.0).alias("mrr")
    by_fold = (
        results.filter(~nil)
        .group_by("fold", maintain_order=True)
        .agg(pl.col("covered").mean(), *(column.mean() for column in correct), reciprocal.mean())
    )
    shares: dict[str, float | None] = by_fold.select(pl.exclude("fold").mean()).row(0, named=True)
    return Metrics(
        mentions=int((~nil).sum()),
        nil=int(nil.sum()),
        accuracy={k: shares[f"any {k}"] for k in ks},
        strict={k: shares[f"strict {k}"] for k in ks},
        mrr=shares["mrr"],
        coverage=shares["covered"],
        nil_precision=_ratio(true_nil, int(predicted_nil.sum())),
        nil_recall=_ratio(true_nil, int(nil.sum())),
    )


def compute_metrics_by(results: pl.DataFrame, column: str, *, ks: Sequence[int] = KS) -> dict[str, Metrics]:
    """Return the metrics per value of `column` (such as `type` or `seen`), largest group first."""
    as_text = results.with_columns(pl.col(column).cast(pl.String))
    groups = as_text.partition_by(column, as_dict=True, maintain_order=True)
    largest = sorted(groups.items(), key=lambda group: -group[1].height)
    return {str(key[0]): compute_metrics(group, ks=ks) for key, group in largest}


def correct_at(results: pl.DataFrame, k: int) -> NDArray[np.float64]:
    """1 for each mention with gold ids that is correct at k, else 0.  # (mentions,)"""
    linked = results.filter(pl.col("gold") != "")
    return (linked["rank"] <= k).fill_null(value=False).to_numpy().astype(np.float64)


def _correct(candidates: pl.DataFrame, ids: pl.DataFrame, gold: pl.DataFrame) -> pl.DataFrame:
    """Keep the candidates with at least one gold id."""
    each = candidates.select("mention", "part", "position", "row").join(ids, on="row")
    return each.join(gold, on=["mention", "id"], how="semi").select("mention", "part", "position").unique()


def _strictly_correct(candidates: pl.DataFrame, ids: pl.DataFrame, gold: pl.DataFrame) -> pl.DataFrame:
    """Keep the candidates all of whose ids are gold ids."""
    each = candidates.select("mention", "part", "position", "row").join(ids, on="row")
    wrong = each.join(gold, on=["mention", "id"], how="anti")
    key = ["mention", "part", "position"]
    return each.select(key).unique().join(wrong.select(key).unique(), on=key, how="anti")


def _first_correct(correct: pl.DataFrame, mentions: pl.DataFrame) -> pl.DataFrame:
    """The least k at which each mention is correct: the worst of the best positions of its parts.

    Mentions with a part that has no correct candidate are left out.
    """
    parts = mentions.with_row_index("mention").select("mention", parts=pl.col("parts").list.len())
    best = correct.group_by("mention", "part").agg(pl.col("position").min())
    worst = best.group_by("mention").agg(pl.len().alias("correct_parts"), rank=pl.col("position").max())
    complete = worst.join(parts, on="mention").filter(pl.col("correct_parts") == pl.col("parts"))
    return complete.select("mention", pl.col("rank").cast(pl.UInt32))


def _as_concepts(links: pl.DataFrame, concepts: pl.DataFrame) -> pl.DataFrame:
    """Replace each id by the first id of its concept."""
    first = concepts.select("id", first=pl.col("id").first().over("concept"))
    mapped = links.join(first, on="id", how="left", maintain_order="left")
    return mapped.with_columns(id=pl.coalesce("first", "id")).drop("first").unique(maintain_order=True)


def _seen(mentions: pl.DataFrame, train: pl.DataFrame | None) -> pl.Series:
    if train is None:
        return pl.repeat(value=False, n=mentions.height, eager=True)
    texts, known = (table["fold"] + "\t" + table["parts"].list.join("|") for table in (mentions, train))
    return texts.is_in(known.unique().implode())


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
