"""Run a request on a linker: limits, batching, timeout and the form of candidates. Used by all protocols."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

from starlette.requests import Request

from sapbert.errors import ConfigError
from sapbert.linking.candidate import Candidate
from sapbert.linking.settings import LinkSettings
from sapbert.service.batching import BATCH_SIZE
from sapbert.service.linkers import ServedLinker
from sapbert.service.middleware.guard import CONTEXT_KEY, RequestContext
from sapbert.service.middleware.limits import http_error

Row = dict[str, Any]
"""A candidate as JSON: the fields of `schemas.Candidate`."""
_Result = TypeVar("_Result")


def request_context(request: Request) -> RequestContext:
    """Return the context that the guard attached to a request."""
    context: RequestContext = request.scope[CONTEXT_KEY]
    return context


def require_content_type(request: Request, content_type: str) -> None:
    """Refuse a body with another `Content-Type`, or without one; the type is never guessed."""
    sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent != content_type:
        raise http_error(415, f"send {content_type} and set the Content-Type header")


async def link(
    context: RequestContext, served: ServedLinker, mentions: Sequence[str], *, k: int, settings: LinkSettings
) -> AsyncIterator[list[list[Row]]]:
    """Yield the candidates of mentions, one chunk at a time; limits are checked before the first chunk."""
    limits = context.state.settings.limits
    if len(mentions) > limits.mentions:
        raise http_error(422, f"mentions: at most {limits.mentions:,} per request")
    if any(len(mention) > limits.mention_characters for mention in mentions):
        raise http_error(422, f"mentions: at most {limits.mention_characters:,} characters each")
    context.record_mentions(served.name, mentions)
    batcher = context.service.batcher

    def link_batch(texts: list[str]) -> list[list[Row]]:
        return [
            candidate_rows(served, answer) for answer in served.linker.link(texts, k=k, settings=settings)
        ]

    for start in range(0, len(mentions), BATCH_SIZE):
        chunk = mentions[start : start + BATCH_SIZE]
        # A few cached candidates are formatted right here; many would block the event loop.
        cached = served.linker.cached(chunk, k=k, settings=settings) if len(chunk) * k <= BATCH_SIZE else None
        if cached is not None:
            context.service.metrics.count_mentions(len(chunk), cached=True)
            yield [candidate_rows(served, answer) for answer in cached]
            await asyncio.sleep(0)  # other requests may be waiting for the event loop
            continue
        if start == 0:
            batcher.require_capacity(limits.queue_seconds, context.client, len(chunk))
        job = batcher.submit((served, k, settings), chunk, link_batch, client=context.client)
        yield list(await _with_timeout(context, job))


async def call(context: RequestContext, served: ServedLinker, function: Callable[[], _Result]) -> _Result:
    """Run a function on the linking thread and return its result; it counts as one mention."""
    context.record_mentions(served.name, [""])
    batcher = context.service.batcher
    batcher.require_capacity(context.state.settings.limits.queue_seconds, context.client)
    return await _with_timeout(context, batcher.call(function, client=context.client))


def candidate_rows(served: ServedLinker, candidates: Sequence[Candidate]) -> list[Row]:
    """Return candidates as JSON objects."""
    numbers = served.linker.name_table.concepts_of([candidate.concept_id for candidate in candidates])
    return [
        {
            "concept_id": candidate.concept_id,
            "preferred_name": candidate.preferred_name,
            "matched_name": candidate.matched_name,
            "name_kind": candidate.name_kind,
            "score": candidate.score,
            "confidence": candidate.confidence,
            "matched_by": candidate.matched_by,
            "types": served.types_of(number),
        }
        for candidate, number in zip(candidates, numbers.tolist(), strict=True)
    ]


async def _with_timeout(context: RequestContext, answer: Awaitable[_Result]) -> _Result:
    seconds = context.state.settings.limits.seconds
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except TimeoutError:
        raise http_error(503, f"no answer within {seconds:g} seconds; try again", retry_after=5) from None
    except ConfigError as error:
        raise http_error(422, str(error)) from error
