"""Artifacts of an invented kind, and the files beside them."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sapbert.artifacts import MANIFEST, Manifest, create, load_manifest

FILES = ("first.bin", "deeper/second.bin")
FULL = OSError(errno.ENOSPC, "No space left on device")


def fill(folder: Path, version: str) -> None:
    for name in FILES:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"{version} {name}\n")


def nothing() -> None:
    """Do nothing."""


def write(
    target: Path, version: str = "old", *, overwrite: bool = False, at_last: Callable[[], object] = nothing
) -> Manifest:
    """Write an artifact; call `at_last` after it is sealed and before it is moved to its target."""
    with create(target, overwrite=overwrite) as draft:
        fill(draft.path, version)
        manifest = draft.seal("invented", settings={"version": version}, inputs={}, counts={})
        at_last()
    return manifest


def version_at(target: Path) -> str:
    """Open the artifact and return its version; all parts must be of the same version."""
    version = str(load_manifest(target, kind="invented").settings["version"])
    assert [(target / name).read_text() for name in FILES] == [f"{version} {name}\n" for name in FILES]
    assert {p.relative_to(target).as_posix() for p in target.rglob("*") if p.is_file()} == {*FILES, MANIFEST}
    return version


def left_beside(target: Path) -> list[str]:
    return [p.name for p in target.parent.iterdir() if p != target]


def failing(error: BaseException) -> Callable[..., Any]:
    def fail(*_args: object, **_kwargs: object) -> None:
        raise error

    return fail


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    write(tmp_path / "artifact")
    return tmp_path / "artifact"


def change_manifest(artifact: Path, **changes: object) -> None:
    content = json.loads((artifact / MANIFEST).read_text())
    (artifact / MANIFEST).write_text(json.dumps({**content, **changes}))
