"""The second look: a `Reranker` puts the first candidates of a mention in order, each by its best name.

Names that equal the mention stay in front, in the reranker's order: of two concepts called "cold" context may
tell which is meant, but no reading makes another name likelier than the same. The score of the search is
kept beside the reranker's; thresholds go on to mean the former, whose scale does not change with a reranker.

A reranker is a folder that `sapbert export` wrote, or anybody's own, by the module and name of what makes it.
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
from sapbert.protocols import Choice, Reranker

RERANKED = 20
"""Candidates of a mention that are put in order, where no more are wanted."""
_DECIMALS = 6
_HINT = "(see docs/how-to/rerank.md)"


def open_reranker(named: str, *, threads: int | None = None) -> Reranker:
    """Open the reranker in a folder, or import `module:attribute`, which is one or a callable that makes one.

    Modules are found where Python finds them and, as by `python -m`, in the working folder. `threads` is for
    a folder's.
    """
    module, colon, attribute = named.partition(":")
    if Path(named).exists() or not colon:
        from sapbert.encoder.cross_encoder import CrossEncoder

        return CrossEncoder.open(named, threads=threads)
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        make = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError, TypeError, SyntaxError) as error:
        raise ConfigError(f"{named}: no such folder, and no reranker to import: {error}") from error
    if callable(make) and _wants_arguments(make):
        raise ConfigError(f"{named}: cannot be called without arguments {_HINT}")
    made: Reranker = make() if callable(make) else make
    if not (callable(getattr(made, "rerank", None)) and isinstance(getattr(made, "fingerprint", None), str)):
        raise ConfigError(
            f"{named}: gives a {type(made).__name__} without `rerank` and `fingerprint` {_HINT}"
        )
    return made


def _wants_arguments(make: Callable[..., object]) -> bool:
    """Tell a callable that makes no reranker before it is called: what it raises itself is its author's."""
    try:
        inspect.signature(make).bind()
    except TypeError:
        return True
    except ValueError:  # some builtins do not say
        return False
    return False


def rerank(
    reranker: Reranker,
    mentions: Sequence[str],
    contexts: Sequence[str],
    found: Sequence[Sequence[Candidate]],
) -> list[list[Candidate]]:
    """Return the candidates of each mention in the order of the reranker, with its scores."""
    choices = [
        Choice(
            mention,
            tuple(candidate.matched_name for candidate in own),
            tuple(candidate.score for candidate in own),
            context,
        )
        for mention, context, own in zip(mentions, contexts, found, strict=True)
    ]
    scores = scores_of(reranker, choices)
    return [_in_order(own, given) for own, given in zip(found, scores, strict=True)]


def scores_of(reranker: Reranker, choices: Sequence[Choice]) -> list[NDArray[np.float32]]:
    """Ask for the scores of each choice, of equal ones once, and refuse what are none.  # (names,) each"""
    distinct = [choice for choice in dict.fromkeys(choices) if choice.names]
    answered = reranker.rerank(distinct) if distinct else []
    try:
        given = [np.asarray(scores, np.float32) for scores in answered]
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the reranker gave no arrays of scores, one a mention: {error}") from error
    if len(given) != len(distinct):
        raise ConfigError(f"the reranker answered {len(given)} of {len(distinct)} mentions")
    for choice, scores in zip(distinct, given, strict=True):
        if scores.shape != (len(choice.names),) or not np.isfinite(scores).all():
            raise ConfigError(
                f"the reranker gave no {len(choice.names)} finite scores for {choice.mention[:60]!r}, "
                "one a candidate"
            )
    answers = dict(zip(distinct, given, strict=True))
    return [answers.get(choice, np.empty(0, np.float32)) for choice in choices]


def _in_order(candidates: Sequence[Candidate], scores: NDArray[np.float32]) -> list[Candidate]:
    # Rounded as the search's are: equal texts may differ in the last bits.
    rounded = scores.astype(np.float64).round(_DECIMALS).tolist()
    scored = [
        replace(
            candidate,
            rerank_score=score,
            matched_by="exact" if candidate.matched_by == "exact" else "reranked",
        )
        for candidate, score in zip(candidates, rounded, strict=True)
    ]
    return sorted(
        scored, key=lambda candidate: (candidate.matched_by != "exact", -(candidate.rerank_score or 0.0))
    )
