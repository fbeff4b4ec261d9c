from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapbert.errors import ConfigError, SapbertError
from sapbert.linking.candidate import Candidate, MatchedBy
from sapbert.linking.formats.linked_mention import FIELDS, LinkedMention, input_column_names
from sapbert.linking.formats.sssom import SssomFormat
from sapbert.linking.formats.text import CsvFormat, JsonlFormat, TextFormat
from sapbert.linking.formats.usagi import UsagiFormat

HEART = Candidate("omop:4329847", "Myocardial infarction", "Heart attack", 1.0, 0.97, "exact")
OTHER = Candidate("omop:77670", "Chest pain", 'Pain\tin the "chest"', 0.71, None, "dense")
LINKED = [
    LinkedMention(1, "heart\nattack", {"id": 7, "name": "heart\nattack"}, [HEART, OTHER]),
    LinkedMention(2, "xyz", {"id": None, "name": "xyz"}, []),
]
COLUMNS = ("id", "name")


def written(
    format: TextFormat[LinkedMention], linked: list[LinkedMention] = LINKED, *, delimiter: str = ","
) -> list[dict[str, str]]:
    text = format.header() + format.rows(linked)
    assert text.endswith("\n")
    rows = (line for line in io.StringIO(text, newline="") if not line.startswith("#"))
    return list(csv.DictReader(rows, delimiter=delimiter))


def test_csv_has_one_row_per_candidate_after_the_input_columns() -> None:
    first, second, nil = written(CsvFormat(COLUMNS))

    assert list(first) == ["id", "name", *FIELDS]
    assert list(first.values()) == [
        "7", "heart\nattack",
        "1", "omop:4329847", "Myocardial infarction", "Heart attack", "", "1.0", "0.97", "exact", "",
    ]  # fmt: skip
    assert (second["rank"], second["matched_name"], second["confidence"]) == ("2", 'Pain\tin the "chest"', "")
    assert list(nil.values()) == ["", "xyz", "1", "NIL", *[""] * 7]


def test_jsonl_keeps_the_values_of_the_input_row() -> None:
    lines = [json.loads(line) for line in JsonlFormat().rows(LINKED).splitlines()]

    assert [line["rank"] for line in lines] == [1, 2, 1]
    assert lines[0]["id"] == 7
    assert (lines[1]["score"], lines[1]["confidence"], lines[1]["matched_by"]) == (0.71, None, "dense")
    assert lines[2] == {"id": None, "name": "xyz", "rank": 1, "concept_id": "NIL"} | dict.fromkeys(FIELDS[2:])


def test_an_input_column_named_like_an_output_column_is_renamed() -> None:
    assert input_column_names(("score", "x", "input_score", "rank")) == [
        "input_input_score",
        "x",
        "input_score",
        "input_rank",
    ]
    [line] = JsonlFormat().rows([LinkedMention(1, "a", {"rank": "mine"}, [])]).splitlines()
    assert (json.loads(line)["input_rank"], json.loads(line)["rank"]) == ("mine", 1)


@given(
    st.lists(st.sampled_from([*FIELDS, "a", "input_rank", "input_score", "input_input_rank"]), unique=True)
)
def test_output_column_names_are_distinct(columns: list[str]) -> None:
    names = [*input_column_names(columns), *FIELDS]
    assert len(set(names)) == len(names)


def test_only_jsonl_supports_rows_with_new_keys() -> None:
    late = [LinkedMention(9, "a", {"name": "a", "late": [1]}, [])]
    assert '"late": [1]' in JsonlFormat().rows(late)
    for narrow in (CsvFormat(COLUMNS), UsagiFormat(COLUMNS, "name", ("omop",))):
        with pytest.raises(SapbertError, match=r"row 9 has a new key 'late'.* \.jsonl"):
            narrow.rows(late)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\x00"))))
def test_csv_preserves_any_text(texts: list[str]) -> None:
    linked = [LinkedMention(number, text, {"mention": text}, []) for number, text in enumerate(texts, 1)]
    written = CsvFormat(("mention",))
    rows = list(csv.reader(io.StringIO(written.header() + written.rows(linked), newline="")))
    assert [row[0] for row in rows[1:]] == texts


# SSSOM


def test_sssom_contains_justification_and_similarity() -> None:
    first, second, nil = written(SssomFormat(("omop",), "f00d", "{}"), delimiter="\t")

    assert first["subject_label"] == "heart attack"
    assert {row["subject_type"] for row in (first, second, nil)} == {"rdfs literal"}
    assert (first["object_id"], first["predicate_id"]) == ("omop:4329847", "skos:exactMatch")
    assert first["mapping_justification"] == "semapv:LexicalMatching"
    assert (second["mapping_justification"], second["similarity_score"], second["confidence"]) == (
        "semapv:SemanticSimilarityThresholdMatching", "0.71", ""
    )  # fmt: skip
    assert (nil["object_id"], nil["object_source"]) == ("sssom:NoTermFound", "sapbert.index:f00d")


@pytest.mark.parametrize("matched_by", get_args(MatchedBy))
def test_every_matched_by_has_a_justification(matched_by: MatchedBy) -> None:
    linked = [LinkedMention(1, "a", {}, [Candidate("x:1", "b", "b", 0.5, None, matched_by)])]
    [row] = written(SssomFormat(("x",), "f00d", "{}"), linked, delimiter="\t")
    assert row["mapping_justification"].startswith("semapv:")


def test_a_reranked_candidate_has_both_scores() -> None:
    linked = [LinkedMention(1, "a", {}, [Candidate("x:1", "b", "b", 0.5, None, "reranked", 7.25)])]
    [row] = written(CsvFormat(()), linked)
    assert (row["score"], row["matched_by"], row["rerank_score"]) == ("0.5", "reranked", "7.25")


def test_a_similarity_is_never_negative() -> None:
    unlike = [LinkedMention(1, "a", {}, [Candidate("x:1", "b", "b", -0.2, None, "dense")])]
    [row] = written(SssomFormat(("x",), "f00d", "{}"), unlike, delimiter="\t")
    assert row["similarity_score"] == "0.0"


def test_sssom_contains_the_kind_of_the_matched_name_and_the_language_of_labels() -> None:
    spanish = SssomFormat(("x",), "f00d", "{}", language="es")
    brand = Candidate("x:1", "b", "B", 0.5, None, "dense", name_kind="brand")
    [row] = written(spanish, [LinkedMention(1, "a", {}, [brand])], delimiter="\t")

    assert row["comment"] == "name_kind: brand"
    assert "# comment: object_label is in es if" in spanish.header()


def test_an_empty_mention_has_no_mapping() -> None:
    assert SssomFormat(("x",), "f00d", "{}").rows([LinkedMention(1, " ", {}, [])]) == ""


@pytest.mark.filterwarnings("ignore")  # the package's own, of pandas
def test_the_sssom_package_validates_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    parsers = pytest.importorskip("sssom.parsers")
    validators = pytest.importorskip("sssom.validators")
    sssom = SssomFormat(("omop", "mesh"), "f00d", '{"k": 5}')
    (tmp_path / "links.sssom.tsv").write_text(sssom.header() + sssom.rows(LINKED))

    mappings = parsers.parse_sssom_table(tmp_path / "links.sssom.tsv")
    reports = validators.validate(mappings, fail_on_error=True)

    assert [result for report in reports.values() for result in report.results] == []
    assert [record.getMessage() for record in caplog.records if record.levelname != "INFO"] == []
    mappings.clean_prefix_map(strict=True)  # as `sssom parse`: raises if a prefix is unknown
    assert set(mappings.df["object_id"]) == {"omop:4329847", "omop:77670", "sssom:NoTermFound"}
    assert set(mappings.df["mapping_tool"]) == {"sapbert"}


# Usagi


def test_usagi_gets_the_best_candidate_and_suggestions() -> None:
    columns = ("sourceCode", "text", "sourceFrequency", "ward")
    linked = [
        LinkedMention(number, str(values[1]), dict(zip(columns, values, strict=True)), candidates)
        for number, values, candidates in (
            (1, ("I21", "heart attack", 12, "3"), [HEART, OTHER]),
            (2, ("", "xyz", None, None), []),
        )
    ]

    first, nil = written(UsagiFormat(columns, "text", ("omop",)), linked)

    assert list(first) == [
        "sourceCode", "sourceName", "sourceFrequency", "sourceAutoAssignedConceptIds", "ADD_INFO:ward",
        "matchScore", "mappingStatus", "equivalence", "statusSetBy", "statusSetOn", "conceptId",
        "conceptName", "domainId", "mappingType", "comment", "createdBy", "createdOn", "assignedReviewer",
    ]  # fmt: skip
    expected: dict[str, Any] = {
        "sourceCode": "I21", "sourceName": "heart attack", "sourceFrequency": "12",
        "sourceAutoAssignedConceptIds": "4329847;77670", "ADD_INFO:ward": "3", "matchScore": "1.00",
        "mappingStatus": "UNCHECKED", "equivalence": "UNREVIEWED", "conceptId": "4329847",
        "conceptName": "Myocardial infarction", "mappingType": "MAPS_TO", "statusSetOn": "0",
        "createdOn": "0",
    }  # fmt: skip
    assert first | expected == first
    assert (nil["sourceCode"], nil["sourceFrequency"], nil["conceptId"], nil["matchScore"]) == (
        "2",
        "0",
        "0",
        "0.00",
    )


def test_usagi_requires_omop_concepts() -> None:
    with pytest.raises(ConfigError, match=r"the prefixes hp, omop; .* `sapbert read omop`"):
        UsagiFormat(("mention",), "mention", ("hp", "omop"))
