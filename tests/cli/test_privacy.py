"""Commands write only where they should, and connect to nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

COMMANDS = (
    "read table names.tsv -o vocabulary",
    "pairs vocabulary -o pairs",
    "index vocabulary --model default -o index",
    "show index",
    "link heart --index index",
    "link heart",
)
RUN = (
    "import sys; from sapbert.cli.main import main\n"
    "for command in sys.stdin.read().splitlines():\n"
    "    sys.argv = ['sapbert', *command.split()]\n"
    "    try: main()\n"
    "    except SystemExit as stopped: assert not stopped.code, command\n"
)


def test_home_temporary_folder_and_network_stay_untouched(tmp_path: Path) -> None:
    home, temporary, work = (tmp_path / name for name in ("home", "tmp", "work"))
    for folder in (home, temporary, work):
        folder.mkdir()
    (work / "names.tsv").write_text("id\tname\nx:1\theart\nx:1\tcor\n")
    unset = {"ORT_DISABLE_TELEMETRY", "SAPBERT_HOME", "XDG_CACHE_HOME"}
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {"HOME": str(home), "TMPDIR": str(temporary)}
    trace = tmp_path / "trace"
    strace = (
        ["strace", "-f", "-e", "trace=connect,sendto", "-o", str(trace)] if shutil.which("strace") else []
    )
    subprocess.run(
        [*strace, sys.executable, "-c", RUN],
        input="\n".join(COMMANDS),
        env=environment,
        cwd=work,
        check=True,
        text=True,
        capture_output=True,
    )

    assert sorted(file.name for file in work.iterdir()) == ["index", "names.tsv", "pairs", "vocabulary"]
    assert [*home.rglob("*"), *temporary.rglob("*")] == []
    assert "AF_INET" not in (trace.read_text() if strace else "")
