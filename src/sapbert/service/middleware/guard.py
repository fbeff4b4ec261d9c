"""Middleware around the application: keys, limits, timeouts, headers and the log.

It is plain ASGI and runs first, so that excess requests are refused before anything is parsed. The body is
read here, completely and within its limits, before the application sees the request: every failure while
reading is answered in one place. A request takes one of the limited slots only after its key is known and
its body has arrived, so slow clients cannot occupy them. If the client disconnects, its work is cancelled.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
import uuid
from collections.abc import Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sapbert.service.middleware.keys import owner_of
from sapbert.service.middleware.limits import KeyQuota, http_error
from sapbert.service.middleware.logs import log
from sapbert.service.middleware.metrics import OTHER
from sapbert.service.state import Service, State

INTERNAL_ERROR: Final = HTTPException(500, "internal error; see the log entry with this X-Request-ID")
CONTEXT_KEY: Final = "sapbert.request_context"
"""Key of the `RequestContext` in the ASGI scope of a request."""
RECONCILE_PATH = "/reconcile"
KEY_PARAMETER = "key"
"""Query parameter of reconciliation URLs that has the API key; OpenRefine cannot send headers."""
_PROBES = ("/v1/health", "/v1/ready")
"""Health checks; answered even under overload."""
_PUBLIC_PATHS = ("/", *_PROBES)
_PUBLIC_PREFIXES = ("/page/",)
_METHODS_WITH_BODY = ("POST", "PUT", "PATCH")
_MAX_BUFFERED_BODIES = 16
"""Total size of bodies in memory, in bodies of the largest allowed size."""
_CLIENT_CLOSED = 499
"""Status in the log if the client closed the connection, as in nginx."""
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


@dataclass(slots=True, eq=False)
class RequestContext:
    """One request: what routes need from the guard, and what the log records."""

    id: str
    method: str
    service: Service
    state: State
    """The state when the request started; a reload does not change it."""
    connection: Hashable = None
    """Address and port of the client."""
    key: str | None = None
    """Name of the API key."""
    quota: KeyQuota | None = None
    linker: str | None = None
    mentions: int = 0
    texts: list[str] | None = None
    """Texts of the mentions; only with `--log-mentions`."""
    status: int = _CLIENT_CLOSED
    body_bytes: int = 0
    """Size of the part of the body that has arrived."""

    @property
    def client(self) -> Hashable:
        """To whom its work counts in the queue: the key, or else the connection."""
        return self.connection if self.key is None else self.key

    def record_mentions(self, linker: str, mentions: Sequence[str]) -> None:
        """Record mentions for the log and the metrics, and charge them to the key."""
        self.linker = linker
        self.mentions += len(mentions)
        if self.service.log_mentions:
            self.texts = [*(self.texts or ()), *mentions]
        self.service.metrics.count_mentions(len(mentions))
        if self.quota is not None:
            self.quota.charge(len(mentions))


def error_response(error: HTTPException) -> Response:
    """Return an error as JSON: `{"error": "one line"}`."""
    return Response(
        json.dumps({"error": error.detail}),
        error.status_code,
        dict(error.headers or {}),
        media_type="application/json",
    )


class Guard:
    """Passes requests to the application, or refuses them."""

    def __init__(self, app: ASGIApp, *, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request; every failure is answered and logged."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        context = RequestContext(
            uuid.uuid4().hex,
            scope["method"],
            self._service,
            self._service.state,
            tuple(scope.get("client") or ()),
        )
        if context.method == "HEAD":
            # Routes accept GET only. In a copy: the server needs the original method to drop the body.
            scope = {**scope, "method": "GET"}
        scope[CONTEXT_KEY] = context
        sender = _ResponseSender(send, context, shared=scope["path"].startswith(RECONCILE_PATH))
        start = time.perf_counter()
        failure: Exception | None = None
        try:
            await self._admit(scope, receive, sender, context)
        except HTTPException as error:
            await error_response(error)(scope, receive, sender)
        except Exception as error:  # noqa: BLE001  # logged; the client gets no details
            failure = error
            if not sender.started:
                await error_response(INTERNAL_ERROR)(scope, receive, sender)
        finally:
            self._record(scope, context, time.perf_counter() - start, failure)

    async def _admit(
        self, scope: Scope, receive: Receive, send: _ResponseSender, context: RequestContext
    ) -> None:
        if scope["path"] in _PROBES:
            await self._app(scope, receive, send)
            return
        self._require_slot(context)
        _authenticate(scope, context)
        with ExitStack() as stack:
            if context.quota is not None:
                stack.enter_context(context.quota.request())
            stack.callback(self._release_body, context)
            body = await self._body(scope, receive, context)
            if body is not None:
                stack.enter_context(self._slot(context))
                await self._run(scope, body, receive, send)

    def _require_slot(self, context: RequestContext) -> None:
        if self._service.in_flight >= context.state.settings.limits.requests:
            wait = max(1, math.ceil(self._service.batcher.expected_wait()))
            raise http_error(503, "too many requests at once; try again", retry_after=wait)

    @contextmanager
    def _slot(self, context: RequestContext) -> Iterator[None]:
        self._require_slot(context)
        self._service.in_flight += 1
        try:
            yield
        finally:
            self._service.in_flight -= 1

    async def _body(self, scope: Scope, receive: Receive, context: RequestContext) -> bytes | None:
        """Read a body within its limits; None if the client disconnects. A GET request has none."""
        if context.method not in _METHODS_WITH_BODY:
            return b""
        limits = context.state.settings.limits
        declared = Headers(scope=scope).get("content-length", "0")
        # 20 digits are enough to compare; int() of a very long string would be slow.
        if declared.isdecimal() and int(declared[:20]) > limits.body_bytes:
            raise _too_large(limits.body_bytes)
        chunks: list[bytes] = []
        try:
            async with asyncio.timeout(limits.seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    chunks.append(message.get("body", b""))
                    self._buffer(len(chunks[-1]), context)
                    if not message.get("more_body", False):
                        return b"".join(chunks)
        except TimeoutError:
            raise http_error(408, f"the body did not arrive within {limits.seconds:g} seconds") from None

    def _buffer(self, size: int, context: RequestContext) -> None:
        """Count bytes of a body; refuse it if it is too large, or if all bodies in memory are."""
        limit = context.state.settings.limits.body_bytes
        context.body_bytes += size
        self._service.buffered_bytes += size
        if context.body_bytes > limit:
            raise _too_large(limit)
        if self._service.buffered_bytes > _MAX_BUFFERED_BODIES * limit:
            raise http_error(503, "too many large requests at once; try again", retry_after=1)

    def _release_body(self, context: RequestContext) -> None:
        self._service.buffered_bytes -= context.body_bytes

    async def _run(self, scope: Scope, body: bytes, receive: Receive, send: _ResponseSender) -> None:
        """Run the application, and cancel it if the client disconnects."""
        task = asyncio.current_task()
        assert task is not None
        watcher = asyncio.ensure_future(_cancel_when_disconnected(receive, send, task))
        try:
            await self._app(scope, _replay(body), send)
        except asyncio.CancelledError:
            if not watcher.done():
                raise
            task.uncancel()
            send.abandon()
        finally:
            watcher.cancel()

    def _record(
        self, scope: Scope, context: RequestContext, seconds: float, failure: Exception | None
    ) -> None:
        # A request refused before routing counts for the route of its path. Other paths are not logged.
        path: str = scope["path"]
        fallback = path if self._service.metrics.has_route(path) else OTHER
        route = getattr(scope.get("route"), "path", fallback)
        self._service.metrics.count_request(route, context.status, seconds)
        fields: dict[str, Any] = {
            "id": context.id,
            "method": context.method,
            "route": route,
            "status": context.status,
            "ms": round(1000 * seconds, 2),
            "key": context.key,
            "linker": context.linker,
            "mentions": context.mentions,
        }
        if context.texts is not None:
            fields["texts"] = context.texts
        log("request", error=failure, fields=fields)


class _ResponseSender:
    """Adds the common headers to a response, and gives up on clients that stop reading."""

    def __init__(self, send: Send, context: RequestContext, *, shared: bool) -> None:
        self._send = send
        self._context = context
        self._shared = shared
        """Whether pages of any origin may read the response, as the reconciliation protocol requires."""
        self.started = False
        self.finished = False

    def abandon(self) -> None:
        """Record that the client closed the connection."""
        self._context.status = _CLIENT_CLOSED

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            self._context.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["X-Request-ID"] = self._context.id
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            if self._shared:
                headers["Access-Control-Allow-Origin"] = "*"
        elif message["type"] == "http.response.body":
            self.finished = not message.get("more_body", False)
        try:
            async with asyncio.timeout(self._context.state.settings.limits.seconds):
                await self._send(message)
        except TimeoutError:
            self.abandon()
            raise


async def _cancel_when_disconnected(
    receive: Receive, send: _ResponseSender, task: asyncio.Task[None]
) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass  # the body of a GET request, which is ignored
    # The server also reports a disconnect after the last byte of a response.
    if not send.finished:
        task.cancel()
    else:
        await asyncio.Future()


def _authenticate(scope: Scope, context: RequestContext) -> None:
    """Set the key of a request; refuse requests without a valid key if keys are configured."""
    keys = context.state.settings.keys
    path = scope["path"]
    host = _host_name(scope)
    if not keys:
        _require_known_host(host, context.state.settings.public_url)
        return
    scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        key = _key_in_query(scope)
    context.key = owner_of(key.strip(), keys) if key else None
    if context.key is not None:
        context.quota = context.state.quotas[context.key]
    elif key:
        raise _unauthorized("unknown API key")
    elif not _is_public(scope, path):
        raise _unauthorized("an API key is required: send Authorization: Bearer KEY")


def _unauthorized(message: str) -> HTTPException:
    return HTTPException(401, message, {"WWW-Authenticate": "Bearer"})


def _host_name(scope: Scope) -> str:
    try:
        return urlsplit(f"//{Headers(scope=scope).get('host', '')}").hostname or ""
    except ValueError:
        raise HTTPException(400, "the Host header is not valid") from None


def _require_known_host(host: str, public_url: str | None) -> None:
    """Refuse an unknown host name, against DNS rebinding: a page of another site could read answers."""
    # A name without a dot cannot be registered, and an IP address is not resolved by DNS.
    if "." not in host or _is_address(host):
        return
    if public_url is None or host != urlsplit(public_url).hostname:
        raise HTTPException(421, "unknown host name; set public_url in the configuration to allow it")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _key_in_query(scope: Scope) -> str:
    if not scope["path"].startswith(RECONCILE_PATH):
        return ""
    # OpenRefine appends `?type=…` to the URL of property proposals even if it already has a query.
    return QueryParams(scope["query_string"]).get(KEY_PARAMETER, "").partition("?")[0]


def _is_public(scope: Scope, path: str) -> bool:
    """Whether no key is needed: pages, health checks, and the manifest of the reconciliation protocol."""
    if scope["method"] == "OPTIONS" or path in _PUBLIC_PATHS or path.startswith(_PUBLIC_PREFIXES):
        return True
    manifest = path.startswith(RECONCILE_PATH) and path.count("/") <= 2
    return manifest and scope["method"] == "GET" and not scope["query_string"]


def _replay(body: bytes) -> Receive:
    """Return a `receive` that returns a body that was already read, and nothing after it."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await asyncio.Future()

    return replay


def _too_large(limit: int) -> HTTPException:
    return HTTPException(413, f"the body may have at most {limit:,} bytes", {"Connection": "close"})
