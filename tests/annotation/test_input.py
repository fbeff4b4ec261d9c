from __future__ import annotations

import gzip
import json
from pathlib import Path

import polars as pl
import pytest

from sapbert.annotation.input.document import Document, Passage
from sapbert.annotation.input.documents import read_documents
from sapbert.errors import FormatError
from sapbert.vocab.input_files import InputReader

PUBTATOR = "7|t|A title\n7|a|An abstract.\n7\t0\t1\tA\tDisease\tD1\n\n8|t|Other\n8|a|\n"
XML = """<collection><document><id>7</id>
<passage><infon key="type">title</infon><offset>0</offset><text>A title</text></passage>
<passage><offset>9</offset><sentence><offset>9</offset><text>Ça &amp; là.</text></sentence></passage>
</document></collection>"""
JSON = {
    "documents": [
        {
            "id": "7",
            "passages": [
                {"offset": 0, "infons": {"type": "title"}, "text": "A title"},
                {"offset": 9, "sentences": [{"offset": 9, "text": "Ça & là."}]},
            ],
        }
    ]
}


def read(path: Path, column: str | None = None) -> list[Document]:
    return list(read_documents(path, column, InputReader()).rows)


def test_a_text_file_is_one_document_and_a_folder_one_per_file(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("Fever\n\nnext", encoding="utf-8-sig")
    (tmp_path / "a.txt").write_text("x")

    assert [(one.id, one.text) for one in read(tmp_path / "b.txt")] == [("b", "Fever\n\nnext")]
    assert [one.id for one in read(tmp_path)] == ["a", "b"]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_table_has_one_document_per_row_and_copies_its_columns(tmp_path: Path, suffix: str) -> None:
    frame = pl.DataFrame({"id": [4, 5], "note": ["Fever", None], "text": ["other", "x"]})
    path = tmp_path / f"notes{suffix}"
    if suffix == ".parquet":
        frame.write_parquet(path)
    else:
        path.write_text(frame.write_csv() if suffix == ".csv" else frame.write_ndjson())

    assert [(one.id, one.text) for one in read(path, "note")] == [("4", "Fever"), ("5", "")]
    assert read_documents(path, "note", InputReader()).columns == ("id", "text")
    assert [one.text for one in read(path)] == ["other", "x"]


def test_pubtator_is_recognized_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text(PUBTATOR)
    (tmp_path / "corpus.txt.gz").write_bytes(gzip.compress(PUBTATOR.encode()))

    for path in (tmp_path / "corpus.txt", tmp_path / "corpus.txt.gz"):
        first, second = read(path)
        assert (first.id, first.text) == ("7", "A title An abstract.")
        assert first.passages == (Passage("title", 0, 7), Passage("abstract", 8, 20))
        assert (second.text, second.passages) == ("Other", (Passage("title", 0, 5),))


def test_bioc_xml_and_json_have_the_offsets_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "c.xml").write_text(XML, encoding="utf-8")
    (tmp_path / "c.json").write_text(json.dumps(JSON))

    [xml], [other] = read(tmp_path / "c.xml"), read(tmp_path / "c.json")
    assert xml == other
    assert xml.text == "A title  Ça & là."
    assert [xml.text[start:end] for _, start, end in xml.passages] == ["A title", "Ça & là."]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.txt", b"\x00\x01binary", "null bytes"),
        ("a.txt", b"one\nf\xe9ver", r"a\.txt:2: byte 0xe9 is not UTF-8"),
        ("a.xml", b"<collection><document>", "not BioC XML"),
        ("a.json", b'{"documents": [{"id": 1}]}', "not a BioC collection"),
        ("a.json", b"[", "not a BioC collection"),
        (
            "a.json",
            b'{"documents": [{"id": 1, "passages": [{"offset": 9, "text": ""}, {"offset": 8, "text":""}]}]}',
            "a passage begins at 8, but the text before it ends at 9",
        ),
        ("a.csv", b"id,note\n1,x\n", "no column 'text'"),
    ],
)
def test_bad_input_is_one_line_that_names_the_file(
    tmp_path: Path, name: str, content: bytes, problem: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FormatError, match=problem):
        read(tmp_path / name)


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"no \.txt file"):
        read(tmp_path)
