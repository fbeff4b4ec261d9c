"""Shared by jobs that can be resumed: linking, training, building an index.

A job that writes TARGET keeps its intermediate state in the folder TARGET.run beside it and removes that
folder when TARGET is complete. It holds a lock, so that two jobs cannot share the folder.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sapbert.errors import ArtifactError, SapbertError
from sapbert.file_system import lock_file


def run_folder(target: Path) -> Path:
    """Return the folder for the intermediate state of the job that writes `target`."""
    return target.with_name(f"{target.name}.run")


@contextmanager
def locked_run(target: Path) -> Iterator[None]:
    """Refuse to start a second job that writes `target` while one is running."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with lock_file(target.with_name(f".{target.name}.run.lock")) as locked:
        if not locked:
            raise ArtifactError(f"{target} is being written by another process; choose another name")
        yield


def refuse_interrupted(folder: Path, *, resume: bool, overwrite: bool) -> None:
    """Refuse to start a new job over an interrupted one, unless it is to be resumed or discarded."""
    if folder.exists() and not (resume or overwrite):
        raise ArtifactError(
            f"{folder} contains an interrupted job; give --resume to continue it or --overwrite to start over"
        )


def refuse_earlier_results(folder: Path, *, resume: bool, overwrite: bool) -> None:
    """Refuse to write beside results of an earlier run, unless they are to be kept or discarded."""
    if folder.exists() and not (resume or overwrite):
        raise ArtifactError(
            f"{folder} contains results of an earlier run; "
            "give --resume to keep them and compute the missing ones, or --overwrite to start over"
        )


def changed_values(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Describe how two sets of settings differ; empty if they are equal."""
    return "; ".join(
        f"{name} was {old.get(name)!r}, now {new.get(name)!r}"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    )


@contextmanager
def full_disk_explained(folder: Path, advice: str) -> Iterator[None]:
    """Turn a full disk into an error that says what to do after making room."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise SapbertError(f"{folder}: {error.strerror}; make room, then {advice}") from error
