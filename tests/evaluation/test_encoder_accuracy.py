from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from sapbert.errors import ConfigError, FormatError
from sapbert.evaluation.encoder_accuracy import encoder_accuracy, open_benchmark
from tests.index.ngrams import NgramEncoder

DICTIONARY = "concept_id\tname\nD1|9\theart attack\nD2\tfever\nD3\tcommon cold\n"


def write(folder: Path, test: str, dictionary: str | None = DICTIONARY) -> Path:
    if dictionary is not None:
        (folder / "dictionary.tsv").write_text(dictionary)
    with gzip.open(folder / "test.tsv.gz", "wt") as file:
        file.write(test)
    return folder


@pytest.fixture
def encoder() -> NgramEncoder:
    return NgramEncoder()


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
def test_a_mention_is_right_if_each_part_finds_one_of_its_ids(
    mention: str, ids: str, right: bool, encoder: NgramEncoder, tmp_path: Path
) -> None:
    folder = write(tmp_path, f"raw_mention\tmention\tconcept_ids\nx\t{mention}\t{ids}\n")
    # Of three names one of the first five is always right.
    assert encoder_accuracy(open_benchmark(folder), encoder) == {"first": float(right), "fifth": 1.0}


def test_accuracy_is_a_share_of_the_mentions_with_gold_ids(encoder: NgramEncoder, tmp_path: Path) -> None:
    test = "mention\tconcept_ids\nfever\tD2\nfever\tD1\nfever\tD2\ncommon cold\tD99\nnothing\t-1\n"
    assert encoder_accuracy(open_benchmark(write(tmp_path, test)), encoder) == {"first": 0.5, "fifth": 0.75}


def test_an_enlarged_dictionary_is_not_used(encoder: NgramEncoder, tmp_path: Path) -> None:
    folder = write(tmp_path, "mention\tconcept_ids\npyrexia\tD77\n")
    (folder / "test_dictionary.tsv").write_text(f"{DICTIONARY}D77\tpyrexia\n")
    assert encoder_accuracy(open_benchmark(folder), encoder) == {"first": 0.0, "fifth": 0.0}


def test_a_folder_that_cannot_be_measured_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError):
        open_benchmark(tmp_path)
    write(tmp_path, "mention\tconcept_ids\nfever\tD2\n", dictionary=None)
    with pytest.raises(ConfigError, match=r"no dictionary\.tsv with names \(is this a benchmark\?\)"):
        open_benchmark(tmp_path)
    write(tmp_path, "mention\tconcept_ids\nfever\t-1\n")
    with pytest.raises(ConfigError, match="no mention of the test split has a concept id"):
        open_benchmark(tmp_path)
