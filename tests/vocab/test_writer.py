from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapbert.artifacts import create
from sapbert.errors import SapbertError
from sapbert.text import tidy
from sapbert.vocab import writer as module
from sapbert.vocab.input_files import InputReader
from sapbert.vocab.schema import ALIASES, NAMES, OPTIONAL_COLUMNS, TYPES, XREFS
from sapbert.vocab.settings import SCOPES
from sapbert.vocab.vocabulary import Vocabulary
from sapbert.vocab.writer import VocabularyWriter, write_vocabulary
from tests.vocab.contents import EXAMPLE, Content, FactRow, NameRow, add, name_frame, write

Row = TypeVar("Row", NameRow, FactRow)


@contextmanager
def parts_of(rows: int, held: int = module.SPOOL_MEMORY_BYTES) -> Iterator[None]:
    """Write tables in parts of some `rows`, also inside a hypothesis test, and spare the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ROWS_PER_PART", rows)
        patch.setattr(module, "SPOOL_MEMORY_BYTES", held)
        patch.setattr(os, "fsync", lambda handle: None)
        yield


def test_names_are_tidied_sorted_and_made_unique_and_the_best_ranked_is_preferred(tmp_path: Path) -> None:
    vocabulary = write(tmp_path / "v", EXAMPLE)

    assert vocabulary.names.drop(OPTIONAL_COLUMNS).collect().rows() == [
        ("ex:1", "Mondhusten", True, "de", "B", "exact"),
        ("ex:1", "Lunacof", False, "en", "C", "related"),
        ("ex:1", "Lunar cough", True, "en", "B", "exact"),
        ("ex:1", "Moon cough", False, "en", "A", "related"),
        ("ex:2", "Glimmer fever", True, "en", "A", "exact"),
    ]
    assert vocabulary.types.collect().rows() == [("ex:1", "T184"), ("ex:2", "T047")]
    assert vocabulary.xrefs.collect().rows() == [("ex:1", "mesh:D1")]
    assert vocabulary.aliases.collect().rows() == [("ex:2", "old:7")]
    counts = {"concepts": 2, "names": 5, "types": 2, "xrefs": 1, "aliases": 1}
    assert dict(vocabulary.manifest.counts) == counts


def test_of_names_of_equal_rank_the_first_in_order_is_preferred(tmp_path: Path) -> None:
    rows: list[NameRow] = [("a:1", name, 3, "en", "s", "exact") for name in ("zeta", "alpha", "mu")]
    names = write(tmp_path / "v", Content(names=rows)).names.collect()
    assert names.filter("preferred")["name"].to_list() == ["alpha"]


def test_the_tables_have_the_columns_of_the_schema_also_when_empty(tmp_path: Path) -> None:
    full = write(tmp_path / "full", EXAMPLE)
    bare = write(tmp_path / "bare", Content(EXAMPLE.names))
    for vocabulary in (full, bare):
        assert dict(vocabulary.names.collect_schema()) == dict(NAMES)
        assert dict(vocabulary.types.collect_schema()) == dict(TYPES)
        assert dict(vocabulary.xrefs.collect_schema()) == dict(XREFS)
        assert dict(vocabulary.aliases.collect_schema()) == dict(ALIASES)
    assert bare.types.collect().is_empty()


def test_columns_that_a_reader_omits_have_defaults(tmp_path: Path) -> None:
    with write_vocabulary(tmp_path / "v", {}, InputReader()) as writer:
        writer.add(pl.DataFrame({"name": ["Moon cough"], "concept_id": ["ex:1"], "ignored": [1]}))
    rows = Vocabulary.open(tmp_path / "v").names.collect().rows()
    assert rows == [("ex:1", "Moon cough", False, "en", "", "exact", "", 0)]


def test_unusual_names_are_kept_unchanged(tmp_path: Path) -> None:
    odd = ["x" * 100_000, "שפעת", "e\u0301", "nul\x00byte", "a\tb", '"', "\u200b", "'; --", "😀"]
    vocabulary = write(tmp_path / "v", Content([("ex:1", name, 0, "en", "", "exact") for name in odd]))
    assert vocabulary.names.collect()["name"].to_list() == sorted(tidy(name) for name in odd)


def test_a_missing_name_is_dropped(tmp_path: Path) -> None:
    with write_vocabulary(tmp_path / "v", {}, InputReader()) as writer:
        writer.add(pl.DataFrame({"concept_id": ["ex:1", "ex:2"], "name": [None, "b"]}))
        writer.add_facts("types", pl.DataFrame({"concept_id": ["ex:2", "ex:2"], "type": [None, "T1"]}))
    vocabulary = Vocabulary.open(tmp_path / "v")
    assert vocabulary.names.collect()["name"].to_list() == ["b"]
    assert vocabulary.types.collect().rows() == [("ex:2", "T1")]


def test_counts_labels_and_skipped_rows_are_in_the_manifest(tmp_path: Path) -> None:
    inputs = InputReader(
        on_error="skip", skipped_rows=3, skipped_examples=["somewhere:1: bad"], checksums={"f": {"bytes": 1}}
    )
    with write_vocabulary(tmp_path / "v", {"kind": "invented"}, inputs) as writer:
        add(writer, Content(EXAMPLE.names))
        writer.count("obsolete", 2)
        writer.count("obsolete", 3)
        writer.type_labels.update({"T2": "two", "T1": "one"})
    vocabulary = Vocabulary.open(tmp_path / "v")
    assert vocabulary.manifest.counts["obsolete"] == 5
    assert vocabulary.manifest.counts["bad rows skipped"] == 3
    assert vocabulary.manifest.settings == {"kind": "invented"}
    assert vocabulary.manifest.inputs == {"f": {"bytes": 1}}
    assert vocabulary.manifest.details["skipped"] == ["somewhere:1: bad"]
    assert list(vocabulary.type_labels.items()) == [("T1", "one"), ("T2", "two")]


@pytest.mark.parametrize(
    "content",
    [
        Content([]),
        Content([("ex:1", " \n\x00", 1, "en", "", "exact")]),
        Content([], late=EXAMPLE.names, types=EXAMPLE.types, aliases=EXAMPLE.aliases),
        Content([("ex:1", " ", 1, "en", "", "exact")], late=[("ex:1", "late", 0, "en", "", "exact")]),
    ],
)
def test_a_vocabulary_without_names_is_refused_and_leaves_no_files(tmp_path: Path, content: Content) -> None:
    with pytest.raises(SapbertError, match="no names to write"):
        write(tmp_path / "v", content)
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_fails_keeps_the_existing_vocabulary(tmp_path: Path) -> None:
    before = write(tmp_path / "v", EXAMPLE)

    def fail(target: Path) -> None:
        with write_vocabulary(target, {}, InputReader(), overwrite=True) as writer:
            add(writer, Content([("ex:1", "another", 1, "en", "", "exact")]))
            raise SapbertError("stopped")

    with pytest.raises(SapbertError, match="stopped"):
        fail(tmp_path / "v")
    with pytest.raises(SapbertError, match="stopped"):
        fail(tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["v"]
    assert Vocabulary.open(tmp_path / "v").fingerprint == before.fingerprint


# The law of the tables, against a slow and obvious oracle


def expected_names(content: Content) -> list[tuple[str, str, bool, str, str, str]]:
    named = {row[0] for row in content.names if tidy(row[1])}
    best: dict[tuple[str, str, str, str], tuple[int, int]] = {}
    for concept, name, rank, language, source, scope in [*content.names, *content.late]:
        if concept in named and tidy(name):
            key = (concept, language, tidy(name), source)
            best[key] = max(best.get(key, (rank, -99)), (rank, -SCOPES.index(scope)))
    preferred: dict[tuple[str, ...], tuple[str, str, str, str]] = {}
    for key in sorted(best):
        group, rank = key[:2], best[key][0]
        if rank > 0 and (group not in preferred or rank > best[preferred[group]][0]):
            preferred[group] = key
    return [
        (key[0], key[2], preferred.get(key[:2]) == key, key[1], key[3], SCOPES[-best[key][1]])
        for key in sorted(best)
    ]


def expected_facts(rows: list[FactRow], names: list[tuple[str, str, bool, str, str, str]]) -> list[FactRow]:
    named = {name[0] for name in names}
    return sorted({row for row in rows if row[0] in named})


ids = st.sampled_from(["a:1", "a:10", "a:2", "b:1", "z:é", "é:1"])
name_rows = st.tuples(
    ids,
    st.sampled_from(["x", "X", " x", "x\ty", "x y", "é", "z", "", " ", "\x00"]),
    st.integers(-1, 2),
    st.sampled_from(["en", "de", "zh", ""]),
    st.sampled_from(["", "A", "a", "B"]),
    st.sampled_from(SCOPES),
)
fact_rows = st.lists(st.tuples(ids, st.sampled_from(["T1", "T2", "", "é"])), max_size=8)
contents = st.builds(
    Content,
    st.lists(name_rows, min_size=1, max_size=25),
    st.lists(name_rows, max_size=8),
    fact_rows,
    fact_rows,
    fact_rows,
    st.lists(st.tuples(ids, ids, st.sampled_from(["is_a", "part_of"])), max_size=8),
    st.lists(st.tuples(ids, st.sampled_from(["x", "y"]), st.sampled_from("ab"), st.just("A")), max_size=8),
)


def shuffled_into_pieces(content: Content, data: st.DataObject) -> list[Content]:
    """The same content in another order, cut into pieces anywhere."""
    number = data.draw(st.integers(1, 4))

    def pieces(rows: list[Row]) -> list[list[Row]]:
        order = data.draw(st.permutations(rows) | st.just(sorted(rows)))
        cuts: list[int] = sorted(data.draw(st.integers(0, len(rows))) for _ in range(number - 1))
        return [list(order[a:b]) for a, b in pairwise([0, *cuts, len(rows)])]

    names = (pieces(content.names), pieces(content.late))
    facts = map(pieces, content.facts().values())
    return [Content(*parts) for parts in zip(*names, *facts, strict=True)]


@given(contents, st.data(), st.integers(1, 9), st.sampled_from([0, 200, module.SPOOL_MEMORY_BYTES]))
@settings(max_examples=40)
def test_tables_equal_a_plain_implementation_for_any_order_and_pieces(
    content: Content, data: st.DataObject, rows_per_part: int, held: int
) -> None:
    names = expected_names(content)
    with tempfile.TemporaryDirectory() as folder, parts_of(rows_per_part, held):
        if not names:
            with pytest.raises(SapbertError, match="no names to write"):
                write(Path(folder) / "v", content)
            return
        pieces = write(Path(folder) / "pieces", *shuffled_into_pieces(content, data))
        module.ROWS_PER_PART = 400_000
        whole = write(Path(folder) / "whole", content)
        for vocabulary in (pieces, whole):
            assert vocabulary.names.drop(OPTIONAL_COLUMNS).collect().rows() == names
            for table, rows in content.facts().items():
                frame = vocabulary.table(table)
                assert frame.collect().rows() == expected_facts(rows, names)
            assert vocabulary.manifest.counts["concepts"] == len({name[0] for name in names})
            assert vocabulary.manifest.counts["names"] == len(names)
        assert pieces.fingerprint == whole.fingerprint

        concepts = [set(pl.read_parquet(part)["concept_id"]) for part in pieces.parts()]
        assert sum(map(len, concepts)) == len(set().union(*concepts)), "no part cuts a concept in two"


def test_a_large_vocabulary_is_written_in_parts(tmp_path: Path) -> None:
    rows: list[NameRow] = [(f"ex:{n // 3:03}", f"name {n}", 0, "en", "", "exact") for n in range(300)]
    with parts_of(40):
        vocabulary = write(tmp_path / "v", Content(rows[:100]), Content(rows[100:150]), Content(rows[150:]))
    assert 2 < len(vocabulary.parts()) < 9
    assert vocabulary.names.collect().height == 300


def test_names_beyond_the_memory_limit_are_spooled_to_disk(tmp_path: Path) -> None:
    rows: list[NameRow] = [(f"ex:{n:03}", f"name {n}", 0, "en", "", "exact") for n in range(30)]
    with parts_of(400_000, held=1_000), create(tmp_path / "v") as draft:
        writer = VocabularyWriter(draft)
        for row in rows:
            writer.add(name_frame([row]))
        on_disk = len(list(draft.path.glob("spool/*")))
        assert 0 < on_disk < len(rows)
        writer.finish({}, InputReader())
    assert Vocabulary.open(tmp_path / "v").names.collect()["name"].to_list() == [row[1] for row in rows]


def test_a_name_as_long_as_a_book_is_refused(tmp_path: Path) -> None:
    names: list[NameRow] = [("a:1", "x" * size, 1, "en", "s", "exact") for size in (1 << 20, (1 << 20) + 1)]
    write(tmp_path / "v", Content(names=names[:1]))
    with pytest.raises(SapbertError, match="a name is longer than 1 MB: 'xxx"):
        write(tmp_path / "w", Content(names=names))


def test_a_full_disk_is_reported_with_the_target(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as raised, create(tmp_path / "pairs"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert raised.value.filename == str(tmp_path / "pairs")
