from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapbert.artifacts import create
from sapbert.errors import ArtifactError, SapbertError
from sapbert.text import tidy
from sapbert.vocab import writer as module
from sapbert.vocab.intake import Intake
from sapbert.vocab.schema import ALIASES, NAMES, SCOPES, TYPES, XREFS
from sapbert.vocab.vocabulary import Name, Vocabulary
from sapbert.vocab.writer import SPOOL, VocabularyWriter, write_vocabulary

NameRow = tuple[str, str, int, str, str, str]
FactRow = tuple[str, str]
Row = TypeVar("Row", NameRow, FactRow)


@dataclass
class Content:
    """What a reader might add, in the order it might add it."""

    names: list[NameRow]
    late: list[NameRow] = field(default_factory=list)
    types: list[FactRow] = field(default_factory=list)
    xrefs: list[FactRow] = field(default_factory=list)
    aliases: list[FactRow] = field(default_factory=list)

    def facts(self) -> dict[str, list[FactRow]]:
        return {"types": self.types, "xrefs": self.xrefs, "aliases": self.aliases}


def name_frame(rows: list[NameRow]) -> pl.DataFrame:
    return pl.DataFrame(rows, SPOOL, orient="row")


def add(writer: VocabularyWriter, content: Content) -> None:
    writer.add(name_frame(content.names))
    writer.add_late(name_frame(content.late))
    for table, rows in content.facts().items():
        writer.add_facts(table, pl.DataFrame(rows, module.FACTS[table], orient="row"))


def write(target: Path, *contents: Content) -> Vocabulary:
    """Write what was added in several pieces and open it."""
    with write_vocabulary(target, {}, Intake()) as writer:
        for content in contents:
            add(writer, content)
    return Vocabulary.open(target)


@contextmanager
def parts_of(rows: int, held: int = module.HELD_BYTES) -> Iterator[None]:
    """Write tables in parts of some `rows`, also inside a hypothesis test, and spare the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ROWS_A_PART", rows)
        patch.setattr(module, "HELD_BYTES", held)
        patch.setattr(os, "fsync", lambda handle: None)
        yield


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


def test_names_are_tidied_sorted_and_made_unique_and_the_best_ranked_is_preferred(tmp_path: Path) -> None:
    vocabulary = write(tmp_path / "v", EXAMPLE)

    assert vocabulary.names.collect().rows() == [
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


def test_what_a_reader_leaves_out_has_a_default(tmp_path: Path) -> None:
    with write_vocabulary(tmp_path / "v", {}, Intake()) as writer:
        writer.add(pl.DataFrame({"name": ["Moon cough"], "concept_id": ["ex:1"], "ignored": [1]}))
    rows = Vocabulary.open(tmp_path / "v").names.collect().rows()
    assert rows == [("ex:1", "Moon cough", False, "en", "", "exact")]


def test_odd_names_are_kept_whole(tmp_path: Path) -> None:
    odd = ["x" * 100_000, "שפעת", "e\u0301", "nul\x00byte", "a\tb", '"', "\u200b", "'; --", "😀"]
    vocabulary = write(tmp_path / "v", Content([("ex:1", name, 0, "en", "", "exact") for name in odd]))
    assert vocabulary.names.collect()["name"].to_list() == sorted(tidy(name) for name in odd)


def test_a_missing_name_is_none(tmp_path: Path) -> None:
    with write_vocabulary(tmp_path / "v", {}, Intake()) as writer:
        writer.add(pl.DataFrame({"concept_id": ["ex:1", "ex:2"], "name": [None, "b"]}))
        writer.add_facts("types", pl.DataFrame({"concept_id": ["ex:2", "ex:2"], "type": [None, "T1"]}))
    vocabulary = Vocabulary.open(tmp_path / "v")
    assert vocabulary.names.collect()["name"].to_list() == ["b"]
    assert vocabulary.types.collect().rows() == [("ex:2", "T1")]


def test_counts_labels_and_skipped_rows_are_told(tmp_path: Path) -> None:
    intake = Intake(on_error="skip", skipped=3, examples=["somewhere:1: bad"], inputs={"f": {"bytes": 1}})
    with write_vocabulary(tmp_path / "v", {"kind": "invented"}, intake) as writer:
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
def test_a_vocabulary_without_a_name_is_refused_and_nothing_is_left(tmp_path: Path, content: Content) -> None:
    with pytest.raises(SapbertError, match="no name is left"):
        write(tmp_path / "v", content)
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    before = write(tmp_path / "v", EXAMPLE)

    def fail(target: Path) -> None:
        with write_vocabulary(target, {}, Intake(), overwrite=True) as writer:
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
)


def shuffled_into_pieces(content: Content, data: st.DataObject) -> list[Content]:
    """The same content in another order, cut into pieces anywhere."""
    number = data.draw(st.integers(1, 4))

    def pieces(rows: list[Row]) -> list[list[Row]]:
        order = data.draw(st.permutations(rows) | st.just(sorted(rows)))
        cuts: list[int] = sorted(data.draw(st.integers(0, len(rows))) for _ in range(number - 1))
        return [list(order[a:b]) for a, b in pairwise([0, *cuts, len(rows)])]

    names = (pieces(content.names), pieces(content.late))
    facts = (pieces(content.types), pieces(content.xrefs), pieces(content.aliases))
    return [Content(*parts) for parts in zip(*names, *facts, strict=True)]


@given(contents, st.data(), st.integers(1, 9), st.sampled_from([0, 200, module.HELD_BYTES]))
@settings(max_examples=40)
def test_order_and_pieces_do_not_matter_and_the_tables_are_as_the_oracle_says(
    content: Content, data: st.DataObject, rows_a_part: int, held: int
) -> None:
    names = expected_names(content)
    with tempfile.TemporaryDirectory() as folder, parts_of(rows_a_part, held):
        if not names:
            with pytest.raises(SapbertError, match="no name is left"):
                write(Path(folder) / "v", content)
            return
        pieces = write(Path(folder) / "pieces", *shuffled_into_pieces(content, data))
        module.ROWS_A_PART = 400_000
        whole = write(Path(folder) / "whole", content)
        for vocabulary in (pieces, whole):
            assert vocabulary.names.collect().rows() == names
            for table, rows in content.facts().items():
                frame: pl.LazyFrame = getattr(vocabulary, table)
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


def test_names_beyond_what_memory_holds_wait_on_disk(tmp_path: Path) -> None:
    rows: list[NameRow] = [(f"ex:{n:03}", f"name {n}", 0, "en", "", "exact") for n in range(30)]
    with parts_of(400_000, held=1_000), create(tmp_path / "v") as draft:
        writer = VocabularyWriter(draft)
        for row in rows:
            writer.add(name_frame([row]))
        on_disk = len(list(draft.path.glob("spool/*")))
        assert 0 < on_disk < len(rows)
        writer.finish({}, Intake())
    assert Vocabulary.open(tmp_path / "v").names.collect()["name"].to_list() == [row[1] for row in rows]


# Fingerprints


def replaced(rows: list[NameRow], at: int, column: int, value: object) -> list[NameRow]:
    row = list(rows[at])
    row[column] = value
    return [*rows[:at], tuple(row), *rows[at + 1 :]]  # type: ignore[list-item]  # of the same types


CHANGES: dict[str, Callable[[Content], Content]] = {
    "a name": lambda c: Content(replaced(c.names, 0, 1, "Glimmer fevers"), c.late, **c.facts()),
    "the case of a name": lambda c: Content(replaced(c.names, 1, 1, "moon cough"), c.late, **c.facts()),
    "a flag": lambda c: Content(replaced(c.names, 1, 2, 3), c.late, **c.facts()),
    "a language": lambda c: Content(replaced(c.names, 3, 3, "nl"), c.late, **c.facts()),
    "a source": lambda c: Content(replaced(c.names, 1, 4, "B"), c.late, **c.facts()),
    "a scope": lambda c: Content(replaced(c.names, 1, 5, "narrow"), c.late, **c.facts()),
    "a concept": lambda c: Content(replaced(c.names, 1, 0, "ex:3"), c.late, **c.facts()),
    "a name less": lambda c: Content(c.names[:3], c.late, **c.facts()),
    "a late name less": lambda c: Content(c.names, [], **c.facts()),
    "a type": lambda c: Content(c.names, c.late, [("ex:1", "T047")], c.xrefs, c.aliases),
    "an xref": lambda c: Content(c.names, c.late, c.types, [("ex:2", "mesh:D1")], c.aliases),
    "an alias": lambda c: Content(c.names, c.late, c.types, c.xrefs, [("ex:2", "old:77")]),
    "a fact of another table": lambda c: Content(c.names, c.late, c.types, c.aliases, c.xrefs),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_fingerprint_changes_with_anything_in_the_tables(tmp_path: Path, change: str) -> None:
    one, other = write(tmp_path / "one", EXAMPLE), write(tmp_path / "other", CHANGES[change](EXAMPLE))
    assert one.fingerprint != other.fingerprint


def test_names_that_are_alike_when_joined_have_other_fingerprints(tmp_path: Path) -> None:
    fingerprints = {
        write(
            tmp_path / str(number), Content([("ex:1", name, 0, "en", "", "exact") for name in names])
        ).fingerprint
        for number, names in enumerate([["ab", "c"], ["a", "bc"], ["abc"], ["a", "b", "c"]])
    }
    assert len(fingerprints) == 4


def test_the_fingerprint_depends_on_neither_settings_nor_place_nor_unused_rows(tmp_path: Path) -> None:
    one = write(tmp_path / "one", EXAMPLE)
    with write_vocabulary(tmp_path / "other", {"told": 1}, Intake(skipped=1)) as writer:
        writer.count("something", 1)
        add(writer, EXAMPLE)
        writer.add(name_frame([("ex:5", " ", 1, "en", "", "exact")]))
        writer.add_late(name_frame([("ex:6", "late", 1, "en", "", "exact")]))
    assert Vocabulary.open(tmp_path / "other").fingerprint == one.fingerprint


def test_the_fingerprint_of_one_content_is_the_same_everywhere_and_for_ever(tmp_path: Path) -> None:
    """If this must change, other artifacts no longer match theirs: raise `artifacts.FORMAT` too."""
    assert write(tmp_path / "v", EXAMPLE).fingerprint == "096ff022d7cd55f909486ffb0ee6d38c"


# Looking things up


@pytest.fixture
def vocabulary(tmp_path: Path) -> Vocabulary:
    return write(tmp_path / "vocabulary", EXAMPLE)


@pytest.mark.parametrize("id", ["ex:1", "EX:1", " Ex:1 ", "ex:EX:1"])
def test_a_concept_is_found_in_any_spelling_of_its_prefix(vocabulary: Vocabulary, id: str) -> None:
    concept = vocabulary.concept(id)
    assert concept is not None
    assert concept.id == "ex:1"
    assert concept.names == (
        Name("Lunar cough", True, "en", "B", "exact"),
        Name("Mondhusten", True, "de", "B", "exact"),
        Name("Lunacof", False, "en", "C", "related"),
        Name("Moon cough", False, "en", "A", "related"),
    )
    assert concept.preferred_name == "Lunar cough"
    assert (concept.types, concept.xrefs, concept.aliases) == (("T184",), ("mesh:D1",), ())


def test_a_concept_is_found_by_an_alias(vocabulary: Vocabulary) -> None:
    concept = vocabulary.concept("OLD:7")
    assert concept is not None
    assert (concept.id, concept.aliases) == ("ex:2", ("old:7",))


@pytest.mark.parametrize("id", ["ex:9", "old:8", "ex:", "ex", "", "Moon cough", "mesh:D1"])
def test_what_is_not_there_is_not_found(vocabulary: Vocabulary, id: str) -> None:
    assert vocabulary.concept(id) is None


def test_an_id_that_is_also_an_alias_is_its_own_concept(tmp_path: Path) -> None:
    content = Content(EXAMPLE.names, aliases=[("ex:1", "ex:2"), ("ex:1", "MESH:9")])
    concept = write(tmp_path / "v", content).concept("ex:2")
    assert concept is not None
    assert concept.id == "ex:2"


def test_an_id_that_is_no_canonical_curie_is_found_by_name_and_alias(tmp_path: Path) -> None:
    names: list[NameRow] = [("MESH:D1", "Moon cough", 1, "en", "", "exact")]
    vocabulary = write(tmp_path / "v", Content(names, aliases=[("MESH:D1", "mesh:D1")]))
    concept = vocabulary.concept("mesh:D1")
    assert concept is not None
    assert [concept] == vocabulary.find("moon cough")


def test_concepts_are_found_by_any_spelling_of_a_name(tmp_path: Path) -> None:
    shared = ("ex:7", "LUNAR \u00a0cough", 0, "en", "", "exact")
    street = ("ex:7", "Straße", 0, "de", "", "exact")
    vocabulary = write(tmp_path / "v", Content([*EXAMPLE.names, shared, street]))
    assert [concept.id for concept in vocabulary.find(" lunar\tCOUGH")] == ["ex:1", "ex:7"]
    assert [concept.id for concept in vocabulary.find("STRASSE")] == ["ex:7"]
    assert vocabulary.find("lunar") == []
    assert vocabulary.find("") == []


def test_what_is_most_frequent_is_counted(vocabulary: Vocabulary) -> None:
    assert vocabulary.count_names("language", 5) == {"en": 4, "de": 1}
    assert list(vocabulary.count_names("source", 2).items()) == [("A", 2), ("B", 2)]
    assert vocabulary.count_types(9) == {"T047": 1, "T184": 1}


def test_a_stray_file_is_no_part_of_a_table(vocabulary: Vocabulary) -> None:
    (part,) = vocabulary.parts()
    part.with_name("00001.parquet").write_bytes(part.read_bytes())
    again = Vocabulary.open(vocabulary.path)
    assert again.names.collect().height == 5
    assert again.parts() == [part]


def test_a_damaged_table_is_not_opened(vocabulary: Vocabulary) -> None:
    (part,) = vocabulary.parts("aliases")
    content = part.read_bytes()
    part.write_bytes(content.replace(b"old:7", b"old:9"))
    with pytest.raises(ArtifactError, match=r"aliases/00000\.parquet does not match its checksum"):
        Vocabulary.open(vocabulary.path)
    assert Vocabulary.open(vocabulary.path, verify=False).fingerprint == vocabulary.fingerprint


def test_another_artifact_is_not_opened(tmp_path: Path) -> None:
    with create(tmp_path / "pairs") as draft:
        draft.seal("pairs", settings={}, inputs={}, counts={})
    with pytest.raises(ArtifactError, match="of kind pairs, expected vocabulary"):
        Vocabulary.open(tmp_path / "pairs")
