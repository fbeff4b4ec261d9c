"""Annotations for other systems, one record each: W3C Web Annotation, OMOP NOTE_NLP, FHIR Condition."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sapbert.annotation.annotation import Annotation
from sapbert.annotation.context.rules import KINDS
from sapbert.annotation.formats.annotated_document import AnnotatedDocument
from sapbert.linking.formats.text import csv_text
from sapbert.version import __version__

_AROUND = 32
"""Characters before and after a mention that identify its place."""
_SNIPPET = 50
_NOTE_NLP = (
    "note_nlp_id", "note_id", "section_concept_id", "snippet", "offset", "lexical_variant",
    "note_nlp_concept_id", "note_nlp_source_concept_id", "nlp_system", "nlp_date", "nlp_datetime",
    "term_exists", "term_temporal", "term_modifiers",
)  # fmt: skip
_OMOP = "omop:"


@dataclass(frozen=True, slots=True)
class WebAnnotationFormat:
    """W3C Web Annotation, one JSON-LD object per line; implements `TextFormat`."""

    def header(self) -> str:
        """Return an empty text."""
        return ""

    def rows(self, batch: Sequence[AnnotatedDocument]) -> str:
        """Return one line per annotation."""
        return _lines(_web_annotation(item, one) for item in batch for one in item.annotations)


@dataclass(frozen=True, slots=True)
class FhirFormat:
    """FHIR R4 Conditions as NDJSON, a skeleton to complete; implements `TextFormat`.

    A negated mention is `refuted`, a possible one `unconfirmed`. Mentions that are not about the patient now,
    that is hypothetical ones and those about the family, are left out.
    """

    def header(self) -> str:
        """Return an empty text."""
        return ""

    def rows(self, batch: Sequence[AnnotatedDocument]) -> str:
        """Return one line per annotation."""
        return _lines(
            _condition(item, number, one)
            for item in batch
            for number, one in enumerate(item.annotations, 1)
            if not (one.family or one.hypothetical)
        )


@dataclass(frozen=True, slots=True)
class NoteNlpFormat:
    """The OMOP table NOTE_NLP; concept numbers are those of an OMOP vocabulary, else 0. A `TextFormat`."""

    def header(self) -> str:
        """Return the column names."""
        return csv_text([_NOTE_NLP])

    def rows(self, batch: Sequence[AnnotatedDocument]) -> str:
        """Return one line per annotation."""
        now = datetime.now(UTC)
        return csv_text(
            _note_nlp(item, number, one, now)
            for item in batch
            for number, one in enumerate(item.annotations, 1)
        )


def _web_annotation(item: AnnotatedDocument, one: Annotation) -> dict[str, Any]:
    text = item.document.text
    return {
        "@context": "http://www.w3.org/ns/anno.jsonld",
        "id": f"urn:sapbert:{item.document.id}:{one.start}:{one.end}:{one.concept_id}",
        "type": "Annotation",
        "motivation": "identifying",
        "creator": {"type": "Software", "name": f"sapbert {__version__}"},
        "body": {
            "type": "SpecificResource",
            "purpose": "identifying",
            "source": f"https://bioregistry.io/{one.concept_id}",
            "label": one.preferred_name,
        },
        "target": {
            "source": f"urn:document:{item.document.id}",
            "selector": [
                {"type": "TextPositionSelector", "start": one.start, "end": one.end},
                {
                    "type": "TextQuoteSelector",
                    "exact": one.mention,
                    "prefix": text[max(0, one.start - _AROUND) : one.start],
                    "suffix": text[one.end : one.end + _AROUND],
                },
            ],
        },
    }


def _condition(item: AnnotatedDocument, number: int, one: Annotation) -> dict[str, Any]:
    status = "refuted" if one.negated else "unconfirmed" if one.possible else "provisional"
    prefix, _, code = one.concept_id.partition(":")
    condition: dict[str, Any] = {
        "resourceType": "Condition",
        "identifier": [{"system": "urn:sapbert:annotation", "value": f"{item.document.id}:{number}"}],
        "verificationStatus": _coding("http://terminology.hl7.org/CodeSystem/condition-ver-status", status),
        "code": {
            "coding": [
                {
                    "system": f"https://bioregistry.io/{prefix}",
                    "code": code,
                    "display": one.preferred_name,
                }
            ],
            "text": one.mention,
        },
        "subject": {"display": f"subject of document {item.document.id}"},
    }
    if one.historical:
        system = "http://terminology.hl7.org/CodeSystem/condition-clinical"
        condition["clinicalStatus"] = _coding(system, "inactive")
    return condition


def _coding(system: str, code: str) -> dict[str, Any]:
    return {"coding": [{"system": system, "code": code}]}


def _note_nlp(item: AnnotatedDocument, number: int, one: Annotation, now: datetime) -> tuple[object, ...]:
    text = item.document.text
    concept = one.concept_id.removeprefix(_OMOP) if one.concept_id.startswith(_OMOP) else 0
    exists = not (one.negated or one.possible or one.hypothetical or one.family)
    modifiers = [f"concept={one.concept_id}", *(f"{kind}=true" for kind in KINDS if one.has_context(kind))]
    return (
        f"{item.number}{number:06}",
        item.document.id,
        0,
        text[max(0, one.start - _SNIPPET) : one.end + _SNIPPET],
        one.start,
        one.mention,
        concept,
        0,
        f"sapbert {__version__}",
        now.date().isoformat(),
        now.isoformat(timespec="seconds"),
        "Y" if exists else "N",
        "Past" if one.historical else "Present",
        ",".join(modifiers),
    )


def _lines(objects: Any) -> str:
    return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in objects)
