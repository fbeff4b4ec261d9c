from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sapbert.errors import ArtifactError, ConfigError, SapbertError
from sapbert.index import entries_writer
from sapbert.index.entries import Entries
from sapbert.index.entries_writer import write_entries
from sapbert.text import fold
from sapbert.vocab.vocabulary import Vocabulary
from tests.index.conftest import MakeVocabulary, Row, write

ROWS = [
    ("mesh:D1", "Heart attack", "MSH"),
    ("mesh:D1", "HEART ATTACK", "NCI"),
    ("mesh:D1", "Myocardial infarction", "MSH"),
    ("mesh:D2", "Cold", "MSH"),
    ("hp:1", "cold", "HPO"),
    ("hp:1", "Low temperature", "HPO"),
]
TYPES = {"types": [("mesh:D1", "T047"), ("mesh:D1", "T033"), ("mesh:D2", "T047")]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "entries").mkdir()
    return tmp_path / "entries"


@pytest.fixture
def entries(vocabulary_of: MakeVocabulary, folder: Path) -> Entries:
    return write_entries(vocabulary_of(ROWS, TYPES), folder)


def links(entries: Entries, row: int) -> set[tuple[str, str]]:
    """The concepts that a row names, each with the source that says so."""
    span = entries.links_of(row)
    numbers = zip(entries.link_concepts[span].tolist(), entries.link_sources[span].tolist(), strict=True)
    return {(entries.concepts[concept], entries.sources[source]) for concept, source in numbers}


def test_a_row_is_a_folded_name_with_all_that_it_names(entries: Entries) -> None:
    [row, cold, unknown] = entries.rows_of(["heart attack", "cold", "Heart attack"])

    assert len(entries) == 4
    assert links(entries, row) == {("mesh:D1", "MSH"), ("mesh:D1", "NCI")}
    assert links(entries, cold) == {("mesh:D2", "MSH"), ("hp:1", "HPO")}
    assert unknown == -1


def test_a_row_shows_the_vocabularys_first_spelling(entries: Entries) -> None:
    [row, cold] = entries.rows_of(["heart attack", "cold"])

    assert entries.texts[row] == "HEART ATTACK"
    assert entries.texts[cold] == "cold"


def test_concepts_are_in_order_and_show_the_name_the_vocabulary_shows(
    vocabulary_of: MakeVocabulary, folder: Path
) -> None:
    rows: list[Row] = [
        ("x:2", "zeta", "", "en", "1"),
        ("x:2", "alpha", "", "en", "0"),
        ("x:2", "aleph", "", "de", "1"),
        ("x:1", "gripe", "", "es"),
        ("x:1", "influenza", "", "en"),
    ]
    vocabulary = vocabulary_of(rows)

    entries = write_entries(vocabulary, folder)

    assert entries.concepts.span(0, 2) == ["x:1", "x:2"]
    assert entries.preferred.span(0, 2) == ["influenza", "zeta"]
    for number in range(2):
        concept = vocabulary.concept(entries.concepts[number])
        assert concept is not None
        assert entries.preferred[number] == concept.preferred_name


def test_a_concept_is_found_by_its_identifier_and_by_those_merged_into_it(
    vocabulary_of: MakeVocabulary, folder: Path
) -> None:
    aliases = {"aliases": [("x:2", "old:9"), ("x:1", "old:1"), ("x:2", "old:1")]}
    entries = write_entries(vocabulary_of([("x:1", "a"), ("x:2", "b")], aliases), folder)

    assert entries.concepts_of(["x:2", "old:9", "old:1", "x:3", ""]).tolist() == [1, 1, 0, -1, -1]


def test_a_name_that_folds_to_nothing_has_no_row(vocabulary_of: MakeVocabulary, folder: Path) -> None:
    entries = write_entries(vocabulary_of([("x:1", "\u200b"), ("x:2", "flu"), ("x:2", "\u00ad")]), folder)

    assert entries.folded.span(0, len(entries)) == ["flu"]
    assert links(entries, 0) == {("x:2", "")}


def test_a_vocabulary_of_nothing_but_such_names_is_refused(
    vocabulary_of: MakeVocabulary, folder: Path
) -> None:
    with pytest.raises(SapbertError, match="no name is left"):
        write_entries(vocabulary_of([("x:1", "\u200b")]), folder)


@pytest.mark.parametrize("name", ["link_concepts.npy", "texts.npy", "words.json"])
def test_a_damaged_file_is_told_of_in_one_line(entries: Entries, folder: Path, name: str) -> None:
    size = (folder / name).stat().st_size
    (folder / name).unlink()  # what is mapped must not change under it
    (folder / name).write_bytes(b"\xff" * size)

    with pytest.raises(ArtifactError, match=rf"{name} is damaged.*make the artifact again"):
        Entries.open(folder)


def test_everything_is_mapped_and_not_loaded(entries: Entries) -> None:
    for texts in (entries.texts, entries.folded, entries.concepts, entries.preferred, entries.aliases):
        assert isinstance(texts.data.base, np.memmap)
        assert isinstance(texts.offsets.base, np.memmap)
    assert isinstance(entries.link_concepts.base, np.memmap)


OFFSETS = ["texts_offsets", "folded_offsets", "concepts_offsets", "link_offsets", "type_offsets"]


def test_offsets_take_four_bytes_and_those_of_eight_are_read_as_well(entries: Entries, folder: Path) -> None:
    def all_of(entries: Entries) -> object:
        place, numbers = entries.links_behind(np.arange(len(entries)))
        selected = entries.select(types=["T033"])
        assert selected is not None
        found = (place.tolist(), entries.link_concepts[numbers].tolist(), selected.rows.tolist())
        return found, entries.texts.take([2, 0]), [links(entries, row) for row in range(len(entries))]

    before = all_of(entries)
    for name in OFFSETS:
        offsets = np.load(folder / f"{name}.npy")
        assert offsets.dtype == np.int32
        (folder / f"{name}.npy").unlink()
        np.save(folder / f"{name}.npy", offsets.astype(np.int64))

    older = Entries.open(folder)

    assert older.link_offsets.dtype == np.int64
    assert all_of(older) == before


@pytest.mark.parametrize("odd", ["", "\ud800", "zzz" * 400_000, "heart attack\0", "心筋梗塞"])
def test_any_string_can_be_asked_for(entries: Entries, odd: str) -> None:
    assert entries.rows_of([odd]).tolist() == [-1]


def test_asking_for_nothing_finds_nothing(entries: Entries) -> None:
    assert entries.rows_of([]).shape == (0,)
    assert entries.concepts_of([]).shape == (0,)


# Filters


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"types": ["T047"]}, {"heart attack", "myocardial infarction", "cold"}),
        ({"types": ["T033"]}, {"heart attack", "myocardial infarction"}),
        ({"sources": ["HPO"]}, {"cold", "low temperature"}),
        ({"sources": ["NCI", "HPO"]}, {"heart attack", "cold", "low temperature"}),
        ({"prefixes": ["mesh"]}, {"heart attack", "myocardial infarction", "cold"}),
        ({"prefixes": ["HP"]}, {"cold", "low temperature"}),
        ({"prefixes": ["msh", "hp"]}, {"heart attack", "myocardial infarction", "cold", "low temperature"}),
        (
            {"types": ["T047"], "sources": ["MSH"], "prefixes": ["mesh"]},
            {"heart attack", "myocardial infarction", "cold"},
        ),
        ({"types": ["T047"], "prefixes": ["hp"]}, set()),
    ],
)
def test_a_filter_keeps_the_names_of_what_it_asks_for(
    entries: Entries, filters: dict[str, list[str]], expected: set[str]
) -> None:
    selection = entries.select(**filters)

    assert selection is not None
    assert set(entries.folded.take(np.flatnonzero(selection.rows))) == expected


def test_a_filter_leaves_only_the_fitting_concepts_of_a_shared_name(entries: Entries) -> None:
    selection = entries.select(prefixes=["hp"])
    [cold] = entries.rows_of(["cold"])

    assert selection is not None
    left = entries.link_concepts[entries.links_of(cold)][selection.links[entries.links_of(cold)]]
    assert [entries.concepts[number] for number in left] == ["hp:1"]


def test_no_filter_is_no_selection(entries: Entries) -> None:
    assert entries.select() is None


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"types": ["T047", "T47"]}, "the index has no type 'T47'; it has 'T047', 'T033'"),
        ({"sources": ["hpo"]}, "the index has no source 'hpo'; it has 'HPO', 'MSH', 'NCI'"),
        ({"prefixes": ["meshh"]}, "the index has no prefix 'meshh'; it has 'mesh', 'hp'"),
    ],
)
def test_a_word_that_the_index_does_not_know_is_an_error_with_the_nearest(
    entries: Entries, filters: dict[str, list[str]], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        entries.select(**filters)
    assert str(error.value) == message


def test_of_many_words_the_nearest_few_are_offered(vocabulary_of: MakeVocabulary, folder: Path) -> None:
    types = [(f"x:{number}", f"T{number:03}") for number in range(1, 128)]
    rows = [(concept, f"name of {concept}") for concept, _ in types]
    entries = write_entries(vocabulary_of(rows, {"types": types}), folder)

    with pytest.raises(ConfigError, match=r"no type 'T04'; did you mean 'T\d+', 'T\d+' or 'T\d+'\?$"):
        entries.select(types=["T04"])


def test_a_type_is_asked_in_vain_where_there_are_none(vocabulary_of: MakeVocabulary, folder: Path) -> None:
    entries = write_entries(vocabulary_of([("x:1", "flu")]), folder)

    with pytest.raises(ConfigError, match="no type 'T047'; it has none"):
        entries.select(types=["T047"])


# Laws

prefixes = st.sampled_from(["a", "ab", "b", "c.d"])
ids = st.builds(lambda prefix, number: f"{prefix}:{number}", prefixes, st.integers(0, 9))
names = st.text(st.characters(codec="utf-8", categories=("L", "N", "Zs", "P", "Cf")), min_size=1, max_size=4)
vocabularies = st.lists(st.tuples(ids, names, st.sampled_from(["S", "T", ""])), min_size=1, max_size=30)
laws = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])


@laws
@given(rows=vocabularies, piece=st.integers(1, 5))
def test_entries_hold_what_a_plain_loop_finds(
    rows: list[Row], piece: int, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries_writer, "ROWS_A_PIECE", piece)
    rows = [*rows, ("z:1", "kept", "S")]
    vocabulary, folder = _written(rows, tmp_path_factory)

    entries = write_entries(vocabulary, folder)

    expected = defaultdict(set)
    first: dict[str, str] = {}
    for row in vocabulary.names.collect().iter_rows(named=True):
        if folded := fold(row["name"]):
            expected[folded].add((row["concept_id"], row["source"]))
            first.setdefault(folded, row["name"])
    assert entries.folded.span(0, len(entries)) == sorted(expected, key=str.encode)
    for number, folded in enumerate(entries.folded.span(0, len(entries))):
        assert links(entries, number) == expected[folded]
        assert entries.texts[number] == first[folded]
        assert entries.rows_of([folded]).tolist() == [number]


@laws
@given(rows=vocabularies, wanted=st.lists(prefixes, min_size=1))
def test_a_prefix_selects_as_comparing_every_identifier_would(
    rows: list[Row], wanted: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    vocabulary, folder = _written([*rows, *((f"{prefix}:0", "kept") for prefix in wanted)], tmp_path_factory)
    entries = write_entries(vocabulary, folder)

    selection = entries.select(prefixes=wanted)

    assert selection is not None
    kept = [entries.concepts[number].partition(":")[0] in wanted for number in entries.link_concepts]
    assert selection.links.tolist() == kept
    assert selection.rows.tolist() == [any(kept[entries.links_of(row)]) for row in range(len(entries))]


def test_entries_open_where_polars_is_not_installed(entries: Entries, folder: Path) -> None:
    program = """
import sys
sys.modules.update(polars=None, torch=None, faiss=None, typer=None)
from pathlib import Path
from sapbert.index.entries import Entries
print(Entries.open(Path(sys.argv[1])).rows_of(["cold"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, folder], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("[0]\n", "")


def _written(rows: list[Row], factory: pytest.TempPathFactory) -> tuple[Vocabulary, Path]:
    folder = factory.mktemp("entries")
    return write(folder / "vocabulary", rows), folder
