"""Limits on the size of modules and folders, so that the package stays readable."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "sapbert"
MODULES = sorted(SOURCE.rglob("*.py"))
FOLDERS = sorted({module.parent for module in MODULES})
MAX_LINES, MAX_MODULES = 400, 16


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(SOURCE)))
def test_a_module_is_short_and_begins_with_what_it_is_for(module: Path) -> None:
    text = module.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_LINES
    assert ast.get_docstring(ast.parse(text)) or not text


@pytest.mark.parametrize(
    "folder", [folder for folder in FOLDERS if folder != SOURCE], ids=lambda folder: folder.name
)
def test_a_folder_has_few_modules(folder: Path) -> None:
    modules = [module for module in folder.glob("*.py") if module.name != "__init__.py"]
    assert len(modules) <= MAX_MODULES
