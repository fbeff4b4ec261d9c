"""The routes of `/v1` and `/metrics`.

A link answer is serialized by hand, not through pydantic models: it may have a hundred thousand candidates,
and validating an object for each takes longer than linking. Its schema is still declared, and tested.
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
from sapbert.service.json_body import JsonRoute
from sapbert.service.link_requests import Row, call, link, request_context, require_content_type
from sapbert.service.linkers import ServedLinker
from sapbert.service.middleware.limits import http_error
from sapbert.service.middleware.metrics import CONTENT_TYPE
from sapbert.service.schemas import (
    MAX_CANDIDATES,
    MAX_FILTER_VALUES,
    Concept,
    ErrorMessage,
    FilterValue,
    LimitsInfo,
    LinkAnswer,
    LinkerInfo,
    LinkRequest,
    MapAnswer,
    MapRequest,
    SearchAnswer,
    Status,
    Version,
)
from sapbert.version import __version__
from sapbert.vocab.settings import OWN

NDJSON = "application/x-ndjson"
MAX_UNSTREAMED_CANDIDATES = 100_000
"""Largest number of mentions times k in an answer that is not streamed."""
MAX_TEXT_CHARACTERS = 200
"""Longest identifier or search prefix."""

LinkerName = Annotated[str | None, Query(description="Name of the linker. Default: the first one.")]


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": ErrorMessage} for status in (*statuses, 401, 429, 503)}


async def _require_json(request: Request) -> None:
    """Check the content type before the body is parsed; the framework's own message would be obscure."""
    require_content_type(request, "application/json")


router = APIRouter(prefix="/v1", route_class=JsonRoute)


@router.post(
    "/link",
    summary="Link mentions to concepts",
    response_class=Response,
    responses={
        200: {
            "model": LinkAnswer,
            "description": f"All answers. With Accept: {NDJSON}, one answer per line as they are linked.",
            "content": {NDJSON: {"schema": {"type": "string"}}},
        },
        **_errors(400, 404, 413, 415, 422),
    },
    dependencies=[Depends(_require_json)],
)
async def link_mentions(body: LinkRequest, request: Request, linker: LinkerName = None) -> Response:
    """Return up to k candidates per mention, best first. An empty list means NIL: no matching concept."""
    context = request_context(request)
    served = context.state.linker(linker)
    settings = LinkSettings(
        exact=served.default_settings().exact if body.exact is None else body.exact,
        threshold=body.threshold,
        types=tuple(body.types),
        sources=tuple(body.sources),
        kinds=tuple(body.kinds),
        prefixes=tuple(body.prefixes),
        language=body.language,
    )
    streamed = NDJSON in request.headers.get("accept", "")
    if not streamed and len(body.mentions) * body.k > MAX_UNSTREAMED_CANDIDATES:
        raise http_error(
            422,
            f"mentions times k may be at most {MAX_UNSTREAMED_CANDIDATES:,}; send fewer, or Accept: {NDJSON}",
        )
    chunks = _encode_answers(body.mentions, link(context, served, body.mentions, k=body.k, settings=settings))
    # Errors are raised with the first chunk, before the response starts.
    first = await anext(chunks)
    if streamed:
        return StreamingResponse(_stream(first, chunks), media_type=NDJSON)
    answers = b",".join([*first, *[answer async for chunk in chunks for answer in chunk]])
    head = json.dumps({"linker": served.name, "fingerprint": served.linker.fingerprint})[:-1].encode()
    return Response(head + b', "answers": [' + answers + b"]}", media_type="application/json")


async def _encode_answers(
    mentions: Sequence[str], chunks: AsyncIterator[list[list[Row]]]
) -> AsyncIterator[list[bytes]]:
    """Yield the answers of mentions as JSON, one chunk at a time."""
    remaining = iter(mentions)
    async for chunk in chunks:
        answers = ({"mention": next(remaining), "candidates": candidates} for candidates in chunk)
        yield [json.dumps(answer, ensure_ascii=False).encode() for answer in answers]


async def _stream(first: list[bytes], rest: AsyncIterator[list[bytes]]) -> AsyncIterator[bytes]:
    """Yield one answer per line; if linking fails midway, the last line is the error."""
    yield b"\n".join(first) + b"\n"
    try:
        async for chunk in rest:
            yield b"\n".join(chunk) + b"\n"
    except HTTPException as error:
        yield json.dumps({"error": error.detail}).encode() + b"\n"


@router.get("/concepts/{concept_id:path}", summary="Get a concept", responses=_errors(404, 422))
async def concept(
    request: Request,
    concept_id: Annotated[str, Path(max_length=MAX_TEXT_CHARACTERS, examples=["mesh:D009203"])],
    neighbours: Annotated[
        int, Query(ge=0, le=MAX_CANDIDATES, description="Number of nearest concepts.")
    ] = 10,
    linker: LinkerName = None,
) -> Concept:
    """Return the names, types, sources and nearest concepts of a concept, by identifier or alias."""
    context = request_context(request)
    served = context.state.linker(linker)
    number = served.concept_number(concept_id)
    if number is None:
        raise http_error(404, "no such concept")
    return await call(context, served, lambda: lookup.describe_concept(served, number, neighbours=neighbours))


@router.get("/search", summary="Search names and identifiers by prefix", responses=_errors(404, 422))
async def search(
    request: Request,
    prefix: Annotated[str, Query(min_length=1, max_length=MAX_TEXT_CHARACTERS, examples=["heart a"])],
    limit: Annotated[int, Query(ge=1, le=MAX_CANDIDATES)] = 10,
    type: Annotated[
        list[FilterValue], Query(max_length=MAX_FILTER_VALUES, description="Only concepts of these types.")
    ] = [],  # noqa: B006  # FastAPI copies the default
    namespace: Annotated[
        list[FilterValue],
        Query(
            max_length=MAX_FILTER_VALUES,
            description="Only concepts whose identifier has one of these prefixes, such as mesh.",
        ),
    ] = [],  # noqa: B006  # FastAPI copies the default
    linker: LinkerName = None,
) -> SearchAnswer:
    """Return concepts with a name or an identifier that starts with the prefix (`heart a`, `mesh:D0092`)."""
    context = request_context(request)
    served = context.state.linker(linker)
    results = await call(
        context,
        served,
        lambda: lookup.search(served, prefix, limit=limit, types=type, namespaces=namespace),
    )
    return SearchAnswer(results=results)


@router.post(
    "/map",
    summary="Map the names near a mention",
    responses=_errors(400, 404, 413, 415, 422),
    dependencies=[Depends(_require_json)],
)
async def map_names(body: MapRequest, request: Request, linker: LinkerName = None) -> MapAnswer:
    """Return the nearest names of a mention, projected onto two principal components."""
    context = request_context(request)
    served = context.state.linker(linker)
    longest = context.state.settings.limits.mention_characters
    if len(body.mention) > longest:
        raise http_error(422, f"mention: at most {longest:,} characters")
    return await call(context, served, lambda: lookup.nearby_names(served, body.mention, names=body.names))


@router.get("/version", summary="Version, linkers and limits", responses=_errors())
async def version(request: Request) -> Version:
    """Return the version of sapbert, the linkers with their fingerprints, and the limits of a request."""
    state = request_context(request).state
    limits = state.settings.limits
    return Version(
        sapbert=__version__,
        linkers=list(map(_linker_info, state.linkers.values())),
        limits=LimitsInfo(
            body_bytes=limits.body_bytes,
            mentions=limits.mentions,
            mention_characters=limits.mention_characters,
        ),
    )


def _linker_info(served: ServedLinker) -> LinkerInfo:
    linker, name_table = served.linker, served.linker.name_table
    return LinkerInfo(
        name=served.name,
        title=served.title,
        fingerprint=linker.fingerprint,
        encoder=linker.encoder.fingerprint,
        names=len(name_table),
        concepts=len(name_table.concepts),
        prefixes=name_table.prefixes(),
        sources=[source for source in name_table.sources if source],
        kinds=[kind or OWN for kind in name_table.kinds],
        languages=[language for language in name_table.languages if language],
        types=list(name_table.types),
        calibrated=linker.calibration is not None,
    )


@router.get("/health", summary="Liveness")
async def health() -> Status:
    """Answer 200 while the process runs."""
    return Status(status="ok")


@router.get("/ready", summary="Readiness", responses={503: {"model": Status}})
async def ready(request: Request, response: Response) -> Status:
    """Answer 200 while the service accepts requests, 503 while it is overloaded."""
    context = request_context(request)
    limits, service = context.state.settings.limits, context.service
    if service.batcher.expected_wait() > limits.queue_seconds or service.in_flight >= limits.requests:
        response.status_code = 503
        return Status(status="busy")
    return Status(status="ok")


metrics_router = APIRouter()


@metrics_router.get("/metrics", summary="Prometheus metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Return the metrics of all workers in the Prometheus text format."""
    context = request_context(request)
    service = context.service
    text = service.metrics.render(
        in_flight=service.in_flight,
        waiting=service.batcher.waiting,
        linkers={name: served.linker.fingerprint for name, served in context.state.linkers.items()},
    )
    return Response(text, media_type=CONTENT_TYPE)
