"""Read benchmarks that annotate mentions in documents: PubTator and BigBIO's JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import polars as pl

from sapbert.annotation.input.pubtator import Document, read_pubtator
from sapbert.errors import FormatError
from sapbert.evaluation.benchmarks.dataset import mention_table
from sapbert.evaluation.benchmarks.mention_lists import SPLITS, BenchmarkContents, concat_by_split
from sapbert.vocab.input_files import InputFile, InputReader, Release

PUBTATOR = r".*(pubtator|set_corpus).*\.txt"
"""Pattern of the names of PubTator files."""


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


def _pubtator_mentions(document: Document) -> Iterator[dict[str, str]]:
    for annotation in document.annotations:
        yield {
            "document": document.id,
            "type": annotation.type,
            "mention": annotation.text,
            "ids": annotation.ids,
            "context": document.sentence_of(annotation),
        }


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
