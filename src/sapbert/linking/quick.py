"""`sapbert.link`: one mention, the default index, one line.

The index is opened by the first call and kept, since whoever looks up one mention looks up another. For many
mentions, filters or an index of one's own there is `Linker`.
"""

from __future__ import annotations

from functools import cache

from sapbert.linking.candidate import NIL, Candidate
from sapbert.linking.linker import Linker


class Answer(tuple[Candidate, ...]):
    """The candidates of one mention, best first; printed, a line each."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(map(_line, self)) or NIL


def link(mention: str, *, k: int = 5) -> Answer:
    """Return the concepts of MeSH that `mention` may mean, best first; none where it is empty."""
    if not isinstance(mention, str):
        raise TypeError("link takes one mention; for several: sapbert.Linker.open().link(mentions)")
    [candidates] = _default_linker().link([mention], k=k)
    return Answer(candidates)


@cache
def _default_linker() -> Linker:
    return Linker.open()


def _line(candidate: Candidate) -> str:
    confidence = "" if candidate.confidence is None else f", confidence {candidate.confidence:.2f}"
    match = f"{candidate.matched_by}: {candidate.matched_name}, score {candidate.score:.3f}{confidence}"
    return f"{candidate.concept_id}  {candidate.preferred_name}  ({match})"
