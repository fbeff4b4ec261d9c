"""Links as the CSV file of mappings under review that Usagi reads.

Usagi makes every concept in the file a target of its source code, so only the best candidate is written as a
concept. The others are listed in `sourceAutoAssignedConceptIds`, from which Usagi suggests them. Usagi uses
OMOP concept numbers, so the index must be built from an OMOP vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sapbert.errors import ConfigError
from sapbert.linking.candidate import Candidate
from sapbert.linking.formats.linked_mention import LinkedMention, input_values, to_text
from sapbert.linking.formats.text import csv_text

_PREFIX = "omop:"
_USAGI_COLUMNS = ("sourceCode", "sourceFrequency")
"""Input columns with a meaning in Usagi; all others become additional information."""
_BEFORE = ("sourceCode", "sourceName", "sourceFrequency", "sourceAutoAssignedConceptIds")
_AFTER = (
    "matchScore", "mappingStatus", "equivalence", "statusSetBy", "statusSetOn", "conceptId", "conceptName",
    "domainId", "mappingType", "comment", "createdBy", "createdOn", "assignedReviewer",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class UsagiFormat:
    """One row per mention, unreviewed; implements `TextFormat`."""

    columns: tuple[str, ...]
    """Columns of the input."""
    column: str
    """Column with the mention."""
    prefixes: tuple[str, ...]
    """Prefixes of the concepts that can be found."""

    def __post_init__(self) -> None:
        if self.prefixes != (_PREFIX.rstrip(":"),):
            raise ConfigError(
                f"Usagi needs OMOP concepts, but the index has the prefixes {', '.join(self.prefixes)}; "
                "index a vocabulary written by `sapbert read omop`"
            )

    def header(self) -> str:
        """Return the column names."""
        extra = [f"ADD_INFO:{column}" for column in self._extra_columns()]
        return csv_text([[*_BEFORE, *extra, *_AFTER]])

    def rows(self, batch: Sequence[LinkedMention]) -> str:
        """Return one line per mention."""
        return csv_text(self._record(linked) for linked in batch)

    def _extra_columns(self) -> list[str]:
        return [column for column in self.columns if column not in (*_USAGI_COLUMNS, self.column)]

    def _record(self, linked: LinkedMention) -> list[object]:
        row = dict(zip(self.columns, input_values(linked, self.columns), strict=True))
        suggested = ";".join(_number(candidate) for candidate in linked.candidates)
        best = linked.candidates[0] if linked.candidates else None
        return [
            to_text(row.get("sourceCode")) or linked.number,
            linked.mention,
            to_text(row.get("sourceFrequency")) or 0,
            suggested,
            *(to_text(row[column]) for column in self._extra_columns()),
            f"{best.score if best else 0:.2f}",
            "UNCHECKED",
            "UNREVIEWED",
            "",
            0,
            _number(best) if best else 0,
            best.preferred_name if best else "Unmapped",
            "",
            "MAPS_TO",
            f"{best.matched_by}: {best.matched_name}" if best else "",
            "sapbert",
            0,
            "",
        ]


def _number(candidate: Candidate) -> str:
    return candidate.concept_id.removeprefix(_PREFIX)
