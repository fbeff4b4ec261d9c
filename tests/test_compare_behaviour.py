"""The script that compares behaviour before and after a refactoring; only its comparison is tested."""

from __future__ import annotations

import copy
from types import ModuleType
from typing import Any

import pytest

from tests.defaults.conftest import load_script

LINK = "link --file sample.csv -o links.csv"
RECORDING: dict[str, Any] = {
    LINK: {
        "exit": 0,
        "error lines": 0,
        "written": {
            "columns": ["mention", "score", "how"],
            "rows": [
                {"mention": "fever", "score": "1.0", "how": "exact"},
                {"mention": "cold", "score": "0.812345", "how": "dense"},
            ],
        },
    },
    "link --help": {"exit": 0, "options": ["link --index", "link --prefix"]},
}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("compare_behaviour")


@pytest.fixture
def after(script: ModuleType) -> Any:
    """A recording that differs from the one before by its declared renames only."""
    return copy.deepcopy({name: script.renamed(found) for name, found in RECORDING.items()})


def test_declared_renames_are_no_difference(script: ModuleType, after: Any) -> None:
    assert after[LINK]["written"]["columns"] == ["mention", "score", "matched_by"]
    assert script.print_differences(RECORDING, after) == 0


def test_a_renamed_option_is_no_difference(
    script: ModuleType, after: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    after["link --help"]["options"] = ["link --index", "link --prefixes"]
    assert script.print_differences(RECORDING, after) == 1

    monkeypatch.setitem(script.RENAMED_OPTIONS, "link --prefix", "link --prefixes")
    assert script.print_differences(RECORDING, after) == 0


def test_scores_may_differ_by_rounding(script: ModuleType, after: Any) -> None:
    after[LINK]["written"]["rows"][1]["score"] = "0.8123455"
    assert script.print_differences(RECORDING, after) == 0

    after[LINK]["written"]["rows"][1]["score"] = "0.81235"
    assert script.print_differences(RECORDING, after) == 1


def test_the_first_value_that_differs_is_shown(
    script: ModuleType, after: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    after[LINK]["written"]["rows"][1]["matched_by"] = "exact"
    assert script.print_differences(RECORDING, after) == 1

    shown = capsys.readouterr().out.splitlines()
    assert shown[:2] == [LINK, "    /written/rows/2/matched_by: 'dense' -> 'exact'"]
    assert shown[-1] == "1 of 2 commands and requests differ"


@pytest.mark.parametrize("key", ["exit", "error lines"])
def test_exit_codes_and_lines_of_an_error_are_compared(script: ModuleType, after: Any, key: str) -> None:
    after[LINK][key] = 1
    assert script.print_differences(RECORDING, after) == 1


def test_rows_columns_and_commands_that_are_missing_are_told(
    script: ModuleType, after: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    del after[LINK]["written"]["rows"][1]
    del after[LINK]["written"]["rows"][0]["score"]
    del after["link --help"]
    assert script.print_differences(RECORDING, after) == 1

    shown = capsys.readouterr().out
    assert "/written/rows: 2 -> 1 items" in shown
    assert "/written/rows/1/score: missing after" in shown
    assert "only in the first recording" in shown


def test_a_printed_table_is_read_by_its_titles(script: ModuleType) -> None:
    text = "mention  matched name  how\ncold     Common Cold   exact\n         Colds         dense\n"

    assert script.aligned_table(text) == {
        "columns": ["mention", "matched name", "how"],
        "rows": [
            {"mention": "cold", "matched name": "Common Cold", "how": "exact"},
            {"mention": "", "matched name": "Colds", "how": "dense"},
        ],
    }
