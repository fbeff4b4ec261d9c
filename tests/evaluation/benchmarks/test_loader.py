from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import polars as pl
import pytest

from sapbert.annotation.input.pubtator import Annotation, Document
from sapbert.errors import ArtifactError, ConfigError, FormatError
from sapbert.evaluation.benchmarks.dataset import (
    MENTIONS,
    Dictionary,
    concept_numbers,
    make_dictionary,
    mention_table,
)
from sapbert.evaluation.benchmarks.loader import EvaluationSet, open_evaluation_set
from tests.conftest import GOLDEN

SETS = GOLDEN / "benchmarks"


def names(dictionary: Dictionary | None) -> dict[str, list[str]]:
    assert dictionary is not None
    return dict(dictionary.table.iter_rows())


def parts_and_ids(split: pl.DataFrame) -> list[tuple[list[str], list[str]]]:
    return list(split.select("parts", "ids").iter_rows())


def test_a_plain_folder_is_read() -> None:
    found = open_evaluation_set(SETS / "plain")

    assert found.name == "plain"
    assert parts_and_ids(found.split("test")) == [
        (["glimmer fevers"], ["X000001"]),
        (["moss lung", "tin ear"], ["X000002", "X000003"]),
        (["blue hiccups"], []),
        (["mossy lung"], ["700001", "X000002"]),
    ]
    assert found.split("test")["raw"][0] == "Glimmer fevers"
    assert found.split("test")["document"].to_list() == ["21", "21", "22", "22"]
    assert found.split("test")["type"][1] == "Composite"


def test_a_semantic_group_is_a_type_where_there_is_no_other(tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text("mention\tconcept_ids\tsem_group\nrust\tA\tDISO\n")
    (tmp_path / "test.tsv").write_text("mention\tconcept_ids\tsem_group\ttype\nrust\tA\tDISO\tDisease\n")

    found = open_evaluation_set(tmp_path)

    assert found.split("dev")["type"].to_list() == ["DISO"]
    assert found.split("test")["type"].to_list() == ["Disease"]


def test_names_that_fold_alike_are_one_name_with_the_ids_of_all() -> None:
    found = open_evaluation_set(SETS / "plain")

    assert names(found.dictionary) == {
        "glimmer fever": ["X000001"],
        "shining fever": ["X000001"],
        "moss lung": ["X000002", "700001"],
        "tin ear": ["X000003", "X000004"],
    }
    assert list(found.dictionaries) == ["dictionary", "test_dictionary"]
    assert "the glimmers" in names(found.test_dictionary)


def test_biosyn_and_plain_folders_with_equal_content_give_equal_sets() -> None:
    plain, biosyn = (open_evaluation_set(SETS / name) for name in ("plain", "biosyn"))

    assert list(plain.splits) == list(biosyn.splits) == ["train", "test"]
    for split in plain.splits:
        assert plain.split(split).drop("raw").equals(biosyn.split(split).drop("raw"))
    assert names(plain.dictionary) == names(biosyn.dictionary)
    assert names(plain.test_dictionary) == names(biosyn.test_dictionary)


def test_folds_keep_their_numbers_and_their_concept_names_are_the_dictionary() -> None:
    found = open_evaluation_set(SETS / "folds")

    assert found.split("test")["fold"].to_list() == ["0", "0", "1"]
    assert parts_and_ids(found.split("test"))[1] == (["ear of tin café"], ["X000003"])
    assert parts_and_ids(found.split("dev"))[0] == (["mossy | lung"], ["X000002"])
    assert names(found.dictionary) == {
        "glimmer fever": ["X000001"],
        "moss lung": ["X000002"],
        "tin ear": ["X000003"],
    }


def test_cometa_takes_the_general_id_and_quotes_are_text() -> None:
    found = open_evaluation_set(SETS / "cometa", prefix="snomedct")

    assert parts_and_ids(found.split("train")) == [(["glimmers"], ["snomedct:9000001"])]
    assert parts_and_ids(found.split("test")) == [(["glimmer | moss"], ["snomedct:9000001"])]
    assert names(found.dictionary)["moss lung"] == ["snomedct:9000002"]


def test_one_file_of_queries_is_a_test_split_and_takes_a_dictionary(tmp_path: Path) -> None:
    (tmp_path / "umls.txt").write_text("Y0000001||Glimmer fever\nY0000003||Moss lung\n")
    query = SETS / "xl-bel" / "de_1k_test_query.txt"

    alone = open_evaluation_set(query)
    found = open_evaluation_set(query, dictionary=tmp_path / "umls.txt")

    assert alone.dictionaries == {}
    assert parts_and_ids(found.split("test"))[1] == (["mooslunge"], ["Y0000002", "Y0000003"])
    assert names(found.dictionary)["moss lung"] == ["Y0000003"]
    assert alone.fingerprint != found.fingerprint


def test_medmentions_splits_its_corpus_by_lists_of_documents() -> None:
    found = open_evaluation_set(SETS / "medmentions")

    assert {split: table.height for split, table in found.splits.items()} == {"train": 2, "dev": 1, "test": 1}
    assert parts_and_ids(found.split("dev")) == [(["moss lung"], ["umls:Y0000002"])]
    assert found.split("dev")["type"].to_list() == ["T047,T033"]


def test_pubtator_files_keep_mentions_as_written_and_nil_ones(tmp_path: Path) -> None:
    mentions = "7|t|Moss lung, hiccups\n7\t0\t9\tMoss lung\tDisease\tX000002|OMIM:700001\n"
    (tmp_path / "CDR_TestSet.PubTator.txt").write_text(mentions + "7\t11\t18\thiccups\tDisease\t-1\n")
    (tmp_path / "CDR_DevelopmentSet.PubTator.txt").write_text(mentions)

    found = open_evaluation_set(tmp_path, prefix="mesh")

    assert parts_and_ids(found.split("test")) == [
        (["moss lung"], ["mesh:X000002", "omim:700001"]),
        (["hiccups"], []),
    ]
    assert found.split("test")["type"].to_list() == ["Disease", "Disease"]
    assert found.split("dev").height == 1
    ncbi = open_evaluation_set(GOLDEN / "raw" / "INVtestset_corpus.txt")
    assert ncbi.split("test").height == 3


@pytest.mark.parametrize(
    ("mention", "sentence"),
    [
        ("Tin ears", "Tin ears. A study"),
        ("tin ear", "One had a tin ear (see Fig. x)."),
        ("moss lung", "Two had moss lung vs. clay lung!"),
        ("Two", "Two had moss lung vs. clay lung!"),
        ("clay lung!", "Two had moss lung vs. clay lung!"),
        ("glimmers", "The glimmers"),
        ("lung! The", "Two had moss lung vs. clay lung! The glimmers"),
    ],
)
def test_a_mention_in_a_document_has_its_sentence_for_context(mention: str, sentence: str) -> None:
    title = "Tin ears. A study"
    abstract = "One had a tin ear (see Fig. x). Two had moss lung vs. clay lung! The glimmers"
    start = f"{title} {abstract}".index(mention)
    found = Annotation(start, start + len(mention), mention, "Disease", "X")

    assert Document("7", title, abstract).sentence_of(found) == sentence


def test_context_is_read_where_there_is_some(tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_text("mention\tconcept_ids\tcontext\ncold\tX\tA cold day\nflu\tY\t\n")
    assert open_evaluation_set(tmp_path).split("test")["context"].to_list() == ["A cold day", ""]
    documents = open_evaluation_set(GOLDEN / "benchmarks" / "medmentions").split("test")
    for text, around in documents.select("raw", "context").iter_rows():
        assert text in around


def test_bigbio_joins_the_pieces_of_a_mention_and_takes_any_of_its_ids() -> None:
    found = open_evaluation_set(SETS / "bigbio")

    assert parts_and_ids(found.split("train")) == [(["the glimmers"], ["mesh:X000001"])]
    assert parts_and_ids(found.split("test")) == [
        (["moss lung"], ["mesh:X000002", "omim:700001"]),
        (["blue hiccups"], []),
    ]


@pytest.mark.parametrize("name", sorted(path.name for path in SETS.iterdir()))
def test_every_set_has_the_same_columns(name: str) -> None:
    for split in open_evaluation_set(SETS / name).splits.values():
        assert dict(split.schema) == MENTIONS


def test_gzip_changes_nothing_but_the_file(tmp_path: Path) -> None:
    for file in (SETS / "plain").iterdir():
        (tmp_path / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))

    packed, plain = open_evaluation_set(tmp_path), open_evaluation_set(SETS / "plain")

    assert packed.split("test").equals(plain.split("test"))
    assert names(packed.dictionary) == names(plain.dictionary)


def test_a_missing_split_is_an_error() -> None:
    with pytest.raises(ConfigError, match="plain has no dev split, only train, test"):
        open_evaluation_set(SETS / "plain").split("dev")


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("test.tsv", "text\tids\na\tb\n", "test.tsv:1: no column 'mention' among: text, ids"),
        ("test.tsv", "mention\tconcept_ids\na\n", "test.tsv:2: expected 2 columns, found 1"),
        (
            "processed_test/1.concept",
            "1||0|3||Disease||fever\n",
            r"1.concept:1: expected 5 fields separated by '\|\|', found 4",
        ),
        ("A.fold-0.test.txt", "1\tfever\n", "fold-0.test.txt:1: expected 3 fields"),
        (
            "corpus_pubtator.txt",
            "1|t|a\n2\t0\t1\ta\tT\tC\n",
            "corpus_pubtator.txt:2: not an annotation of document 1",
        ),
        (
            "corpus_pubtator.txt",
            "1|t|a\n1\tx\t1\ta\tT\tC\n",
            "corpus_pubtator.txt:2: 'x' and '1' are not offsets",
        ),
        ("test.json", '[{"id": 1, "entities": [{}]}]', "is not in BigBIO's kb schema"),
        ("test.json", "{", "not JSON documents"),
        ("test.json", "[1]", "expected a document, found int"),
        ("notes.md", "hello", "contains no benchmark"),
        ("corpus_pubtator.txt", "1|t|a\n", "contains no mentions"),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, name: str, content: str, problem: str) -> None:
    file = tmp_path / "set" / name
    file.parent.mkdir(parents=True)
    file.write_text(content)

    with pytest.raises(FormatError, match=problem):
        open_evaluation_set(tmp_path / "set")


def test_an_artifact_of_another_kind_is_rejected(tmp_path: Path) -> None:
    shutil.copytree(SETS / "plain", tmp_path / "set")
    (tmp_path / "set" / "manifest.json").write_text(json.dumps({"kind": "pairs"}))

    with pytest.raises(ArtifactError):
        open_evaluation_set(tmp_path / "set")


def test_ids_with_the_same_names_are_one_concept() -> None:
    found = make_dictionary(
        pl.Series(["moss lung", "lung of moss", "tin ear", "cold"]), pl.Series(["A|B", "A|B", "C|D", "D"])
    )

    numbers = dict(concept_numbers(found).iter_rows())

    assert numbers["A"] == numbers["B"]
    assert len(set(numbers.values())) == found.concepts == 3


def test_the_enlarged_dictionary_has_mentions_as_names() -> None:
    alone = make_dictionary(pl.Series(["fever"]), pl.Series(["F"]))
    columns = {"mention": pl.Series(["a|b", "Fever", "e"]), "ids": pl.Series(["A|B", "G", "-1"])}

    enlarged = alone.with_mentions(mention_table(columns, composite=True))

    assert names(enlarged) == {"fever": ["F", "G"], "a b": ["A", "B"]}


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "splits", "dictionary"),
    [
        ("ncbi-disease", (5134, 787, 960), 71_924),
        ("bc5cdr-disease", (4131, 4178, 4287), 71_924),
        ("askapatient", (156_652, 7_926, 8_662), 1_033),
    ],
)
def test_real_sets_have_the_documented_counts(
    shared_data: Path, name: str, splits: tuple[int, ...], dictionary: int
) -> None:
    found: EvaluationSet = open_evaluation_set(shared_data / "benchmarks" / name)

    assert tuple(found.split(split).height for split in ("train", "dev", "test")) == splits
    assert len(found.dictionaries["dictionary"]) == dictionary
    assert found.split("test")["ids"].list.len().min() == 1
