"""Slow, broken and hostile clients over real sockets; later requests are still answered."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection

import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st

from sapbert.service import server as run
from sapbert.service.middleware import connection
from sapbert.service.settings import Limits
from tests.service.conftest import MakeBench

GOOD = json.dumps({"mentions": ["cold"]}).encode()


class Service:
    """A service in a thread."""

    def __init__(self, server: uvicorn.Server, listener: socket.socket) -> None:
        self.server = server
        self.port = listener.getsockname()[1]

    @contextmanager
    def connect(self) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            yield connection

    def send(self, data: bytes, *, half_close: bool = False) -> bytes:
        """Send bytes and return the answer until the service closes the connection."""
        with self.connect() as connection:
            try:
                connection.sendall(data)
                if half_close:
                    connection.shutdown(socket.SHUT_WR)
                return read_all(connection)
            except (ConnectionError, TimeoutError):
                return b""

    def post(self, body: bytes, *headers: str) -> tuple[int, bytes]:
        lines = ["POST /v1/link HTTP/1.1", "Host: x", "Connection: close", *headers]
        if not any(line.lower().startswith(("content-length", "transfer-encoding")) for line in headers):
            lines.append(f"Content-Length: {len(body)}")
        if not any(line.lower().startswith("content-type") for line in headers):
            lines.append("Content-Type: application/json")
        answer = self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        head, _, content = answer.partition(b"\r\n\r\n")
        return (int(head.split(b" ", 2)[1]) if head else 0), content

    def lives(self) -> bool:
        status, content = self.post(GOOD)
        return status == 200 and json.loads(content)["answers"][0]["candidates"] != []


def read_all(connection: socket.socket) -> bytes:
    received = b""
    while piece := connection.recv(1 << 16):
        received += piece
    return received


@pytest.fixture(scope="module")
def service(make_bench: MakeBench) -> Iterator[Service]:
    app = make_bench(limits=Limits(body_bytes=100_000, seconds=0.5)).app
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "HEADER_SECONDS", 0.5)
        config = run._config(run.ServerPlan(source="unused"), lambda: app)
        config.log_config = None
        server = uvicorn.Server(config)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=server.run, args=([listener],))
            thread.start()
            result = Service(server, listener)
            assert result.lives()
            yield result
            server.should_exit = True
            thread.join(10)
            assert not thread.is_alive()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"", 422),
        (b"null", 422),
        (b'{"mentions": ["\xff\xfe"]}', 400),
        (b'{"mentions": ["\\ud800"]}', 422),
        (b'{"mentions": ["a"], "threshold": NaN}', 422),
        (b'{"mentions": ["a"], "k": 1e400}', 422),
        (b"[" * 5_000, 400),
        (b"[" * 90_000, 422),
        (b'{"mentions": [' + b'"a",' * 20_000 + b'"a"]}', 422),
        (b'{"mentions": ["\\u0000"]}', 200),
    ],
)
def test_an_invalid_body_is_refused_and_the_service_continues(
    service: Service, body: bytes, status: int
) -> None:
    assert service.post(body)[0] == status
    assert service.lives()


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_of_fifty_megabytes_is_refused_before_it_is_read(service: Service, declared: bool) -> None:
    with service.connect() as connection:
        length = b"Content-Length: 52428800" if declared else b"Transfer-Encoding: chunked"
        connection.sendall(b"POST /v1/link HTTP/1.1\r\nHost: x\r\n" + length + b"\r\n\r\n")
        piece = b"x" * 65_536 if declared else b"10000\r\n" + b"x" * 65_536 + b"\r\n"
        sent = 0
        try:
            while sent < 50 << 20:
                connection.sendall(piece)
                sent += len(piece)
        except ConnectionError:
            pass
        else:
            assert b" 413 " in read_all(connection)
    # Socket buffers take a few megabytes; the rest was never read.
    assert sent < 50 << 20
    assert service.lives()


@given(st.binary(max_size=300))
@settings(max_examples=40)
def test_the_service_survives_arbitrary_bytes(service: Service, data: bytes) -> None:
    service.send(data + b"\r\n\r\n", half_close=True)
    assert service.lives()


@given(st.binary(max_size=300))
@settings(max_examples=40)
def test_every_body_is_answered(service: Service, body: bytes) -> None:
    status, content = service.post(body)
    assert status in (200, 400, 422)
    assert status == 200 or list(json.loads(content)) == ["error"]


def test_a_client_that_does_not_finish_its_headers_is_disconnected(service: Service) -> None:
    for data in (b"", b"POST /v1/link HTTP/1.1\r\nHost: x\r\nX-Slow: "):
        assert service.send(data) == b""
    assert service.lives()


HEAD = b"GET /v1/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"


def test_too_many_headers_are_refused_with_the_limits(service: Service) -> None:
    answer = service.send(HEAD + b"X: 1\r\n" * 101 + b"\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 Request Header Fields Too Large")
    assert json.loads(body) == {"error": "the headers may have at most 65,536 bytes in 100 lines"}


def test_headers_within_the_limits_are_accepted(service: Service) -> None:
    answer = service.send(HEAD + b"X: " + b"a" * 600 + b"\r\n" + b"X: 1\r\n" * 90 + b"\r\n")
    assert b" 200 " in answer.splitlines()[0]


def test_the_header_timeout_applies_to_later_requests(service: Service) -> None:
    with closing(HTTPConnection("127.0.0.1", service.port)) as connection:
        connection.request("GET", "/v1/health")
        connection.getresponse().read()
        connection.send(b"GET /v1/hea")
        assert connection.sock.recv(1) == b""


def test_a_client_that_does_not_finish_its_body_gets_408(service: Service) -> None:
    answer = service.send(
        b"POST /v1/link HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 100\r\n\r\n{"
    )
    assert b" 408 " in answer
    assert service.lives()


def test_a_client_that_closes_early_does_not_affect_others(service: Service) -> None:
    for cut in range(0, 90, 15):
        whole = b"POST /v1/link HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(GOOD) + GOOD
        service.send(whole[:cut], half_close=True)
    assert service.lives()


def test_connections_are_kept_alive(service: Service) -> None:
    with closing(HTTPConnection("127.0.0.1", service.port)) as connection:
        connection.connect()
        first = connection.sock
        for method, body in (("GET", b'{"status":"ok"}'), ("HEAD", b""), ("GET", b'{"status":"ok"}')):
            connection.request(method, "/v1/health")
            answer = connection.getresponse()
            assert (answer.status, answer.read(), answer.getheader("server")) == (200, body, None)
            assert connection.sock is first


def test_no_file_outside_the_page_is_served(service: Service) -> None:
    for path in (b"/../../etc/passwd", b"/v1/concepts/..%2f..%2fetc%2fpasswd", b"/page/../../pyproject.toml"):
        answer = service.send(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b" 404 " in answer.splitlines()[0]
        assert b"root:" not in answer
