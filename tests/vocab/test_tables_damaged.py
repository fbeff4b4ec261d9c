from __future__ import annotations

import gzip
import re
import zipfile
from pathlib import Path

import polars as pl
import pytest

from sapbert.errors import ConfigError, FormatError
from sapbert.vocab.input_files import InputReader
from sapbert.vocab.readers.registry import read_vocabulary
from tests.conftest import Read
from tests.vocab.tables import FOLDER, names_of, rows_of, skipping, table, written


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
        ("t.tsv", "id\tname\nex:1\ta\n\tb\n", r"t\.tsv:3: the id is empty \(fill it in, or skip"),
        ("t.tsv", "id\tname\n:1\ta\n", r"t\.tsv:2: ':1' is not an id"),
        ("t.tsv", "id\tname\tpreferred\nex:1\ta\tmaybe\n", r"t\.tsv:2: preferred is 'maybe'"),
        ("t.tsv", "id\tname\nex:1\ta\tb\n", r"t\.tsv:2: expected 2 columns, found 3"),
        ("t.csv", 'id,name\nex:1,"a\nb"\nex:2\n', r"t\.csv:4: expected 2 columns, found 1"),
        (
            "t.csv",
            "id,name\nex:1,a,b\n",
            r"t\.csv:2: expected 2 columns, found 3 \(quote fields",
        ),
        ("t.csv", 'id,name\nex:1,"open\nex:2,b\n', r"t\.csv:2: broken record: .*quote"),
        ("t.csv", 'id,name\nex:1,"a"b\n', r"t\.csv:2: broken record"),
        ("t.csv", b"id,name\nex:1,a\nex:2,\xe9\n", r"t\.csv:3: byte 0xe9 in column 6 is not UTF-8"),
        ("t.tsv", b"id\tname\nex:1\ta\nex:2\t\xe9\n", r"t\.tsv:3: byte 0xe9 in column 6 is not UTF-8"),
        ("t.jsonl", b'{"id":"ex:1","name":"a"}\n{"id":"\xe9"}', r"t\.jsonl:2: byte 0xe9 in column 8"),
        ("t.jsonl", '{"id":"ex:1","name":"a"}\n{"id":', r"t\.jsonl:2: not JSON"),
        ("t.jsonl", "[1]\n", r"t\.jsonl:1: a list instead of an object"),
        ("t.jsonl", '{"id":"ex:1","name":["a"]}\n', r"t\.jsonl:1: the name is a list"),
        ("t.tsv", "", r"t\.tsv: the file is empty"),
        ("t.csv", "", r"t\.csv: the file is empty"),
        ("t.jsonl", "", r"t\.jsonl: the file is empty"),
        ("t.tsv", "id\tname\n", r"t\.tsv: there are no rows below the header"),
        ("t.csv", "id,name\n", r"t\.csv: there are no rows below the header"),
        ("t.parquet", "PAR1", r"t\.parquet: not a readable Parquet file"),
        ("t.xlsx", "PK", r"t\.xlsx: not a table: .*--format"),
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
    with pytest.raises(FormatError, match=r"the column 'name' contains Struct"):
        table(read, tmp_path / "t.parquet")


def test_a_parquet_error_names_the_row(read: Read, tmp_path: Path) -> None:
    pl.DataFrame({"id": ["ex:1", "2"], "name": ["a", "b"]}).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(FormatError, match=r"t\.parquet:2: the id '2' has no prefix"):
        table(read, tmp_path / "t.parquet")


def test_skipping_continues_after_bad_rows_and_reports_their_lines(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sapbert.vocab.input_files.BLOCK_BYTES", 24)
    rows = ["id\tname", "ex:1\tone", "", "two\ttwo", "ex:3", "ex:4\tfour", "five\tfive", "ex:6\tsix"]
    vocabulary = skipping(read, written(tmp_path, "t.tsv", "\r\n".join(rows)))

    assert [name for _, name, *_ in rows_of(vocabulary)] == ["one", "four", "six"]
    found = vocabulary.manifest.details["skipped"]
    assert sorted(re.findall(r"^t\.tsv:(\d+)", text)[0] for text in found) == ["4", "5", "7"]


def test_an_unknown_value_of_on_error_never_skips_rows(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^on_error is stop or skip, got 'raise'$"):
        read_vocabulary("table", tmp_path, tmp_path / "out", on_error="raise")  # type: ignore[arg-type]
    with pytest.raises(FormatError, match="bad"):
        InputReader(on_error="raise").reject_row(FormatError("t.csv", 1, "bad"))  # type: ignore[arg-type]


def test_skipping_continues_after_broken_csv_records(read: Read, tmp_path: Path) -> None:
    content = b'id,name\nex:1,a\nex:2,"b"c\nex:3,\xff\nex:4\nex:5,e\n'
    vocabulary = skipping(read, written(tmp_path, "t.csv", content))

    assert [name for _, name, *_ in rows_of(vocabulary)] == ["a", "e"]
    assert vocabulary.manifest.counts["bad rows skipped"] == 3


def test_a_truncated_gzip_is_reported_as_damaged(read: Read, tmp_path: Path) -> None:
    whole = gzip.compress(b"id\tname\n" + b"".join(b"ex:%d\tname %d\n" % (i, i * i) for i in range(999)))
    path = written(tmp_path, "t.tsv.gz", whole[:-200])
    with pytest.raises(FormatError, match=r"t\.tsv\.gz: damaged or truncated"):
        table(read, path)


def test_a_table_may_be_in_a_zip_but_only_as_its_sole_file(read: Read, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "one.zip", "w") as archive:
        archive.write(FOLDER / "long.tsv", "sub/long.tsv")
    assert table(read, tmp_path / "one.zip").fingerprint == table(read, FOLDER / "long.tsv").fingerprint
    with pytest.raises(FormatError, match=r"contains \d+ files \(give the table itself\)"):
        table(read, FOLDER)


def test_rows_without_a_name_are_counted_and_left_out(read: Read, tmp_path: Path) -> None:
    vocabulary = table(
        read, written(tmp_path, "t.tsv", "id\tname\tsynonyms\nex:1\t \tx|y\nex:2\t\t\nex:3\tz\t|\n")
    )

    assert names_of(vocabulary, "ex:1") == ["x", "y"]
    assert vocabulary.concept("ex:2") is None
    assert vocabulary.manifest.counts["rows without a name"] == 2


@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl"])
def test_a_byte_order_mark_nul_bytes_and_long_names_are_accepted(
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
