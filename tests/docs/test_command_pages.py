"""The command-line reference is generated from the program: one page per command."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from tests.docs.blocks import ROOT


def test_every_command_has_a_page_with_its_help(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location(
        "command_pages", ROOT / "docs" / "_ext" / "command_pages.py"
    )
    assert spec is not None
    assert spec.loader is not None
    command_pages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(command_pages)

    command_pages.write_pages(tmp_path)

    assert {"link.md", "read.md", "train.md"} <= {page.name for page in tmp_path.iterdir()}
    assert "Usage: sapbert link" in (tmp_path / "link.md").read_text(encoding="utf-8")
    assert "## sapbert read umls" in (tmp_path / "read.md").read_text(encoding="utf-8")
