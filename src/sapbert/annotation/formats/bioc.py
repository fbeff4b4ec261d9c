"""Annotations as BioC collections, XML or JSON.

A document without passages becomes one passage. An annotation belongs to the passage that contains its start.
XML cannot contain control characters; each is replaced by U+FFFD, so offsets do not change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from sapbert.annotation.annotation import Annotation
from sapbert.annotation.context.rules import KINDS
from sapbert.annotation.formats.annotated_document import AnnotatedDocument
from sapbert.annotation.input.document import Passage

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SOURCE, _KEY = "sapbert", "sapbert.key"


@dataclass(frozen=True, slots=True)
class BiocXmlFormat:
    """BioC XML; implements `TextFormat`."""

    def header(self) -> str:
        """Return the start of the collection."""
        start = (
            '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE collection SYSTEM "BioC.dtd">\n<collection>'
        )
        return f"{start}<source>{_SOURCE}</source><date></date><key>{_KEY}</key>\n"

    def rows(self, batch: Sequence[AnnotatedDocument]) -> str:
        """Return the documents."""
        return "".join(map(_xml_document, batch))

    def footer(self) -> str:
        """Return the end of the collection."""
        return "</collection>\n"


@dataclass(frozen=True, slots=True)
class BiocJsonFormat:
    """BioC JSON; implements `TextFormat`."""

    def header(self) -> str:
        """Return the start of the collection."""
        head = json.dumps({"source": _SOURCE, "date": "", "key": _KEY, "infons": {}})
        return head[:-1] + ', "documents": ['

    def rows(self, batch: Sequence[AnnotatedDocument]) -> str:
        """Return the documents, one per line."""
        return "".join(
            ("," if item.number > 1 else "") + "\n" + json.dumps(_document(item), ensure_ascii=False)
            for item in batch
        )

    def footer(self) -> str:
        """Return the end of the collection."""
        return "\n]}\n"


def _document(item: AnnotatedDocument) -> dict[str, Any]:
    text = item.document.text
    passages = item.document.passages or (Passage("", 0, len(text)),)
    rows = []
    for number, passage in enumerate(passages):
        end = passages[number + 1].start if number + 1 < len(passages) else len(text) + 1
        start = 0 if number == 0 else passage.start
        rows.append(
            {
                "offset": passage.start,
                "infons": {"type": passage.kind} if passage.kind else {},
                "text": text[passage.start : passage.end],
                "sentences": [],
                "annotations": [
                    _annotation(place, one)
                    for place, one in enumerate(item.annotations, 1)
                    if start <= one.start < end
                ],
                "relations": [],
            }
        )
    return {"id": item.document.id, "infons": {}, "passages": rows, "relations": []}


def _annotation(number: int, one: Annotation) -> dict[str, Any]:
    context = {trigger.kind: trigger.phrase for trigger in one.context}
    return {
        "id": str(number),
        "infons": {
            "type": ",".join(one.types) or "Concept",
            "identifier": one.concept_id,
            "preferred_name": one.preferred_name,
            "confidence": str(one.confidence),
            **{kind: context[kind] for kind in KINDS if kind in context},
        },
        "text": one.mention,
        "locations": [{"offset": one.start, "length": one.end - one.start}],
    }


def _xml_document(item: AnnotatedDocument) -> str:
    document = _document(item)
    passages = "".join(
        f"<passage>{_infons(passage['infons'])}<offset>{passage['offset']}</offset>"
        f"<text>{_xml(passage['text'])}</text>"
        f"{''.join(map(_xml_annotation, passage['annotations']))}</passage>"
        for passage in document["passages"]
    )
    return f"<document><id>{_xml(document['id'])}</id>{passages}</document>\n"


def _xml_annotation(row: dict[str, Any]) -> str:
    [location] = row["locations"]
    return (
        f"<annotation id={quoteattr(row['id'])}>{_infons(row['infons'])}"
        f'<location offset="{location["offset"]}" length="{location["length"]}"/>'
        f"<text>{_xml(row['text'])}</text></annotation>"
    )


def _infons(values: dict[str, str]) -> str:
    return "".join(f"<infon key={quoteattr(key)}>{_xml(value)}</infon>" for key, value in values.items())


def _xml(text: str) -> str:
    # A parser would turn a bare carriage return into a line end, and offsets would differ.
    return escape(_NOT_XML.sub("\ufffd", text), {"\r": "&#13;"})
