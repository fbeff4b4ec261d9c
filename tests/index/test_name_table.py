from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sapbert.arrays import TextsWriter
from sapbert.errors import ArtifactError, ConfigError, SapbertError
from sapbert.index import name_table_writer
from sapbert.index.name_table import NameTable
from sapbert.index.name_table_writer import write_name_table
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
def name_table(vocabulary_of: MakeVocabulary, folder: Path) -> NameTable:
    return write_name_table(vocabulary_of(ROWS, TYPES), folder)


def links(name_table: NameTable, row: int) -> set[tuple[str, str]]:
    """The concepts that a row names, each with the source that says so."""
    span = name_table.links_of(row)
    numbers = zip(
        name_table.link_concepts[span].tolist(), name_table.link_sources[span].tolist(), strict=True
    )
    return {(name_table.concepts[concept], name_table.sources[source]) for concept, source in numbers}


def test_a_row_is_a_folded_name_with_all_its_concepts(name_table: NameTable) -> None:
    [row, cold, unknown] = name_table.rows_of(["heart attack", "cold", "Heart attack"])

    assert len(name_table) == 4
    assert links(name_table, row) == {("mesh:D1", "MSH"), ("mesh:D1", "NCI")}
    assert links(name_table, cold) == {("mesh:D2", "MSH"), ("hp:1", "HPO")}
    assert unknown == -1


def test_a_row_has_the_first_spelling_of_the_vocabulary(name_table: NameTable) -> None:
    [row, cold] = name_table.rows_of(["heart attack", "cold"])

    assert name_table.texts[row] == "HEART ATTACK"
    assert name_table.texts[cold] == "cold"


def test_concepts_are_sorted_and_have_the_preferred_name_of_the_vocabulary(
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

    name_table = write_name_table(vocabulary, folder)

    assert name_table.concepts.span(0, 2) == ["x:1", "x:2"]
    assert name_table.preferred.span(0, 2) == ["influenza", "zeta"]
    for number in range(2):
        concept = vocabulary.concept(name_table.concepts[number])
        assert concept is not None
        assert name_table.preferred[number] == concept.preferred_name


def test_a_concept_is_found_by_its_identifier_and_by_those_merged_into_it(
    vocabulary_of: MakeVocabulary, folder: Path
) -> None:
    aliases = {"aliases": [("x:2", "old:9"), ("x:1", "old:1"), ("x:2", "old:1")]}
    name_table = write_name_table(vocabulary_of([("x:1", "a"), ("x:2", "b")], aliases), folder)

    assert name_table.concepts_of(["x:2", "old:9", "old:1", "x:3", ""]).tolist() == [1, 1, 0, -1, -1]


def test_a_name_that_folds_to_nothing_has_no_row(vocabulary_of: MakeVocabulary, folder: Path) -> None:
    name_table = write_name_table(
        vocabulary_of([("x:1", "\u200b"), ("x:2", "flu"), ("x:2", "\u00ad")]), folder
    )

    assert name_table.folded.span(0, len(name_table)) == ["flu"]
    assert links(name_table, 0) == {("x:2", "")}


def test_a_vocabulary_whose_names_are_all_empty_is_refused(
    vocabulary_of: MakeVocabulary, folder: Path
) -> None:
    with pytest.raises(SapbertError, match="all names are empty"):
        write_name_table(vocabulary_of([("x:1", "\u200b")]), folder)


@pytest.mark.parametrize("name", ["link_concepts.npy", "capitals.npy", "words.json"])
def test_a_damaged_file_is_reported_in_one_line(name_table: NameTable, folder: Path, name: str) -> None:
    size = (folder / name).stat().st_size
    (folder / name).unlink()  # what is mapped must not change under it
    (folder / name).write_bytes(b"\xff" * size)

    with pytest.raises(ArtifactError, match=rf"{name} is damaged.*make the artifact again"):
        NameTable.open(folder)


def test_everything_is_mapped_and_not_loaded(name_table: NameTable) -> None:
    for texts in (
        name_table.folded,
        name_table.concepts,
        name_table.preferred,
        name_table.aliases,
    ):
        assert isinstance(texts.data.base, np.memmap)
        assert isinstance(texts.offsets.base, np.memmap)
    assert isinstance(name_table.link_concepts.base, np.memmap)


OFFSETS = ["folded_offsets", "concepts_offsets", "link_offsets", "type_offsets"]


def test_offsets_are_int32_and_int64_can_be_read(name_table: NameTable, folder: Path) -> None:
    def all_of(name_table: NameTable) -> object:
        place, numbers = name_table.links_behind(np.arange(len(name_table)))
        selected = name_table.select(types=["T033"])
        assert selected is not None
        found = (place.tolist(), name_table.link_concepts[numbers].tolist(), selected.rows.tolist())
        return (
            found,
            name_table.texts.take([2, 0]),
            [links(name_table, row) for row in range(len(name_table))],
        )

    before = all_of(name_table)
    for name in OFFSETS:
        offsets = np.load(folder / f"{name}.npy")
        assert offsets.dtype == np.int32
        (folder / f"{name}.npy").unlink()
        np.save(folder / f"{name}.npy", offsets.astype(np.int64))

    older = NameTable.open(folder)

    assert older.link_offsets.dtype == np.int64
    assert all_of(older) == before


@pytest.mark.parametrize("odd", ["", "\ud800", "zzz" * 400_000, "heart attack\0", "心筋梗塞"])
def test_any_string_can_be_looked_up(name_table: NameTable, odd: str) -> None:
    assert name_table.rows_of([odd]).tolist() == [-1]


def test_looking_up_nothing_returns_nothing(name_table: NameTable) -> None:
    assert name_table.rows_of([]).shape == (0,)
    assert name_table.concepts_of([]).shape == (0,)


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
def test_a_filter_keeps_the_names_of_matching_concepts(
    name_table: NameTable, filters: dict[str, list[str]], expected: set[str]
) -> None:
    selection = name_table.select(**filters)

    assert selection is not None
    assert set(name_table.folded.take(np.flatnonzero(selection.rows))) == expected


def test_a_filter_keeps_only_the_matching_concepts_of_a_shared_name(name_table: NameTable) -> None:
    selection = name_table.select(prefixes=["hp"])
    [cold] = name_table.rows_of(["cold"])

    assert selection is not None
    left = name_table.link_concepts[name_table.links_of(cold)][selection.links[name_table.links_of(cold)]]
    assert [name_table.concepts[number] for number in left] == ["hp:1"]


def test_no_filter_is_no_selection(name_table: NameTable) -> None:
    assert name_table.select() is None


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"types": ["T047", "T47"]}, "the index has no type 'T47'; did you mean 'T047'?"),
        ({"sources": ["hpo"]}, "the index has no source 'hpo'; did you mean 'HPO'?"),
        ({"prefixes": ["meshh"]}, "the index has no prefix 'meshh'; did you mean 'mesh'?"),
    ],
)
def test_an_unknown_filter_word_is_an_error_with_a_suggestion(
    name_table: NameTable, filters: dict[str, list[str]], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        name_table.select(**filters)
    assert str(error.value) == message


def test_at_most_three_words_are_suggested(vocabulary_of: MakeVocabulary, folder: Path) -> None:
    types = [(f"x:{number}", f"T{number:03}") for number in range(1, 128)]
    rows = [(concept, f"name of {concept}") for concept, _ in types]
    name_table = write_name_table(vocabulary_of(rows, {"types": types}), folder)

    with pytest.raises(ConfigError, match=r"no type 'T04'; did you mean 'T\d+', 'T\d+' or 'T\d+'\?$"):
        name_table.select(types=["T04"])


def test_the_error_says_if_an_index_has_no_types(vocabulary_of: MakeVocabulary, folder: Path) -> None:
    name_table = write_name_table(vocabulary_of([("x:1", "flu")]), folder)

    with pytest.raises(ConfigError, match="no type 'T047'; it has none"):
        name_table.select(types=["T047"])


def test_the_error_for_an_unknown_type_lists_the_first_types(
    vocabulary_of: MakeVocabulary, folder: Path
) -> None:
    types = [(f"x:{number}", f"T{number:03}") for number in range(1, 24)]
    rows = [(concept, f"name of {concept}") for concept, _ in types]
    name_table = write_name_table(vocabulary_of(rows, {"types": types}), folder)

    with pytest.raises(ConfigError, match=r"no type 'Disease'; it has T001, T002, .*, T020 and 3 more$"):
        name_table.select(types=["Disease"])


# Laws

prefixes = st.sampled_from(["a", "ab", "b", "c.d"])
ids = st.builds(lambda prefix, number: f"{prefix}:{number}", prefixes, st.integers(0, 9))
names = st.text(st.characters(codec="utf-8", categories=("L", "N", "Zs", "P", "Cf")), min_size=1, max_size=4)
vocabularies = st.lists(st.tuples(ids, names, st.sampled_from(["S", "T", ""])), min_size=1, max_size=30)
laws = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])


@laws
@given(rows=vocabularies, piece=st.integers(1, 5))
def test_the_name_table_equals_a_plain_implementation(
    rows: list[Row], piece: int, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_table_writer, "ROWS_PER_PIECE", piece)
    rows = [*rows, ("z:1", "kept", "S")]
    vocabulary, folder = _written(rows, tmp_path_factory)

    name_table = write_name_table(vocabulary, folder)

    expected = defaultdict(set)
    first: dict[str, str] = {}
    for row in vocabulary.names.collect().iter_rows(named=True):
        if folded := fold(row["name"]):
            expected[folded].add((row["concept_id"], row["source"]))
            first.setdefault(folded, row["name"])
    assert name_table.folded.span(0, len(name_table)) == sorted(expected, key=str.encode)
    for number, folded in enumerate(name_table.folded.span(0, len(name_table))):
        assert links(name_table, number) == expected[folded]
        assert name_table.texts[number] == first[folded]
        assert name_table.rows_of([folded]).tolist() == [number]


@laws
@given(rows=vocabularies, selected_prefixes=st.lists(prefixes, min_size=1))
def test_a_prefix_filter_equals_comparing_every_identifier(
    rows: list[Row], selected_prefixes: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    vocabulary, folder = _written(
        [*rows, *((f"{prefix}:0", "kept") for prefix in selected_prefixes)], tmp_path_factory
    )
    name_table = write_name_table(vocabulary, folder)

    selection = name_table.select(prefixes=selected_prefixes)

    assert selection is not None
    kept = [
        name_table.concepts[number].partition(":")[0] in selected_prefixes
        for number in name_table.link_concepts
    ]
    assert selection.links.tolist() == kept
    assert selection.rows.tolist() == [any(kept[name_table.links_of(row)]) for row in range(len(name_table))]


def test_a_name_table_opens_without_polars(name_table: NameTable, folder: Path) -> None:
    program = """
import sys
sys.modules.update(polars=None, torch=None, faiss=None, typer=None)
from pathlib import Path
from sapbert.index.name_table import NameTable
print(NameTable.open(Path(sys.argv[1])).rows_of(["cold"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, folder], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("[0]\n", "")


def _written(rows: list[Row], factory: pytest.TempPathFactory) -> tuple[Vocabulary, Path]:
    folder = factory.mktemp("entries")
    return write(folder / "vocabulary", rows), folder


KINDS: list[Row] = [
    ("x:1", "Rheumatoid arthritis", "M", "en", "1"),
    ("x:1", "ra", "A", "en", "0", "abbreviation", "900"),
    ("x:1", "artritis reumatoide", "O", "es", "1", "translation"),
    ("x:2", "Refractory anemia", "M", "en", "1"),
    ("x:2", "RA", "A", "en", "0", "abbreviation", "70"),
    ("x:3", "RA", "M", "en", "1"),
    ("x:3", "ra", "A", "en", "0", "abbreviation", "5"),
]


@pytest.fixture
def with_kinds(vocabulary_of: MakeVocabulary, folder: Path) -> NameTable:
    return write_name_table(vocabulary_of(KINDS), folder)


def test_a_link_has_the_kind_and_count_of_its_name(with_kinds: NameTable) -> None:
    [row] = with_kinds.rows_of(["ra"]).tolist()
    span = with_kinds.links_of(row)

    assert with_kinds.link_counts[span].tolist() == [900, 70, 0, 5]
    assert [with_kinds.kind_of(row, concept) for concept in range(3)] == ["abbreviation", "abbreviation", ""]


def test_a_row_has_the_spelling_of_the_vocabulary_itself_before_that_of_added_names(
    with_kinds: NameTable,
) -> None:
    assert with_kinds.texts[int(with_kinds.rows_of(["ra"])[0])] == "RA"


@pytest.mark.parametrize(
    ("kinds", "kept"),
    [(["own"], 3), (["abbreviation"], 3), (["own", "translation"], 4), ([], 7)],
)
def test_names_can_be_filtered_by_kind(with_kinds: NameTable, kinds: list[str], kept: int) -> None:
    selection = with_kinds.select(kinds=kinds)
    assert (len(with_kinds.link_kinds) if selection is None else int(selection.links.sum())) == kept


def test_a_kind_that_the_index_does_not_have_is_refused(with_kinds: NameTable) -> None:
    with pytest.raises(ConfigError, match=r"no kind 'brand'; it has own, abbreviation, translation"):
        with_kinds.select(kinds=["brand"])


def test_a_concept_has_a_preferred_name_in_a_language(with_kinds: NameTable) -> None:
    rows = with_kinds.preferred_rows("es").tolist()
    assert [row if row < 0 else with_kinds.texts[row] for row in rows] == ["artritis reumatoide", -1, -1]


def test_one_name_in_two_languages_has_both(vocabulary_of: MakeVocabulary, folder: Path) -> None:
    rows: list[Row] = [("x:1", "asma", "O", "es", "1"), ("x:1", "asma", "O", "it", "1")]
    name_table = write_name_table(vocabulary_of(rows), folder)
    assert [name_table.preferred_rows(language).tolist() for language in ("es", "it")] == [[0], [0]]


def test_an_index_without_kinds_and_languages_opens(with_kinds: NameTable, folder: Path) -> None:
    words = json.loads((folder / "words.json").read_text(encoding="utf-8"))
    del words["kinds"], words["languages"]
    (folder / "words.json").write_text(json.dumps(words), encoding="utf-8")
    for name in ("link_kinds", "link_languages", "link_preferred", "counted_links", "capitals"):
        (folder / f"{name}.npy").unlink()
    with TextsWriter(folder / "texts.npy", folder / "texts_offsets.npy") as writer:
        texts = [text.encode() for text in with_kinds.texts.span(0, len(with_kinds))]
        writer.append(b"".join(texts), np.array(list(map(len, texts))))

    older = NameTable.open(folder)

    assert older.kinds == older.languages == ("",)
    assert older.kind_of(int(older.rows_of(["ra"])[0]), 0) == ""
    assert not older.link_counts.any()
    assert older.texts.span(0, len(older)) == with_kinds.texts.span(0, len(older))


def test_counts_take_no_space_if_a_vocabulary_has_none(name_table: NameTable, folder: Path) -> None:
    assert not (folder / "counted_links.npy").exists()
    assert not name_table.link_counts.any()
