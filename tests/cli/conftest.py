"""Runs the command line and returns its exit code and output."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sapbert.cli.main import main
from tests.conftest import GOLDEN

META = GOLDEN / "umls" / "META"
EXAMPLE = GOLDEN.parents[1] / "examples" / "common.tsv"
SNOMED = GOLDEN / "snomed" / "SnomedCT_InventedRF2_PRODUCTION_20260101T120000Z"


class Done(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


Sapbert = Callable[..., Done]


@pytest.fixture
def sapbert(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Sapbert:
    """Run the command line in this process: `sapbert("show", path)`."""

    def run(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["sapbert", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        code = stop.value.code
        return Done(code if isinstance(code, int) else 0, captured.out, captured.err)

    return run


@pytest.fixture
def vocabulary(sapbert: Sapbert, tmp_path: Path) -> Path:
    assert sapbert("read", "umls", META, "-o", tmp_path / "vocabulary").code == 0
    return tmp_path / "vocabulary"


@pytest.fixture
def pairs(sapbert: Sapbert, vocabulary: Path, tmp_path: Path) -> Path:
    assert sapbert("pairs", vocabulary, "-o", tmp_path / "pairs").code == 0
    return tmp_path / "pairs"


def refused(done: Done) -> str:
    """Return the one-line message of a command that must have failed with nothing but this message."""
    assert done.code == 1
    assert done.out == ""
    assert done.err.startswith("sapbert: ")
    assert done.err.count("\n") == 1
    return done.err


def one_json(done: Done) -> Any:
    assert done.code == 0
    return json.loads(done.out)


def left_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}
