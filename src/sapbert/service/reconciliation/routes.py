"""The routes of the Reconciliation Service API 0.2, which OpenRefine uses.

Where the protocol leaves a choice, wrong matches are avoided: types and sources of a query are filters,
never hints; only a name that equals the query and belongs to a single concept is a match, because OpenRefine
accepts matches without confirmation. There is no flyout (arbitrary HTML, deprecated in the protocol) and no
JSONP (optional, and it bypasses the same-origin policy).

The terms of the protocol (entity, query) are used in this package only.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import TypeAdapter, ValidationError

from sapbert.service import lookup
from sapbert.service.json_body import parse_json
from sapbert.service.link_requests import call, request_context, require_content_type
from sapbert.service.linkers import ServedLinker
from sapbert.service.middleware.guard import KEY_PARAMETER, RECONCILE_PATH, RequestContext
from sapbert.service.middleware.limits import http_error
from sapbert.service.reconciliation import preview
from sapbert.service.reconciliation.protocol import (
    EXTENSION,
    QUERY_BATCH,
    EntityQuery,
    ExtensionRequest,
    extend,
    properties,
    reconcile,
    suggest_concepts,
)
from sapbert.service.schemas import validation_message
from sapbert.version import __version__

MAX_BATCH = 100
"""Queries or identifiers per request."""
_MAX_FORM_BYTES = 2 << 20
_MAX_VALUES = 100 * MAX_BATCH
"""JSON values and field names in a form."""
_MAX_SUGGESTIONS = 20
_MAX_DEFAULT_TYPES = 50
_FORM = "application/x-www-form-urlencoded"
_Field = TypeVar("_Field")

router = APIRouter(prefix=RECONCILE_PATH, include_in_schema=False, default_response_class=JSONResponse)
Text = Annotated[str, Query(max_length=200)]
Cursor = Annotated[int, Query(ge=0, le=10_000)]


@router.get("")
@router.get("/{linker}")
async def manifest_or_answer(request: Request, linker: str | None = None) -> Any:
    """Return the manifest; or, if the URL has queries, answer them like those of a form."""
    form = {name: request.query_params.getlist(name) for name in ("queries", "extend")}
    if any(form.values()):
        return await _answer(request, linker, form)
    context = request_context(request)
    return manifest(request, context, context.state.linker(linker))


@router.post("")
@router.post("/{linker}")
async def answer_form(request: Request, linker: str | None = None) -> Any:
    """Answer the queries or the data extension request of a form."""
    require_content_type(request, _FORM)
    body = await request.body()
    if len(body) > _MAX_FORM_BYTES:
        raise http_error(413, f"the form may have at most {_MAX_FORM_BYTES:,} bytes")
    form = await request_context(request).service.run_parser(lambda: _parse_form(body), size=len(body))
    return await _answer(request, linker, form)


@router.options("")
@router.options("/{rest:path}")
async def allow(rest: str = "") -> Response:  # noqa: ARG001
    """Allow requests from pages of any origin, as the protocol requires."""
    headers = {
        "Access-Control-Allow-Methods": "GET, POST, OPTIONS",
        "Access-Control-Allow-Headers": "Authorization, Content-Type",
        "Access-Control-Max-Age": "86400",
    }
    return Response(status_code=204, headers=headers)


@router.get("/{linker}/suggest/entity")
async def suggest_entity(
    request: Request,
    linker: str,
    prefix: Text,
    cursor: Cursor = 0,
    type: Annotated[list[str] | None, Query()] = None,
    filter: Text = "",
) -> Any:
    """Suggest concepts for a prefix."""
    context = request_context(request)
    served = context.state.linker(linker)
    text = prefix or _text_of_filter(filter)
    suggestions = await call(
        context,
        served,
        lambda: suggest_concepts(served, text, types=type or (), skip=cursor, limit=_MAX_SUGGESTIONS),
    )
    return {"result": suggestions}


@router.get("/{linker}/suggest/type")
async def suggest_type(request: Request, linker: str, prefix: Text, cursor: Cursor = 0) -> Any:
    """Suggest types that contain a text."""
    served = request_context(request).state.linker(linker)
    types = served.named_types(served.linker.name_table.types)
    return {"result": _suggestions({each["id"]: each["name"] for each in types}, prefix, cursor)}


@router.get("/{linker}/suggest/property")
async def suggest_property(request: Request, linker: str, prefix: Text, cursor: Cursor = 0) -> Any:
    """Suggest properties that contain a text."""
    served = request_context(request).state.linker(linker)
    return {"result": _suggestions(properties(served), prefix, cursor)}


@router.get("/{linker}/properties")
async def propose_properties(
    request: Request, linker: str, type: Text = "", limit: Annotated[int, Query(ge=1)] = MAX_BATCH
) -> Any:
    """Propose properties for data extension; they are the same for all types."""
    served = request_context(request).state.linker(linker)
    proposed = [{"id": pid, "name": name} for pid, name in properties(served).items()]
    return {"type": type, "limit": limit, "properties": proposed[:limit]}


@router.get("/{linker}/preview", response_class=HTMLResponse)
async def show_preview(request: Request, linker: str, id: Text) -> Response:
    """Return a small HTML page about a concept."""
    context = request_context(request)
    served = context.state.linker(linker)
    number = served.concept_number(id)
    if number is None:
        raise http_error(404, "no such concept")
    concept = await call(context, served, lambda: lookup.describe_concept(served, number, neighbours=0))
    return HTMLResponse(preview.page(concept), headers=preview.HEADERS)


def _text_of_filter(filter: str) -> str:
    """Return the typed text if OpenRefine parsed its colon as a filter: `(all mesh:D009203)`."""
    return filter.removeprefix("(all ").removesuffix(")")


def _parse_form(body: bytes) -> dict[str, list[str]]:
    try:
        return parse_qs(body.decode(), max_num_fields=20)
    except ValueError:
        raise http_error(400, "the form cannot be parsed") from None


async def _answer(request: Request, linker: str | None, form: dict[str, list[str]]) -> Any:
    context = request_context(request)
    served = context.state.linker(linker)
    parser = context.service.run_parser
    if form.get("queries"):
        text = form["queries"][0].encode(errors="replace")
        return await reconcile(context, served, await parser(lambda: _parse_queries(text), size=len(text)))
    if form.get("extend"):
        text = form["extend"][0].encode(errors="replace")
        body = await parser(lambda: _parse_extension(text), size=len(text))
        return await call(context, served, lambda: extend(served, body))
    raise http_error(400, "send a form with JSON in the field queries or extend")


def _parse_queries(text: bytes) -> dict[str, EntityQuery]:
    content = _parse_object(text, "queries")
    if len(content) > MAX_BATCH:
        raise http_error(413, f"at most {MAX_BATCH} queries per batch")
    return _validate(QUERY_BATCH, content, "queries")


def _parse_extension(text: bytes) -> ExtensionRequest:
    content = _parse_object(text, "extend")
    if isinstance(content.get("ids"), list) and len(content["ids"]) > MAX_BATCH:
        raise http_error(413, f"at most {MAX_BATCH} identifiers per batch")
    return _validate(EXTENSION, content, "extend")


def _parse_object(text: bytes, field: str) -> dict[str, Any]:
    too_many = http_error(413, f"{field}: at most {_MAX_VALUES:,} values and field names")
    try:
        content = parse_json(text, most=_MAX_VALUES, too_many=too_many)
    except (ValueError, RecursionError):
        raise http_error(400, f"{field}: not valid JSON") from None
    if not isinstance(content, dict):
        raise http_error(422, f"{field}: Input should be an object")
    return content


def _validate(schema: TypeAdapter[_Field], content: dict[str, Any], field: str) -> _Field:
    try:
        return schema.validate_python(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise http_error(422, validation_message(first, field)) from None


def _suggestions(names: dict[str, str], text: str, cursor: int) -> list[dict[str, str]]:
    folded = text.casefold()
    matches = [
        {"id": word, "name": name}
        for word, name in names.items()
        if folded in word.casefold() or folded in name.casefold()
    ]
    return matches[cursor : cursor + _MAX_SUGGESTIONS]


def manifest(request: Request, context: RequestContext, served: ServedLinker) -> dict[str, Any]:
    """Return the manifest of one linker."""
    settings = context.state.settings
    base = settings.public_url or f"{request.base_url}".rstrip("/")
    path = f"{RECONCILE_PATH}/{served.name}"
    # A manifest requested with a key contains URLs with that key: clients add only their own parameters.
    key = quote(request.query_params.get(KEY_PARAMETER, ""), safe="") if context.key else ""
    query = f"?{KEY_PARAMETER}={key}" if key else ""
    types = served.linker.name_table.types
    page = f"{base}{path}/preview?id={{{{id}}}}{query.replace('?', '&')}"
    content: dict[str, Any] = {
        "versions": ["0.2"],
        "name": served.title,
        "identifierSpace": "https://bioregistry.io/",
        "schemaSpace": "http://www.w3.org/2004/02/skos/core#Concept",
        "serviceVersion": __version__,
        "batchSize": MAX_BATCH,
        "defaultTypes": served.named_types(types[:_MAX_DEFAULT_TYPES]),
        # Opened by people who may not reach this service; Bioregistry resolves the prefixes.
        "view": {"url": "https://bioregistry.io/{{id}}"},
        "preview": {"url": page, "width": preview.WIDTH, "height": preview.HEIGHT},
        "suggest": {
            kind: {"service_url": base, "service_path": f"{path}/suggest/{kind}{query}"}
            for kind in ("entity", "type", "property")
        },
        "extend": {
            "propose_properties": {"service_url": base, "service_path": f"{path}/properties{query}"},
            "property_settings": [],
        },
    }
    if settings.keys:
        content["authentication"] = {"type": "apiKey", "name": KEY_PARAMETER, "in": "query"}
    return content
