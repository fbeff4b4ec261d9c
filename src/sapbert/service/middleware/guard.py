"""What stands between the network and the application: keys, limits, time, headers, the log.

It is plain ASGI and comes first, so that a flood is turned away before anything is parsed. A body is read
here, whole and within its limits, before the application sees the request: whatever goes wrong while reading
then has one answer, and a client that sends slowly costs no more than its place.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sapbert.service.middleware.keys import owner_of
from sapbert.service.middleware.limits import Allowance, refused
from sapbert.service.middleware.logs import log
from sapbert.service.middleware.metrics import OTHER
from sapbert.service.state import Service, State

FAILED: Final = HTTPException(500, "internal error; the log has more under this X-Request-ID")
EXCHANGE: Final = "sapbert.exchange"
"""Where a request's `Exchange` is found in its scope."""
RECONCILE = "/reconcile"
KEY_PARAMETER = "key"
"""The reconciliation protocol knows keys in addresses, and OpenRefine can send no header."""
_UNCOUNTED = ("/v1/health", "/v1/ready")
"""Answered even where there is too much to do."""
_OPEN = ("/", *_UNCOUNTED)
_OPEN_BELOW = ("/page/",)
_HELD_BODIES = 16
"""Bodies of full size that are held at once."""
_GONE = 499
"""What the log says of a client that left; by the custom of nginx."""
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


@dataclass(slots=True, eq=False)
class Exchange:
    """One request, as far as the guard and the log know it."""

    id: str
    method: str
    service: Service
    state: State
    """The configuration it began with, and keeps."""
    key: str | None = None
    """The name of who asks."""
    allowance: Allowance | None = None
    linker: str | None = None
    mentions: int = 0
    texts: list[str] | None = None
    """Of the mentions, where the operator wants them logged."""
    status: int = _GONE

    def asks(self, linker: str, mentions: Sequence[str]) -> None:
        """Note, count and charge what is asked for."""
        self.linker = linker
        self.mentions += len(mentions)
        if self.service.log_mentions:
            self.texts = [*(self.texts or ()), *mentions]
        self.service.metrics.mentions(len(mentions))
        if self.allowance is not None:
            self.allowance.charge(len(mentions))


def problem(error: HTTPException) -> Response:
    """Return an error as every error is told: one line of JSON."""
    return Response(
        json.dumps({"error": error.detail}),
        error.status_code,
        dict(error.headers or {}),
        media_type="application/json",
    )


class Guard:
    """Lets requests through to the application, or answers them itself."""

    def __init__(self, app: ASGIApp, *, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, whatever happens."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(uuid.uuid4().hex, scope["method"], self._service, self._service.state)
        if exchange.method == "HEAD":
            # Routes know GET alone. It is a copy, since the server looks at its own to leave the body out.
            scope = {**scope, "method": "GET"}
        scope[EXCHANGE] = exchange
        outlet = _Outlet(send, exchange, shared=scope["path"].startswith(RECONCILE))
        start = time.perf_counter()
        failure: Exception | None = None
        try:
            await self._admit(scope, receive, outlet, exchange)
        except HTTPException as error:
            await problem(error)(scope, receive, outlet)
        except Exception as error:  # noqa: BLE001  # a client learns nothing of it, the log does
            failure = error
            if not outlet.started:
                await problem(FAILED)(scope, receive, outlet)
        finally:
            self._note(scope, exchange, time.perf_counter() - start, failure)

    async def _admit(self, scope: Scope, receive: Receive, send: Send, exchange: Exchange) -> None:
        path = scope["path"]
        if path in _UNCOUNTED:
            await self._app(scope, receive, send)
            return
        limits = exchange.state.settings.limits
        service = self._service
        if service.in_flight >= limits.requests:
            raise refused(503, "too many requests at once; try again", retry_after=1)
        _identify(scope, exchange)
        with ExitStack() as stack:
            if exchange.allowance is not None:
                stack.enter_context(exchange.allowance.request())
            service.in_flight += 1
            body: bytes | None = b""
            try:
                body = await self._body(scope, receive, exchange)
                if body is not None:
                    await self._app(scope, _given(body, receive), send)
            finally:
                service.in_flight -= 1
                service.held_bytes -= len(body or b"")

    async def _body(self, scope: Scope, receive: Receive, exchange: Exchange) -> bytes | None:
        """Read a body within its limits; None where the client left."""
        limits = exchange.state.settings.limits
        told = Headers(scope=scope).get("content-length", "0")
        # Of very many digits the first tell enough.
        if told.isdecimal() and int(told[:20]) > limits.body_bytes:
            raise _too_large(limits.body_bytes)
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(limits.seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    pieces.append(message.get("body", b""))
                    size += len(pieces[-1])
                    if size > limits.body_bytes:
                        raise _too_large(limits.body_bytes)
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            raise refused(408, f"the body did not arrive within {limits.seconds:g} seconds") from None
        if self._service.held_bytes + size > _HELD_BODIES * limits.body_bytes:
            raise refused(503, "too many large requests at once; try again", retry_after=1)
        self._service.held_bytes += size
        return b"".join(pieces)

    def _note(self, scope: Scope, exchange: Exchange, seconds: float, failure: Exception | None) -> None:
        # What is refused before it is routed counts for the route it names; other addresses stay unsaid.
        path: str = scope["path"]
        named = path if self._service.metrics.knows(path) else OTHER
        route = getattr(scope.get("route"), "path", named)
        self._service.metrics.request(route, exchange.status, seconds)
        fields: dict[str, Any] = {
            "id": exchange.id,
            "method": exchange.method,
            "route": route,
            "status": exchange.status,
            "ms": round(1000 * seconds, 2),
            "key": exchange.key,
            "linker": exchange.linker,
            "mentions": exchange.mentions,
        }
        if exchange.texts is not None:
            fields["texts"] = exchange.texts
        log("request", error=failure, fields=fields)


class _Outlet:
    """Sends an answer with the headers that every answer has, and not to clients that do not read it."""

    def __init__(self, send: Send, exchange: Exchange, *, shared: bool) -> None:
        self._send = send
        self._exchange = exchange
        self._shared = shared
        """Whether pages from anywhere may read it, as the reconciliation protocol demands."""
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            self._exchange.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["X-Request-ID"] = self._exchange.id
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            if self._shared:
                headers["Access-Control-Allow-Origin"] = "*"
        try:
            async with asyncio.timeout(self._exchange.state.settings.limits.seconds):
                await self._send(message)
        except TimeoutError:
            self._exchange.status = _GONE
            raise


def _identify(scope: Scope, exchange: Exchange) -> None:
    """Find out who asks; refuse strangers where keys are configured."""
    keys = exchange.state.settings.keys
    path = scope["path"]
    if not keys:
        _require_own_name(scope, exchange.state.settings.public_url)
        return
    scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        key = _key_in_address(scope)
    exchange.key = owner_of(key.strip(), keys) if key else None
    if exchange.key is not None:
        exchange.allowance = exchange.state.allowances[exchange.key]
    elif key:
        raise _unauthorized("this key is not known")
    elif not _is_open(scope, path):
        raise _unauthorized("give a key: Authorization: Bearer KEY")


def _unauthorized(message: str) -> HTTPException:
    return HTTPException(401, message, {"WWW-Authenticate": "Bearer"})


def _require_own_name(scope: Scope, public_url: str | None) -> None:
    """Refuse a stranger's domain: its page could make the browser take us for its own server, and read us."""
    called = urlsplit(f"//{Headers(scope=scope).get('host', '')}").hostname or ""
    # Nobody can register a name without a dot, and an address is no name.
    if "." not in called or _is_address(called):
        return
    if public_url is None or called != urlsplit(public_url).hostname:
        raise HTTPException(421, "this service has another name; its operator can set public_url")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _key_in_address(scope: Scope) -> str:
    if not scope["path"].startswith(RECONCILE):
        return ""
    # To the address where properties are proposed OpenRefine appends `?type=…`, even behind a question mark.
    return QueryParams(scope["query_string"]).get(KEY_PARAMETER, "").partition("?")[0]


def _is_open(scope: Scope, path: str) -> bool:
    """Whether no key is asked for: pages, and what the reconciliation protocol wants open."""
    if scope["method"] == "OPTIONS" or path in _OPEN or path.startswith(_OPEN_BELOW):
        return True
    manifest = path.startswith(RECONCILE) and path.count("/") <= 2
    return manifest and scope["method"] == "GET" and not scope["query_string"]


def _given(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives a body that was already read, and then what follows."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def give() -> Message:
        return messages.pop() if messages else await receive()

    return give


def _too_large(limit: int) -> HTTPException:
    return HTTPException(413, f"at most {limit:,} bytes", {"Connection": "close"})
