from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sapbert import __version__
from sapbert.artifacts import load_manifest
from tests.cli.conftest import META, Done, Sapbert, left_in, one_json, refused


def start(*arguments: object) -> subprocess.Popen[str]:
    """Start `sapbert` with the default interrupt handler; a background process would ignore interrupts."""
    script = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from sapbert.cli.main import main; main()"
    )
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> Done:
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return Done(process.returncode, out, err)


def test_the_package_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "sapbert", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert (done.stdout, done.stderr) == (f"sapbert {__version__}\n", "")


def test_an_expected_error_exits_1_without_a_traceback(tmp_path: Path) -> None:
    assert "no such file" in refused(finish(start("show", tmp_path / "nowhere")))


@pytest.mark.parametrize(
    "command", ["pairs", "read", "read umls", "plot", "plot tsne", "link", "index", "serve", "train"]
)
def test_help_loads_no_heavy_module_and_no_other_command(command: str) -> None:
    script = (
        "import sys; from sapbert.cli.main import main\n"
        f"sys.argv = ['sapbert', *{command.split()}, '--help']\n"
        "try: main()\n"
        "except SystemExit: sys.exit(' '.join("
        "{'polars', 'numpy', 'torch', 'rich', 'sapbert.cli.vocab.fetch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert done.stderr.strip() == ""
    assert "Usage: " in done.stdout
    assert "completion" not in done.stdout


def test_a_misspelt_command_gets_a_suggestion() -> None:
    done = finish(start("trian"))
    assert done.code == 2
    assert "Did you mean 'train'?" in done.err


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no named pipes")
    path = tmp_path / "MRCONSO.RRF"
    os.mkfifo(path)
    return path


def test_a_pipe_can_be_read(sapbert: Sapbert, fifo: Path, tmp_path: Path) -> None:
    process = start("read", "umls", fifo, "-o", tmp_path / "out" / "piped")
    fifo.write_bytes((META / "MRCONSO.RRF").read_bytes())

    done = finish(process)

    assert (done.code, done.out) == (0, "")
    alone = Path(shutil.copy(META / "MRCONSO.RRF", tmp_path / "alone.rrf"))
    expected = one_json(sapbert("read", "umls", alone, "-o", tmp_path / "out" / "alone", "--json"))
    assert load_manifest(tmp_path / "out" / "piped").fingerprint == expected["fingerprint"]


def test_an_interrupt_exits_130_with_a_message_and_leaves_nothing(fifo: Path, tmp_path: Path) -> None:
    process = start("read", "umls", fifo, "-o", tmp_path / "out" / "vocabulary")
    # Opening waits for the reader. polars continues an interrupted read, so the end of the file must follow.
    with open(fifo, "wb"):
        process.send_signal(signal.SIGINT)

    done = finish(process)

    assert done == Done(130, "", "interrupted; no partial output was left behind\n")
    assert left_in(tmp_path / "out") == set()
