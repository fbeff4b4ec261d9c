"""The routes of `/v1`.

A link answer is written as text here, not through models: it may hold a hundred thousand candidates, and
making and checking an object of each would take longer than linking some. Its shape is still declared and
tested.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from starlette.exceptions import HTTPException

from sapbert.linking.settings import LinkSettings
from sapbert.service import lookup
from sapbert.service.link_requests import Row, call, exchange_of, link, require_kind
from sapbert.service.linkers import Served
from sapbert.service.middleware.limits import refused
from sapbert.service.middleware.metrics import CONTENT_TYPE
from sapbert.service.schemas import (
    MOST_CANDIDATES,
    MOST_WORDS,
    Concept,
    LimitsAbout,
    LinkAnswer,
    LinkerAbout,
    LinkRequest,
    MapAnswer,
    MapRequest,
    Problem,
    SearchAnswer,
    Status,
    Version,
    Word,
)
from sapbert.version import __version__

NDJSON = "application/x-ndjson"
MOST_ANSWERED = 100_000
"""Candidates in an answer that is not streamed."""
MOST_CHARACTERS = 200
"""Of an identifier, or of what somebody types."""

LinkerName = Annotated[str | None, Query(description="Name of a linker; without it, the first.")]


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": Problem} for status in (*statuses, 401, 429, 503)}


async def _require_json(request: Request) -> None:
    """Look at the kind of a body before its content, of which the framework would say something obscure."""
    require_kind(request, "application/json")


router = APIRouter(prefix="/v1")


@router.post(
    "/link",
    summary="Link mentions to concepts",
    response_class=Response,
    responses={
        200: {
            "model": LinkAnswer,
            "description": f"All answers; or, with Accept: {NDJSON}, one a line as they are found.",
            "content": {NDJSON: {"schema": {"type": "string"}}},
        },
        **_problems(400, 404, 413, 415, 422),
    },
    dependencies=[Depends(_require_json)],
)
async def link_mentions(asked: LinkRequest, request: Request, linker: LinkerName = None) -> Response:
    """Return the best candidates of each mention, best first; none is NIL."""
    exchange = exchange_of(request)
    served = exchange.state.linker(linker)
    settings = LinkSettings(
        exact=served.settings().exact if asked.exact is None else asked.exact,
        threshold=asked.threshold,
        types=tuple(asked.types),
        sources=tuple(asked.sources),
        prefixes=tuple(asked.prefixes),
    )
    streamed = NDJSON in request.headers.get("accept", "")
    if not streamed and len(asked.mentions) * asked.k > MOST_ANSWERED:
        raise refused(
            422, f"mentions times k is at most {MOST_ANSWERED:,}; with Accept: {NDJSON} there may be more"
        )
    texts = _texts(asked.mentions, link(exchange, served, asked.mentions, k=asked.k, settings=settings))
    # What can be refused is refused with the first piece, before an answer begins.
    first = await anext(texts)
    if streamed:
        return StreamingResponse(_stream(first, texts), media_type=NDJSON)
    answers = b",".join([*first, *[text async for piece in texts for text in piece]])
    head = json.dumps({"linker": served.name, "fingerprint": served.linker.fingerprint})[:-1].encode()
    return Response(head + b', "answers": [' + answers + b"]}", media_type="application/json")


async def _texts(
    mentions: Sequence[str], pieces: AsyncIterator[list[list[Row]]]
) -> AsyncIterator[list[bytes]]:
    """Yield the answers to mentions as JSON, some at a time."""
    waiting = iter(mentions)
    async for piece in pieces:
        answers = ({"mention": next(waiting), "candidates": candidates} for candidates in piece)
        yield [json.dumps(answer, ensure_ascii=False).encode() for answer in answers]


async def _stream(first: list[bytes], rest: AsyncIterator[list[bytes]]) -> AsyncIterator[bytes]:
    """Yield answers one a line; if that fails on the way, the last line says so."""
    yield b"\n".join(first) + b"\n"
    try:
        async for piece in rest:
            yield b"\n".join(piece) + b"\n"
    except HTTPException as error:
        yield json.dumps({"error": error.detail}).encode() + b"\n"


@router.get("/concepts/{concept_id:path}", summary="Show a concept", responses=_problems(404, 422))
async def concept(
    request: Request,
    concept_id: Annotated[str, Path(max_length=MOST_CHARACTERS, examples=["mesh:D009203"])],
    neighbours: Annotated[int, Query(ge=0, le=MOST_CANDIDATES, description="Nearest concepts.")] = 10,
    linker: LinkerName = None,
) -> Concept:
    """Return the names, types and sources of a concept, by identifier or alias, and what is near it."""
    exchange = exchange_of(request)
    served = exchange.state.linker(linker)
    number = served.number_of(concept_id)
    if number is None:
        raise refused(404, "there is no such concept")
    return await call(exchange, served, lambda: lookup.concept_of(served, number, neighbours=neighbours))


@router.get("/search", summary="Search as you type", responses=_problems(404, 422))
async def search(
    request: Request,
    prefix: Annotated[str, Query(min_length=1, max_length=MOST_CHARACTERS, examples=["heart a"])],
    limit: Annotated[int, Query(ge=1, le=MOST_CANDIDATES)] = 10,
    type: Annotated[
        list[Word], Query(max_length=MOST_WORDS, description="Only concepts of these types.")
    ] = [],  # noqa: B006  # the framework copies it
    namespace: Annotated[
        list[Word],
        Query(max_length=MOST_WORDS, description="Only concepts whose identifier begins so: mesh."),
    ] = [],  # noqa: B006  # as above
    linker: LinkerName = None,
) -> SearchAnswer:
    """Return concepts with a name that begins so, or an identifier (`mesh:D0092`)."""
    exchange = exchange_of(request)
    served = exchange.state.linker(linker)
    results = await call(
        exchange,
        served,
        lambda: lookup.search(served, prefix, limit=limit, types=type, namespaces=namespace),
    )
    return SearchAnswer(results=results)


@router.post(
    "/map",
    summary="Draw what is near a mention",
    responses=_problems(400, 404, 413, 415, 422),
    dependencies=[Depends(_require_json)],
)
async def surroundings(asked: MapRequest, request: Request, linker: LinkerName = None) -> MapAnswer:
    """Return the nearest names of a mention, laid into a plane."""
    exchange = exchange_of(request)
    served = exchange.state.linker(linker)
    longest = exchange.state.settings.limits.mention_characters
    if len(asked.mention) > longest:
        raise refused(422, f"mention: at most {longest:,} characters")
    return await call(exchange, served, lambda: lookup.surroundings(served, asked.mention, names=asked.names))


@router.get("/version", summary="What runs here", responses=_problems())
async def version(request: Request) -> Version:
    """Return versions and fingerprints, what each linker knows, and what may be asked for."""
    state = exchange_of(request).state
    limits = state.settings.limits
    return Version(
        sapbert=__version__,
        linkers=list(map(_about, state.linkers.values())),
        limits=LimitsAbout(
            body_bytes=limits.body_bytes,
            mentions=limits.mentions,
            mention_characters=limits.mention_characters,
        ),
    )


def _about(served: Served) -> LinkerAbout:
    linker, name_table = served.linker, served.linker.name_table
    return LinkerAbout(
        name=served.name,
        title=served.title,
        fingerprint=linker.fingerprint,
        encoder=linker.encoder.fingerprint,
        names=len(name_table),
        concepts=len(name_table.concepts),
        prefixes=name_table.prefixes(),
        sources=[source for source in name_table.sources if source],
        types=list(name_table.types),
        calibrated=linker.calibration is not None,
    )


@router.get("/health", summary="Whether the process lives")
async def health() -> Status:
    """Answer."""
    return Status(status="ok")


@router.get("/ready", summary="Whether more can be asked", responses={503: {"model": Status}})
async def ready(request: Request, response: Response) -> Status:
    """Answer 503 while as much is waiting as may wait."""
    exchange = exchange_of(request)
    limits, service = exchange.state.settings.limits, exchange.service
    if service.batcher.waiting >= limits.queued_mentions or service.in_flight >= limits.requests:
        response.status_code = 503
        return Status(status="busy")
    return Status(status="ok")


metrics_router = APIRouter()


@metrics_router.get("/metrics", summary="Figures for Prometheus", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Return figures of all workers."""
    exchange = exchange_of(request)
    service = exchange.service
    text = service.metrics.text(
        in_flight=service.in_flight,
        waiting=service.batcher.waiting,
        linkers={name: served.linker.fingerprint for name, served in exchange.state.linkers.items()},
    )
    return Response(text, media_type=CONTENT_TYPE)
