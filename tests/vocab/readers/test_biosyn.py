from __future__ import annotations

from pathlib import Path

import pytest

from sapbert.errors import FormatError
from sapbert.vocab.readers.settings import TableSettings
from tests.conftest import Read
from tests.vocab.tables import FOLDER, names_of, skipping, table, written


def test_a_raw_biosyn_dictionary_has_one_line_per_concept(read: Read) -> None:
    vocabulary = table(read, FOLDER / "raw.txt")

    assert names_of(vocabulary, "mesh:D900001")[0] == "Marmalade syndrome"
    assert names_of(vocabulary, "omim:600001") == names_of(vocabulary, "mesh:D900001")
    assert names_of(vocabulary, "omim:600003") == ["Glass hand", "Hand, Glass"]
    # 600002 heads a line, so it stays a concept of its own.
    assert names_of(vocabulary, "omim:600002") == ["GLASS HAND 1"]
    assert vocabulary.xrefs.collect().rows() == [("mesh:D900002", "omim:600002")]


def test_in_a_processed_biosyn_dictionary_a_name_belongs_to_all_its_concepts(read: Read) -> None:
    vocabulary = table(read, FOLDER / "processed.txt")

    assert names_of(vocabulary, "mesh:D900001") == ["marmalade syndrome", "sticky", "sticky syndrome"]
    assert names_of(vocabulary, "mesh:D900002") == ["sticky", "glass hand"]
    assert vocabulary.aliases.collect().rows() == [("mesh:C900003", "mesh:C900004")]


def test_a_biosyn_dictionary_of_other_ids_needs_a_prefix(read: Read, tmp_path: Path) -> None:
    path = written(tmp_path, "meddra.txt", "600001||fine\n10000001||fever\n")

    with pytest.raises(FormatError, match=r"meddra\.txt:2: '10000001' is not an id .*--prefix"):
        table(read, path)
    vocabulary = table(read, path, TableSettings(prefix="meddra", language="fr", source="tac"))
    assert vocabulary.names.select("concept_id", "language", "source").collect().rows() == [
        ("meddra:10000001", "fr", "tac"),
        ("meddra:600001", "fr", "tac"),
    ]


def test_invalid_biosyn_lines_are_reported_or_skipped(read: Read, tmp_path: Path) -> None:
    path = written(tmp_path, "d.txt", b"D000001||a\n\nD000002 b\nD000003||\xff\nD000004||\n")

    with pytest.raises(FormatError, match=r"d\.txt:4: byte 0xff in column 10 is not UTF-8"):
        table(read, path)
    vocabulary = skipping(read, path)
    assert vocabulary.manifest.counts["names"] == 1
    assert vocabulary.manifest.details["skipped"] == [
        "d.txt:4: byte 0xff in column 10 is not UTF-8 (the file must be UTF-8)",
        "d.txt:3: no || in 'D000002 b' (expected id||name)",
    ]
