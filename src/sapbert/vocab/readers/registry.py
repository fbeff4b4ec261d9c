"""The kinds of vocabulary that can be read, and the one function that reads them.

A new kind is a module in this folder, a settings dataclass in `settings`, and a line in `READERS`.
"""

from __future__ import annotations

from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, get_args

from sapbert.errors import ConfigError, suggestion
from sapbert.progress import Progress, no_progress
from sapbert.vocab.input_files import InputReader
from sapbert.vocab.readers.settings import (
    MeshSettings,
    OboSettings,
    OmopSettings,
    RrfSettings,
    SnomedSettings,
    TableSettings,
)
from sapbert.vocab.settings import OnError
from sapbert.vocab.vocabulary import Vocabulary
from sapbert.vocab.writer import write_vocabulary

ReaderSettings = RrfSettings | OboSettings | SnomedSettings | MeshSettings | OmopSettings | TableSettings


class Reader(NamedTuple):
    """Where the function of a kind is, and its settings."""

    module: str
    function: str
    """Takes the path, a `VocabularyWriter`, an `InputReader` and the settings."""
    settings: type[Any]


READERS = {
    "umls": Reader("rrf", "read_umls", RrfSettings),
    "rxnorm": Reader("rrf", "read_rxnorm", RrfSettings),
    "obo": Reader("obo", "read_obo", OboSettings),
    "snomed": Reader("rf2", "read_snomed", SnomedSettings),
    "mesh": Reader("mesh", "read_mesh", MeshSettings),
    "omop": Reader("omop", "read_omop", OmopSettings),
    "table": Reader("tabular", "read_table", TableSettings),
}


def read_vocabulary(
    kind: str,
    path: Path,
    target: Path,
    settings: ReaderSettings | None = None,
    *,
    on_error: OnError = "stop",
    overwrite: bool = False,
    progress: Progress = no_progress,
) -> Vocabulary:
    """Read a vocabulary of a kind in `READERS` from `path`, write it to `target` and open it."""
    if kind not in READERS:
        hint = suggestion(kind, READERS) or f"; known kinds: {', '.join(READERS)}"
        raise ConfigError(f"unknown kind of vocabulary {kind!r}{hint}")
    if on_error not in get_args(OnError):
        raise ConfigError(f"on_error is {' or '.join(get_args(OnError))}, got {on_error!r}")
    reader = READERS[kind]
    if settings is None:
        settings = reader.settings()
    if not isinstance(settings, reader.settings):
        raise TypeError(f"{kind} is read with {reader.settings.__name__}, got {type(settings).__name__}")
    read = getattr(import_module(f"sapbert.vocab.readers.{reader.module}"), reader.function)
    inputs = InputReader(on_error=on_error, progress=progress)
    with write_vocabulary(target, {"kind": kind, **asdict(settings)}, inputs, overwrite=overwrite) as writer:
        read(path, writer, inputs, settings)
    return Vocabulary.open(target, verify=False)
