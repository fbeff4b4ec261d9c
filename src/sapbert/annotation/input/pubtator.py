"""Read PubTator: titles and abstracts with annotated mentions.

A document is `PMID|t|title`, `PMID|a|abstract` and one tab-separated line per mention: PMID, start, end,
text, type, ids and, in BC5CDR, the parts of a composite mention. Offsets count title and abstract with one
character between them. A line with four fields is a relation between ids, not a mention.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from sapbert.errors import FormatError
from sapbert.text import tidy
from sapbert.vocab.input_files import InputFile, InputReader

_TEXT = re.compile(r"(?P<id>[^|\t]+)\|(?P<section>[ta])\|(?P<text>.*)")
_RELATION, _MENTION = 4, (6, 7)
_SENTENCE_END = re.compile(r"[.!?]\s+(?=[A-Z0-9(\[])")


@dataclass(frozen=True, slots=True)
class Annotation:
    """One annotated mention in a document."""

    start: int
    end: int
    text: str
    type: str
    ids: str
    parts: str = ""
    """Names of the parts of a composite mention, joined by `|`; empty if the annotators did not give them."""


@dataclass(frozen=True, slots=True)
class Document:
    """A title, an abstract and their annotations."""

    id: str
    title: str = ""
    abstract: str = ""
    annotations: list[Annotation] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Title and abstract, with the character between them that offsets count."""
        return f"{self.title} {self.abstract}" if self.abstract else self.title

    def sentence_of(self, annotation: Annotation) -> str:
        """Return the sentence around a mention, found by a simple rule; the title is one sentence."""
        if annotation.start < len(self.title):
            return tidy(self.title)
        start, end = (offset - len(self.title) - 1 for offset in (annotation.start, annotation.end))
        ends = [match.end() for match in _SENTENCE_END.finditer(self.abstract)]
        first = max((offset for offset in ends if offset <= start), default=0)
        last = min((offset for offset in ends if offset >= end), default=len(self.abstract))
        return tidy(self.abstract[first:last])


def read_pubtator(source: InputFile, inputs: InputReader) -> Iterator[Document]:
    """Yield the documents of a PubTator file."""
    texts: dict[str, str] = {}
    annotations: list[Annotation] = []
    current = ""
    with inputs.stream(source) as stream:
        for number, raw in enumerate(stream, 1):
            line = _decoded(raw, source, number)
            section = _TEXT.match(line)
            if (section and section["id"] != current) or not line.strip():
                if texts:
                    yield Document(current, texts.get("t", ""), texts.get("a", ""), annotations)
                texts, annotations = {}, []
            if section:
                current, texts[section["section"]] = section["id"], section["text"]
            elif line.strip() and (annotation := _annotation(line, current, source, number)):
                annotations.append(annotation)
    if texts:
        yield Document(current, texts.get("t", ""), texts.get("a", ""), annotations)


def _decoded(raw: bytes, source: InputFile, number: int) -> str:
    try:
        return raw.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise FormatError(source.name, number, "is not UTF-8", hint="convert the file") from error


def _annotation(line: str, document: str, source: InputFile, number: int) -> Annotation | None:
    fields = line.split("\t")
    if len(fields) == _RELATION:
        return None
    if len(fields) not in _MENTION or fields[0] != document:
        problem = f"not an annotation of document {document or '(none yet)'}: {line[:60]!r}"
        hint = "expected tab-separated PMID, start, end, text, type, ids"
        raise FormatError(source.name, number, problem, hint=hint)
    try:
        return Annotation(int(fields[1]), int(fields[2]), *fields[3:])
    except ValueError as error:
        problem = f"{fields[1][:20]!r} and {fields[2][:20]!r} are not offsets"
        raise FormatError(source.name, number, problem) from error
