from __future__ import annotations

import csv
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapbert.errors import ArtifactError, ConfigError, FormatError
from sapbert.evaluation.benchmarks.biosyn_protocol import build_benchmark, normalise
from sapbert.evaluation.benchmarks.loader import EvaluationSet, open_evaluation_set
from tests.conftest import GOLDEN

RAW = sorted((GOLDEN / "raw").glob("INV*.txt"))
NAMES = GOLDEN / "raw" / "names.txt"


@pytest.fixture
def built(tmp_path: Path) -> EvaluationSet:
    build_benchmark("ncbi-disease", RAW, NAMES, tmp_path / "set")
    return open_evaluation_set(tmp_path / "set")


def parts_and_ids(split: pl.DataFrame) -> list[tuple[list[str], list[str]]]:
    return list(split.select("parts", "ids").iter_rows())


def test_abbreviations_are_expanded_and_punctuation_is_removed(built: EvaluationSet) -> None:
    assert parts_and_ids(built.split("train")) == [
        (["glimmer fever"], ["X000001"]),
        (["glimmer fever"], ["X000001"]),
        (["tin ear"], ["X000003"]),
    ]
    assert built.split("train")["raw"].to_list() == ["Glimmer fever", "GF", "Tin ear"]
    assert parts_and_ids(built.split("test")) == [(["glimmer fever"], ["X000001"])]


def test_the_sentence_around_a_mention_is_kept(built: EvaluationSet) -> None:
    for split in built.splits.values():
        for raw, context in split.select("raw", "context").iter_rows():
            assert raw in context


def test_a_composite_mention_is_split_where_it_has_as_many_ids(built: EvaluationSet) -> None:
    assert parts_and_ids(built.split("dev")) == [(["moss lung", "clay lung"], ["X000002", "700004"])]


def test_both_dictionaries_are_written(built: EvaluationSet) -> None:
    alone, enlarged = (dict(found.table.iter_rows()) for found in built.dictionaries.values())

    assert alone == {
        "glimmer fever": ["X000001"],
        "fever glimmer": ["X000001"],
        "moss lung": ["X000002", "700001", "700004"],
        "tin ear": ["X000003"],
        "clay lung": ["700004"],
    }
    assert enlarged == {**alone, "moss lung clay lung": ["X000002", "700004"]}


def test_dropped_mentions_are_counted(tmp_path: Path) -> None:
    manifest = build_benchmark("ncbi-disease", RAW, NAMES, tmp_path / "set")

    assert manifest.counts == {
        "concepts": 4,
        "dictionary": 5,
        "train": 3,
        "train: dropped (id not in dictionary)": 0,
        "dev": 1,
        "dev: dropped (id not in dictionary)": 0,
        "test": 1,
        "test: dropped (id not in dictionary)": 2,
        "test_dictionary": 6,
    }


def test_parts_given_by_the_annotators_are_used(tmp_path: Path) -> None:
    parts = "1|t|Ocular and ear rust\n1\t0\t19\tOcular and ear rust\tDisease\tA|B\tOcular rust|ear rust\n"
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}.txt").write_text(parts + "1\t0\t6\tOcular\tChemical\tA\n")
    (tmp_path / "names").mkdir()
    (tmp_path / "names" / "names.txt").write_text("A||eye rust\nB||ear rust\n")
    raw = sorted(tmp_path.glob("*.txt"))

    build_benchmark("bc5cdr-disease", raw, tmp_path / "names" / "names.txt", tmp_path / "set")

    assert parts_and_ids(open_evaluation_set(tmp_path / "set").split("test")) == [
        (["ocular rust", "ear rust"], ["A", "B"])
    ]


def test_a_modified_benchmark_is_rejected(built: EvaluationSet, tmp_path: Path) -> None:
    with open(tmp_path / "set" / "test.tsv", "a") as file:
        file.write("x")

    with pytest.raises(ArtifactError, match=r"test.tsv has \d+ bytes instead"):
        open_evaluation_set(tmp_path / "set")


def test_an_unknown_benchmark_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown benchmark 'mine'; choose from ncbi-disease"):
        build_benchmark("mine", RAW, NAMES, tmp_path / "set")


def test_file_names_must_contain_the_split(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no split in the file name"):
        build_benchmark("ncbi-disease", [*RAW, NAMES], NAMES, tmp_path / "set")
    with pytest.raises(FormatError, match="a second file for the dev split"):
        build_benchmark("ncbi-disease", [*RAW, RAW[0]], NAMES, tmp_path / "set")
    with pytest.raises(ConfigError, match="no file for the train split"):
        build_benchmark("ncbi-disease", RAW[:1], NAMES, tmp_path / "set")
    assert not (tmp_path / "set").exists()


def test_a_dictionary_line_without_bars_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("A||fever\nB fever\n")

    with pytest.raises(FormatError, match=r"names.txt:2: no \|\| in this line"):
        build_benchmark("ncbi-disease", RAW, tmp_path / "names.txt", tmp_path / "set")


CTD = """# This file is invented.
# Fields:
# DiseaseName,DiseaseID,AltDiseaseIDs,Definition,ParentIDs,Synonyms
#
"Glimmer Fever",MESH:X000001,,"It glimmers, at night",,"Fever, Glimmer"
Moss Lung,MESH:X000002,OMIM:700001,,MESH:C,
Tin Ear,MESH:X000003,,,MESH:C,
Clay Lung,OMIM:700004,,,MESH:C,MOSS-LUNG|Clay lung
"""


def as_tsv(table: str) -> str:
    rows = list(csv.reader(table.splitlines()))
    return "".join("\t".join(row) + "\n" for row in rows)


@pytest.mark.parametrize(("name", "text"), [("CTD_diseases.csv", CTD), ("CTD_diseases.tsv", as_tsv(CTD))])
def test_tables_of_ctd_give_the_same_dictionary(
    built: EvaluationSet, tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)

    manifest = build_benchmark("ncbi-disease", RAW, tmp_path / name, tmp_path / "ctd")

    assert manifest.counts["concepts"] == 4
    ours = open_evaluation_set(tmp_path / "ctd")
    assert {name: dict(found.table.iter_rows()) for name, found in ours.dictionaries.items()} == {
        name: dict(found.table.iter_rows()) for name, found in built.dictionaries.items()
    }


def test_chemicals_of_ctd_have_no_other_ids(tmp_path: Path) -> None:
    table = "# Fields:\n# ChemicalName\tChemicalID\tSynonyms\n#\nmoss\tMESH:X000003\tTin|ear\n"
    (tmp_path / "CTD_chemicals.tsv").write_text(table)

    manifest = build_benchmark("ncbi-disease", RAW, tmp_path / "CTD_chemicals.tsv", tmp_path / "set")

    assert (manifest.counts["concepts"], manifest.counts["dictionary"]) == (1, 3)


def test_the_dictionary_of_a_benchmark_builds_it_again(built: EvaluationSet, tmp_path: Path) -> None:
    manifest = build_benchmark("ncbi-disease", RAW, tmp_path / "set" / "dictionary.tsv", tmp_path / "again")

    # Moss lung's two ids have one name, which a third concept has too.
    assert manifest.counts["concepts"] == 4
    for name in ("train.tsv", "test.tsv", "dictionary.tsv", "test_dictionary.tsv"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "set" / name).read_bytes()


def test_a_table_without_the_columns_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text("code,label\nA,fever\n")

    with pytest.raises(FormatError, match="not the columns of a dictionary: code, label"):
        build_benchmark("ncbi-disease", RAW, tmp_path / "names.csv", tmp_path / "set")


def test_the_error_for_a_broken_row_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text(CTD + "Rust,MESH:X000009\n")

    with pytest.raises(FormatError, match=r"names.csv:9: expected 6 columns, found 2"):
        build_benchmark("ncbi-disease", RAW, tmp_path / "names.csv", tmp_path / "set")


def test_an_unrelated_dictionary_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("Z1||fever\n")

    with pytest.raises(ConfigError, match="contains none of the ids of these mentions"):
        build_benchmark("ncbi-disease", RAW, tmp_path / "names.txt", tmp_path / "set")


@given(st.text())
def test_normalising_twice_changes_nothing(text: str) -> None:
    once = normalise(text)

    assert normalise(once) == once
    assert not set(once) & set("|,;-()[]")
    assert "  " not in once


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "corpus", "counts", "same"),
    [
        ("ncbi-disease", "NCBI", (5134, 787, 960), 0.96),
        ("bc5cdr-disease", "CDR_", (4131, 4178, 4287), 0.99),
    ],
)
def test_real_corpora_have_the_counts_of_the_papers(
    shared_data: Path, tmp_path: Path, name: str, corpus: str, counts: tuple[int, ...], same: float
) -> None:
    raw = shared_data / "raw"
    manifest = build_benchmark(name, raw.glob(f"{corpus}*"), raw / "medic_06Jul2012.txt.gz", tmp_path / "set")
    ours, theirs = (
        open_evaluation_set(tmp_path / "set"),
        open_evaluation_set(shared_data / "benchmarks" / name),
    )

    assert manifest.counts["concepts"] == 11_915
    assert tuple(ours.split(split).height for split in ("train", "dev", "test")) == counts
    alone = [dict(found.dictionaries["dictionary"].table.iter_rows()) for found in (ours, theirs)]
    assert len(alone[0]) == 71_924
    assert alone[0].keys() == alone[1].keys()
    assert all(set(alone[0][key]) == set(alone[1][key]) for key in alone[0])
    for split in ("train", "dev"):
        pairs = zip(parts_and_ids(ours.split(split)), parts_and_ids(theirs.split(split)), strict=True)
        agreed = sum(one[0] == other[0] for one, other in pairs)
        assert agreed / ours.split(split).height > (0.93 if split == "dev" else same)


@pytest.mark.shared_data
@pytest.mark.slow
def test_real_chemicals_agree_except_for_ids_not_in_the_dictionary(shared_data: Path, tmp_path: Path) -> None:
    """Those built elsewhere kept fourteen mentions of concepts that were cut from the dictionary."""
    folder = shared_data / "benchmarks" / "bc5cdr-chemical"
    theirs = open_evaluation_set(folder)

    raw = (shared_data / "raw").glob("CDR_*")
    manifest = build_benchmark("bc5cdr-chemical", raw, folder / "dictionary.tsv.gz", tmp_path / "set")
    ours = open_evaluation_set(tmp_path / "set")
    known = set(theirs.dictionaries["dictionary"].ids)

    for split, annotated in (("train", 5203), ("dev", 5347), ("test", 5385)):
        dropped = manifest.counts[f"{split}: dropped (id not in dictionary)"]
        assert manifest.counts[split] + dropped == annotated
        kept = [row for row in parts_and_ids(theirs.split(split)) if set(row[1]) <= known]
        pairs = list(zip(parts_and_ids(ours.split(split)), kept, strict=True))
        assert all(one[1] == other[1] for one, other in pairs)
        assert sum(one[0] == other[0] for one, other in pairs) / len(pairs) > 0.98
