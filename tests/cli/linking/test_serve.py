"""What `sapbert serve` refuses, and its keys; tests/service/test_process.py tests the running service."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sapbert.service.middleware.keys import owner_of
from sapbert.service.settings import load_settings
from tests.cli.conftest import Sapbert, refused
from tests.index.conftest import NgramEncoder
from tests.service.conftest import index_in


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index; to be read only."""
    return index_in(tmp_path_factory.mktemp("serve"))


@pytest.fixture(autouse=True)
def stub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sapbert.encoder.open.open_exported", lambda _folder, **_options: NgramEncoder(64))


def test_a_damaged_index_refuses_to_start_in_one_line(sapbert: Sapbert, index: Path, tmp_path: Path) -> None:
    damaged = Path(shutil.copytree(index, tmp_path / "damaged"))
    vectors = damaged / "vectors.npy"
    content = bytearray(vectors.read_bytes())
    content[-1] ^= 1
    vectors.write_bytes(content)

    line = refused(sapbert("serve", damaged, "--port", 0))

    assert "vectors.npy" in line
    assert "checksum" in line


@pytest.mark.parametrize("what", ["nowhere", "nowhere.toml"])
def test_a_missing_index_or_file_is_refused_in_one_line(sapbert: Sapbert, tmp_path: Path, what: str) -> None:
    assert what in refused(sapbert("serve", tmp_path / what))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_listening_to_other_machines_needs_a_key(sapbert: Sapbert, index: Path, host: str) -> None:
    line = refused(sapbert("serve", index, "--host", host))
    assert f"other machines can reach {host}, and no API key is configured" in line
    assert "--new-key" in line


def test_a_port_in_use_is_reported(sapbert: Sapbert, index: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        line = refused(sapbert("serve", index, "--port", port))
    assert f"cannot listen on 127.0.0.1 port {port}: Address already in use" in line


def test_a_new_key_fits_the_configuration_and_is_printed_once(sapbert: Sapbert, tmp_path: Path) -> None:
    done = sapbert("serve", "--new-key", "alice")

    assert done.code == 0
    config = tmp_path / "service.toml"
    config.write_text('[linkers.a]\nindex = "x"' + done.out)
    key = done.err.split()[-1]
    assert owner_of(key, load_settings(config).keys) == "alice"
    assert key not in done.out


@pytest.mark.parametrize("name", ["", 'a"b', "alice smith"])
def test_an_invalid_key_name_is_refused(sapbert: Sapbert, name: str) -> None:
    done = sapbert("serve", "--new-key", name)
    assert done.code == 1
    assert "is not a valid linker or key name" in done.err


@pytest.mark.parametrize(
    ("blocked", "arguments", "extra"),
    [("fastapi", ["x"], "serve"), ("uvicorn", ["x"], "serve"), ("mcp", ["x", "--mcp"], "mcp")],
)
def test_a_missing_extra_is_named(blocked: str, arguments: list[str], extra: str) -> None:
    script = f"import sys; sys.modules[{blocked!r}] = None; from sapbert.cli.main import main; main()"
    command = [sys.executable, "-c", script, "serve", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        f"sapbert: this needs {blocked}, which is not installed: pip install 'sapbert[{extra}]'\n",
    )
