from __future__ import annotations

import csv
import gzip
import io
import json
import re
import tempfile
import zipfile
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapbert.curies import parse_curie
from sapbert.errors import ConfigError, FormatError
from sapbert.text import tidy
from sapbert.vocab.columns import to_curies
from sapbert.vocab.intake import Intake
from sapbert.vocab.tabular import TableSettings, read_table
from sapbert.vocab.vocabulary import Vocabulary
from sapbert.vocab.writer import write_vocabulary
from tests.conftest import GOLDEN, Read

FOLDER = GOLDEN / "table"
SHARED = (
    "cl_2026-03", "doid", "doid_es_2026-08", "drugbank_vocabulary", "drugcentral", "ec", "efo", "go", "hgnc",
    "hpo_2025-01", "hpo_layperson", "hpo_translations_2026-08", "icd10cm_2026-04", "medic_2012_biosyn",
    "mesh_descriptors", "mesh_supplementary", "mondo", "mondo_2026-05", "ncbitaxon_with_synonyms_2026-05",
    "orphanet_12lang_2026", "pharmgkb.disease", "symp_2026-07", "uberon_2026-04",
)  # fmt: skip


def table(read: Read, path: Path, told: TableSettings | None = None) -> Vocabulary:
    return read(lambda writer, intake: read_table(path, writer, intake, told or TableSettings()))


def skipping(read: Read, path: Path, told: TableSettings | None = None) -> Vocabulary:
    return read(
        lambda writer, intake: read_table(path, writer, intake, told or TableSettings()), on_error="skip"
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


def test_a_long_tsv_has_a_row_a_name_and_its_quotes_are_data(read: Read) -> None:
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
    monkeypatch.setattr("sapbert.vocab.intake.BLOCK_BYTES", 16)
    rows = ["id\tname", "ex:2\tzebra", "ex:1\tyak", "ex:1\tant", "ex:2\tbee", "ex:1\tasp"]
    vocabulary = table(read, written(tmp_path, "t.tsv", "\n".join(rows)))

    assert names_of(vocabulary, "ex:1") == ["yak", "ant", "asp"]
    assert names_of(vocabulary, "ex:2") == ["zebra", "bee"]


def test_several_ids_in_a_field_share_the_row(read: Read, tmp_path: Path) -> None:
    vocabulary = table(
        read, written(tmp_path, "t.tsv", "concept_id\tname\nD1|C2\tketamine\n"), TableSettings(prefix="mesh")
    )

    assert [concept.id for concept in vocabulary.find("Ketamine")] == ["mesh:C2", "mesh:D1"]


def test_columns_are_found_by_their_usual_names_in_any_case_or_by_option(read: Read, tmp_path: Path) -> None:
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
def test_a_column_that_is_nowhere_is_an_error_that_lists_those_found(
    suffix: str, read: Read, tmp_path: Path
) -> None:
    rows = {"jsonl": '{"wort": 1, "id": "ex:1"}\n', "csv": "wort,id\nx,ex:1\n"}
    path = written(tmp_path, f"t.{suffix}", rows.get(suffix, "wort\tid\nx\tex:1\n"))

    with pytest.raises(FormatError, match=r"no name column; found wort, id \(give --name-column"):
        table(read, path)
    with pytest.raises(FormatError, match=r"no column 'nom'; found wort, id \(give --name-column"):
        table(read, path, TableSettings(name_column="nom"))


def test_a_repeated_header_does_not_shift_columns(read: Read, tmp_path: Path) -> None:
    vocabulary = table(read, written(tmp_path, "t.tsv", "note\tnote\tid\tname\na\tb\tex:1\tone\n"))
    assert names_of(vocabulary, "ex:1") == ["one"]


def test_a_raw_biosyn_dictionary_has_a_line_a_concept(read: Read) -> None:
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

    with pytest.raises(FormatError, match=r"meddra\.txt:2: the id '10000001' .*--prefix"):
        table(read, path)
    vocabulary = table(read, path, TableSettings(prefix="meddra", language="fr", source="tac"))
    assert vocabulary.names.select("concept_id", "language", "source").collect().rows() == [
        ("meddra:10000001", "fr", "tac"),
        ("meddra:600001", "fr", "tac"),
    ]


def test_broken_biosyn_lines_are_named_or_skipped(read: Read, tmp_path: Path) -> None:
    path = written(tmp_path, "d.txt", b"D000001||a\n\nD000002 b\nD000003||\xff\nD000004||\n")

    with pytest.raises(FormatError, match=r"d\.txt:4: byte 0xff in column 10 is not UTF-8"):
        table(read, path)
    vocabulary = skipping(read, path)
    assert vocabulary.manifest.counts["names"] == 1
    assert vocabulary.manifest.details["skipped"] == [
        "d.txt:4: byte 0xff in column 10 is not UTF-8 (the file must be UTF-8)",
        "d.txt:3: no || in 'D000002 b' (id||name is wanted)",
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "t.tsv",
            "id\tname\nex:1\ta\n\nD2\tb\n",
            r"t\.tsv:4: the id 'D2' has no prefix \(give one: --prefix",
        ),
        ("t.csv", 'id,name\nex:1,"a\nb"\nD2,b\n', r"t\.csv:4: the id 'D2' has no prefix"),
        (
            "t.jsonl",
            '{"id":"ex:1","name":"a"}\n\n{"id":2,"name":"b"}',
            r"t\.jsonl:3: the id '2' has no prefix",
        ),
        ("t.tsv", "id\tname\nex:1\ta\n\tb\n", r"t\.tsv:3: the id is empty"),
        ("t.tsv", "id\tname\n:1\ta\n", r"t\.tsv:2: ':1' is no id"),
        ("t.tsv", "id\tname\tpreferred\nex:1\ta\tmaybe\n", r"t\.tsv:2: preferred is 'maybe'"),
        ("t.tsv", "id\tname\nex:1\ta\tb\n", r"t\.tsv:2: expected 2 columns, found 3"),
        ("t.csv", 'id,name\nex:1,"a\nb"\nex:2\n', r"t\.csv:4: expected 2 columns, found 1"),
        ("t.csv", 'id,name\nex:1,"open\nex:2,b\n', r"t\.csv:2: broken record: .*quote"),
        ("t.csv", 'id,name\nex:1,"a"b\n', r"t\.csv:2: broken record"),
        ("t.csv", b"id,name\nex:1,a\nex:2,\xe9\n", r"t\.csv:3: byte 0xe9 in column 6 is not UTF-8"),
        ("t.tsv", b"id\tname\nex:1\ta\nex:2\t\xe9\n", r"t\.tsv:3: byte 0xe9 in column 6 is not UTF-8"),
        ("t.jsonl", b'{"id":"ex:1","name":"a"}\n{"id":"\xe9"}', r"t\.jsonl:2: byte 0xe9 in column 8"),
        ("t.jsonl", '{"id":"ex:1","name":"a"}\n{"id":', r"t\.jsonl:2: no JSON"),
        ("t.jsonl", "[1]\n", r"t\.jsonl:1: a list instead of an object"),
        ("t.jsonl", '{"id":"ex:1","name":["a"]}\n', r"t\.jsonl:1: the name is a list"),
        ("t.tsv", "", r"t\.tsv: the file is empty"),
        ("t.csv", "", r"t\.csv: the file is empty"),
        ("t.jsonl", "", r"t\.jsonl: the file is empty"),
        ("t.tsv", "id\tname\n", r"t\.tsv: there are no rows below the header"),
        ("t.csv", "id,name\n", r"t\.csv: there are no rows below the header"),
        ("t.parquet", "PAR1", r"t\.parquet: no readable Parquet file"),
        ("t.xlsx", "PK", r"t\.xlsx: no table by its name .*--format"),
    ],
)
def test_a_damaged_table_is_refused_in_one_line(
    name: str, content: bytes | str, message: str, read: Read, tmp_path: Path
) -> None:
    with pytest.raises(FormatError, match=message) as caught:
        table(read, written(tmp_path, name, content))
    assert "\n" not in str(caught.value)


def test_a_parquet_column_of_structs_is_refused(read: Read, tmp_path: Path) -> None:
    pl.DataFrame({"id": ["ex:1"], "name": [{"en": "a"}]}).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(FormatError, match=r"the column 'name' holds no text but Struct"):
        table(read, tmp_path / "t.parquet")


def test_a_parquet_error_names_the_row(read: Read, tmp_path: Path) -> None:
    pl.DataFrame({"id": ["ex:1", "2"], "name": ["a", "b"]}).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(FormatError, match=r"t\.parquet:2: the id '2' has no prefix"):
        table(read, tmp_path / "t.parquet")


def test_skipping_goes_on_after_bad_rows_and_names_their_lines(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sapbert.vocab.intake.BLOCK_BYTES", 24)
    rows = ["id\tname", "ex:1\tone", "", "two\ttwo", "ex:3", "ex:4\tfour", "five\tfive", "ex:6\tsix"]
    vocabulary = skipping(read, written(tmp_path, "t.tsv", "\r\n".join(rows)))

    assert [name for _, name, *_ in rows_of(vocabulary)] == ["one", "four", "six"]
    found = vocabulary.manifest.details["skipped"]
    assert sorted(re.findall(r"^t\.tsv:(\d+)", text)[0] for text in found) == ["4", "5", "7"]


def test_skipping_goes_on_after_broken_csv_records(read: Read, tmp_path: Path) -> None:
    content = b'id,name\nex:1,a\nex:2,"b"c\nex:3,\xff\nex:4\nex:5,e\n'
    vocabulary = skipping(read, written(tmp_path, "t.csv", content))

    assert [name for _, name, *_ in rows_of(vocabulary)] == ["a", "e"]
    assert vocabulary.manifest.counts["bad rows skipped"] == 3


def test_a_cut_off_gzip_is_damaged(read: Read, tmp_path: Path) -> None:
    whole = gzip.compress(b"id\tname\n" + b"".join(b"ex:%d\tname %d\n" % (i, i * i) for i in range(999)))
    path = written(tmp_path, "t.tsv.gz", whole[:-200])
    with pytest.raises(FormatError, match=r"t\.tsv\.gz: damaged or cut off"):
        table(read, path)


def test_a_table_may_come_in_a_zip_but_not_among_others(read: Read, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "one.zip", "w") as archive:
        archive.write(FOLDER / "long.tsv", "sub/long.tsv")
    assert table(read, tmp_path / "one.zip").fingerprint == table(read, FOLDER / "long.tsv").fingerprint
    with pytest.raises(FormatError, match=r"there are \d+ files in here \(give the table itself\)"):
        table(read, FOLDER)


def test_rows_without_a_name_are_counted_and_left_out(read: Read, tmp_path: Path) -> None:
    vocabulary = table(
        read, written(tmp_path, "t.tsv", "id\tname\tsynonyms\nex:1\t \tx|y\nex:2\t\t\nex:3\tz\t|\n")
    )

    assert names_of(vocabulary, "ex:1") == ["x", "y"]
    assert vocabulary.concept("ex:2") is None
    assert vocabulary.manifest.counts["rows without a name"] == 2


@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl"])
def test_a_byte_order_mark_nul_bytes_and_long_names_are_no_trouble(
    suffix: str, read: Read, tmp_path: Path
) -> None:
    long = "ä" * 50_000
    rows = {
        "tsv": f"id\tname\r\nex:1\t{long}\r\nex:2\ta\0b\r\n",
        "csv": f"id,name\r\nex:1,{long}\r\nex:2,a\0b\r\n",
        "jsonl": f'{{"id":"ex:1","name":"{long}"}}\r\n{{"id":"ex:2","name":"a\\u0000b"}}\r\n',
    }
    vocabulary = table(read, written(tmp_path, f"t.{suffix}", b"\xef\xbb\xbf" + rows[suffix].encode()))

    assert names_of(vocabulary, "ex:1") == [long]
    assert names_of(vocabulary, "ex:2") == ["a b"]


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
def test_settings_that_cannot_work_are_refused(wrong: dict[str, str]) -> None:
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
            out, intake = Path(folder, f"out{number}"), Intake()
            with write_vocabulary(out, {}, intake) as writer:
                read_table(path, writer, intake, TableSettings())
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


def stated_counts(shared_data: Path) -> dict[str, tuple[int, int | None]]:
    """Concepts and, where told, names of each file, from the table of the README beside the data."""
    found: dict[str, tuple[int, int | None]] = {}
    for line in (shared_data / "README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        files = cells[0].split(", ")
        counts = cells[2].replace(" concepts", "").split(" · ") if len(cells) > 2 else []
        if len(files) != len(counts) or files[0] not in SHARED:
            continue
        for file, count in zip(files, counts, strict=True):
            concepts, *names = (int(part.replace(",", "")) for part in count.split(" / "))
            found[file] = (concepts, names[0] if names else None)
    return found


def test_every_shared_vocabulary_is_tried(shared_data: Path) -> None:
    files = {path.name.removesuffix(".tsv.gz") for path in (shared_data / "vocabularies").iterdir()}
    assert files - {"xrefs"} == set(SHARED) == set(stated_counts(shared_data))


@pytest.mark.parametrize("name", SHARED)
def test_shared_vocabularies_have_the_counts_their_readme_states(
    name: str, shared_data: Path, read: Read
) -> None:
    told = TableSettings(prefix="mesh" if name == "mesh_descriptors" else None)
    vocabulary = table(read, shared_data / "vocabularies" / f"{name}.tsv.gz", told)

    # The README counts rows; no row repeats another's concept, name, language and source.
    concepts, names = stated_counts(shared_data)[name]
    assert vocabulary.manifest.counts["concepts"] == concepts
    assert names in (vocabulary.manifest.counts["names"], None)


def test_medic_as_biosyn_has_it_equals_its_table(shared_data: Path, read: Read) -> None:
    raw = table(read, shared_data / "raw" / "medic_06Jul2012.txt.gz")
    rows = table(read, shared_data / "vocabularies" / "medic_2012_biosyn.tsv.gz")

    columns = ["concept_id", "name", "preferred"]
    assert raw.names.select(columns).collect().equals(rows.names.select(columns).collect())
    # What BioSyn's own processing would leave: lower case, punctuation to spaces, equal names made one.
    processed = raw.names.select(
        pl.col("name")
        .str.to_lowercase()
        .str.replace_all(r"[^\p{L}\p{N}_\s]", " ")
        .str.replace_all(r"\s+", " ")
        .str.strip_chars()
    ).unique()
    stated = json.loads((shared_data / "benchmarks" / "ncbi-disease" / "stats.json").read_text())
    assert processed.collect().height == stated["dict_unique_processed_names"]
