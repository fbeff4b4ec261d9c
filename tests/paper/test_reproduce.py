from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from sapbert.errors import ArtifactError
from sapbert.evaluation.benchmarks.loader import EvaluationSet
from sapbert.evaluation.compare import System, compare
from sapbert.evaluation.rankers import RankerFactory
from sapbert.evaluation.run import evaluate
from sapbert.evaluation.significance import t_test
from sapbert.paper.cells import CELLS, CellProgress, RankerRun, find_benchmarks, measure_cells
from sapbert.paper.published import SOTA, paper_tables
from sapbert.paper.tables import NO_VALUE, Reproduction, csv_rows, table_text
from tests.evaluation.conftest import dictionary, mentions, ranker_answering, small_set

NAMES = {"fever": "F", "moss lung": "M", "tin ear": "T"}
RIGHT = {"hot": ["fever"], "mossy": ["moss lung"], "tin": ["tin ear"]}
SET = small_set(NAMES, mentions(("hot", "F"), ("mossy", "M"), ("tin", "T")))
BOTH = replace(SET, test_dictionary=dictionary(NAMES | {"hot": "F"}))
OTHER = replace(SET, inputs={"file": {"xxh3": "1"}})


class Answers:
    """A ranker that counts how often it was loaded."""

    def __init__(self, row: str, answers: Mapping[str, Sequence[str]], *, fingerprint: str = "") -> None:
        self.opened = 0
        self._answers = answers
        self.run = RankerRun(row, fingerprint or row, self._open)

    def _open(self) -> RankerFactory:
        self.opened += 1
        return ranker_answering(self._answers)


def measure(
    runs: Sequence[Answers], sets: Mapping[str, EvaluationSet], target: Path
) -> tuple[dict[tuple[str, str], System], list[CellProgress]]:
    cells: list[CellProgress] = []
    systems = measure_cells([one.run for one in runs], sets, target, on_cell=cells.append)
    return systems, cells


def made(
    systems: Mapping[str, Sequence[Mapping[str, Sequence[str]]]],
    *,
    table: str = "table1",
    benchmark: EvaluationSet = BOTH,
    paper_rows: Mapping[str, str] | None = None,
    reference: str | None = None,
    missing: Mapping[str, str] | None = None,
) -> Reproduction:
    """A table of one set, from the answers of each run of each row."""
    runs = {
        (row, "ncbi-disease"): System(
            row, tuple(evaluate(benchmark, ranker_answering(one)) for one in answers)
        )
        for row, answers in systems.items()
    }
    sets = {"ncbi-disease": benchmark}
    return Reproduction(paper_tables()[table], runs, sets, missing or {}, paper_rows or {}, reference)


def test_a_cell_that_is_done_is_not_measured_again(tmp_path: Path) -> None:
    first, again = Answers("right", RIGHT), Answers("right", {})

    before, cells = measure([first], {"a": SET, "b": OTHER}, tmp_path)
    after, none = measure([again], {"a": SET, "b": OTHER}, tmp_path)

    assert [(cell.number, cell.total, cell.row, cell.benchmark) for cell in cells] == [
        (1, 2, "right", "a"),
        (2, 2, "right", "b"),
    ]
    assert cells[0].seconds_left is None
    assert cells[1].seconds_left is not None
    assert (first.opened, again.opened, none) == (1, 0, [])
    assert before["right", "a"].runs[0].results.equals(after["right", "a"].runs[0].results)


def test_whatever_has_changed_makes_a_new_cell(tmp_path: Path) -> None:
    measure([Answers("row", RIGHT)], {"a": SET}, tmp_path)
    other_ranker = Answers("row", {}, fingerprint="other")

    systems, cells = measure([other_ranker], {"a": SET}, tmp_path)
    _, of_other_set = measure([Answers("row", RIGHT)], {"a": OTHER}, tmp_path)

    assert len(cells) == len(of_other_set) == 1
    assert systems["row", "a"].runs[0].results["rank"].null_count() == 3
    assert len(list((tmp_path / CELLS).iterdir())) == 3


def test_another_version_measures_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure([Answers("row", RIGHT)], {"a": SET}, tmp_path)
    monkeypatch.setattr("sapbert.paper.cells.__version__", "99")

    _, cells = measure([Answers("row", RIGHT)], {"a": SET}, tmp_path)

    assert len(cells) == 1


def test_an_interrupted_run_resumes(tmp_path: Path) -> None:
    def stop(cell: CellProgress) -> None:
        if cell.number == 2:
            raise KeyboardInterrupt

    run = Answers("row", RIGHT)
    with pytest.raises(KeyboardInterrupt):
        measure_cells([run.run], {"a": SET, "b": OTHER}, tmp_path, on_cell=stop)
    _, cells = measure([Answers("row", RIGHT)], {"a": SET, "b": OTHER}, tmp_path)

    assert [(cell.number, cell.total, cell.benchmark) for cell in cells] == [(1, 1, "b")]


def test_a_damaged_cell_is_measured_again(tmp_path: Path) -> None:
    measure([Answers("row", RIGHT)], {"a": SET}, tmp_path)
    (table,) = tmp_path.glob("*/*/mentions.parquet")
    table.write_bytes(b"x")

    _, cells = measure([Answers("row", RIGHT)], {"a": SET}, tmp_path)
    _, none = measure([Answers("row", RIGHT)], {"a": SET}, tmp_path)

    assert (len(cells), none) == (1, [])


def test_other_files_in_the_folder_of_a_cell_are_not_removed(tmp_path: Path) -> None:
    measure([Answers("row", RIGHT)], {"a": SET}, tmp_path)
    (cell,) = (tmp_path / CELLS).iterdir()
    for file in cell.iterdir():
        file.unlink()
    (cell / "mine.txt").write_text("mine")

    with pytest.raises(ArtifactError, match="exists and is not an artifact"):
        measure([Answers("row", RIGHT)], {"a": SET}, tmp_path)


def test_rows_that_need_the_same_cell_share_it(tmp_path: Path) -> None:
    one, other = Answers("one", RIGHT, fingerprint="same"), Answers("other", RIGHT, fingerprint="same")

    systems, cells = measure([one, other], {"a": SET}, tmp_path)

    assert len(cells) == 1
    assert systems["one", "a"].runs[0] is systems["other", "a"].runs[0]


def test_runs_of_one_row_are_its_seeds(tmp_path: Path) -> None:
    seeds = [Answers("row", RIGHT, fingerprint="1"), Answers("row", {}, fingerprint="2")]

    systems, _ = measure(seeds, {"a": SET}, tmp_path)

    assert list(systems) == [("row", "a")]
    assert systems["row", "a"].accuracies("dictionary", 1).tolist() == [1, 0]


def test_benchmarks_that_cannot_be_measured_are_listed_with_the_reason(tmp_path: Path) -> None:
    for name, files in {
        "ncbi-disease": {"dictionary": "concept_id\tname\nA\ta\n", "test": "mention\tconcept_ids\na\tA\n"},
        "bc5cdr-disease": {"dictionary": "concept_id\tname\nA\ta\n", "dev": "mention\tconcept_ids\na\tA\n"},
        "bc5cdr-chemical": {"test": "mention\tconcept_ids\na\tA\n"},
        "medmentions": {"dictionary": "concept_id\tname\nA\ta\n", "test": "mention\tconcept_ids\na\t-1\n"},
    }.items():
        (tmp_path / name).mkdir()
        for stem, text in files.items():
            (tmp_path / name / f"{stem}.tsv").write_text(text)

    found, missing = find_benchmarks(
        tmp_path, ["ncbi-disease", "bc5cdr-disease", "bc5cdr-chemical", "medmentions", "cometa"]
    )

    assert list(found) == ["ncbi-disease"]
    assert missing == {
        "bc5cdr-disease": "the folder bc5cdr-disease has no test split with labelled mentions",
        "bc5cdr-chemical": "the folder bc5cdr-chemical has no dictionary",
        "medmentions": "the folder medmentions has no test split with labelled mentions",
        "cometa": "no folder cometa in the folder of benchmarks",
    }


def test_a_row_has_its_interval_and_the_papers_row_below_it() -> None:
    found = made(
        {"mine": [RIGHT], "exact": [{"hot": ["hot"]}]},
        benchmark=replace(BOTH, dictionary=dictionary(NAMES | {"hot": "F"})),
        paper_rows={"mine": "PubMedBERT"},
        missing={"cometa": "it is lost"},
    )

    lines = table_text(found).splitlines()

    five = f" {NO_VALUE} |" * 5
    start = lines.index("|  | NCBI | BC5CDR-d | BC5CDR-c | MedMentions | AskAPatient | COMETA |")
    assert lines[start + 2 : start + 6] == [
        f"| mine | 100.0/100.0 |{five}",
        f"| 95% interval | 100.0-100.0/100.0-100.0 |{five}",
        "| *paper: PubMedBERT* | 77.8/86.9 | 89.0/93.8 | 93.0/94.6 | 43.9/64.7 | 42.5/49.6 | 46.8/53.2 |",
        f"| exact | 33.3/33.3 |{five}",
    ]
    assert sum("PubMedBERT*" in line for line in lines) == 1
    assert sum("SciBERT*" in line for line in lines) == 1
    assert "- COMETA was not measured: it is lost." in lines


def test_the_dictionary_alone_has_a_table_of_its_own_without_the_papers_rows() -> None:
    answers = {"hot": ["fever"], "mossy": ["tin ear"]}
    text = table_text(made({"mine": [answers]}))

    first, alone = text.split("## With the dictionary alone")
    assert "*supervised SOTA*" in first
    assert "| mine | 33.3/33.3 |" in alone
    assert "SOTA" not in alone
    assert "The protocol of NCBI adds the training and development mentions" in alone
    assert "dictionary alone" not in table_text(made({"mine": [answers]}, benchmark=SET))


def test_several_runs_are_a_mean_and_a_deviation() -> None:
    found = made({"mine": [RIGHT, RIGHT | {"hot": ["tin ear"]}]})

    assert "| mine (2 runs) | 83.3 ± 23.6/83.3 ± 23.6 |" in table_text(found)


def test_means_are_over_folds() -> None:
    test = pl.concat(
        [mentions(("hot", "F"), ("mossy", "M"), ("tin", "T")), mentions(("hot", "F"))]
    ).with_columns(fold=pl.Series(["0", "0", "0", "1"]))

    found = made({"mine": [{"hot": ["fever"]}]}, benchmark=small_set(NAMES, test))

    assert found.accuracies["mine", "ncbi-disease", "dictionary", 1].accuracy.mean == pytest.approx(
        (1 / 3 + 1) / 2
    )
    assert "- NCBI: 2 folds of 2.0 test mentions and 3 names; in the paper 960 and 71,923." in table_text(
        found
    )


def many(right: int) -> dict[str, list[str]]:
    return {f"m{number}": ["fever" if number < right else "tin ear"] for number in range(40)}


MANY = small_set(NAMES, mentions(*((f"m{number}", "F") for number in range(40))))


def test_a_row_is_tested_against_another_mention_by_mention() -> None:
    found = made(
        {"first": [many(20)], "better": [many(35)], "luck": [many(21)], "worse": [many(2)]},
        benchmark=MANY,
        reference="first",
    )

    figures = {row: found.accuracies[row, "ncbi-disease", "dictionary", 1] for row in found.rows}
    (told_apart,) = compare(*(found.systems[row, "ncbi-disease"] for row in ("first", "better")))
    assert {row: figure.better for row, figure in figures.items()} == {
        "first": False,
        "better": True,
        "luck": False,
        "worse": False,
    }
    assert figures["first"].p is None
    assert figures["better"].p == told_apart.randomisation
    assert figures["worse"].p is not None
    assert figures["worse"].p < 0.05
    text = table_text(found)
    assert "| better | 87.5†/87.5† |" in text
    assert "- †: better than first, p < 0.05, by the paired randomisation test over mentions.\n" in text


def test_seeds_are_tested_against_a_printed_figure_by_the_papers_test() -> None:
    found = made({"seeds": [many(38), many(39), many(38)], "one": [many(40)]}, benchmark=MANY, reference=SOTA)

    seeds = found.accuracies["seeds", "ncbi-disease", "dictionary", 1]
    assert seeds.p == pytest.approx(t_test(np.array([38, 39, 38]) / 40, 0.911))
    assert seeds.better
    assert found.accuracies["one", "ncbi-disease", "dictionary", 1].p is None
    assert "a t-test of two or more runs against the published figure" in table_text(found)


def test_a_table_without_tests_does_not_mention_them() -> None:
    assert "†:" not in table_text(made({"one": [many(40)]}, benchmark=MANY, reference=SOTA))


def test_a_table_of_losses_has_the_other_sets_too() -> None:
    text = table_text(made({"ms": [RIGHT]}, table="table6", paper_rows={"ms": "multi-similarity"}))

    assert "|  | COMETA zero-shot | NCBI |" in text
    assert f"| ms | {NO_VALUE} | 100.0/100.0 |" in text
    assert f"| *paper: multi-similarity* | 67.2/80.3 | {NO_VALUE} |" in text


def test_a_bar_in_a_name_is_escaped() -> None:
    assert "| a\\|b | 100.0/100.0 |" in table_text(made({"a|b": [RIGHT]}))


def test_the_csv_has_every_figure() -> None:
    rows = list(csv_rows(made({"mine": [RIGHT, {}]}, reference=SOTA)))

    here = [row for row in rows if row["of"] == "here"]
    assert [(row["dictionary"], row["k"]) for row in here] == [
        *[("dictionary", 1), ("test_dictionary", 1)],
        *[("dictionary", 5), ("test_dictionary", 5)],
    ]
    assert (here[0]["accuracy"], here[0]["runs"], here[0]["mentions"]) == (0.5, 2, 3)
    assert {"row": "BERT", "of": "paper", "benchmark": "ncbi-disease", "k": 1, "accuracy": 0.676} in rows
    assert all(row.keys() <= here[0].keys() for row in rows)
