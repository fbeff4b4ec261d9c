"""Connections of the web server: headers within limits of size and time.

uvicorn has no limit for headers, and they arrive before any key can be checked. They are counted while they
are parsed; a name or value that never ends is not passed on by the parser, so bytes without progress count
too.
"""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from sapbert.service.middleware.logs import log

HEADER_SECONDS = 10.0
MAX_HEADER_BYTES: Final = 1 << 16
"""Total size of the request line, headers and trailers."""
MAX_HEADERS: Final = 100
_MESSAGE: Final = f"the headers may have at most {MAX_HEADER_BYTES:,} bytes in {MAX_HEADERS} lines"


class _HeadersTooLargeError(Exception):
    """Stops the parser."""


class BoundedHeaderProtocol(HttpToolsProtocol):
    """Refuses requests with too many or too large headers, and closes connections on which they are slow."""

    _timer: asyncio.TimerHandle | None = None
    _header_bytes = 0
    _header_count = 0
    _unparsed_bytes = 0
    """Bytes received since the parser last reported anything."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Start the timer for the first request."""
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        """Start the timer with the first byte of a further request."""
        if self._timer is None and (self.cycle is None or self.cycle.response_complete):
            self._start_timer()
        self._unparsed_bytes += len(data)
        super().data_received(data)
        if self._unparsed_bytes > MAX_HEADER_BYTES and not self.transport.is_closing():
            self._refuse()

    def on_message_begin(self) -> None:
        """Start counting."""
        self._header_bytes = self._header_count = self._unparsed_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Count a part of the request line."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header or trailer."""
        self._header_count += 1
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Note progress."""
        self._unparsed_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note progress."""
        self._unparsed_bytes = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that cannot be parsed, or whose headers are too large."""
        if self._too_large():
            self._refuse()
        else:
            super().send_400_response(msg)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def _count(self, size: int) -> None:
        self._header_bytes += size
        self._unparsed_bytes = 0
        if self._too_large():
            raise _HeadersTooLargeError

    def _too_large(self) -> bool:
        return self._header_bytes > MAX_HEADER_BYTES or self._header_count > MAX_HEADERS

    def _refuse(self) -> None:
        """Answer 431, unless a request of this connection is in progress, and close the connection."""
        log("headers too large")
        if self.cycle is None or self.cycle.response_complete:
            body = b'{"error": "%s"}' % _MESSAGE.encode()
            head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
            self.transport.write(STATUS_LINE[431] + head % len(body) + body)
        self.transport.close()

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
