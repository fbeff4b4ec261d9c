"""Tables to read."""

from __future__ import annotations

from pathlib import Path

from sapbert.vocab.readers.settings import TableSettings
from sapbert.vocab.readers.tabular import read_table
from sapbert.vocab.vocabulary import Vocabulary
from tests.conftest import GOLDEN, Read

FOLDER = GOLDEN / "table"


def table(read: Read, path: Path, settings: TableSettings | None = None) -> Vocabulary:
    return read(lambda writer, inputs: read_table(path, writer, inputs, settings or TableSettings()))


def skipping(read: Read, path: Path, settings: TableSettings | None = None) -> Vocabulary:
    return read(
        lambda writer, inputs: read_table(path, writer, inputs, settings or TableSettings()), on_error="skip"
    )


def names_of(vocabulary: Vocabulary, id: str) -> list[str]:
    concept = vocabulary.concept(id)
    assert concept is not None
    return [concept.preferred_name, *sorted(name.text for name in concept.names[1:])]


def rows_of(vocabulary: Vocabulary) -> list[tuple[object, ...]]:
    return sorted(
        vocabulary.names.select("concept_id", "name", "preferred", "language", "source").collect().rows()
    )


def written(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path
