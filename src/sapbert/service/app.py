"""The application: routes, errors as one line of JSON, and the guard before it all."""

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
from sapbert.service.middleware.guard import FAILED, Guard, problem
from sapbert.service.middleware.metrics import Metrics
from sapbert.service.reconciliation import routes as reconcile
from sapbert.service.schemas import fault_of
from sapbert.service.state import Service, State
from sapbert.version import __version__

_ROUTERS = (api.router, api.metrics_router, reconcile.router, static.router)
_ABOUT = "Links mentions to the concepts of biomedical vocabularies."
_WORDS = {
    "Not Found": "there is nothing here",
    "Method Not Allowed": "this cannot be done here",
    "There was an error parsing the body": "the body is no JSON",
}
"""For what the framework says in words of its own."""


Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def create_app(service: Service, *, lifespan: Lifespan | None = None) -> ASGIApp:
    """Return the application of a worker; `lifespan` surrounds its work."""
    return Guard(routes(lifespan), service=service)


def routes(lifespan: Lifespan | None = None) -> FastAPI:
    """Return the application without its guard."""
    # The framework's pages of documentation come from other hosts; a service may have none to reach.
    app = FastAPI(
        title="sapbert",
        description=_ABOUT,
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
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    # The guard logs it, and would answer too late: the framework has words of its own for it.
    app.add_exception_handler(Exception, _failed)
    return app


def service_of(state: State, *, log_mentions: bool = False, metrics_folder: Path | None = None) -> Service:
    """Return what a worker works with."""
    paths = sorted({route.path for router in _ROUTERS for route in router.routes if isinstance(route, Route)})
    return Service(state, Metrics(paths, metrics_folder), log_mentions=log_mentions)


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = _WORDS.get(error.detail, error.detail)
    return problem(HTTPException(error.status_code, words, error.headers))


async def _failed(_request: Request, _error: Exception) -> Response:
    return problem(FAILED)


async def _invalid(_request: Request, error: Exception) -> Response:
    """Say what is wrong and where, without a word of what was sent: it may be a patient's."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return problem(HTTPException(400, "the body is no JSON"))
    return problem(HTTPException(422, fault_of({**first, "loc": first["loc"][1:] or first["loc"]})))
