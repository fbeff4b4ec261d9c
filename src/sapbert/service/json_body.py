"""Parse JSON bodies in bounded time.

Parsing and validation take time per value, not per byte: 8 MB of `0,0,0…` would occupy the interpreter for
seconds. So values are counted first, with a few passes over the bytes. Large bodies are parsed one after the
other on a thread, so that the event loop continues to answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from sapbert.service.link_requests import request_context
from sapbert.service.middleware.limits import http_error
from sapbert.service.schemas import MAX_FILTER_VALUES

_MAX_FIELDS = 32
"""Fields of a request; more than any schema has."""
_OTHER_VALUES = 4 * MAX_FILTER_VALUES
"""Values of a request other than mentions: filters, options and field names."""


class BoundedRequest(Request):
    """A request whose JSON body has a bounded number of values."""

    async def json(self) -> Any:
        """Return the content of the body."""
        context = request_context(self)
        mentions = context.state.settings.limits.mentions
        body = await self.body()
        too_many = http_error(422, f"too many values; send at most {mentions:,} mentions per request")
        content = await context.service.run_parser(
            lambda: parse_json(body, most=mentions + _OTHER_VALUES, too_many=too_many), size=len(body)
        )
        if isinstance(content, dict) and len(content) > _MAX_FIELDS:
            raise http_error(422, f"too many fields; a request has at most {_MAX_FIELDS}")
        return content


class JsonRoute(APIRoute):
    """A route that reads bodies with `BoundedRequest`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler."""
        handle = super().get_route_handler()

        async def bounded(request: Request) -> Response:
            return await handle(BoundedRequest(request.scope, request.receive))

        return bounded


def parse_json(body: bytes, *, most: int, too_many: HTTPException) -> Any:
    """Return the content of a JSON text, or raise `too_many` if it has more than `most` values."""
    if count_values(body, most=most) > most:
        raise too_many
    return json.loads(body)


def count_values(body: bytes, *, most: int) -> int:
    """Return about how many values and field names a JSON text has; above `most`, any larger number.

    Never more than there are in a text that is valid: commas and brackets inside strings do not count.
    """
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    strings = plain.count(b'"') // 2
    if strings > most:
        return strings
    outside = b"".join(plain.split(b'"')[::2])
    return max(strings, outside.count(b","), outside.count(b"[") + outside.count(b"{"))
