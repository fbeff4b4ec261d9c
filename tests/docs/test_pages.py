"""Pages name only files, folders and modules that exist, and the two entry pages stay short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import PAGES, ROOT

_SOURCE = ROOT / "src" / "sapbert"
_LINK = re.compile(r"\]\((?!https?://)([^)#\s]+)(?:#[^)]*)?\)")
_CODE = re.compile(r"`([^`\s]+)`")
_REPOSITORY_PATH = re.compile(r"^(?:benchmarks|data|deploy|docs|examples|recipes|scripts|tests)/[\w./-]+$")


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_relative_links_lead_to_files(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [link for link in _LINK.findall(text) if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_paths_of_the_repository_exist(page: Path) -> None:
    named = set(_CODE.findall(page.read_text(encoding="utf-8")))
    paths = [code for code in named if _REPOSITORY_PATH.match(code) and "NAME" not in code]
    new = {"tests/vocab/readers/test_simple.py"}  # what a how-to creates
    assert [path for path in paths if path not in new and not (ROOT / path).exists()] == []


def test_architecture_lists_every_folder_and_names_only_modules_that_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    folders = {path.parent.name for path in _SOURCE.glob("*/__init__.py")}
    assert {folder for folder in folders if f"| `{folder}/` |" not in text} == set()
    modules = [code for code in _CODE.findall(text) if re.match(r"^[a-z_]+/[a-z_/]+$", code)]
    missing = [
        module
        for module in modules
        if not any(
            (root / f"{module.rstrip('/')}{end}").exists() for root in (_SOURCE, ROOT) for end in ("", ".py")
        )
    ]
    assert missing == []


def test_readme_and_architecture_stay_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
    assert len((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").split()) <= 1500


def test_the_api_reference_lists_every_public_name() -> None:
    import sapbert

    text = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    public = [name for name in sapbert.__all__ if not name.startswith("__") and name != "SapbertError"]
    assert [name for name in public if f":: sapbert.{name}\n" not in text] == []
