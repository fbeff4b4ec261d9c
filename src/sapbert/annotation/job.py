"""Annotate documents in batches, to a stream or to a file in a job that can be resumed (`linking.job`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from sapbert.annotation.annotator import BATCH, Annotator
from sapbert.annotation.formats.annotated_document import AnnotatedDocument
from sapbert.annotation.input.document import Document
from sapbert.linking.formats.writer import BatchWriter
from sapbert.linking.job import run_job


def annotate_batches(
    documents: Iterator[Document], annotator: Annotator, *, before: int = 0
) -> Iterator[list[AnnotatedDocument]]:
    """Annotate documents in batches; `before` is the number of documents already annotated."""
    while batch := list(islice(documents, BATCH)):
        annotated = annotator.annotate([document.text for document in batch])
        yield [
            AnnotatedDocument(number, document, result.annotations)
            for number, (document, result) in enumerate(zip(batch, annotated, strict=True), before + 1)
        ]
        before += len(batch)


def annotate_to_file(
    documents: Iterator[Document],
    annotator: Annotator,
    writer: BatchWriter[AnnotatedDocument],
    target: Path,
    job: Mapping[str, Any],
    *,
    resume: bool = False,
    overwrite: bool = False,
    on_done: Callable[[int], None] = lambda _done: None,
) -> int:
    """Annotate all documents, write them to `target` and return their number.

    `job` contains the settings as JSON values; a job can only be resumed with equal settings.
    """
    return run_job(
        documents,
        lambda rows, before: annotate_batches(rows, annotator, before=before),
        writer,
        target,
        job,
        resume=resume,
        overwrite=overwrite,
        on_done=on_done,
    )
