from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from sapbert.encoder.judge import Accuracy, measure, read_benchmark
from sapbert.encoder.onnx import OnnxEncoder
from sapbert.errors import FormatError
from tests.encoder.conftest import Exported

DICTIONARY = "concept_id\tname\nD1|9\theart attack\nD2\tfever\nD3\tcommon cold\n"


def write(folder: Path, test: str, dictionary: str = DICTIONARY) -> Path:
    (folder / "dictionary.tsv").write_text(dictionary)
    with gzip.open(folder / "test.tsv.gz", "wt") as file:
        file.write(test)
    return folder


@pytest.fixture
def encoder(exported: Callable[[str], Exported]) -> OnnxEncoder:
    return OnnxEncoder.open(exported("bert").onnx, variant="fp32")


@pytest.mark.parametrize(
    ("mention", "ids", "right"),
    [
        ("heart attack", "D1", True),
        ("heart attack", " 9+D7", True),
        ("heart attack", "D2", False),
        ("fever|common cold", "D2|D3", True),
        ("fever|heart attack", "D2|D3", False),
    ],
)
def test_a_mention_is_right_when_each_part_finds_one_of_its_ids(
    mention: str, ids: str, right: bool, encoder: OnnxEncoder, tmp_path: Path
) -> None:
    folder = write(tmp_path, f"raw_mention\tmention\tconcept_ids\nx\t{mention}\t{ids}\n")
    found = measure(encoder, read_benchmark(folder))
    # Three names in all, so one of the five nearest is always right.
    assert found == Accuracy(first=float(right), fifth=1.0 if "D7" not in ids or right else 0.0)


def test_accuracy_is_a_share_of_mentions(encoder: OnnxEncoder, tmp_path: Path) -> None:
    test = "mention\tconcept_ids\nfever\tD2\nfever\tD1\nfever\tD2\ncommon cold\tD99\n"
    assert measure(encoder, read_benchmark(write(tmp_path, test))) == Accuracy(0.5, 0.75)


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("mention\tids\nfever\tD2\n", "test.tsv.gz:1: no column concept_ids"),
        ("mention\tconcept_ids\nfever\tD2\ncold\n", "test.tsv.gz:3: a row is shorter than the header"),
        ("mention\tconcept_ids\n", "test.tsv.gz: no rows below the header"),
        ("", "test.tsv.gz:1: no column mention"),
    ],
)
def test_a_bad_table_is_refused_with_its_line(test: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError) as caught:
        read_benchmark(write(tmp_path, test))
    assert message in str(caught.value)


def test_a_folder_without_tables_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        FormatError, match=r"no dictionary.tsv or dictionary.tsv.gz \(is this a benchmark\?\)"
    ):
        read_benchmark(tmp_path)


def test_real_benchmarks_are_read(shared_data: Path) -> None:
    benchmark = read_benchmark(shared_data / "benchmarks" / "ncbi-disease")
    assert (len(benchmark.names), len(benchmark.mentions)) == (71_924, 960)
    assert sum(len(mention) > 1 for mention in benchmark.mentions) == 8
