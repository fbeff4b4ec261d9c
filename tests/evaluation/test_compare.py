from __future__ import annotations

from pathlib import Path

import pytest

from sapbert.errors import ArtifactError, ConfigError
from sapbert.evaluation.benchmarks.loader import EvaluationSet
from sapbert.evaluation.compare import Accuracy, System, compare
from sapbert.evaluation.run import Evaluation, evaluate, write_evaluation
from tests.evaluation.conftest import mentions, ranker_answering, small_set

NAMES = {"fever": "F", "the shivers": "F", "moss lung": "M", "tin ear": "T"}
SET = small_set(NAMES, mentions(("hot", "F"), ("mossy", "M"), ("blue", "-1"), ("tin", "T")))
RIGHT = {"hot": ["fever"], "mossy": ["moss lung"], "tin": ["tin ear"]}


def run(benchmark: EvaluationSet = SET, **wrong: str) -> Evaluation:
    """All mentions right, but for those told."""
    return evaluate(benchmark, ranker_answering(RIGHT | {mention: [name] for mention, name in wrong.items()}))


def write(evaluation: Evaluation, path: Path) -> Path:
    write_evaluation(evaluation, path, benchmark=SET, settings={}, ranker="told")
    return path


def test_a_comparison_lists_gained_and_lost_mentions() -> None:
    (found,) = compare(
        System("a", (run(hot="tin ear", mossy="fever"),)), System("b", (run(tin="moss lung"),))
    )

    assert found.dictionary == "dictionary"
    assert found.mentions == 3
    assert (found.first.mean, found.second.mean) == pytest.approx((1 / 3, 2 / 3))
    assert found.difference == pytest.approx(1 / 3)
    assert found.mcnemar == 1
    assert found.changed.rows() == [
        ("gained", "hot", "hot", "F", "fever", "tin ear", "fever"),
        ("gained", "mossy", "mossy", "M", "moss lung", "fever", "moss lung"),
        ("lost", "tin", "tin", "T", "tin ear", "tin ear", "moss lung"),
    ]


def test_runs_of_one_system_count_by_their_mean() -> None:
    seeds = System("seeds", (run(hot="tin ear"), run()))

    (found,) = compare(System("a", (run(hot="tin ear"),)), seeds)

    assert found.first == Accuracy(mean=2 / 3, deviation=None)
    assert found.second.mean == pytest.approx(5 / 6)
    assert found.second.deviation == pytest.approx(0.2357, abs=1e-4)
    assert found.mcnemar is None
    assert found.changed["raw"].to_list() == ["hot"]


def test_a_folder_of_evaluations_is_one_system(tmp_path: Path) -> None:
    write(run(), tmp_path / "seeds" / "1")
    write(run(hot="tin ear"), tmp_path / "seeds" / "2")

    assert len(System.open(tmp_path / "seeds").runs) == 2
    assert len(System.open(tmp_path / "seeds" / "1").runs) == 1
    with pytest.raises(ArtifactError, match="neither an evaluation nor a folder"):
        System.open(tmp_path)


def test_a_system_is_not_better_than_itself() -> None:
    (found,) = compare(System("a", (run(),)), System("b", (run(),)))

    assert found.difference == 0
    assert found.interval == (0, 0)
    assert found.randomisation == found.mcnemar == 1
    assert found.changed.height == 0


def test_runs_with_different_mentions_cannot_be_compared() -> None:
    other = small_set(NAMES, mentions(("hot", "F")))

    with pytest.raises(ConfigError, match="a and b were not evaluated on the same mentions"):
        compare(System("a", (run(),)), System("b", (run(other),)))


def test_runs_with_different_gold_ids_cannot_be_compared() -> None:
    other = small_set(NAMES, mentions(("hot", "F"), ("mossy", "T"), ("blue", "-1"), ("tin", "T")))

    with pytest.raises(ConfigError, match="a and b were not evaluated on the same mentions"):
        compare(System("a", (run(),)), System("b", (run(other),)))
