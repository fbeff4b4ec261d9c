"""The page for curators at `/`: files that a browser gets as they are.

There is no build step and nothing from elsewhere, so it works offline and is read as it was written. All
files are read once: whatever a request asks for is looked up among their names and never on disk.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import PurePath

from fastapi import APIRouter, Response
from starlette.exceptions import HTTPException

_TYPES = {".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml"}
_HEADERS = {
    # Trusted types are the second lock: a script that tried to make HTML of text would fail, not succeed.
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
    """Return what the page consists of."""
    return _answer(name)


def _answer(name: str) -> Response:
    content = _contents().get(name)
    if content is None:
        raise HTTPException(404, "there is nothing here")
    return Response(content, headers=_HEADERS, media_type=_TYPES[PurePath(name).suffix])


@cache
def _contents() -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in (files("sapbert.service") / "page").iterdir()}
