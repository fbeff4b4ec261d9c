from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapbert.errors import FormatError, SapbertError
from sapbert.linking.input.mentions import MentionStream, mentions_from_lines, mentions_from_list
from sapbert.linking.input.tables import read_mention_table
from sapbert.vocab.input_files import InputReader
from tests.conftest import GOLDEN

Save = Callable[[str, bytes], Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    def write(name: str, content: bytes) -> Path:
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return write


def read(path: Path, column: str | None = None) -> tuple[list[str], list[dict[str, Any]]]:
    found = list(read_mention_table(path, column, InputReader()).rows)
    return [row.mention for row in found], [dict(row.row) for row in found]


def texts(mentions: MentionStream) -> list[str]:
    return [row.mention for row in mentions.rows]


def test_mentions_from_a_list_have_one_column() -> None:
    mentions = mentions_from_list(["cold", ""])
    assert (mentions.column, mentions.columns) == ("mention", ("mention",))
    assert list(mentions.rows) == [("cold", {"mention": "cold"}), ("", {"mention": ""})]


def test_empty_lines_are_empty_mentions() -> None:
    assert texts(mentions_from_lines([b"\xef\xbb\xbfcold\r\n", b"\n", b" hot "], "x")) == [
        "cold",
        "",
        " hot ",
    ]


def test_the_example_is_read_with_quotes_and_an_empty_cell() -> None:
    mentions, rows = read(GOLDEN.parents[1] / "examples" / "patients.csv", "diagnosis")

    assert len(mentions) == 12
    assert mentions[1:5] == ["diabetes, type II", "HTN", "", '"mini stroke", last year']
    assert rows[3] == {"patient": "4", "diagnosis": ""}


def test_invalid_utf8_is_reported_with_line_and_column() -> None:
    with pytest.raises(FormatError, match=r"standard input:2: byte 0xe9 in column 2 is not UTF-8"):
        texts(mentions_from_lines([b"cold\n", b"p\xe9\n"], "standard input"))


ROWS = [
    {"code": "1", "text": "cold, common"},
    {"code": "2", "text": '"quoted" one'},
    {"code": "", "text": ""},
]
SAME = {
    "t.csv": b'code,text\n1,"cold, common"\n2,"""quoted"" one"\n,\n',
    "t.tsv": b'code\ttext\r\n1\tcold, common\r\n2\t"quoted" one\r\n\t\r\n',
    "t.jsonl": b"".join(json.dumps(row).encode() + b"\n" for row in ROWS),
    "semicolons.csv": b'\xef\xbb\xbfcode;text\n1;cold, common\n2;"""quoted"" one"\n;\n',
}


@pytest.mark.parametrize("name", SAME)
def test_every_text_table_gives_mentions_and_complete_rows(save: Save, name: str) -> None:
    for path in (save(name, SAME[name]), save(f"{name}.gz", gzip.compress(SAME[name]))):
        assert read(path, "text") == ([row["text"] for row in ROWS], ROWS)


def test_parquet_keeps_types(tmp_path: Path) -> None:
    rows = [{"n": 1, "day": date(2026, 1, 2), "mention": "cold"}, {"n": None, "day": None, "mention": None}]
    pl.DataFrame(rows).write_parquet(tmp_path / "t.parquet")

    mentions = read_mention_table(tmp_path / "t.parquet", None, InputReader())

    assert dict(mentions.schema or {}) == {"n": pl.Int64, "day": pl.Date, "mention": pl.String}
    assert [(row.mention, row.row) for row in mentions.rows] == [("cold", rows[0]), ("", rows[1])]


def test_a_text_file_has_one_mention_per_line_unless_a_column_is_given(save: Save) -> None:
    path = save("t.txt", b"a\tmention\n1\tcold\n")
    assert read(path)[0] == ["a\tmention", "1\tcold"]
    assert read(path, "mention")[0] == ["cold"]


def test_the_default_column_is_the_only_one_or_mention(save: Save) -> None:
    assert read(save("one.csv", b"diagnosis\ncold\n"))[0] == ["cold"]
    assert read(save("two.csv", b"id,mention\n1,cold\n"))[0] == ["cold"]


def test_a_missing_column_is_reported_with_the_most_similar(save: Save) -> None:
    with pytest.raises(
        FormatError, match=r"t.csv: no column 'diagnose'; did you mean 'diagnosis'\? .*: id, diagnosis"
    ):
        read(save("t.csv", b"id,diagnosis\n1,cold\n"), "diagnose")


def test_two_columns_of_one_name_are_refused(save: Save) -> None:
    with pytest.raises(FormatError, match="two columns are called 'a'"):
        read(save("t.csv", b"a,b,a\n1,2,3\n"), "b")


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.jsonl"])
def test_an_empty_file_is_refused(save: Save, name: str) -> None:
    with pytest.raises(FormatError, match="the file is empty"):
        read(save(name, b""))


def test_a_table_with_only_a_header_has_no_mentions(save: Save) -> None:
    assert read(save("t.csv", b"id,mention\n")) == ([], [])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b"mention\ncold\np\xe9\n", r"t.csv:3: byte 0xe9 in column 2 is not UTF-8"),
        ("t.tsv", b"id\tmention\n1\tp\xe9\n", r"t.tsv:2: byte 0xe9"),
        ("t.csv", b"id,mention\n1,cold\n2\n", r"t.csv:3: expected 2 columns, found 1"),
        ("t.csv", b'id,mention\n1,"cold\n', r"t.csv:2: broken record"),
        ("t.jsonl", b'{"mention": "a"}\n{"mention": \n', r"t.jsonl:2: not JSON"),
        ("t.jsonl", b'{"mention": "a"}\n{"mention": ["b"]}\n', r"t.jsonl:2: the mention is a list"),
        ("t.parquet", b"PAR1 not at all", r"t.parquet: not a readable Parquet"),
        ("t.xls", b"x", r"not a table: .*\(save it as one of these\)"),
        ("d.txt", b"D1||cold\n", r"this is a BioSyn dictionary"),
    ],
)
def test_an_invalid_table_is_reported_with_its_line(
    save: Save, name: str, content: bytes, message: str
) -> None:
    with pytest.raises(SapbertError, match=message):
        read(save(name, content), "mention")


def test_json_rows_may_lack_the_mention_or_have_a_number(save: Save) -> None:
    mentions, rows = read(save("t.jsonl", b'{"mention": 7}\n\n{"x": [1, {"y": null}]}\n'))
    assert mentions == ["7", ""]
    assert rows[1] == {"x": [1, {"y": None}]}


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.jsonl"])
def test_a_mention_of_a_megabyte_is_read(save: Save, name: str) -> None:
    long = "x" * 1_000_000
    content = json.dumps({"mention": long}) if name == "t.jsonl" else f"mention\n{long}"
    assert read(save(name, content.encode()))[0] == [long]


def test_a_table_is_read_lazily(save: Save) -> None:
    path = save("t.csv", b"mention\n" + b"cold\n" * 500_000 + b"p\xe9\n")
    rows = read_mention_table(path, None, InputReader()).rows
    assert next(rows).mention == "cold"


@settings(max_examples=30)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\x00")), min_size=1))
def test_parquet_and_jsonl_preserve_any_text(
    tmp_path_factory: pytest.TempPathFactory, found: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("t")
    pl.DataFrame({"mention": found}).write_parquet(folder / "t.parquet")
    (folder / "t.jsonl").write_text("".join(json.dumps({"mention": text}) + "\n" for text in found))

    assert read(folder / "t.parquet")[0] == found
    assert read(folder / "t.jsonl")[0] == found
