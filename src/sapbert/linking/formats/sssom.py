"""Links as SSSOM/TSV, the exchange format for mappings.

A mention is text and belongs to no vocabulary, so the subject is an `rdfs literal` with a label and no
identifier. What says that nothing was found is `sssom:NoTermFound`, whose `object_source` tells where it was
looked for: in an index, named by its fingerprint.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sapbert.linking.candidate import Candidate
from sapbert.linking.formats.rows import Linked, csv_text
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
)
_JUSTIFICATIONS = {
    "exact": "semapv:LexicalMatching",
    "dense": "semapv:SemanticSimilarityThresholdMatching",
    "hybrid": "semapv:CompositeMatching",
    "reranked": "semapv:CompositeMatching",
}
_NO_TERM = "sssom:NoTermFound"
_SOURCE = "sapbert.index"
_LICENSE = "https://w3id.org/sssom/license/unspecified"


@dataclass(frozen=True, slots=True)
class SssomFormat:
    """SSSOM/TSV 1.1."""

    prefixes: tuple[str, ...]
    """Of the concepts that may be found."""
    fingerprint: str
    """Of the index."""
    job: str
    """What was asked: equal for mappings made alike, and part of their identifier."""

    def head(self) -> str:
        """Return the metadata, and the header."""
        own_id = uuid.uuid5(uuid.NAMESPACE_URL, f"sapbert:{self.fingerprint}:{self.job}")
        lines = [
            f"mapping_set_id: urn:uuid:{own_id}",
            f"license: {_LICENSE}",
            "mapping_tool: sapbert",
            f'mapping_tool_version: "{__version__}"',
            "curie_map:",
            f'  {_SOURCE}: "urn:sapbert:index:"',
            # Every prefix of a vocabulary resolves there, or can be registered.
            *(f'  "{prefix}": "https://bioregistry.io/{prefix}:"' for prefix in self.prefixes),
        ]
        return "".join(f"# {line}\n" for line in lines) + csv_text([_COLUMNS], delimiter="\t")

    def body(self, batch: Sequence[Linked]) -> str:
        """Return the mappings of some mentions; an empty mention, having no label, has none."""
        return csv_text(
            (record for linked in batch if tidy(linked.mention) for record in self._records(linked)),
            delimiter="\t",
        )

    def _records(self, linked: Linked) -> Iterator[tuple[object, ...]]:
        label = tidy(linked.mention)
        source = f"{_SOURCE}:{self.fingerprint}"
        if not linked.candidates:
            manner = "semapv:SemanticSimilarityThresholdMatching"
            yield (label, "rdfs literal", "skos:exactMatch", _NO_TERM, "", manner, source, *[""] * 4)
        for found in linked.candidates:
            yield (label, "rdfs literal", *self._mapped(found, source))

    def _mapped(self, found: Candidate, source: str) -> tuple[object, ...]:
        return (
            "skos:exactMatch" if found.matched_by == "exact" else "skos:closeMatch",
            found.concept_id,
            found.preferred_name,
            _JUSTIFICATIONS[found.matched_by],
            source,
            "" if found.confidence is None else found.confidence,
            # A similarity lies between 0 and 1; opposite vectors are no more than unlike.
            min(max(found.score, 0.0), 1.0),
            "cosine",
            found.matched_name,
        )
