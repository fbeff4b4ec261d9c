"""The list of `make mutants` fits the source and the tests."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "mutants.py"), run_name="mutants")
MUTANTS = SCRIPT["read_mutants"]()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_fault_can_be_put_into_the_source_and_its_tests_exist(mutant: Any) -> None:
    source = (SCRIPT["SOURCE"] / mutant.file).read_text(encoding="utf-8")

    compile(mutant.apply(source), mutant.file, "exec")
    for test in mutant.tests:
        file, _, name = test.partition("[")[0].partition("::")
        assert f"def {name}" in (ROOT / file).read_text(encoding="utf-8")


def test_a_fault_is_in_the_package_only_while_its_tests_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "sapbert" / "__init__.py"
    package.parent.mkdir()
    package.write_text("ANSWER = 42\n")
    mutant = SCRIPT["Mutant"]("wrong", "__init__.py", "42", "41", ["test_answer.py"])
    seen = []

    def fails(tests: list[str], folder: Path) -> bool:
        seen.append((tests, folder, package.read_text()))
        return True

    monkeypatch.setitem(SCRIPT["is_found"].__globals__, "fails", fails)

    assert SCRIPT["is_found"](mutant, tmp_path)
    assert seen == [(["test_answer.py"], tmp_path, "ANSWER = 41\n")]
    assert package.read_text() == "ANSWER = 42\n"
