"""Where files are cached that can be made again."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sapbert.cache import cache_folder


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.delenv("SAPBERT_HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other folders")
def test_the_cache_is_in_the_cache_folder_of_the_user(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder() == home / ".cache" / "sapbert"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "xdg"))
    assert cache_folder() == home / "xdg" / "sapbert"


def test_an_environment_variable_sets_the_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAPBERT_HOME", "~/mine")
    assert cache_folder() == home / "mine"
