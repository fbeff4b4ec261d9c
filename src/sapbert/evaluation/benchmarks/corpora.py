"""Read benchmarks that annotate mentions in documents: PubTator and BigBIO's JSON.

A PubTator document is `PMID|t|title`, `PMID|a|abstract` and one tab-separated line per mention: PMID, start,
end, text, type, ids and, in BC5CDR, the parts of a composite mention. Offsets count title and abstract with
one character between them. A line with four fields is a relation between ids, not a mention.
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
"""Pattern of the names of PubTator files."""
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


def read_medmentions(release: Release, inputs: InputReader, prefix: str | None) -> BenchmarkContents:
    """Read MedMentions: one PubTator corpus, whose splits are lists of document ids (`…pmids_trng.txt`)."""
    corpus = release.find(r"corpus_pubtator(?!_pmids).*\.txt")
    if corpus is None:
        raise FormatError(release.path, None, "lists of document ids without corpus_pubtator.txt")
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
    """Read one PubTator file per split, such as NCBI and BC5CDR: mentions as written, including NIL mentions.

    The benchmarks in papers are derived from these by `biosyn_protocol`.
    """
    rows: dict[str, list[dict[str, str]]] = {}
    for source in release.find_all(PUBTATOR):
        split_rows = rows.setdefault(split_from_name(source.name) or "test", [])
        for document in read_pubtator(source, inputs):
            split_rows.extend(_pubtator_mentions(document))
    return BenchmarkContents(_tables(rows, prefix))


def split_from_name(name: str) -> str | None:
    """Return the split in a file name such as NCBItrainset_corpus.txt or CDR_DevelopmentSet.PubTator.txt."""
    return next((split for split in ("train", "dev", "test") if split in name.lower()), None)


def read_bigbio(release: Release, inputs: InputReader, prefix: str | None) -> BenchmarkContents:
    """Read BigBIO's kb schema: per split one JSON list of documents, or one document per line."""
    rows: dict[str, list[dict[str, str]]] = {}
    for source in release.find_all(r".*\.jsonl?"):
        split = next((SPLITS[word] for word in re.split(r"\W|_", source.name) if word in SPLITS), "test")
        split_rows = rows.setdefault(split, [])
        for document in _json_documents(source, inputs):
            try:
                split_rows.extend(_bigbio_mentions(document))
            except (KeyError, TypeError, AttributeError) as error:
                problem = f"document {document.get('id', '?')!r} is not in BigBIO's kb schema: {error!r}"
                raise FormatError(source.name, None, problem[:300]) from error
    return BenchmarkContents(_tables(rows, prefix))


def _decoded(raw: bytes, source: InputFile, number: int) -> str:
    try:
        return raw.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise FormatError(source.name, number, "is not UTF-8", hint="convert the file") from error


def _pubtator_mentions(document: Document) -> Iterator[dict[str, str]]:
    for annotation in document.annotations:
        yield {
            "document": document.id,
            "type": annotation.type,
            "mention": annotation.text,
            "ids": annotation.ids,
            "context": document.sentence_of(annotation),
        }


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


def _json_documents(source: InputFile, inputs: InputReader) -> Iterator[dict[str, Any]]:
    with inputs.stream(source) as stream:
        content = stream.read()
    try:
        documents = json.loads(content) if content.lstrip()[:1] == b"[" else _json_lines(content)
        for document in documents:
            if not isinstance(document, dict):
                raise TypeError(f"expected a document, found {type(document).__name__}")
            yield document
    except (ValueError, TypeError, RecursionError) as error:
        raise FormatError(source.name, None, f"not JSON documents: {error}") from error


def _json_lines(content: bytes) -> Iterable[Any]:
    return (json.loads(line) for line in content.splitlines() if line.strip())


def _bigbio_mentions(document: dict[str, Any]) -> Iterator[dict[str, str]]:
    """The mentions of a document; the pieces of a discontinuous mention are joined by spaces."""
    for entity in document["entities"]:
        ids = (f"{link['db_name']}:{link['db_id']}" for link in entity["normalized"])
        yield {
            "document": str(document.get("document_id", document["id"])),
            "type": str(entity["type"]),
            "mention": " ".join(entity["text"]),
            "ids": "|".join(ids),
        }


def _tables(rows: dict[str, list[dict[str, str]]], prefix: str | None) -> dict[str, pl.DataFrame]:
    schema = dict.fromkeys(("document", "type", "mention", "ids", "context"), pl.String)
    return concat_by_split(
        (split, mention_table(pl.DataFrame(split_rows, schema=schema).to_dict(), prefix=prefix))
        for split, split_rows in rows.items()
    )
