"""Serving the bundled index: `sapbert serve` without arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from sapbert.defaults import VARIABLE
from tests.cli.conftest import Sapbert, refused, sapbert
from tests.service.test_process import Process

__all__ = ["sapbert"]


def test_serve_without_arguments_uses_the_bundled_index(home: Path) -> None:
    process = Process("--threads", 1)
    try:
        best = process.link("heart attack")[0]
        [linker] = process.ask("/v1/version")["linkers"]
    finally:
        process.stop()

    assert (best["concept_id"], best["matched_by"]) == ("mesh:D009203", "exact")
    assert best["confidence"] is not None
    assert (linker["name"], linker["calibrated"]) == ("default", True)


def test_missing_defaults_give_the_same_error_in_serve_and_link(
    sapbert: Sapbert, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    (tmp_path / "service.toml").write_text('[linkers.mesh]\nindex = "default"\n')

    message = refused(sapbert("link", "heart attack"))

    assert "no default index is installed" in message
    assert refused(sapbert("serve")) == message
    assert refused(sapbert("serve", tmp_path / "service.toml")) == message
