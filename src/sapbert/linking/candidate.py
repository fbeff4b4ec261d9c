"""`Candidate`: one possible concept of a mention.

The field names are the same in Python, in the columns of `sapbert link` and in the JSON of the service.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

NIL: Final = "NIL"
"""Written instead of a concept identifier if a mention has no candidate."""

MatchedBy = Literal["exact", "words", "dense", "hybrid", "reranked", "ancestor"]
"""How a candidate was found: equal after folding, with the same words after stemming (in running text), by
vectors, by vectors and n-grams, reordered by a reranker, or as an ancestor of candidates that are not sure
enough (`LinkSettings.back_off`)."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A concept that a mention may refer to."""

    concept_id: str
    """CURIE of the concept."""
    preferred_name: str
    matched_name: str
    """The name of the concept that is most similar to the mention."""
    score: float
    """Cosine similarity of mention and name, or the weighted mean of the dense and the n-gram similarity in
    hybrid search; 1 if both are equal after folding."""
    confidence: float | None
    """Probability that the candidate is correct, if there is a calibration; without a ranker, only the best
    candidate has one."""
    matched_by: MatchedBy
    rerank_score: float | None = None
    """Score of the reranker, or of the ranker, if there is one."""
    name_kind: str = ""
    """Kind of the matched name: synonym, abbreviation, brand, lay, spelling or translation; empty for a name
    of the vocabulary itself."""
    definition: str | None = field(default=None, repr=False)
    """Definition of the concept, if the vocabulary has one."""

    @property
    def ranking_score(self) -> float:
        """The score that decided the order."""
        return self.score if self.rerank_score is None else self.rerank_score
