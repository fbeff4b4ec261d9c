from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapbert import artifacts
from sapbert.artifacts import FORMAT, MANIFEST, Manifest, create, create_file, fingerprint_of, load_manifest
from sapbert.errors import ArtifactError

FILES = ("first.bin", "deeper/second.bin")
needs_locks = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no flock")


def fill(folder: Path, version: str) -> None:
    for name in FILES:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"{version} {name}\n")


def nothing() -> None:
    """Do nothing."""


def write(
    target: Path, version: str = "old", *, overwrite: bool = False, at_last: Callable[[], object] = nothing
) -> Manifest:
    """Write an artifact; when it is sealed but not yet in its place, call `at_last`."""
    with create(target, overwrite=overwrite) as draft:
        fill(draft.path, version)
        manifest = draft.seal("invented", settings={"version": version}, inputs={}, counts={})
        at_last()
    return manifest


def version_at(target: Path) -> str:
    """Open the artifact and tell which version it is, proving that no part is of another."""
    version = str(load_manifest(target, kind="invented").settings["version"])
    assert [(target / name).read_text() for name in FILES] == [f"{version} {name}\n" for name in FILES]
    assert {p.relative_to(target).as_posix() for p in target.rglob("*") if p.is_file()} == {*FILES, MANIFEST}
    return version


def left_beside(target: Path) -> list[str]:
    return [p.name for p in target.parent.iterdir() if p != target]


def bytes_beside(target: Path) -> int:
    beside = [target.parent / name for name in left_beside(target)]
    files = [file for path in beside for file in (path, *path.rglob("*")) if file.is_file()]
    return sum(file.stat().st_size for file in files)


def failing(error: BaseException) -> Callable[..., Any]:
    def fail(*_args: object, **_kwargs: object) -> None:
        raise error

    return fail


# What is written


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


def test_equal_content_has_an_equal_fingerprint_and_other_content_another(tmp_path: Path) -> None:
    def fingerprint(name: str, files: dict[str, str]) -> str:
        with create(tmp_path / name) as draft:
            for file, text in files.items():
                (draft.path / file).write_text(text)
            return draft.seal("invented", settings={"told": name}, inputs={}, counts={}).fingerprint

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


def test_a_file_name_that_is_no_unicode_is_kept_in_the_manifest(tmp_path: Path) -> None:
    odd = os.fsdecode(b"m\xfcller.rrf")
    with create(tmp_path / "artifact") as draft:
        draft.seal("invented", settings={"päth": odd}, inputs={odd: 1}, counts={})
    manifest = load_manifest(tmp_path / "artifact")
    assert (manifest.settings, manifest.inputs) == ({"päth": odd}, {odd: 1})


# What is left when writing fails

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("error", [ValueError("a bug"), KeyboardInterrupt(), SystemExit(3), FULL])
def test_an_exception_in_the_block_passes_and_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        write(tmp_path / "artifact", at_last=failing(error))
    assert caught.value is error
    assert list(tmp_path.iterdir()) == []


def test_a_draft_that_was_not_sealed_is_a_bug_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="sealed"), create(tmp_path / "artifact") as draft:
        fill(draft.path, "new")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize(
    "call", ["tempfile.mkdtemp", "pathlib.Path.mkdir", "json.dump", "os.fsync", "os.rename"]
)
def test_a_full_disk_passes_and_leaves_nothing_new_behind(
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
def test_what_was_set_aside_comes_back_when_the_last_step_fails(
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
        patch.setattr(os, "rename", fail_at_the_last)
        with pytest.raises(type(error)):
            write(target, "new", overwrite=True)
    assert gone == [True]
    assert version_at(target) == "old"
    assert left_beside(target) == []


# What may be replaced


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
def test_what_is_no_artifact_is_never_replaced(
    tmp_path: Path, make: Callable[[Path], None], overwrite: bool
) -> None:
    target = tmp_path / "target"
    make(target)
    before = sorted((str(p), p.lstat().st_ino) for p in tmp_path.rglob("*"))
    with pytest.raises(ArtifactError, match="target exists and is no artifact"):
        write(target, overwrite=overwrite)
    assert sorted((str(p), p.lstat().st_ino) for p in tmp_path.rglob("*")) == before


def test_what_came_in_while_writing_is_not_replaced_either(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with pytest.raises(ArtifactError, match="is no artifact"):
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


def test_where_a_link_is_overwritten_what_it_pointed_to_stays(tmp_path: Path) -> None:
    write(tmp_path / "kept" / "artifact", "old")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "kept" / "artifact")
    write(link, "new", overwrite=True)
    assert version_at(link) == "new"
    assert version_at(tmp_path / "kept" / "artifact") == "old"
    assert left_beside(link) == ["kept"]


# What is refused when opening


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    write(tmp_path / "artifact")
    return tmp_path / "artifact"


def change_manifest(artifact: Path, **changes: object) -> None:
    content = json.loads((artifact / MANIFEST).read_text())
    (artifact / MANIFEST).write_text(json.dumps({**content, **changes}))


def flipped(whole: bytes, position: int) -> bytes:
    return whole[:position] + bytes([whole[position] ^ (1 << position % 8)]) + whole[position + 1 :]


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_in_any_byte_of_a_file_is_found(artifact: Path, name: str) -> None:
    whole = (artifact / name).read_bytes()
    for position in range(len(whole)):
        (artifact / name).write_bytes(flipped(whole, position))
        with pytest.raises(ArtifactError, match=f"damaged: {name} does not match its checksum"):
            load_manifest(artifact)
        assert load_manifest(artifact, verify=False).kind == "invented"


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_size_is_found_without_reading_it(artifact: Path, name: str, verify: bool) -> None:
    whole = (artifact / name).read_bytes()
    for damaged in (whole[:-1], b"", whole + b"\0"):
        (artifact / name).write_bytes(damaged)
        problem = f"damaged: {name} has {len(damaged)} bytes instead of {len(whole)}"
        with pytest.raises(ArtifactError, match=problem):
            load_manifest(artifact, verify=verify)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_found(artifact: Path, name: str, verify: bool) -> None:
    (artifact / name).unlink()
    with pytest.raises(ArtifactError, match=f"damaged: {name} is missing"):
        load_manifest(artifact, verify=verify)
    (artifact / name).mkdir()
    with pytest.raises(ArtifactError, match=f"damaged: {name} is missing"):
        load_manifest(artifact, verify=verify)


def test_a_manifest_cut_off_anywhere_is_refused(artifact: Path) -> None:
    whole = (artifact / MANIFEST).read_bytes()
    for length in range(len(whole) - 1):
        (artifact / MANIFEST).write_bytes(whole[:length])
        with pytest.raises(ArtifactError, match=r"manifest\.json is damaged: "):
            load_manifest(artifact)


def test_a_flipped_bit_in_any_byte_of_the_manifest_is_found(artifact: Path) -> None:
    whole = (artifact / MANIFEST).read_bytes()
    for position in range(len(whole)):
        (artifact / MANIFEST).write_bytes(flipped(whole, position))
        with pytest.raises(ArtifactError, match=str(artifact)):
            load_manifest(artifact, verify=False)


@pytest.mark.parametrize("garbage", [{"unknown": 1}, {"kind": "other"}, {"files": {}}, {"checksum": None}])
def test_a_manifest_with_a_changed_or_unknown_entry_is_refused(
    artifact: Path, garbage: dict[str, object]
) -> None:
    change_manifest(artifact, **garbage)
    with pytest.raises(ArtifactError, match=r"manifest\.json is damaged: it does not match its own checksum"):
        load_manifest(artifact)


def test_a_manifest_followed_by_garbage_is_refused(artifact: Path) -> None:
    with open(artifact / MANIFEST, "a") as file:
        file.write("{}")
    with pytest.raises(ArtifactError, match=r"manifest\.json is damaged: Extra data: line"):
        load_manifest(artifact)


def test_a_manifest_without_an_entry_says_which(artifact: Path) -> None:
    (artifact / MANIFEST).write_text("{}")
    with pytest.raises(ArtifactError, match=r"manifest\.json is damaged: no 'format'; make the artifact"):
        load_manifest(artifact)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
near_manifests = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("format", "files", "kind", "checksum"), json_values)
)


@given(json_values | near_manifests)
def test_a_manifest_of_any_other_content_is_refused(content: object) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / MANIFEST).write_text(json.dumps(content))
        with pytest.raises(ArtifactError, match=folder):
            load_manifest(Path(folder))


def test_another_kind_is_refused_with_both_named(artifact: Path) -> None:
    with pytest.raises(ArtifactError, match="of kind invented, expected pairs"):
        load_manifest(artifact, kind="pairs")
    assert load_manifest(artifact).kind == "invented"


def test_a_newer_format_asks_for_an_upgrade_whatever_else_it_holds(artifact: Path) -> None:
    (artifact / MANIFEST).write_text(json.dumps({"format": FORMAT + 1, "sapbert": "99.0", "new": "idea"}))
    with pytest.raises(ArtifactError, match=rf"sapbert 99\.0 in format {FORMAT + 1}; .* upgrade it"):
        load_manifest(artifact)


def test_without_xxhash_sha256_tells_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "_ALGORITHMS", {"sha256": hashlib.sha256})
    with create(tmp_path / "bare") as draft:
        fill(draft.path, "new")
        draft.seal("invented", settings={}, inputs={}, counts={})
    monkeypatch.undo()

    assert load_manifest(tmp_path / "bare").files[FILES[0]].digest.startswith("sha256:")
    (tmp_path / "bare" / FILES[0]).write_bytes(flipped((tmp_path / "bare" / FILES[0]).read_bytes(), 0))
    with pytest.raises(ArtifactError, match=f"{FILES[0]} does not match its checksum"):
        load_manifest(tmp_path / "bare")


def test_without_xxhash_an_artifact_that_has_its_digests_opens(
    artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_manifest(artifact).files[FILES[0]].digest.startswith("xxh3:")
    monkeypatch.setattr(artifacts, "_ALGORITHMS", {"sha256": hashlib.sha256})
    assert load_manifest(artifact).kind == "invented"
    (artifact / FILES[0]).write_bytes(b"")
    with pytest.raises(ArtifactError, match="has 0 bytes instead of"):
        load_manifest(artifact)


def test_an_artifact_of_an_older_format_is_to_be_made_again(artifact: Path) -> None:
    change_manifest(artifact, format=FORMAT - 1)
    with pytest.raises(ArtifactError, match="written by an older sapbert; make it again"):
        load_manifest(artifact)


def write_while_the_disk_fails(target: Path) -> None:
    with create(target) as draft:
        fill(draft.path, "new")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", failing(FULL))
            draft.settle(draft.path / FILES[0])
            with suppress(OSError):
                draft.settled()
        draft.seal("invented", settings={}, inputs={}, counts={})


def test_a_file_that_could_not_be_brought_to_disk_early_is_an_error(tmp_path: Path) -> None:
    """A system tells of such an error once, so that asking again at the end would miss it."""
    with pytest.raises(OSError) as caught:
        write_while_the_disk_fails(tmp_path / "artifact")
    assert caught.value is FULL
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_artifact_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="nowhere: no such file or directory"):
        load_manifest(tmp_path / "nowhere")
    with pytest.raises(ArtifactError, match=r"no artifact: it has no manifest\.json"):
        load_manifest(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match=r"file: no artifact: it has no manifest\.json"):
        load_manifest(tmp_path / "file")


# What a killed writer leaves

# Writes the new version over what lies at the target, and waits at the stage it is told.
WRITER = """
import sys
from pathlib import Path
from sapbert.artifacts import create

target, stages, files = Path(sys.argv[1]), {sys.argv[2]}, sys.argv[3:]

def reach(stage):
    if stage in stages:
        stages.clear()
        print("ready", flush=True)
        sys.stdin.readline()

with create(target, overwrite=True) as draft:
    reach("begun")
    for name in files:
        (draft.path / name).parent.mkdir(exist_ok=True)
        with open(draft.path / name, "w") as file:
            file.write("new ")
            file.flush()
            reach("half a file")
            file.write(name + "\\n")
    reach("filled")
    draft.seal("invented", settings={"version": "new"}, inputs={}, counts={})
    reach("sealed")
print("done")
"""


def start_writer(target: Path, stage: str) -> subprocess.Popen[str]:
    """Start a writer in another process and return when it waits at `stage`."""
    command = [sys.executable, "-c", WRITER, str(target), stage, *FILES]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    return writer


@needs_locks
@pytest.mark.parametrize("stage", ["begun", "half a file", "filled", "sealed"])
def test_what_a_killed_writer_leaves_does_not_open_and_is_swept(tmp_path: Path, stage: str) -> None:
    target = tmp_path / "art[i]*fact"
    write(target, "old")
    with start_writer(target, stage) as writer:
        writer.kill()
    assert writer.returncode == -signal.SIGKILL

    assert version_at(target) == "old"
    (leftover,) = left_beside(target)
    for folder in [tmp_path / leftover, *(tmp_path / leftover).rglob("*")]:
        with pytest.raises(ArtifactError):
            load_manifest(folder)

    write(tmp_path / "another")
    assert leftover in left_beside(target), "a writer of another name lets it be"
    write(target, "new", overwrite=True)
    assert version_at(target) == "new"
    assert left_beside(target) == ["another"]


@needs_locks
def test_a_live_writer_is_not_swept_and_finishes(tmp_path: Path) -> None:
    target = tmp_path / "artifact"
    with start_writer(target, "half a file") as writer:
        write(target, "old")
        assert version_at(target) == "old"
        assert len(left_beside(target)) == 1
        said, _ = writer.communicate("go on\n")
    assert said == "done\n"
    assert version_at(target) == "new"
    assert left_beside(target) == []


# Forks a child for each call by which a writer changes the file system, and kills the child at that call.
KILLED_AT_EVERY_CALL = """
import os, signal, sys
from pathlib import Path
from sapbert.artifacts import create

existing, folder, files = sys.argv[1] == "existing", Path(sys.argv[2]), sys.argv[3:]
os.fsync = lambda handle: None  # nobody cuts the power in this test

def write(target, version):
    with create(target, overwrite=True) as draft:
        for name in files:
            (draft.path / name).parent.mkdir(exist_ok=True)
            (draft.path / name).write_text(f"{version} {name}\\n")
        draft.seal("invented", settings={"version": version}, inputs={}, counts={})

def write_until(target, call):
    calls = iter(range(call))
    def hook(event, _arguments):
        if event in {"open", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "fcntl.flock"}:
            if next(calls, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)
    write(target, "new")
    os._exit(0)

for call in range(1000):
    target = folder / f"{call:03}" / "artifact"
    if existing:
        write(target, "old")
    child = os.fork()
    if not child:
        write_until(target, call)
    if os.waitpid(child, 0)[1] == 0:
        break
else:
    sys.exit("a writer makes more calls than this test knows")
"""


@needs_locks
@pytest.mark.parametrize("existing", [True, False])
def test_a_writer_killed_at_any_call_leaves_the_old_or_the_new_whole(tmp_path: Path, existing: bool) -> None:
    before = "existing" if existing else "none"
    command = [sys.executable, "-c", KILLED_AT_EVERY_CALL, before, str(tmp_path), *FILES]
    subprocess.run(command, check=True)
    targets = sorted(folder / "artifact" for folder in tmp_path.iterdir())
    assert len(targets) > 20

    found = [version_at(target) if target.exists() else "none" for target in targets]
    if existing:
        # One call, between setting the old artifact aside and moving the new one in, finds neither.
        assert found.count("none") == 1
        assert found == sorted(found, key=["old", "none", "new"].index)
    else:
        assert found == sorted(found, key=["none", "new"].index)
    assert found[-1] == "new"

    for target, version in zip(targets, found, strict=True):
        # The next writer fails on purpose, so that what it swept and put back can be seen.
        with pytest.raises(ZeroDivisionError), create(target, overwrite=True):
            raise ZeroDivisionError
        assert bytes_beside(target) == 0
        if existing:
            assert version_at(target) == ("old" if version == "none" else version)


# Two writers at once


def test_of_two_writers_at_once_the_second_to_finish_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "artifact"
    with pytest.raises(ArtifactError, match="exists"):
        write(target, "late", at_last=lambda: write(target, "early"))
    assert version_at(target) == "early"
    assert left_beside(target) == []


def test_of_two_writers_that_overwrite_the_second_to_finish_stays(tmp_path: Path) -> None:
    target = tmp_path / "artifact"
    write(target, "old")
    write(target, "late", overwrite=True, at_last=lambda: write(target, "early", overwrite=True))
    assert version_at(target) == "late"
    assert left_beside(target) == []


@pytest.mark.parametrize("overwrite", [False, True])
def test_writers_in_a_race_mix_nothing(
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
    """Spare the disk: nobody cuts the power in a test."""


def test_a_single_file_appears_when_it_is_whole(tmp_path: Path) -> None:
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


def test_neither_a_file_nor_a_folder_is_replaced_unasked(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("old")
    with pytest.raises(ArtifactError, match="--overwrite"), create_file(tmp_path / "table.csv"):
        pytest.fail("the block was entered")
    with pytest.raises(ArtifactError, match="is a folder"), create_file(tmp_path, overwrite=True):
        pytest.fail("the block was entered")
    assert (tmp_path / "table.csv").read_text() == "old"
