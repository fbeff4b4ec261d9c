"""From a request to the linker and back: the way that all protocols of the service share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

from starlette.requests import Request

from sapbert.errors import ConfigError
from sapbert.linking.candidate import Candidate
from sapbert.linking.settings import LinkSettings
from sapbert.service.batching import PIECE
from sapbert.service.linkers import Served
from sapbert.service.middleware.guard import EXCHANGE, Exchange
from sapbert.service.middleware.limits import refused

Row = dict[str, Any]
"""A candidate as it goes over the wire: the fields of `shapes.Candidate`."""
_Result = TypeVar("_Result")


def exchange_of(request: Request) -> Exchange:
    """Return what the guard knows of a request."""
    exchange: Exchange = request.scope[EXCHANGE]
    return exchange


def require_kind(request: Request, kind: str) -> None:
    """Refuse a body of another kind, or of none: what it is may not be guessed."""
    sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent != kind:
        raise refused(415, f"send {kind}, and say so in Content-Type")


async def link(
    exchange: Exchange, served: Served, mentions: Sequence[str], *, k: int, settings: LinkSettings
) -> AsyncIterator[list[list[Row]]]:
    """Yield the candidates of mentions, some at a time; refuse what is too much before any."""
    limits = exchange.state.settings.limits
    if len(mentions) > limits.mentions:
        raise refused(422, f"mentions: at most {limits.mentions:,} in a request")
    if any(len(mention) > limits.mention_characters for mention in mentions):
        raise refused(422, f"mentions: each has at most {limits.mention_characters:,} characters")
    exchange.asks(served.name, mentions)
    batcher = exchange.service.batcher

    def work(texts: list[str]) -> list[list[Row]]:
        return [rows_of(served, answer) for answer in served.linker.link(texts, k=k, settings=settings)]

    for start in range(0, len(mentions), PIECE):
        piece = mentions[start : start + PIECE]
        # Few candidates are laid out here and now; many would keep others waiting.
        known = served.linker.cached(piece, k=k, settings=settings) if len(piece) * k <= PIECE else None
        if known is not None:
            exchange.service.metrics.mentions(len(piece), remembered=True)
            yield [rows_of(served, answer) for answer in known]
            continue
        if start == 0:
            batcher.admit(limits.queued_mentions)
        yield list(await _in_time(exchange, batcher.work((served, k, settings), piece, work)))


async def call(exchange: Exchange, served: Served, function: Callable[[], _Result]) -> _Result:
    """Return what a function does on the thread of the linkers; it counts as a mention."""
    exchange.asks(served.name, [""])
    exchange.service.batcher.admit(exchange.state.settings.limits.queued_mentions)
    return await _in_time(exchange, exchange.service.batcher.call(function))


def rows_of(served: Served, candidates: Sequence[Candidate]) -> list[Row]:
    """Return candidates as they go over the wire."""
    numbers = served.linker.name_table.concepts_of([candidate.concept_id for candidate in candidates])
    return [
        {
            "concept_id": found.concept_id,
            "preferred_name": found.preferred_name,
            "matched_name": found.matched_name,
            "score": found.score,
            "confidence": found.confidence,
            "matched_by": found.matched_by,
            "types": served.types_of(number),
        }
        for found, number in zip(candidates, numbers.tolist(), strict=True)
    ]


async def _in_time(exchange: Exchange, answer: Awaitable[_Result]) -> _Result:
    seconds = exchange.state.settings.limits.seconds
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except TimeoutError:
        raise refused(503, f"no answer within {seconds:g} seconds; try again", retry_after=5) from None
    except ConfigError as error:
        raise refused(422, str(error)) from error
