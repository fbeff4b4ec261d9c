"""Static files of the review page at `/`.

There is no build step and no third-party script, so the page works offline and its source is what runs. All
files are read once; a requested name is looked up among them, never on disk.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import PurePath

from fastapi import APIRouter, Response
from starlette.exceptions import HTTPException

_TYPES = {".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml"}
_HEADERS = {
    # Trusted types are a second line of defence: a script that assigns text as HTML raises an error.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
}

router = APIRouter(include_in_schema=False)


@router.get("/")
async def page() -> Response:
    """Return the page."""
    return _answer("index.html")


@router.get("/page/{name}")
async def file(name: str) -> Response:
    """Return a script, a style sheet or the icon of the page."""
    return _answer(name)


def _answer(name: str) -> Response:
    content = _contents().get(name)
    if content is None:
        raise HTTPException(404, "no such path")
    return Response(content, headers=_HEADERS, media_type=_TYPES[PurePath(name).suffix])


@cache
def _contents() -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in (files("sapbert.service") / "page").iterdir()}
