from __future__ import annotations

import csv
import gzip
import io
import json
import tempfile
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapbert.curies import parse_curie
from sapbert.errors import ConfigError, FormatError
from sapbert.text import tidy
from sapbert.vocab.input_files import InputReader
from sapbert.vocab.readers.settings import TableSettings
from sapbert.vocab.readers.tabular import read_table
from sapbert.vocab.text_columns import to_curies
from sapbert.vocab.vocabulary import Vocabulary
from sapbert.vocab.writer import write_vocabulary
from tests.conftest import Read
from tests.vocab.tables import FOLDER, names_of, rows_of, table, written


def test_a_long_tsv_has_one_row_per_name_and_quotes_are_data(read: Read) -> None:
    vocabulary = table(read, FOLDER / "long.tsv")

    assert rows_of(vocabulary) == [
        ("ex:0001", '"5 inch rash, unbalanced', False, "en", "invented"),
        ("ex:0001", "Blaufußfieber", True, "de", "invented"),
        ("ex:0001", "bluefoot fever", True, "en", "invented"),
        ("ex:0001", "fever of the blue foot", False, "en", "invented"),
        ("ex:0002", "עִבְרִית", True, "he", "ex"),
    ]
    assert vocabulary.types.collect().rows() == [
        ("ex:0001", "disease"),
        ("ex:0001", "infection"),
        ("ex:0002", "disease"),
    ]
    assert vocabulary.manifest.inputs["long.tsv"]["bytes"] == (FOLDER / "long.tsv").stat().st_size


def test_a_table_may_have_parents_and_definitions(read: Read, tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text(
        "id\tname\tparents\tdefinition\n"
        "D1\tDisease\t\tAny  disease.\n"
        "D2\tFever\tD1|ex:7\tHeat.\n"
        "D2\tPyrexia\tD1|two words:\tHeat.\n"
    )

    vocabulary = table(read, path, TableSettings(prefix="mesh"))

    assert vocabulary.parent_links.collect().rows() == [
        ("mesh:D2", "ex:7", "broader"),
        ("mesh:D2", "mesh:D1", "broader"),
    ]
    assert vocabulary.definitions.collect().rows() == [
        ("mesh:D1", "Any disease.", "en", "mesh"),
        ("mesh:D2", "Heat.", "en", "mesh"),
    ]
    assert vocabulary.manifest.counts["parents without a prefix dropped"] == 1


def test_a_wide_csv_has_quoted_synonyms_over_several_lines(read: Read) -> None:
    vocabulary = table(read, FOLDER / "wide.csv", TableSettings(prefix="mesh"))

    concept = vocabulary.concept("mesh:D900001")
    assert concept is not None
    assert concept.preferred_name == "Marmalade syndrome, chronic"
    assert {name.text for name in concept.names[1:]} == {"MS", '"sticky" syndrome', "marmalade disease"}
    assert not any(name.preferred for name in concept.names[1:])
    assert concept.types == ("disease",)
    assert names_of(vocabulary, "MESH:D900003") == ['Echo 5" murmur']


def test_jsonl_synonyms_may_be_a_list_or_joined(read: Read) -> None:
    vocabulary = table(read, FOLDER / "wide.jsonl")

    assert names_of(vocabulary, "EX:0010") == ["velvet cough", "cough, velvet", "soft|hard cough"]
    assert names_of(vocabulary, "EX:0011") == ["paper skin", "parchment skin", "thin skin"]
    assert names_of(vocabulary, "EX:0012") == ["no other name"]
    assert vocabulary.types.collect().rows() == [("ex:0010", "sign"), ("ex:0010", "symptom")]


def test_parquet_columns_may_be_numbers_booleans_and_lists(read: Read, tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "ID": [10, 10, 11],
            "term": ["first", "second", "third"],
            "preferred": [False, True, False],
            "aliases": [["a|b"], None, ["c", "d"]],
        }
    )
    path = tmp_path / "names.parquet"
    frame.write_parquet(path)
    vocabulary = table(read, path, TableSettings(prefix="rxcui", language="DE", source="mine"))

    assert rows_of(vocabulary) == [
        ("rxnorm:10", "a|b", False, "de", "mine"),
        ("rxnorm:10", "first", False, "de", "mine"),
        ("rxnorm:10", "second", True, "de", "mine"),
        ("rxnorm:11", "c", False, "de", "mine"),
        ("rxnorm:11", "d", False, "de", "mine"),
        ("rxnorm:11", "third", False, "de", "mine"),
    ]
    assert vocabulary.manifest.inputs["names.parquet"]["bytes"] == path.stat().st_size


def test_without_a_preferred_column_the_first_name_in_the_file_is_preferred(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sapbert.vocab.input_files.BLOCK_BYTES", 16)
    rows = ["id\tname", "ex:2\tzebra", "ex:1\tyak", "ex:1\tant", "ex:2\tbee", "ex:1\tasp"]
    vocabulary = table(read, written(tmp_path, "t.tsv", "\n".join(rows)))

    assert names_of(vocabulary, "ex:1") == ["yak", "ant", "asp"]
    assert names_of(vocabulary, "ex:2") == ["zebra", "bee"]


def test_a_row_may_have_several_ids(read: Read, tmp_path: Path) -> None:
    vocabulary = table(
        read, written(tmp_path, "t.tsv", "concept_id\tname\nD1|C2\tketamine\n"), TableSettings(prefix="mesh")
    )

    assert [concept.concept_id for concept in vocabulary.find("Ketamine")] == ["mesh:C2", "mesh:D1"]


def test_columns_are_recognized_by_usual_names_or_given_by_options(read: Read, tmp_path: Path) -> None:
    content = "#CUI;STR;LAT;SAB;note\nC1;cold;ENG;XX;frio\nC1;Erkältung;GER;;resfriado\n"
    path = written(tmp_path, "umls.csv", content)

    usual = table(read, path, TableSettings(prefix="umls", language_column="lat"))
    assert sorted(usual.names.select("name", "language", "source").collect().rows()) == [
        ("Erkältung", "de", "umls"),
        ("cold", "en", "XX"),
    ]
    other = table(read, path, TableSettings(prefix="umls", name_column="Note", source="mine"))
    assert names_of(other, "umls:C1") == ["frio", "resfriado"]


@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl", "txt"])
def test_a_missing_column_is_an_error_that_lists_the_columns(suffix: str, read: Read, tmp_path: Path) -> None:
    rows = {"jsonl": '{"wort": 1, "id": "ex:1"}\n', "csv": "wort,id\nx,ex:1\n"}
    path = written(tmp_path, f"t.{suffix}", rows.get(suffix, "wort\tid\nx\tex:1\n"))

    with pytest.raises(FormatError, match=r"no name column; found wort, id \(give --name-column"):
        table(read, path)
    with pytest.raises(FormatError, match=r"no column 'nom'; found wort, id \(give --name-column"):
        table(read, path, TableSettings(name_column="nom"))


def test_a_repeated_header_does_not_shift_columns(read: Read, tmp_path: Path) -> None:
    vocabulary = table(read, written(tmp_path, "t.tsv", "note\tnote\tid\tname\na\tb\tex:1\tone\n"))
    assert names_of(vocabulary, "ex:1") == ["one"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"prefix": "a b"},
        {"prefix": ""},
        {"separator": ""},
        {"language": "en", "language_column": "lang"},
        {"source": "x", "source_column": "sab"},
    ],
)
def test_invalid_settings_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        TableSettings(**wrong)  # type: ignore[arg-type]  # a choice of fields


texts = st.text(st.characters(codec="utf-8", exclude_characters="\t\n\r|"), max_size=12)
rows_of_tables = st.lists(
    st.tuples(
        st.from_regex(r"ex:[0-9]{1,2}", fullmatch=True),
        texts,
        st.lists(texts, max_size=3),
        st.sampled_from(["1", "0", "true", "no", ""]),
        st.sampled_from(["en", "de", ""]),
    ),
    min_size=1,
    max_size=8,
).filter(lambda rows: any(tidy(name) for _, name, *_ in rows))

HEADER = ["id", "name", "synonyms", "preferred", "lang"]


def as_files(rows: list[tuple[str, str, list[str], str, str]], folder: Path) -> list[Path]:
    """The same rows in every format."""
    flat = [[curie, name, "|".join(more), flag, language] for curie, name, more, flag, language in rows]
    records = [dict(zip(HEADER, row, strict=True)) for row in rows]
    quoted = io.StringIO()
    csv.writer(quoted).writerows([HEADER, *flat])
    pl.DataFrame(records, schema_overrides={"synonyms": pl.List(pl.String)}).write_parquet(
        folder / "t.parquet"
    )
    tsv = "".join("\t".join(row) + "\n" for row in [HEADER, *flat])
    return [
        folder / "t.parquet",
        written(folder, "t.tsv", tsv),
        written(folder, "t.tsv.gz", gzip.compress(tsv.encode())),
        written(folder, "t.csv", quoted.getvalue()),
        written(folder, "t.jsonl", "".join(json.dumps(record) + "\n" for record in records)),
    ]


@settings(max_examples=20)
@given(rows_of_tables)
def test_the_same_rows_give_the_same_vocabulary_in_every_format(
    rows: list[tuple[str, str, list[str], str, str]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for number, path in enumerate(as_files(rows, Path(folder))):
            out, inputs = Path(folder, f"out{number}"), InputReader()
            with write_vocabulary(out, {}, inputs) as writer:
                read_table(path, writer, inputs, TableSettings())
            found.append(Vocabulary.open(out))
        assert len({vocabulary.fingerprint for vocabulary in found}) == 1
        expected = {
            (curie, tidy(text), language or "en")
            for curie, name, synonyms, _, language in rows
            for text in [name, *synonyms]
            if tidy(text)
        }
        names = found[0].names.select("concept_id", "name", "language").collect()
        assert names.height == len(expected)
        assert set(names.iter_rows()) == expected


@given(
    st.lists(st.none() | st.text(max_size=8) | st.text("aA:0 \x1c\u3000._-\n", max_size=6), max_size=5),
    st.sampled_from([None, "mesh", "MSH"]),
)
def test_whole_columns_of_ids_are_read_like_single_ids(ids: list[str | None], prefix: str | None) -> None:
    expected = [None if text is None else parse_curie(text, prefix=prefix) for text in ids]
    assert to_curies(pl.Series(ids, dtype=pl.String), prefix=prefix).to_list() == expected
