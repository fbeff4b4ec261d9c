"""Headers that do not end, fed to the protocol of a connection without a socket."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from sapbert.service.middleware.connection import MAX_HEADER_BYTES, BoundedHeaderProtocol

HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n"
PIECE = 1 << 14


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


async def endless(_scope: Scope, receive: Receive, _send: Send) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def feed(start: bytes, endlessly: bytes) -> tuple[int, bytes]:
    """Send data until the connection is closed; return how many bytes were accepted, and the answer."""

    async def run() -> tuple[int, bytes]:
        transport = Transport()
        config = uvicorn.Config(endless, http=BoundedHeaderProtocol, log_config=None, ws="none")
        protocol = BoundedHeaderProtocol(config, ServerState(), {}, asyncio.get_running_loop())
        protocol.connection_made(transport)
        protocol.data_received(start)
        sent = len(start)
        piece = endlessly * (PIECE // len(endlessly))
        while not transport.closed and sent < 100 * MAX_HEADER_BYTES:
            protocol.data_received(piece)
            sent += len(piece)
            await asyncio.sleep(0)
        protocol.connection_lost(None)
        await asyncio.sleep(0)
        return sent, transport.written

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("start", "endlessly"),
    [
        (b"GET /", b"a"),
        (HEAD + b"X: ", b"a"),
        (HEAD, b"X"),
        (HEAD, b"X: 1\r\n"),
        (b"", b"\r\n"),
    ],
    ids=["url", "value", "name", "count", "empty lines"],
)
def test_headers_that_do_not_end_are_refused(start: bytes, endlessly: bytes) -> None:
    sent, answer = feed(start, endlessly)

    assert sent <= MAX_HEADER_BYTES + 3 * PIECE
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 ")
    assert "at most" in json.loads(body)["error"]


@pytest.mark.parametrize("trailer", [b"a", b"X: 1\r\n"])
def test_trailers_that_do_not_end_close_the_connection(trailer: bytes) -> None:
    sent, answer = feed(CHUNKED + b"X: ", trailer)
    assert sent <= MAX_HEADER_BYTES + 3 * PIECE
    assert answer == b""


def test_a_long_body_is_not_counted_as_headers() -> None:
    body = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n"
    assert feed(body, b"a")[0] >= 100 * MAX_HEADER_BYTES
