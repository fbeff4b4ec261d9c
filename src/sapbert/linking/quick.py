"""`sapbert.link`: one mention, the default index, one line.

The index is opened by the first call and kept, since whoever looks up one mention looks up another. For many
mentions, filters or an index of one's own there is `Linker`.
"""

from __future__ import annotations

from functools import cache

from sapbert.linking.linker import NIL, Candidate, Linker


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


def _line(found: Candidate) -> str:
    sure = "" if found.confidence is None else f", confidence {found.confidence:.2f}"
    return (
        f"{found.concept}  {found.preferred_name}  ({found.how}: {found.name}, score {found.score:.3f}{sure})"
    )
