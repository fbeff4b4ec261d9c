"""Functions shared by resumable jobs."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from sapbert.errors import ArtifactError, SapbertError
from sapbert.resumable import (
    changed_values,
    full_disk_explained,
    refuse_earlier_results,
    refuse_interrupted,
    run_folder,
)


def test_a_job_keeps_its_state_beside_its_target() -> None:
    assert run_folder(Path("out/links.csv")) == Path("out/links.csv.run")


def test_an_interrupted_job_is_neither_continued_nor_discarded_unasked(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "model")
    refuse_interrupted(folder, resume=False, overwrite=False)
    folder.mkdir()

    with pytest.raises(
        ArtifactError, match=r"model.run contains an interrupted job; .*--resume.*--overwrite"
    ):
        refuse_interrupted(folder, resume=False, overwrite=False)
    refuse_interrupted(folder, resume=True, overwrite=False)
    refuse_interrupted(folder, resume=False, overwrite=True)


def test_earlier_results_are_neither_kept_nor_discarded_unasked(tmp_path: Path) -> None:
    folder = tmp_path / "cells"
    refuse_earlier_results(folder, resume=False, overwrite=False)
    folder.mkdir()

    with pytest.raises(ArtifactError, match=r"cells contains results of an earlier run; .*--resume.*--over"):
        refuse_earlier_results(folder, resume=False, overwrite=False)
    refuse_earlier_results(folder, resume=True, overwrite=False)
    refuse_earlier_results(folder, resume=False, overwrite=True)


def test_changed_values_are_named_with_both_values() -> None:
    assert changed_values({"k": 2, "a": 1}, {"k": 3, "a": 1, "b": 0}) == "b was None, now 0; k was 2, now 3"
    assert changed_values({"k": 2}, {"k": 2}) == ""


def test_a_full_disk_says_what_to_do_and_other_errors_pass(tmp_path: Path) -> None:
    with (
        pytest.raises(SapbertError, match="full; make room, then try again"),
        full_disk_explained(tmp_path, "try again"),
    ):
        raise OSError(errno.ENOSPC, "full")
    with pytest.raises(PermissionError), full_disk_explained(tmp_path, "try again"):
        raise PermissionError
