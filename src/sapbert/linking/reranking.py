"""Reranking: a `Reranker` reorders the candidates of a mention, each by its best name.

Names that equal the mention stay first, in the order of the reranker: of two concepts called "cold" the
context may tell which is meant, but no other name is a better match than the same name. The score of the
search is kept next to that of the reranker. Thresholds apply to the former, whose scale does not depend on
the reranker.

A reranker is a folder written by `sapbert export`, or any object with the same methods, given as
`module:attribute`.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sapbert.errors import ConfigError
from sapbert.linking.candidate import Candidate
from sapbert.protocols import Reranker, RerankRequest

RERANK_DEPTH = 20
"""Candidates per mention that are reranked, or k if it is larger."""
_DECIMALS = 6
_HINT = "(see docs/how-to/rerank.md)"


def open_reranker(name: str, *, threads: int | None = None) -> Reranker:
    """Open a folder with a reranker, or import `module:attribute`: a reranker or a callable returning one.

    Modules are searched in the Python path and then in the working directory. `threads` applies to a folder
    only.
    """
    module, colon, attribute = name.partition(":")
    if Path(name).exists() or not colon:
        from sapbert.encoder.cross_encoder import CrossEncoder

        return CrossEncoder.open(name, threads=threads)
    if "" not in sys.path:
        sys.path.append("")  # last, so that no file there replaces an installed package
    try:
        imported = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError, TypeError, SyntaxError) as error:
        raise ConfigError(f"{name}: no such folder, and importing a reranker failed: {error}") from error
    if callable(imported) and _requires_arguments(imported):
        raise ConfigError(f"{name}: cannot be called without arguments {_HINT}")
    reranker: Reranker = imported() if callable(imported) else imported
    if not (
        callable(getattr(reranker, "rerank", None))
        and isinstance(getattr(reranker, "fingerprint", None), str)
    ):
        raise ConfigError(f"{name}: a {type(reranker).__name__} without `rerank` and `fingerprint` {_HINT}")
    return reranker


def _requires_arguments(function: Callable[..., object]) -> bool:
    """Return whether `function` needs arguments, without calling it: errors inside it must not be hidden."""
    try:
        inspect.signature(function).bind()
    except TypeError:
        return True
    except ValueError:  # some builtins have no signature
        return False
    return False


def rerank(
    reranker: Reranker,
    mentions: Sequence[str],
    contexts: Sequence[str],
    candidate_lists: Sequence[Sequence[Candidate]],
) -> list[list[Candidate]]:
    """Return the candidates of each mention in the order of the reranker, with its scores."""
    requests = [
        RerankRequest(
            mention,
            tuple(candidate.matched_name for candidate in candidates),
            tuple(candidate.score for candidate in candidates),
            context,
        )
        for mention, context, candidates in zip(mentions, contexts, candidate_lists, strict=True)
    ]
    scores = rerank_scores(reranker, requests)
    return [_reorder(candidates, array) for candidates, array in zip(candidate_lists, scores, strict=True)]


def rerank_scores(reranker: Reranker, requests: Sequence[RerankRequest]) -> list[NDArray[np.float32]]:
    """Return the reranker's scores of each request, after checking them.  # (names,) each

    Equal requests are scored once.
    """
    distinct = [request for request in dict.fromkeys(requests) if request.names]
    returned = reranker.rerank(distinct) if distinct else []
    try:
        arrays = [np.asarray(scores, np.float32) for scores in returned]
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the reranker must return one array of scores per mention: {error}") from error
    if len(arrays) != len(distinct):
        raise ConfigError(f"the reranker returned scores for {len(arrays)} of {len(distinct)} mentions")
    for request, scores in zip(distinct, arrays, strict=True):
        if scores.shape != (len(request.names),) or not np.isfinite(scores).all():
            raise ConfigError(
                f"the reranker must return {len(request.names)} finite scores for {request.mention[:60]!r}, "
                "one per candidate"
            )
    by_request = dict(zip(distinct, arrays, strict=True))
    return [by_request.get(request, np.empty(0, np.float32)) for request in requests]


def _reorder(candidates: Sequence[Candidate], scores: NDArray[np.float32]) -> list[Candidate]:
    # Rounded like the scores of the search: equal texts may differ in the last bits.
    rounded = scores.astype(np.float64).round(_DECIMALS).tolist()
    scored = [
        replace(
            candidate,
            rerank_score=score,
            matched_by="exact" if candidate.matched_by == "exact" else "reranked",
        )
        for candidate, score in zip(candidates, rounded, strict=True)
    ]
    return sorted(scored, key=lambda each: (each.matched_by != "exact", -(each.rerank_score or 0.0)))
