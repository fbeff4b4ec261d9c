from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from sapbert.errors import ArtifactError
from tests.artifacts.conftest import left_beside, version_at, write


def test_of_two_writers_at_once_the_second_to_finish_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "artifact"
    with pytest.raises(ArtifactError, match="exists"):
        write(target, "late", at_last=lambda: write(target, "early"))
    assert version_at(target) == "early"
    assert left_beside(target) == []


def test_of_two_writers_that_overwrite_the_second_to_finish_wins(tmp_path: Path) -> None:
    target = tmp_path / "artifact"
    write(target, "old")
    write(target, "late", overwrite=True, at_last=lambda: write(target, "early", overwrite=True))
    assert version_at(target) == "late"
    assert left_beside(target) == []


@pytest.mark.parametrize("overwrite", [False, True])
def test_concurrent_writers_do_not_mix_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    monkeypatch.setattr(os, "fsync", nothing_with)

    def race(target: Path, version: str, start: threading.Barrier, outcomes: dict[str, str]) -> None:
        try:
            write(target, version, overwrite=overwrite, at_last=start.wait)
            outcomes[version] = "finished"
        except (ArtifactError, OSError):
            outcomes[version] = "refused"

    for attempt in range(30):
        target, outcomes = tmp_path / str(attempt) / "artifact", dict[str, str]()
        start = threading.Barrier(4)
        threads = [
            threading.Thread(target=race, args=(target, f"writer {n}", start, outcomes)) for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(outcomes) == 4
        assert outcomes[version_at(target)] == "finished"
        assert overwrite or list(outcomes.values()).count("finished") == 1
        assert left_beside(target) == []


def nothing_with(_handle: int) -> None:
    """Skip syncing: a test needs no protection against power loss."""
