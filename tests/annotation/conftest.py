"""An annotator of a small vocabulary, without an encoder model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sapbert.annotation.annotator import Annotator
from sapbert.annotation.settings import AnnotateSettings
from sapbert.index.lexicon.lexicon import Lexicon, write_lexicon
from sapbert.index.name_table_writer import write_name_table
from sapbert.linking.linker import Linker
from sapbert.linking.search import DenseSearch
from tests.index.conftest import NgramEncoder, write
from tests.linking.conftest import EveryRow

NAMES = {
    "mesh:D1": ("Breast Neoplasms", "Breast Cancer", "Cancer of Breast"),
    "mesh:D2": ("Neoplasms", "Cancer", "Tumor"),
    "mesh:D3": ("Fever", "Pyrexia"),
    "mesh:D4": ("Adenomatous Polyposis Coli", "Familial Adenomatous Polyposis"),
    "mesh:D5": ("Multiple Sclerosis", "MS"),
    "mesh:D6": ("Catalase", "CAT"),
    "mesh:D7": ("Role",),
    "mesh:D8": ("Liver",),
    "mesh:D9": ("Ovarian Cancer",),
    "mesh:D10": ("Sjögren's Syndrome",),
    "mesh:D11": ("Chest Pain",),
    "mesh:D12": ("Pneumonia",),
}
TYPES = {"mesh:D8": "A", "mesh:D7": "F", "mesh:D6": "D", "mesh:D2": None}
MakeAnnotator = Callable[..., Annotator]


@pytest.fixture(scope="session")
def annotator_of(tmp_path_factory: pytest.TempPathFactory) -> MakeAnnotator:
    """Return a function that makes an annotator with some settings."""
    folder: Path = tmp_path_factory.mktemp("annotator")
    rows = [(concept, name, "MSH") for concept, names in NAMES.items() for name in names]
    types = [(concept, kind) for concept in NAMES if (kind := TYPES.get(concept, "C")) is not None]
    (folder / "entries").mkdir()
    table = write_name_table(write(folder / "vocabulary", rows, {"types": types}), folder / "entries")
    write_lexicon(table, folder)
    encoder = NgramEncoder()
    vectors = encoder.encode(table.folded.span(0, len(table)))
    linker = Linker(encoder, DenseSearch(EveryRow(vectors, [])), table, fingerprint="f00d")
    lexicon = Lexicon.open(folder, names=len(table))
    return lambda **settings: Annotator(linker, lexicon, AnnotateSettings(**settings))
