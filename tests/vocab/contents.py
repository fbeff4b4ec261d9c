"""Content that a reader passes to the writer."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from sapbert.vocab import writer as module
from sapbert.vocab.input_files import InputReader
from sapbert.vocab.schema import OPTIONAL_COLUMNS
from sapbert.vocab.vocabulary import Vocabulary
from sapbert.vocab.writer import SPOOL, VocabularyWriter, write_vocabulary

NameRow = tuple[str, str, int, str, str, str]
FactRow = tuple[str, ...]
_COLUMNS = {name: dtype for name, dtype in SPOOL.items() if name not in OPTIONAL_COLUMNS}


@dataclass
class Content:
    """Names and facts that a reader adds, in order."""

    names: list[NameRow]
    late: list[NameRow] = field(default_factory=list)
    types: list[FactRow] = field(default_factory=list)
    xrefs: list[FactRow] = field(default_factory=list)
    aliases: list[FactRow] = field(default_factory=list)
    parents: list[FactRow] = field(default_factory=list)
    definitions: list[FactRow] = field(default_factory=list)

    def facts(self) -> dict[str, list[FactRow]]:
        return {table: getattr(self, table) for table in module.FACTS}


def name_frame(rows: list[NameRow]) -> pl.DataFrame:
    return pl.DataFrame(rows, _COLUMNS, orient="row")


def add(writer: VocabularyWriter, content: Content) -> None:
    writer.add(name_frame(content.names))
    writer.add_late(name_frame(content.late))
    for table, rows in content.facts().items():
        writer.add_facts(table, pl.DataFrame(rows, module.FACTS[table], orient="row"))


def write(target: Path, *contents: Content) -> Vocabulary:
    """Write contents in several pieces and open the vocabulary."""
    with write_vocabulary(target, {}, InputReader()) as writer:
        for content in contents:
            add(writer, content)
    return Vocabulary.open(target)


EXAMPLE = Content(
    names=[
        ("ex:2", "Glimmer  fever\n", 1, "en", "A", "exact"),
        ("ex:1", "Moon cough", 0, "en", "A", "related"),
        ("ex:1", "Lunar cough", 2, "en", "B", "exact"),
        ("ex:1", "Mondhusten", 1, "de", "B", "exact"),
        ("ex:2", "Glimmer fever", 0, "en", "A", "broad"),
    ],
    late=[("ex:1", "Lunacof", 0, "en", "C", "related"), ("ex:9", "Nobody's name", 9, "en", "C", "exact")],
    types=[("ex:2", "T047"), ("ex:1", "T184"), ("ex:2", "T047"), ("ex:9", "T047")],
    xrefs=[("ex:1", "mesh:D1")],
    aliases=[("ex:2", "old:7"), ("ex:8", "old:8")],
)
