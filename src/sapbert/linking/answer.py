"""The candidates of one mention, printed as one line per candidate."""

from __future__ import annotations

from sapbert.linking.candidate import NIL, Candidate


class Answer(tuple[Candidate, ...]):
    """The candidates of one mention, best first; empty if there are none."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(map(_line, self)) or NIL


def _line(candidate: Candidate) -> str:
    confidence = "" if candidate.confidence is None else f", confidence {candidate.confidence:.2f}"
    match = f"{candidate.matched_by}: {candidate.matched_name}, score {candidate.score:.3f}{confidence}"
    return f"{candidate.concept_id}  {candidate.preferred_name}  ({match})"
