"""The application: routes, errors as one line of JSON, and the guard around both."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp

from sapbert.service import api, static
from sapbert.service.annotation import routes as annotation
from sapbert.service.middleware.guard import INTERNAL_ERROR, Guard, error_response
from sapbert.service.middleware.metrics import Metrics
from sapbert.service.reconciliation import routes as reconcile
from sapbert.service.schemas import validation_message
from sapbert.service.state import Service, State
from sapbert.version import __version__

_ROUTERS = (api.router, annotation.router, api.metrics_router, reconcile.router, static.router)
_DESCRIPTION = "Links mentions to the concepts of biomedical vocabularies."
_NOT_JSON = "the body is not valid JSON"
_MESSAGES = {
    "Not Found": "no such path",
    "Method Not Allowed": "method not allowed for this path",
    "There was an error parsing the body": _NOT_JSON,
}
"""Replacements for messages of the framework."""


Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def create_app(service: Service, *, lifespan: Lifespan | None = None) -> ASGIApp:
    """Return the application of a worker, with its guard."""
    return Guard(create_unguarded_app(lifespan), service=service)


def create_unguarded_app(lifespan: Lifespan | None = None) -> FastAPI:
    """Return the application without its guard."""
    # No documentation pages: FastAPI's load scripts from other hosts, which may be unreachable.
    app = FastAPI(
        title="sapbert",
        description=_DESCRIPTION,
        version=__version__,
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
        lifespan=lifespan,
    )
    for router in _ROUTERS:
        app.include_router(router)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    # The guard only logs these: Starlette answers before the exception reaches it.
    app.add_exception_handler(Exception, _on_unexpected_error)
    return app


def create_service(
    state: State, *, log_mentions: bool = False, metrics_folder: Path | None = None
) -> Service:
    """Return the service of a worker; with several workers, `metrics_folder` is shared by all."""
    paths = sorted({route.path for router in _ROUTERS for route in router.routes if isinstance(route, Route)})
    return Service(state, Metrics(paths, metrics_folder), log_mentions=log_mentions)


async def _on_http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = _MESSAGES.get(error.detail, error.detail)
    return error_response(HTTPException(error.status_code, message, error.headers))


async def _on_unexpected_error(_request: Request, _error: Exception) -> Response:
    return error_response(INTERNAL_ERROR)


async def _on_invalid_request(_request: Request, error: Exception) -> Response:
    """Say what is wrong and where, without the value that was sent: it may be patient data."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return error_response(HTTPException(400, _NOT_JSON))
    return error_response(
        HTTPException(422, validation_message({**first, "loc": first["loc"][1:] or first["loc"]}))
    )
