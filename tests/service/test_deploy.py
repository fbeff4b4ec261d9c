"""The files in deploy/: their commands are valid, and the files and extras that they name exist."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from sapbert.defaults import VARIABLE
from tests.cli.conftest import Sapbert, refused, sapbert
from tests.service.conftest import MakeBench
from tests.service.page.conftest import serving

__all__ = ["sapbert"]
ROOT = Path(__file__).parents[2]
UNIT = (ROOT / "deploy" / "sapbert.service").read_text()
# One instruction per line, without comments.
DOCKERFILE = re.sub(r"^#.*\n|\\\n", "", (ROOT / "deploy" / "Dockerfile").read_text(), flags=re.MULTILINE)
PORT = "8000"


def instructions(name: str) -> list[str]:
    return re.findall(rf"^{name} +(.*)$", DOCKERFILE, flags=re.MULTILINE)


def command(name: str) -> list[str]:
    """The JSON list at the end of an instruction."""
    [line] = instructions(name)
    words: list[str] = json.loads(line[line.index("[") :])
    return words


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove the bundled index, so that a valid command fails only when it opens the index."""
    monkeypatch.setenv(VARIABLE, str(tmp_path))


def test_the_image_installs_the_locked_dependencies_of_the_service() -> None:
    locked = (ROOT / "requirements" / "serve.txt").read_text()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert "--require-hashes --requirement /requirements.txt" in DOCKERFILE
    for requirement in (*extras["serve"], *extras["hybrid"]):
        name = re.split(r"[^a-z0-9-]", requirement)[0]
        assert re.search(rf"^{name}==", locked, re.MULTILINE), name


def test_files_copied_into_the_image_exist_and_are_not_ignored() -> None:
    ignored = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().split()
    copied = [word for line in instructions("COPY") for word in line.split()[:-1]]
    assert ignored[0] == "*"
    for name in copied:
        assert (ROOT / name).exists()
        assert f"!{name}" in ignored


def test_the_image_requires_keys_unless_without_keys_is_given(sapbert: Sapbert) -> None:
    program, *arguments = command("ENTRYPOINT")
    assert program == "sapbert"
    assert "other machines can reach 0.0.0.0, and no API key" in refused(sapbert(*arguments))
    assert "no default index is installed" in refused(sapbert(*arguments, "--without-keys"))
    assert "service.toml: cannot be read" in refused(sapbert(*arguments, "/nowhere/service.toml"))


def test_the_health_check_of_the_image_reports_the_health_of_the_service(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    program, *arguments = command("HEALTHCHECK")
    assert program == "python"
    assert PORT in arguments[-1]
    assert instructions("EXPOSE") == [PORT]

    def check(port: str) -> int:
        words = [word.replace(PORT, port) for word in arguments]
        return subprocess.run([sys.executable, *words], capture_output=True, check=False).returncode

    with serving(make_bench().app) as address:
        port = address.rpartition(":")[2]
        assert check(port) == 0
    assert check(port) != 0


def test_the_systemd_unit_has_a_valid_command(sapbert: Sapbert) -> None:
    [line] = re.findall(r"^ExecStart=(.*)$", UNIT, flags=re.MULTILINE)
    program, *arguments = shlex.split(line)
    assert Path(program).name == "sapbert"
    assert "no default index is installed" in refused(sapbert(*arguments))
