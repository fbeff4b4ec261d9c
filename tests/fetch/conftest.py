"""A server in this process with configurable faults."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

CONTENT = bytes(range(256)) * 4096
"""A megabyte: several chunks."""


@dataclass
class Server:
    """What is served, and how."""

    content: bytes = field(default=CONTENT, repr=False)
    address: str = ""
    ranges: bool = True
    """Whether it knows Range."""
    validators: bool = True
    """Whether it tells versions."""
    if_range: bool = True
    """Whether it looks at If-Range."""
    length: bool = True
    """Whether it says how long a whole file is."""
    cuts: list[int] = field(default_factory=list)
    """Bytes after which to cut each of the next answers."""
    codes: list[int] = field(default_factory=list)
    """What to say instead of the next answers."""
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[dict[str, str]] = field(default_factory=list)
    """The headers of every request."""

    @property
    def etag(self) -> str:
        """Version of the content."""
        return f'"{hashlib.md5(self.content, usedforsecurity=False).hexdigest()}"'


class Handler(BaseHTTPRequestHandler):
    """Answers as the server is told."""

    protocol_version = "HTTP/1.1"
    server: Any

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        told: Server = self.server.told
        asked = dict(self.headers.items())
        told.asked.append(asked)
        if told.codes:
            return self._say(told.codes.pop(0), {"Content-Length": "0"})
        if told.validators and asked.get("If-None-Match") == told.etag:
            return self._say(304, {"ETag": told.etag})
        start = self._start(told, asked)
        if start is not None and start >= len(told.content):
            return self._say(416, {"Content-Length": "0", "Content-Range": f"bytes */{len(told.content)}"})
        body = told.content[start or 0 :]
        headers = {"Content-Length": str(len(body))} if told.length else {}
        if start is not None:
            headers["Content-Range"] = f"bytes {start}-{len(told.content) - 1}/{len(told.content)}"
        if told.validators:
            headers["ETag"] = told.etag
        self._say(200 if start is None else 206, {**headers, **told.headers})
        self.wfile.write(body[: told.cuts.pop(0)] if told.cuts else body)
        self.close_connection = True
        return None

    def _start(self, told: Server, asked: dict[str, str]) -> int | None:
        """Where to begin, None for the whole file."""
        if not told.ranges or "Range" not in asked:
            return None
        if told.if_range and asked.get("If-Range") != told.etag:
            return None
        return int(asked["Range"].removeprefix("bytes=").removesuffix("-"))

    def _say(self, code: int, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


@pytest.fixture
def server() -> Iterator[Server]:
    """Serve `CONTENT` unless told otherwise."""
    told = Server()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.told = told  # type: ignore[attr-defined]  # the handler finds it there
        told.address = f"http://127.0.0.1:{running.server_port}/obo/hp.obo"
        thread = Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield told
        running.shutdown()
        thread.join()
