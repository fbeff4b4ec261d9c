from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sapbert.annotation.annotation import Annotation
from sapbert.annotation.context.rules import Trigger
from sapbert.annotation.formats.annotated_document import FIELDS, AnnotatedDocument
from sapbert.annotation.formats.bioc import BiocJsonFormat, BiocXmlFormat
from sapbert.annotation.formats.pubtator import PubtatorFormat
from sapbert.annotation.formats.records import FhirFormat, NoteNlpFormat, WebAnnotationFormat
from sapbert.annotation.formats.table import CsvFormat, JsonlFormat
from sapbert.annotation.input.bioc import read_bioc
from sapbert.annotation.input.document import Document, Passage
from sapbert.annotation.input.pubtator import read_pubtator
from sapbert.vocab.input_files import InputFile, InputReader, Member, Release

TEXT = 'High\n"fever", 😷 fever'
FEVER = Annotation(
    start=6,
    end=11,
    mention="fever",
    concept_id="mesh:D1",
    preferred_name="Fever",
    matched_name="Fever",
    matched_by="exact",
    score=1.0,
    confidence=0.9,
    other_concept_ids=("x:1", "x:2"),
    types=("C",),
)
ITEM = AnnotatedDocument(1, Document("7", TEXT, {"id": 7, "score": 3, "text": TEXT}), [FEVER])


def test_csv_has_one_row_per_annotation_and_renames_columns_of_the_same_name() -> None:
    table = CsvFormat(("id", "score"))
    [row] = csv.DictReader(io.StringIO(table.header() + table.rows([ITEM])))

    assert list(row) == ["id", "input_score", *FIELDS]
    assert row["input_score"] == "3"
    assert row["other_concept_ids"] == "x:1|x:2"
    assert (row["start"], row["end"], row["nested"], row["expanded"]) == ("6", "11", "false", "")


def test_jsonl_has_one_line_per_document() -> None:
    other = AnnotatedDocument(2, Document("8", "x", {"text": "x"}), [])
    first, second = map(json.loads, JsonlFormat().rows([ITEM, other]).splitlines())

    assert first["text"] == TEXT
    assert first["annotations"][0]["concept_id"] == "mesh:D1"
    assert second == {"text": "x", "document_id": "8", "annotations": []}


def test_pubtator_keeps_offsets_and_reads_back(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(PubtatorFormat().rows([ITEM]), encoding="utf-8")
    [read] = read_pubtator(Release(tmp_path).find_all(".*")[0], InputReader())

    assert (read.id, read.title, read.text) == ("7", "High", TEXT.replace("\n", " "))
    [annotation] = read.annotations
    assert (annotation.start, annotation.end, annotation.text) == (6, 11, "fever")
    assert (annotation.type, annotation.ids) == ("C", "mesh:D1")


@given(st.text(max_size=20), st.text(max_size=20))
def test_pubtator_has_two_lines_per_text_of_the_same_length(title: str, abstract: str) -> None:
    text = f"{title} {abstract}"
    passages = (Passage("title", 0, len(title)), Passage("abstract", len(title) + 1, len(text)))
    written = PubtatorFormat().rows([AnnotatedDocument(1, Document("1", text, {}, passages), [])])

    first, second, end = written.split("\n", 2)
    assert end == "\n"
    assert (len(first), len(second)) == (len(title) + 4, len(abstract) + 4)


@given(st.text(max_size=20), st.text(max_size=20))
def test_bioc_reads_back_as_written(title: str, abstract: str) -> None:
    text = f"{title} {abstract}"
    passages = (Passage("title", 0, len(title)), Passage("abstract", len(title) + 1, len(text)))
    items = [AnnotatedDocument(number, Document(str(number), text, {}, passages), []) for number in (1, 2)]
    for bioc, suffix in ((BiocJsonFormat(), "json"), (BiocXmlFormat(), "xml")):
        content = bioc.header() + bioc.rows(items[:1]) + bioc.rows(items[1:]) + bioc.footer()
        member = Member(f"a.{suffix}", 0, lambda content=content: io.BytesIO(content.encode()))  # type: ignore[misc]
        read = list(read_bioc(InputFile(member.name, (member,)), InputReader()))

        assert [document.id for document in read] == ["1", "2"]
        assert [document.passages for document in read] == [passages, passages]
        if suffix == "json":
            assert read[0].text == text


def test_bioc_annotations_are_in_the_passage_of_their_offset() -> None:
    passages = (Passage("title", 0, 4), Passage("abstract", 5, len(TEXT)))
    item = AnnotatedDocument(1, Document("7", TEXT, {}, passages), [FEVER])
    [document] = json.loads(
        BiocJsonFormat().header() + BiocJsonFormat().rows([item]) + BiocJsonFormat().footer()
    )["documents"]

    title, abstract = document["passages"]
    assert title["annotations"] == []
    [annotation] = abstract["annotations"]
    assert annotation["locations"] == [{"offset": 6, "length": 5}]
    assert annotation["infons"]["identifier"] == "mesh:D1"
    assert '<location offset="6" length="5"/>' in BiocXmlFormat().rows([item])


def test_web_annotations_select_by_position_and_quote() -> None:
    record = json.loads(WebAnnotationFormat().rows([ITEM]))
    position, quote = record["target"]["selector"]

    assert (position["start"], position["end"]) == (6, 11)
    assert quote["prefix"] + quote["exact"] + quote["suffix"] == TEXT


def test_clinical_records_say_whether_the_finding_exists() -> None:
    negated = replace(FEVER, context=(Trigger("negated", 0, 2, "No"),))
    family = replace(FEVER, context=(Trigger("family", 0, 2, "Mother"),))
    item = ITEM._replace(annotations=[FEVER, negated, family])
    notes = list(csv.DictReader(io.StringIO(NoteNlpFormat().header() + NoteNlpFormat().rows([item]))))
    conditions = [json.loads(line) for line in FhirFormat().rows([item]).splitlines()]

    assert [row["term_exists"] for row in notes] == ["Y", "N", "N"]
    assert len({row["note_nlp_id"] for row in notes}) == 3
    statuses = [one["verificationStatus"]["coding"][0]["code"] for one in conditions]
    assert statuses == ["provisional", "refuted"]
