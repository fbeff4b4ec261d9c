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
    """What is served, and which faults the server has."""

    content: bytes = field(default=CONTENT, repr=False)
    address: str = ""
    ranges: bool = True
    """Whether it supports Range."""
    validators: bool = True
    """Whether it sends an ETag."""
    if_range: bool = True
    """Whether it supports If-Range."""
    length: bool = True
    """Whether it sends Content-Length."""
    cuts: list[int] = field(default_factory=list)
    """Bytes after which each of the next responses ends."""
    codes: list[int] = field(default_factory=list)
    """Status codes of the next responses."""
    headers: dict[str, str] = field(default_factory=dict)
    requests: list[dict[str, str]] = field(default_factory=list)
    """The headers of every request."""

    @property
    def etag(self) -> str:
        """Version of the content."""
        return f'"{hashlib.md5(self.content, usedforsecurity=False).hexdigest()}"'


class Handler(BaseHTTPRequestHandler):
    """Responds as the server is configured."""

    protocol_version = "HTTP/1.1"
    server: Any

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        config: Server = self.server.config
        request = dict(self.headers.items())
        config.requests.append(request)
        if config.codes:
            return self._respond(config.codes.pop(0), {"Content-Length": "0"})
        if config.validators and request.get("If-None-Match") == config.etag:
            return self._respond(304, {"ETag": config.etag})
        start = self._start(config, request)
        if start is not None and start >= len(config.content):
            return self._respond(
                416, {"Content-Length": "0", "Content-Range": f"bytes */{len(config.content)}"}
            )
        body = config.content[start or 0 :]
        headers = {"Content-Length": str(len(body))} if config.length else {}
        if start is not None:
            headers["Content-Range"] = f"bytes {start}-{len(config.content) - 1}/{len(config.content)}"
        if config.validators:
            headers["ETag"] = config.etag
        self._respond(200 if start is None else 206, {**headers, **config.headers})
        self.wfile.write(body[: config.cuts.pop(0)] if config.cuts else body)
        self.close_connection = True
        return None

    def _start(self, config: Server, request: dict[str, str]) -> int | None:
        """Where to begin, None for the whole file."""
        if not config.ranges or "Range" not in request:
            return None
        if config.if_range and request.get("If-Range") != config.etag:
            return None
        return int(request["Range"].removeprefix("bytes=").removesuffix("-"))

    def _respond(self, code: int, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


@pytest.fixture
def server() -> Iterator[Server]:
    """Serve `CONTENT`; tests change the configuration."""
    config = Server()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.config = config  # type: ignore[attr-defined]  # the handler finds it there
        config.address = f"http://127.0.0.1:{running.server_port}/obo/hp.obo"
        thread = Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield config
        running.shutdown()
        thread.join()
