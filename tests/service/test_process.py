"""The service as a process: start, reload, killed workers and stop."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.service.conftest import index_in

PATIENCE = 60


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with an encoder that the processes can open; tests must not change it."""
    return index_in(tmp_path_factory.mktemp("process"))


@pytest.fixture(autouse=True)
def stub(monkeypatch: pytest.MonkeyPatch) -> None:
    folders = (Path(__file__).parent / "stub", Path(__file__).parents[2], *sys.path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, folders)))


def children_of(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    if not path.exists():
        pytest.skip("this system does not list the children of a process")
    return list(map(int, path.read_text().split()))


class Process:
    """`sapbert serve`, and where it listens."""

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, "-m", "sapbert", "serve", *map(str, arguments), "--port", "0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        first = self.process.stderr.readline()
        assert first.startswith("http://127.0.0.1:"), first + self.process.stderr.read()
        self.address = first.split(" ")[0]
        self.port = int(self.address.rpartition(":")[2])

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(self.address + path, timeout=PATIENCE) as answer:
            content = answer.read()
        return content.decode() if path == "/metrics" else json.loads(content)

    def link(self, mention: str) -> Any:
        body = json.dumps({"mentions": [mention]}).encode()
        request = urllib.request.Request(
            f"{self.address}/v1/link", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.loads(answer.read())["answers"][0]["candidates"]

    def workers(self) -> set[int]:
        """The processes that the fork server has started."""
        return {worker for child in children_of(self.process.pid) for worker in children_of(child)}

    def read_log(self, text: str, times: int = 1) -> str:
        """Read the log until a text has occurred this many times; return the last line."""
        assert self.process.stderr is not None
        while times:
            line = self.process.stderr.readline()
            assert line, f"the service ended before it said {text!r}"
            times -= text in line
        return line

    def read_log_of(self, *texts: str) -> None:
        """Read the log until each text has occurred, in any order."""
        assert self.process.stderr is not None
        missing = set(texts)
        while missing:
            line = self.process.stderr.readline()
            assert line, f"the service ended before it said {missing}"
            missing = {text for text in missing if text not in line}

    def stop(self) -> str:
        self.process.send_signal(signal.SIGTERM)
        return self.end()

    def end(self) -> str:
        try:
            return self.process.communicate(timeout=PATIENCE)[1]
        finally:
            self.process.kill()


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def begin(*arguments: object) -> Process:
        started.append(Process(*arguments))
        return started[-1]

    yield begin
    for process in started:
        process.process.kill()
        process.process.communicate()


def test_an_index_is_served_until_the_process_is_stopped(index: Path, start: Callable[..., Process]) -> None:
    process = start(index)
    assert process.link("cold")[0]["concept_id"] == "hp:1"

    log = process.stop()

    events = [json.loads(line) for line in log.splitlines()]
    assert [line["route"] for line in events if line["event"] == "request"] == ["/v1/link"]
    assert "Traceback" not in log
    assert process.process.returncode == 0


def test_a_service_stopped_at_startup_exits_with_zero(index: Path, start: Callable[..., Process]) -> None:
    process = start(index)
    process.stop()
    assert process.process.returncode == 0


def test_a_reload_opens_the_new_index_or_keeps_the_old_one_if_it_fails(
    index: Path, start: Callable[..., Process], tmp_path: Path
) -> None:
    config = tmp_path / "service.toml"
    config.write_text(f'[linkers.first]\nindex = "{index}"\n')
    process = start(config)

    def names() -> list[str]:
        return [row["name"] for row in process.ask("/v1/version")["linkers"]]

    assert names() == ["first"]

    with closing(HTTPConnection("127.0.0.1", process.port)) as idle:
        idle.request("GET", "/v1/health")
        idle.getresponse().read()
        connected = idle.sock
        config.write_text(f'[linkers.second]\nindex = "{index}"\n')
        process.process.send_signal(signal.SIGHUP)
        process.read_log('"reloaded"')
        assert names() == ["second"]
        idle.request("GET", "/v1/health")
        assert (idle.getresponse().status, idle.sock) == (200, connected)

    config.write_text('[linkers.third]\nindex = "nowhere"\n')
    process.process.send_signal(signal.SIGHUP)
    assert "nowhere" in process.read_log("reload failed")
    assert names() == ["second"]


def test_a_killed_worker_is_replaced_and_metrics_cover_all_workers(
    index: Path, start: Callable[..., Process]
) -> None:
    process = start(index, "--workers", 2)
    process.read_log("Application startup complete", times=2)
    before = process.workers()
    assert len(before) == 2
    assert process.link("cold")[0]["concept_id"] == "hp:1"

    os.kill(min(before), signal.SIGKILL)

    process.read_log("a worker died")
    process.read_log("Application startup complete")
    assert len(process.workers() - before) == 1
    for _ in range(8):
        assert process.link("cold")[0]["concept_id"] == "hp:1"
    assert "sapbert_mentions_total 9\n" in process.ask("/metrics")
    assert "Traceback" not in process.stop()
    assert process.process.returncode == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in before)


def test_a_worker_is_replaced_although_another_hangs_and_all_stop_with_the_supervisor(
    index: Path, start: Callable[..., Process]
) -> None:
    process = start(index, "--workers", 2)
    process.read_log("Application startup complete", times=2)
    first, second = sorted(process.workers())
    os.kill(first, signal.SIGSTOP)
    try:
        os.kill(second, signal.SIGKILL)
        process.read_log("a worker died")
        process.read_log("Application startup complete")
    finally:
        os.kill(first, signal.SIGCONT)

    process.process.kill()
    # The log ends when the last worker has closed it.
    assert process.end().count("Finished server process") == 2


def test_a_stopped_service_refuses_connections_while_workers_finish(
    index: Path, start: Callable[..., Process]
) -> None:
    process = start(index, "--workers", 2)
    process.read_log("Application startup complete", times=2)
    with closing(HTTPConnection("127.0.0.1", process.port, timeout=PATIENCE)) as connection:
        connection.putrequest("POST", "/v1/map")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", "2")
        connection.putheader("Expect", "100-continue")
        connection.endheaders()
        assert connection.sock.recv(100).startswith(b"HTTP/1.1 100 ")
        process.process.send_signal(signal.SIGTERM)
        # One worker finishes and the other waits for the body, in any order.
        process.read_log_of("Waiting for connections to close", "Finished server process")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", process.port), timeout=PATIENCE)
        connection.send(b"{}")
        assert connection.getresponse().status == 422
    process.end()
    assert process.process.returncode == 0


def test_open_requests_are_answered_before_the_service_stops(
    index: Path, start: Callable[..., Process]
) -> None:
    process = start(index)
    body = json.dumps({"mentions": ["cold"]}).encode()
    with closing(HTTPConnection("127.0.0.1", process.port, timeout=PATIENCE)) as connection:
        connection.putrequest("POST", "/v1/link")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", str(len(body)))
        connection.putheader("Expect", "100-continue")
        connection.endheaders()
        # The request has started: the service waits for its body.
        assert connection.sock.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.send(body[:-1])
        process.process.send_signal(signal.SIGTERM)
        process.read_log("Shutting down")
        connection.send(body[-1:])
        assert connection.getresponse().status == 200
    process.end()
    assert process.process.returncode == 0


# Language models


def test_mcp_works_over_standard_input(index: Path) -> None:
    import anyio
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    command = StdioServerParameters(
        command=sys.executable, args=["-m", "sapbert", "serve", str(index), "--mcp"], env=dict(os.environ)
    )

    async def ask() -> Any:
        async with Client(stdio_client(command)) as client:
            return await client.call_tool("link", {"mentions": ["cold"]})

    result = anyio.run(ask)
    assert result.structured_content["result"][0]["candidates"][0]["concept_id"] == "hp:1"
