"""Read benchmarks that mark mentions inside documents: PubTator, and BigBIO's JSON.

A PubTator document is `PMID|t|title`, `PMID|a|abstract` and a line a mention, by tabs: PMID, start, end,
text, type, ids and, in BC5CDR, the parts of a composite. Offsets run over title and abstract with a character
between. Four fields are a relation between ids, and no mention.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from sapbert.errors import FormatError
from sapbert.evaluation.benchmarks.dataset import mention_table
from sapbert.evaluation.benchmarks.mention_lists import SPLITS, BenchmarkContents, concat_by_split
from sapbert.text import tidy
from sapbert.vocab.input_files import InputFile, InputReader, Release

_TEXT = re.compile(r"(?P<id>[^|\t]+)\|(?P<section>[ta])\|(?P<text>.*)")
PUBTATOR = r".*(pubtator|set_corpus).*\.txt"
"""Names of PubTator files."""
_RELATION, _MENTION = 4, (6, 7)
_SENTENCE_END = re.compile(r"[.!?]\s+(?=[A-Z0-9(\[])")


@dataclass(frozen=True, slots=True)
class Annotation:
    """One mention as it stands in a document."""

    start: int
    end: int
    text: str
    type: str
    ids: str
    parts: str = ""
    """Names of the parts of a composite, joined by `|`, where the annotators wrote them out."""


@dataclass(frozen=True, slots=True)
class Document:
    """A title, an abstract and their mentions."""

    id: str
    title: str = ""
    abstract: str = ""
    annotations: list[Annotation] = field(default_factory=list)

    def sentence_of(self, found: Annotation) -> str:
        """Return the sentence around a mention, by a plain rule; the title is one."""
        if found.start < len(self.title):
            return tidy(self.title)
        start, end = (offset - len(self.title) - 1 for offset in (found.start, found.end))
        ends = [match.end() for match in _SENTENCE_END.finditer(self.abstract)]
        first = max((at for at in ends if at <= start), default=0)
        last = min((at for at in ends if at >= end), default=len(self.abstract))
        return tidy(self.abstract[first:last])


def read_pubtator(source: InputFile, inputs: InputReader) -> Iterator[Document]:
    """Yield the documents of a PubTator file."""
    texts: dict[str, str] = {}
    annotations: list[Annotation] = []
    current = ""
    with inputs.stream(source) as stream:
        for number, raw in enumerate(stream, 1):
            line = _decoded(raw, source, number)
            found = _TEXT.match(line)
            if (found and found["id"] != current) or not line.strip():
                if texts:
                    yield Document(current, texts.get("t", ""), texts.get("a", ""), annotations)
                texts, annotations = {}, []
            if found:
                current, texts[found["section"]] = found["id"], found["text"]
            elif line.strip() and (annotation := _annotation(line, current, source, number)):
                annotations.append(annotation)
    if texts:
        yield Document(current, texts.get("t", ""), texts.get("a", ""), annotations)


def read_medmentions(release: Release, inputs: InputReader, prefix: str | None) -> BenchmarkContents:
    """Read a PubTator corpus whose splits are lists of documents (`…pmids_trng.txt`), as MedMentions is."""
    corpus = release.find(r"corpus_pubtator(?!_pmids).*\.txt")
    if corpus is None:
        raise FormatError(release.path, None, "no corpus_pubtator.txt beside the lists of documents")
    split_of: dict[str, str] = {}
    for source in release.find_all(r"corpus_pubtator_pmids_(trng|dev|test)\.txt"):
        split = SPLITS[re.sub(r".*_(\w+)\.txt", r"\1", source.name)]
        with inputs.stream(source) as stream:
            split_of.update((raw.decode("utf-8", "replace").strip(), split) for raw in stream)
    rows: dict[str, list[dict[str, str]]] = {}
    for document in read_pubtator(corpus, inputs):
        rows.setdefault(split_of.get(document.id, "test"), []).extend(_pubtator_mentions(document))
    return BenchmarkContents(_tables(rows, prefix))


def read_pubtator_files(release: Release, inputs: InputReader, prefix: str | None) -> BenchmarkContents:
    """Read PubTator files of a split each, as of NCBI and BC5CDR: mentions as they are written, NIL ones too.

    What the papers measure is made of these by `protocol`.
    """
    rows: dict[str, list[dict[str, str]]] = {}
    for source in release.find_all(PUBTATOR):
        own = rows.setdefault(split_from_name(source.name) or "test", [])
        for document in read_pubtator(source, inputs):
            own.extend(_pubtator_mentions(document))
    return BenchmarkContents(_tables(rows, prefix))


def split_from_name(name: str) -> str | None:
    """The split that a file name tells: NCBItrainset_corpus.txt, CDR_DevelopmentSet.PubTator.txt."""
    return next((split for split in ("train", "dev", "test") if split in name.lower()), None)


def read_bigbio(release: Release, inputs: InputReader, prefix: str | None) -> BenchmarkContents:
    """Read BigBIO's kb schema: a JSON list of documents a split, or one document a line."""
    rows: dict[str, list[dict[str, str]]] = {}
    for source in release.find_all(r".*\.jsonl?"):
        split = next((SPLITS[word] for word in re.split(r"\W|_", source.name) if word in SPLITS), "test")
        own = rows.setdefault(split, [])
        for document in _json_documents(source, inputs):
            try:
                own.extend(_bigbio_mentions(document))
            except (KeyError, TypeError, AttributeError) as error:
                found = f"document {document.get('id', '?')!r} is not of BigBIO's kb schema: {error!r}"
                raise FormatError(source.name, None, found[:300]) from error
    return BenchmarkContents(_tables(rows, prefix))


def _decoded(raw: bytes, source: InputFile, number: int) -> str:
    try:
        return raw.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise FormatError(source.name, number, "is not UTF-8", hint="convert the file") from error


def _pubtator_mentions(document: Document) -> Iterator[dict[str, str]]:
    for found in document.annotations:
        yield {
            "document": document.id,
            "type": found.type,
            "mention": found.text,
            "ids": found.ids,
            "context": document.sentence_of(found),
        }


def _annotation(line: str, document: str, source: InputFile, number: int) -> Annotation | None:
    fields = line.split("\t")
    if len(fields) == _RELATION:
        return None
    if len(fields) not in _MENTION or fields[0] != document:
        found = f"no line of document {document or '(none yet)'}: {line[:60]!r}"
        raise FormatError(source.name, number, found, hint="PMID, start, end, text, type, ids by tabs")
    try:
        return Annotation(int(fields[1]), int(fields[2]), *fields[3:])
    except ValueError as error:
        found = f"{fields[1][:20]!r} and {fields[2][:20]!r} are no offsets"
        raise FormatError(source.name, number, found) from error


def _json_documents(source: InputFile, inputs: InputReader) -> Iterator[dict[str, Any]]:
    with inputs.stream(source) as stream:
        content = stream.read()
    try:
        found = json.loads(content) if content.lstrip()[:1] == b"[" else _json_lines(content)
        for document in found:
            if not isinstance(document, dict):
                raise TypeError(f"a {type(document).__name__} instead of a document")
            yield document
    except (ValueError, TypeError, RecursionError) as error:
        raise FormatError(source.name, None, f"no JSON documents: {error}") from error


def _json_lines(content: bytes) -> Iterable[Any]:
    return (json.loads(line) for line in content.splitlines() if line.strip())


def _bigbio_mentions(document: dict[str, Any]) -> Iterator[dict[str, str]]:
    """The mentions of a document; the pieces of a discontinuous one are joined by spaces."""
    for found in document["entities"]:
        ids = (f"{link['db_name']}:{link['db_id']}" for link in found["normalized"])
        yield {
            "document": str(document.get("document_id", document["id"])),
            "type": str(found["type"]),
            "mention": " ".join(found["text"]),
            "ids": "|".join(ids),
        }


def _tables(rows: dict[str, list[dict[str, str]]], prefix: str | None) -> dict[str, pl.DataFrame]:
    schema = dict.fromkeys(("document", "type", "mention", "ids", "context"), pl.String)
    return concat_by_split(
        (split, mention_table(pl.DataFrame(own, schema=schema).to_dict(), prefix=prefix))
        for split, own in rows.items()
    )
