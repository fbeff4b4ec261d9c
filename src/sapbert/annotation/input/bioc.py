"""Read the texts of BioC collections, XML or JSON.

A document is a list of passages (or of sentences) with offsets. Its text is put together so that the offsets
of the file are valid: a gap between two passages is filled with spaces. Offsets that would overlap are an
error, because annotations could not refer to them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from xml.etree import ElementTree as ET

from sapbert.annotation.input.document import Document, Passage
from sapbert.errors import FormatError
from sapbert.vocab.input_files import InputFile, InputReader

_MAX_GAP = 100_000
"""Longest gap between two passages that is filled with spaces; a longer one is a damaged offset."""


def read_bioc(source: InputFile, inputs: InputReader) -> Iterator[Document]:
    """Yield the documents of a BioC collection; XML is read as a stream."""
    if source.name.lower().removesuffix(".gz").endswith(".json"):
        return _read_json(source, inputs)
    return _read_xml(source, inputs)


def _read_json(source: InputFile, inputs: InputReader) -> Iterator[Document]:
    with inputs.stream(source) as stream:
        content = stream.read()
    try:
        collection = json.loads(content)
        documents = collection["documents"]
        for document in documents:
            passages = document["passages"]
            yield _document(str(document["id"]), (_json_passages(passages)), source)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problem = f"not a BioC collection: {type(error).__name__} {error}"
        raise FormatError(
            source.name, None, problem[:300], hint="expected documents with passages"
        ) from error


def _json_passages(passages: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, int, str]]:
    for passage in passages:
        kind = str((passage.get("infons") or {}).get("type", ""))
        parts = [passage] if passage.get("text") is not None else passage.get("sentences", [])
        for part in parts:
            yield kind, int(part["offset"]), str(part["text"])


def _read_xml(source: InputFile, inputs: InputReader) -> Iterator[Document]:
    with inputs.stream(source) as stream:
        try:
            for _, element in ET.iterparse(stream):  # noqa: S314  # expat limits entity expansion
                if element.tag == "document":
                    yield _document(element.findtext("id", ""), _xml_passages(element), source)
                    element.clear()
        except (ET.ParseError, ValueError) as error:
            raise FormatError(source.name, None, f"not BioC XML: {error}") from error


def _xml_passages(document: ET.Element) -> Iterator[tuple[str, int, str]]:
    for passage in document.iterfind("passage"):
        kind = next((one.text or "" for one in passage.iterfind("infon") if one.get("key") == "type"), "")
        parts = [passage] if passage.find("text") is not None else list(passage.iterfind("sentence"))
        for part in parts:
            yield kind, int(part.findtext("offset", "")), part.findtext("text", "")


def _document(id: str, parts: Iterable[tuple[str, int, str]], source: InputFile) -> Document:
    text, passages = "", []
    for kind, offset, content in parts:
        gap = offset - len(text)
        if not 0 <= gap <= _MAX_GAP:
            problem = (
                f"document {id}: a passage begins at {offset}, but the text before it ends at {len(text)}"
            )
            raise FormatError(source.name, None, problem, hint="are the offsets bytes instead of characters?")
        text += " " * gap + content
        passages.append(Passage(kind, offset, len(text)))
    return Document(id, text, {"text": text}, tuple(passages))
