from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapbert.artifacts import create, create_file, fingerprint_of, load_manifest
from sapbert.errors import ArtifactError
from tests.artifacts.conftest import FILES, FULL, failing, fill, left_beside, version_at, write
from tests.conftest import SyncedFiles


def test_an_artifact_appears_when_its_block_ends(tmp_path: Path) -> None:
    target = tmp_path / "made" / "on the way" / "artifact"
    with create(target) as draft:
        fill(draft.path, "new")
        sealed = draft.seal(
            "invented", settings={"version": "new"}, inputs={"a": 1}, counts={"rows": 2}, details={"x": [3]}
        )
        assert not target.exists()

    assert version_at(target) == "new"
    assert load_manifest(target, kind="invented") == sealed
    assert (sealed.inputs, sealed.counts, sealed.details) == ({"a": 1}, {"rows": 2}, {"x": [3]})
    assert set(sealed.files) == set(FILES)
    assert left_beside(target) == []


def test_an_artifact_and_its_place_are_synced(tmp_path: Path, synced: SyncedFiles) -> None:
    target = tmp_path / "artifact"
    write(target)

    assert [path for path in (tmp_path, target, *target.rglob("*")) if path not in synced] == []


def test_a_single_file_is_synced(tmp_path: Path, synced: SyncedFiles) -> None:
    with create_file(tmp_path / "table.tsv") as path:
        path.write_text("text")

    assert tmp_path / "table.tsv" in synced


def test_equal_content_has_an_equal_fingerprint_and_other_content_another(tmp_path: Path) -> None:
    def fingerprint(name: str, files: dict[str, str]) -> str:
        with create(tmp_path / name) as draft:
            for file, text in files.items():
                (draft.path / file).write_text(text)
            return draft.seal("invented", settings={"name": name}, inputs={}, counts={}).fingerprint

    one = fingerprint("one", {"a": "x", "b": "y"})
    assert fingerprint("again", {"b": "y", "a": "x"}) == one
    assert fingerprint("other text", {"a": "x", "b": "z"}) != one
    assert fingerprint("other name", {"a": "x", "c": "y"}) != one


@given(st.dictionaries(st.text("ab/.", min_size=1), st.text("0123456789abcdef", min_size=8, max_size=8)))
def test_a_fingerprint_does_not_depend_on_the_order_of_its_parts(parts: dict[str, str]) -> None:
    assert fingerprint_of(dict(reversed(parts.items()))) == fingerprint_of(parts)
    assert fingerprint_of({**parts, "one more": "00000000"}) != fingerprint_of(parts)


def test_an_artifact_is_as_readable_as_the_users_other_folders(tmp_path: Path) -> None:
    write(tmp_path / "artifact")
    (tmp_path / "plain").mkdir()
    assert (tmp_path / "artifact").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_file_name_that_is_not_unicode_is_kept_in_the_manifest(tmp_path: Path) -> None:
    odd = os.fsdecode(b"m\xfcller.rrf")
    with create(tmp_path / "artifact") as draft:
        draft.seal("invented", settings={"päth": odd}, inputs={odd: 1}, counts={})
    manifest = load_manifest(tmp_path / "artifact")
    assert (manifest.settings, manifest.inputs) == ({"päth": odd}, {odd: 1})


@pytest.mark.parametrize("error", [ValueError("a bug"), KeyboardInterrupt(), SystemExit(3), FULL])
def test_an_exception_in_the_block_propagates_and_leaves_no_files(
    tmp_path: Path, error: BaseException
) -> None:
    with pytest.raises(type(error)) as caught:
        write(tmp_path / "artifact", at_last=failing(error))
    assert caught.value is error
    assert list(tmp_path.iterdir()) == []


def test_an_unsealed_draft_is_a_bug_and_leaves_no_files(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="sealed"), create(tmp_path / "artifact") as draft:
        fill(draft.path, "new")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize(
    "call", ["tempfile.mkdtemp", "pathlib.Path.mkdir", "json.dump", "os.fsync", "os.rename"]
)
def test_a_full_disk_propagates_and_leaves_no_new_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, existing: bool
) -> None:
    target = tmp_path / "artifact"
    if existing:
        write(target)
    with monkeypatch.context() as patch:
        patch.setattr(call, failing(FULL))
        with pytest.raises(OSError) as caught:
            write(target, "new", overwrite=True)

    assert caught.value is FULL
    assert left_beside(target) == []
    assert target.exists() == existing
    if existing:
        assert version_at(target) == "old"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.EIO, "I/O error")])
def test_the_old_artifact_is_restored_if_the_last_rename_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    target = tmp_path / "artifact"
    write(target)
    rename, gone = os.rename, list[bool]()

    def fail_at_the_last(source: Path, goal: Path) -> None:
        if goal == target and source.name == "new":
            gone.append(not target.exists())
            raise error
        rename(source, goal)

    with monkeypatch.context() as patch:
        patch.setattr("sapbert.artifacts.exchange", lambda _one, _other: False)
        patch.setattr(os, "rename", fail_at_the_last)
        with pytest.raises(type(error)):
            write(target, "new", overwrite=True)
    assert gone == [True]
    assert version_at(target) == "old"
    assert left_beside(target) == []


def test_a_single_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "new" / "table.csv"
    with create_file(target) as partial:
        partial.write_text("a,b\n")
        assert not target.exists()
        assert partial.suffix == ".csv"
    assert target.read_text() == "a,b\n"
    assert [path.name for path in target.parent.iterdir()] == ["table.csv"]


def test_an_error_while_writing_a_file_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "table.csv"
    target.write_text("old")

    def half(partial: Path) -> None:
        partial.write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError), create_file(target, overwrite=True) as partial:
        half(partial)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


def test_existing_files_and_folders_are_not_replaced_without_overwrite(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("old")
    with pytest.raises(ArtifactError, match="--overwrite"), create_file(tmp_path / "table.csv"):
        pytest.fail("the block was entered")
    with pytest.raises(ArtifactError, match="is a folder"), create_file(tmp_path, overwrite=True):
        pytest.fail("the block was entered")
    assert (tmp_path / "table.csv").read_text() == "old"
