"""Links as the CSV in which Usagi keeps mappings under review.

Every concept that Usagi reads for a source code becomes a target of it, so only the best candidate is one;
the others stand in `sourceAutoAssignedConceptIds`, where Usagi offers them. Usagi knows concepts by their
OMOP number, so the index must be made from an OMOP vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sapbert.errors import ConfigError
from sapbert.linking.candidate import Candidate
from sapbert.linking.formats.rows import Linked, csv_text, plain, row_values

_PREFIX = "omop:"
_KNOWN = ("sourceCode", "sourceFrequency")
"""Columns that an input may have under Usagi's names; all others become additional information."""
_BEFORE = ("sourceCode", "sourceName", "sourceFrequency", "sourceAutoAssignedConceptIds")
_AFTER = (
    "matchScore", "mappingStatus", "equivalence", "statusSetBy", "statusSetOn", "conceptId", "conceptName",
    "domainId", "mappingType", "comment", "createdBy", "createdOn", "assignedReviewer",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class UsagiFormat:
    """One row a mention, not yet reviewed."""

    columns: tuple[str, ...]
    """Of the input."""
    column: str
    """That of the mention."""
    prefixes: tuple[str, ...]
    """Of the concepts that may be found."""

    def __post_init__(self) -> None:
        if self.prefixes != (_PREFIX.rstrip(":"),):
            found = ", ".join(self.prefixes)
            hint = "index what `sapbert read omop` wrote"
            raise ConfigError(f"Usagi knows concepts by OMOP number, but here are {found}; {hint}")

    def head(self) -> str:
        """Return the header."""
        extra = [f"ADD_INFO:{column}" for column in self._extra()]
        return csv_text([[*_BEFORE, *extra, *_AFTER]])

    def body(self, batch: Sequence[Linked]) -> str:
        """Return the rows of some mentions."""
        return csv_text(self._record(linked) for linked in batch)

    def _extra(self) -> list[str]:
        return [column for column in self.columns if column not in (*_KNOWN, self.column)]

    def _record(self, linked: Linked) -> list[object]:
        row = dict(zip(self.columns, row_values(linked, self.columns), strict=True))
        offered = ";".join(_number(found) for found in linked.candidates)
        best = linked.candidates[0] if linked.candidates else None
        return [
            plain(row.get("sourceCode")) or linked.number,
            linked.mention,
            plain(row.get("sourceFrequency")) or 0,
            offered,
            *(plain(row[column]) for column in self._extra()),
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


def _number(found: Candidate) -> str:
    return found.concept_id.removeprefix(_PREFIX)
