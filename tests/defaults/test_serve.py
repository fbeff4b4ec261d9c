"""The service of what comes with the package: one command, and nothing to give it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sapbert.defaults import VARIABLE
from tests.cli.conftest import Sapbert, refused, sapbert
from tests.service.test_process import Process

__all__ = ["sapbert"]


def test_a_word_alone_serves_with_confidence(home: Path) -> None:
    process = Process("--threads", 1)
    try:
        best = process.link("heart attack")[0]
        [linker] = process.ask("/v1/version")["linkers"]
    finally:
        process.stop()

    assert (best["concept_id"], best["matched_by"]) == ("mesh:D009203", "exact")
    assert best["confidence"] is not None
    assert (linker["name"], linker["calibrated"]) == ("default", True)


def test_where_nothing_came_along_it_is_told_as_linking_tells_it(
    sapbert: Sapbert, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    (tmp_path / "service.toml").write_text('[linkers.mesh]\nindex = "default"\n')

    told = refused(sapbert("link", "heart attack"))

    assert "no default index is installed" in told
    assert refused(sapbert("serve")) == told
    assert refused(sapbert("serve", tmp_path / "service.toml")) == told
