"""`sapbert.link`: link one mention with the bundled index.

The first call opens the index and keeps it open for the next ones. For many mentions, filters or another
index use `Linker`.
"""

from __future__ import annotations

from functools import cache

from sapbert.linking.candidate import NIL, Candidate
from sapbert.linking.linker import Linker


class Answer(tuple[Candidate, ...]):
    """The candidates of one mention, best first; printed one per line."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(map(_line, self)) or NIL


def link(mention: str, *, k: int = 5) -> Answer:
    """Return the best `k` MeSH concepts for `mention`, best first; none if it is empty."""
    if not isinstance(mention, str):
        raise TypeError("link takes one mention; for a list use sapbert.Linker.open().link(mentions)")
    [candidates] = _default_linker().link([mention], k=k)
    return Answer(candidates)


@cache
def _default_linker() -> Linker:
    return Linker.open()


def _line(candidate: Candidate) -> str:
    confidence = "" if candidate.confidence is None else f", confidence {candidate.confidence:.2f}"
    match = f"{candidate.matched_by}: {candidate.matched_name}, score {candidate.score:.3f}{confidence}"
    return f"{candidate.concept_id}  {candidate.preferred_name}  ({match})"
