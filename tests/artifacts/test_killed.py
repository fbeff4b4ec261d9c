from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sapbert.artifacts import create, load_manifest
from sapbert.errors import ArtifactError
from tests.artifacts.conftest import FILES, left_beside, version_at, write

needs_locks = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no flock")


# Overwrites the artifact at the target and pauses at the given stage.
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
def test_leftovers_of_a_killed_writer_do_not_open_and_are_removed(tmp_path: Path, stage: str) -> None:
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
def test_files_of_a_running_writer_are_not_removed(tmp_path: Path) -> None:
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
from sapbert import artifacts
from sapbert.artifacts import create

before, folder, files = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
if before == "existing, no exchange":
    artifacts.exchange = lambda one, other: False
os.fsync = lambda handle: None  # a test needs no protection against power loss

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
    if before != "none":
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
@pytest.mark.parametrize("before", ["existing", "existing, no exchange", "none"])
def test_a_writer_killed_at_any_call_leaves_the_old_or_the_new_artifact(tmp_path: Path, before: str) -> None:
    command = [sys.executable, "-c", KILLED_AT_EVERY_CALL, before, str(tmp_path), *FILES]
    subprocess.run(command, check=True)
    targets = sorted(folder / "artifact" for folder in tmp_path.iterdir())
    assert len(targets) > 20

    found = [version_at(target) if target.exists() else "none" for target in targets]
    order = ["none", "new"] if before == "none" else ["old", "none", "new"]
    assert found == sorted(found, key=order.index)
    assert found[-1] == "new"
    if before != "none":
        # Without exchange, one call between setting the old artifact aside and moving the new one in.
        assert found.count("none") == (before == "existing, no exchange")

    for target, version in zip(targets, found, strict=True):
        # The next writer fails on purpose, so that what it swept and put back can be seen.
        for leftover in target.parent.glob(".artifact.partial-*"):
            os.utime(leftover, (0, 0))
        with pytest.raises(ZeroDivisionError), create(target, overwrite=True):
            raise ZeroDivisionError
        assert [name for name in left_beside(target) if name.startswith(".")] == []
        if before != "none":
            assert version_at(target) == ("old" if version == "none" else version)
