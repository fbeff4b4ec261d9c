"""Links as SSSOM/TSV, the exchange format for mappings.

A mention is text without a vocabulary, so the subject is an `rdfs literal` with a label and no identifier.
The object of a mention without candidates is `sssom:NoTermFound`; `object_source` names the index that was
searched by its fingerprint.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sapbert.linking.candidate import Candidate
from sapbert.linking.formats.linked_mention import LinkedMention
from sapbert.linking.formats.text import csv_text
from sapbert.text import tidy
from sapbert.version import __version__

_COLUMNS = (
    "subject_label",
    "subject_type",
    "predicate_id",
    "object_id",
    "object_label",
    "mapping_justification",
    "object_source",
    "confidence",
    "similarity_score",
    "similarity_measure",
    "match_string",
    "comment",
)
_JUSTIFICATIONS = {
    "exact": "semapv:LexicalMatching",
    "words": "semapv:LexicalMatching",
    "dense": "semapv:SemanticSimilarityThresholdMatching",
    "hybrid": "semapv:CompositeMatching",
    "reranked": "semapv:CompositeMatching",
    "ancestor": "semapv:CompositeMatching",
}
_PREDICATES = {"exact": "skos:exactMatch", "ancestor": "skos:broadMatch"}
"""Predicates of candidates that are not only close."""
_NO_TERM = "sssom:NoTermFound"
_SOURCE = "sapbert.index"
_LICENSE = "https://w3id.org/sssom/license/unspecified"


@dataclass(frozen=True, slots=True)
class SssomFormat:
    """SSSOM/TSV 1.1; implements `TextFormat`."""

    prefixes: tuple[str, ...]
    """Prefixes of the concepts that can be candidate."""
    fingerprint: str
    """Fingerprint of the index."""
    job: str
    """Settings of the job as JSON: mapping sets made with equal settings get the same identifier."""
    language: str | None = None
    """Language of `object_label`, for concepts that have a preferred name in it."""

    def header(self) -> str:
        """Return the metadata and the column names."""
        set_id = uuid.uuid5(uuid.NAMESPACE_URL, f"sapbert:{self.fingerprint}:{self.job}")
        lines = [
            f"mapping_set_id: https://w3id.org/sssom/mappings/{set_id}",
            f"license: {_LICENSE}",
            "mapping_tool: sapbert",
            f'mapping_tool_version: "{__version__}"',
            *(
                f"comment: object_label is in {code} if there is such a name"
                for code in [self.language]
                if code
            ),
            "curie_map:",
            f'  {_SOURCE}: "urn:sapbert:index:"',
            # Bioregistry resolves the prefixes of all vocabularies, or lets users register them.
            *(f'  "{prefix}": "https://bioregistry.io/{prefix}:"' for prefix in self.prefixes),
        ]
        return "".join(f"# {line}\n" for line in lines) + csv_text([_COLUMNS], delimiter="\t")

    def rows(self, batch: Sequence[LinkedMention]) -> str:
        """Return one line per candidate; none for an empty mention, which has no label."""
        return csv_text(
            (record for linked in batch if tidy(linked.mention) for record in self._records(linked)),
            delimiter="\t",
        )

    def _records(self, linked: LinkedMention) -> Iterator[tuple[object, ...]]:
        label = tidy(linked.mention)
        source = f"{_SOURCE}:{self.fingerprint}"
        if not linked.candidates:
            justification = "semapv:SemanticSimilarityThresholdMatching"
            yield (label, "rdfs literal", "skos:exactMatch", _NO_TERM, "", justification, source, *[""] * 5)
        for candidate in linked.candidates:
            yield (label, "rdfs literal", *self._object(candidate, source))

    def _object(self, candidate: Candidate, source: str) -> tuple[object, ...]:
        return (
            _PREDICATES.get(candidate.matched_by, "skos:closeMatch"),
            candidate.concept_id,
            candidate.preferred_name,
            _JUSTIFICATIONS[candidate.matched_by],
            source,
            "" if candidate.confidence is None else candidate.confidence,
            # SSSOM requires a similarity between 0 and 1.
            min(max(candidate.score, 0.0), 1.0),
            "cosine",
            candidate.matched_name,
            # SSSOM has no slot for the kind of a name.
            candidate.name_kind and f"name_kind: {candidate.name_kind}",
        )
