"""The routes of the Reconciliation Service API 0.2, which OpenRefine speaks.

What the protocol leaves open is decided so that a hurried curator is not misled: types and sources of a
query are conditions, never hints; only a name that equals the query, and of one concept alone, is called a
match, as OpenRefine accepts matches without asking. There is no flyout (arbitrary HTML, to be dropped from
the protocol) and no JSONP (optional, and a way around the browser's protections).

Words of the protocol (entity, query) stay in this module and in `reconciling`.
"""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import TypeAdapter, ValidationError

from sapbert.service import lookup
from sapbert.service.link_requests import call, exchange_of, require_kind
from sapbert.service.linkers import Served
from sapbert.service.middleware.guard import KEY_PARAMETER, RECONCILE, Exchange
from sapbert.service.middleware.limits import refused
from sapbert.service.reconciliation import preview
from sapbert.service.reconciliation.protocol import (
    PROPERTIES,
    Extension,
    QueryBatch,
    extend,
    reconcile,
    suggest_concepts,
)
from sapbert.service.schemas import fault_of
from sapbert.version import __version__

BATCH = 100
"""Queries, or identifiers, of one request."""
_MOST_SUGGESTED = 20
_MOST_DEFAULT_TYPES = 50
_FORM = "application/x-www-form-urlencoded"

router = APIRouter(prefix=RECONCILE, include_in_schema=False, default_response_class=JSONResponse)
Typed = Annotated[str, Query(max_length=200)]
Skipped = Annotated[int, Query(ge=0, le=10_000)]


@router.get("")
@router.get("/{linker}")
async def manifest_or_answer(request: Request, linker: str | None = None) -> Any:
    """Describe the service; or answer what is in the address, as a form would be."""
    asked = {name: request.query_params.getlist(name) for name in ("queries", "extend")}
    if any(asked.values()):
        return await _answer(request, linker, asked)
    exchange = exchange_of(request)
    return manifest(request, exchange, exchange.state.linker(linker))


@router.post("")
@router.post("/{linker}")
async def answer_form(request: Request, linker: str | None = None) -> Any:
    """Answer queries, or extend data, as a form asks."""
    require_kind(request, _FORM)
    try:
        form = parse_qs((await request.body()).decode(), max_num_fields=20)
    except ValueError:
        raise refused(400, "the form cannot be read") from None
    return await _answer(request, linker, form)


@router.options("")
@router.options("/{rest:path}")
async def allow(rest: str = "") -> Response:  # noqa: ARG001
    """Let pages from anywhere ask, as the protocol demands."""
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
    prefix: Typed,
    cursor: Skipped = 0,
    type: Annotated[list[str] | None, Query()] = None,
    filter: Typed = "",
) -> Any:
    """Suggest concepts as somebody types."""
    exchange = exchange_of(request)
    served = exchange.state.linker(linker)
    typed = prefix or _unfiltered(filter)
    found = await call(
        exchange,
        served,
        lambda: suggest_concepts(served, typed, types=type or (), skip=cursor, limit=_MOST_SUGGESTED),
    )
    return {"result": found}


@router.get("/{linker}/suggest/type")
async def suggest_type(request: Request, linker: str, prefix: Typed, cursor: Skipped = 0) -> Any:
    """Suggest types."""
    types = exchange_of(request).state.linker(linker).linker.name_table.types
    return {"result": _suggested({word: word for word in types}, prefix, cursor)}


@router.get("/{linker}/suggest/property")
async def suggest_property(request: Request, linker: str, prefix: Typed, cursor: Skipped = 0) -> Any:
    """Suggest properties."""
    exchange_of(request).state.linker(linker)
    return {"result": _suggested(PROPERTIES, prefix, cursor)}


@router.get("/{linker}/properties")
async def propose_properties(
    request: Request, linker: str, type: Typed = "", limit: Annotated[int, Query(ge=1)] = BATCH
) -> Any:
    """Propose what data can be extended with; it is the same for all types."""
    exchange_of(request).state.linker(linker)
    proposed = [{"id": pid, "name": name} for pid, name in PROPERTIES.items()]
    return {"type": type, "limit": limit, "properties": proposed[:limit]}


@router.get("/{linker}/preview", response_class=HTMLResponse)
async def show_preview(request: Request, linker: str, id: Typed) -> Response:
    """Show a concept on a page small enough for a corner of another."""
    exchange = exchange_of(request)
    served = exchange.state.linker(linker)
    number = served.number_of(id)
    if number is None:
        raise refused(404, "there is no such concept")
    concept = await call(exchange, served, lambda: lookup.concept_of(served, number, neighbours=0))
    return HTMLResponse(preview.page(concept), headers=preview.HEADERS)


def _unfiltered(filter: str) -> str:
    """Return what was typed where OpenRefine took a colon in it for a filter: `(all mesh:D009203)`."""
    return filter.removeprefix("(all ").removesuffix(")")


async def _answer(request: Request, linker: str | None, form: dict[str, list[str]]) -> Any:
    exchange = exchange_of(request)
    served = exchange.state.linker(linker)
    if form.get("queries"):
        queries = _parsed(QueryBatch, form, "queries")
        if len(queries) > BATCH:
            raise refused(413, f"at most {BATCH} queries in a batch")
        return await reconcile(exchange, served, queries)
    if form.get("extend"):
        asked = _parsed(TypeAdapter(Extension), form, "extend")
        if len(asked.ids) > BATCH:
            raise refused(413, f"at most {BATCH} identifiers in a batch")
        return await call(exchange, served, lambda: extend(served, asked))
    raise refused(400, "send queries or extend, as JSON in a form")


def _parsed(shape: TypeAdapter[Any], form: dict[str, list[str]], field: str) -> Any:
    try:
        return shape.validate_json(form[field][0])
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            raise refused(400, f"{field}: this is no JSON") from None
        raise refused(422, fault_of(first, field)) from None


def _suggested(names: dict[str, str], prefix: str, cursor: int) -> list[dict[str, str]]:
    wanted = prefix.casefold()
    found = [
        {"id": word, "name": name}
        for word, name in names.items()
        if wanted in word.casefold() or wanted in name.casefold()
    ]
    return found[cursor : cursor + _MOST_SUGGESTED]


def manifest(request: Request, exchange: Exchange, served: Served) -> dict[str, Any]:
    """Describe the service of one linker."""
    settings = exchange.state.settings
    base = settings.public_url or f"{request.base_url}".rstrip("/")
    own = f"{RECONCILE}/{served.name}"
    # Whoever gave a key in the address gets addresses with it: clients append only their own parameters.
    key = quote(request.query_params.get(KEY_PARAMETER, ""), safe="") if exchange.key else ""
    told, more = (f"?{KEY_PARAMETER}={key}", f"&{KEY_PARAMETER}={key}") if key else ("", "")
    types = served.linker.name_table.types
    page = f"{base}{own}/preview?id={{{{id}}}}{more}"
    found: dict[str, Any] = {
        "versions": ["0.2"],
        "name": served.title,
        "identifierSpace": "https://bioregistry.io/",
        "schemaSpace": "http://www.w3.org/2004/02/skos/core#Concept",
        "serviceVersion": __version__,
        "batchSize": BATCH,
        "defaultTypes": [{"id": word, "name": word} for word in types[:_MOST_DEFAULT_TYPES]],
        "view": {"url": page},
        "preview": {"url": page, "width": preview.WIDTH, "height": preview.HEIGHT},
        "suggest": {
            kind: {"service_url": base, "service_path": f"{own}/suggest/{kind}{told}"}
            for kind in ("entity", "type", "property")
        },
        "extend": {
            "propose_properties": {"service_url": base, "service_path": f"{own}/properties{told}"},
            "property_settings": [],
        },
    }
    if settings.keys:
        found["authentication"] = {"type": "apiKey", "name": KEY_PARAMETER, "in": "query"}
    return found
