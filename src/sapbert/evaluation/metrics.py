"""What is right, and how often: one row a mention, and figures over such rows.

The rules, which papers leave to their code:

- A candidate name is right if one of its ids is a gold id: BioSyn's rule, and the default. By the strict rule
  all of its concepts must be gold, because a linker has to answer with one: a name of two does not say which.
  Ids that have the same names throughout (a MeSH and an OMIM id of one disease) are one concept.
- A composite mention is right at k if each of its parts has a right candidate among its first k.
- A gold id that the dictionary does not have makes a mention wrong, not left out; `coverage` tells how many
  can be right at all. A mention counts as often as it stands in the corpus.
- A mention without gold ids is NIL. It counts for NIL precision and recall alone.
- Where a benchmark has folds, a share is the mean of the folds' shares, as papers report it.
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
"""Columns of results, one row a mention; then `rank` and `strict_rank`, null where no candidate is right.

`mention` is its number in the split, `text` its parts joined by `|`, `gold` its ids so joined, `seen` whether
the text stands in the training split, `score` the best candidate's, of a composite the worst part's.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Figures over some mentions; None where there is nothing to divide by."""

    mentions: int
    """Those with gold ids, over which all but the NIL figures are."""
    nil: int
    """Those without."""
    accuracy: Mapping[int, float | None]
    """k → share of mentions that are right at k, any id being enough."""
    strict: Mapping[int, float | None]
    """The same by the strict rule."""
    mrr: float | None
    """Mean of 1 / rank, 0 where no candidate is right."""
    coverage: float | None
    """Share of mentions one of whose gold ids the dictionary has."""
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
    """Return one row a mention: what it is, and where its first right candidate stands.

    `candidates` has a row for each: `mention`, `part`, `position` from 1, `row` of the dictionary, `score`.
    `concepts` says which ids are one (`concept_numbers`).
    """
    gold = mentions.with_row_index("mention").select("mention", id="ids").explode("id")
    ids = dictionary.table.with_row_index("row").select("row", id="ids")
    ranks = _first_right(_right(candidates, ids.explode("id"), gold), mentions)
    as_concepts = (_as_concepts(links, concepts) for links in (ids.explode("id"), gold))
    strict = _first_right(_strictly_right(candidates, *as_concepts), mentions)
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
    for found in (best, ranks.rename({"at": "rank"}), strict.rename({"at": "strict_rank"})):
        described = described.join(found, on="mention", how="left", maintain_order="left")
    return described


def compute_metrics(
    results: pl.DataFrame, *, ks: Sequence[int] = KS, threshold: float | None = None
) -> Metrics:
    """Return the figures of `results`; below `threshold` a best candidate is taken for NIL."""
    nil = results["gold"] == ""
    unanswered = results["score"].is_null()
    if threshold is not None:
        unanswered |= results["score"].fill_null(0) < threshold
    both = int((nil & unanswered).sum())
    rules = {"any": "rank", "strict": "strict_rank"}
    right = [
        (pl.col(rank) <= k).fill_null(value=False).alias(f"{rule} {k}")
        for rule, rank in rules.items()
        for k in ks
    ]
    reciprocal = (1 / pl.col("rank")).fill_null(0.0).alias("mrr")
    by_fold = (
        results.filter(~nil)
        .group_by("fold", maintain_order=True)
        .agg(pl.col("covered").mean(), *(one.mean() for one in right), reciprocal.mean())
    )
    shares: dict[str, float | None] = by_fold.select(pl.exclude("fold").mean()).row(0, named=True)
    return Metrics(
        mentions=int((~nil).sum()),
        nil=int(nil.sum()),
        accuracy={k: shares[f"any {k}"] for k in ks},
        strict={k: shares[f"strict {k}"] for k in ks},
        mrr=shares["mrr"],
        coverage=shares["covered"],
        nil_precision=_ratio(both, int(unanswered.sum())),
        nil_recall=_ratio(both, int(nil.sum())),
    )


def compute_metrics_by(results: pl.DataFrame, column: str, *, ks: Sequence[int] = KS) -> dict[str, Metrics]:
    """Return the figures of each group of mentions, by `type`, `seen` or another column, largest first."""
    words = results.with_columns(pl.col(column).cast(pl.String))
    groups = words.partition_by(column, as_dict=True, maintain_order=True)
    largest = sorted(groups.items(), key=lambda group: -group[1].height)
    return {str(key[0]): compute_metrics(group, ks=ks) for key, group in largest}


def correct_at(results: pl.DataFrame, k: int) -> NDArray[np.float64]:
    """1 for each mention with gold ids that is right at k, 0 for the others.  # (mentions,)"""
    linked = results.filter(pl.col("gold") != "")
    return (linked["rank"] <= k).fill_null(value=False).to_numpy().astype(np.float64)


def _right(candidates: pl.DataFrame, ids: pl.DataFrame, gold: pl.DataFrame) -> pl.DataFrame:
    """Keep the candidates one of whose ids is gold."""
    each = candidates.select("mention", "part", "position", "row").join(ids, on="row")
    return each.join(gold, on=["mention", "id"], how="semi").select("mention", "part", "position").unique()


def _strictly_right(candidates: pl.DataFrame, ids: pl.DataFrame, gold: pl.DataFrame) -> pl.DataFrame:
    """Keep the candidates all of whose ids are gold."""
    each = candidates.select("mention", "part", "position", "row").join(ids, on="row")
    wrong = each.join(gold, on=["mention", "id"], how="anti")
    places = ["mention", "part", "position"]
    return each.select(places).unique().join(wrong.select(places).unique(), on=places, how="anti")


def _first_right(right: pl.DataFrame, mentions: pl.DataFrame) -> pl.DataFrame:
    """Where each mention is right at last: the worst of its parts' best positions, if all have one."""
    parts = mentions.with_row_index("mention").select("mention", parts=pl.col("parts").list.len())
    best = right.group_by("mention", "part").agg(pl.col("position").min())
    worst = best.group_by("mention").agg(pl.len().alias("found"), at=pl.col("position").max())
    whole = worst.join(parts, on="mention").filter(pl.col("found") == pl.col("parts"))
    return whole.select("mention", pl.col("at").cast(pl.UInt32))


def _as_concepts(links: pl.DataFrame, concepts: pl.DataFrame) -> pl.DataFrame:
    """Replace ids by the first id of their concept."""
    first = concepts.select("id", first=pl.col("id").first().over("concept"))
    known = links.join(first, on="id", how="left", maintain_order="left")
    return known.with_columns(id=pl.coalesce("first", "id")).drop("first").unique(maintain_order=True)


def _seen(mentions: pl.DataFrame, train: pl.DataFrame | None) -> pl.Series:
    if train is None:
        return pl.repeat(value=False, n=mentions.height, eager=True)
    texts, known = (table["fold"] + "\t" + table["parts"].list.join("|") for table in (mentions, train))
    return texts.is_in(known.unique().implode())


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
