from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sapbert.artifacts import FORMAT, MANIFEST, create, refuse_occupied
from sapbert.errors import ArtifactError
from tests.artifacts.conftest import change_manifest, left_beside, version_at, write


def test_an_artifact_is_replaced_only_with_overwrite(tmp_path: Path) -> None:
    target = tmp_path / "artifact"
    write(target, "old")
    with pytest.raises(ArtifactError, match=r"artifact exists; .*--overwrite"):
        write(target, "new")
    assert version_at(target) == "old"

    write(target, "new", overwrite=True)
    assert version_at(target) == "new"
    assert left_beside(target) == []


def test_an_artifact_of_a_newer_format_may_be_replaced_too(artifact: Path) -> None:
    change_manifest(artifact, format=FORMAT + 1)
    write(artifact, "new", overwrite=True)
    assert version_at(artifact) == "new"


def a_folder_of_the_user(path: Path) -> None:
    path.mkdir()
    (path / "thesis.tex").write_text("years of work")


def a_browser_extension(path: Path) -> None:
    path.mkdir()
    (path / MANIFEST).write_text('{"manifest_version": 3, "name": "Invented", "version": "1.0"}')


def a_manifest_that_is_no_object(path: Path) -> None:
    path.mkdir()
    (path / MANIFEST).write_text('["kind", "fingerprint", "files"]')


def a_file(path: Path) -> None:
    path.write_text("years of work")


def a_link_to_nowhere(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


FOREIGN = [a_folder_of_the_user, a_browser_extension, a_manifest_that_is_no_object, a_file, a_link_to_nowhere]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("make", FOREIGN)
def test_a_folder_that_is_not_an_artifact_is_never_replaced(
    tmp_path: Path, make: Callable[[Path], None], overwrite: bool
) -> None:
    target = tmp_path / "target"
    make(target)
    before = sorted((str(p), p.lstat().st_ino) for p in tmp_path.rglob("*"))
    with pytest.raises(ArtifactError, match="target exists and is not an artifact"):
        write(target, overwrite=overwrite)
    assert sorted((str(p), p.lstat().st_ino) for p in tmp_path.rglob("*")) == before


def test_a_folder_created_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with pytest.raises(ArtifactError, match="is not an artifact"):
        write(target, overwrite=True, at_last=lambda: a_folder_of_the_user(target))
    assert (target / "thesis.tex").read_text() == "years of work"
    assert left_beside(target) == []


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_empty_folder_may_become_an_artifact(tmp_path: Path, overwrite: bool) -> None:
    target = tmp_path / "artifact"
    target.mkdir()
    write(target, overwrite=overwrite)
    assert version_at(target) == "old"
    assert left_beside(target) == []


def test_a_symbolic_link_is_not_replaced(tmp_path: Path) -> None:
    write(tmp_path / "kept" / "artifact", "old")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "kept" / "artifact")
    with pytest.raises(ArtifactError, match="link is a symbolic link; give the folder it points to"):
        write(link, "new", overwrite=True)
    assert link.is_symlink()
    assert version_at(link) == "old"
    assert left_beside(link) == ["kept"]


def test_an_artifact_of_another_kind_is_not_replaced(artifact: Path) -> None:
    with pytest.raises(ArtifactError, match="artifact is an invented; choose another name or remove it"):
        refuse_occupied(artifact, overwrite=True, kind="index")
    with (
        pytest.raises(ArtifactError, match="artifact is an invented"),
        create(artifact, overwrite=True) as draft,
    ):
        draft.seal("index", settings={}, inputs={}, counts={})
    assert version_at(artifact) == "old"
