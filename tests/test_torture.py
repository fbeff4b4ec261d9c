"""The campaign of `make torture` records every trial once and finds what it looks for."""

from __future__ import annotations

import random
import runpy
from pathlib import Path

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parents[1] / "scripts" / "torture.py"), run_name="torture")


def test_a_campaign_continues_with_the_trials_that_are_missing(tmp_path: Path) -> None:
    ran: list[float] = []

    def trial(choice: random.Random, _place: Path) -> str:
        ran.append(choice.random())
        return "VIOLATION: found" if len(ran) == 2 else "refused"

    for trials in (1, 3):
        campaign = SCRIPT["Campaign"](tmp_path / "work", seed=7)
        for number in range(trials):
            campaign.trial("damage index", number, trial)

    assert len(set(ran)) == 3
    assert campaign.report() == {
        "seed": 7,
        "outcomes": {"damage index": {"refused": 2, "VIOLATION": 1}},
        "violations": {"damage index 1": "VIOLATION: found"},
    }


def test_a_wrong_result_and_an_unexpected_error_are_violations(tmp_path: Path) -> None:
    (tmp_path / "artifact").mkdir()
    (tmp_path / "artifact" / "data").write_bytes(bytes(range(100)))

    def use(path: Path) -> bytes:
        return (path / "data").read_bytes()

    outcomes = set()
    for number in range(12):
        (tmp_path / str(number)).mkdir()
        outcome = SCRIPT["_damage"](tmp_path / "artifact", use, random.Random(number), tmp_path / str(number))
        outcomes.add(" ".join(outcome.split()[:3]))
    assert {"VIOLATION: wrong result:", "VIOLATION: FileNotFoundError: [Errno"} <= outcomes


@pytest.mark.parametrize(("kind", "source"), SCRIPT["INPUTS"])
def test_a_mutated_input_is_read_or_refused(tmp_path: Path, kind: str, source: str) -> None:
    assert SCRIPT["_mutate"](kind, SCRIPT["GOLDEN"] / source, random.Random(source), tmp_path) in (
        "read",
        "refused",
    )
