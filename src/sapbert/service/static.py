"""Static files of the review page at `/`.

There is no build step and no third-party script, so the page works offline and its source is what runs. All
files are read and compressed once; a requested name is looked up among them, never on disk.

The page refers to its files by `page/DIGEST/name`, where the digest is that of all files: browsers keep them
without asking again, and never combine files of two versions. Only the page itself is revalidated.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import PurePath

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

_TYPES = {".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml"}
_HEADERS = {
    # Trusted types are a second line of defence: a script that assigns text as HTML raises an error.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
}

_PAGE = "index.html"

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    compressed: bytes


@router.get("/")
async def page(request: Request) -> Response:
    """Return the page."""
    digest, contents = _contents()
    tag = f'"{digest}"'
    caching = {"Cache-Control": "no-cache", "ETag": tag}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=_HEADERS | caching)
    return _answer(request, _PAGE, contents[_PAGE], caching)


@router.get("/page/{digest}/{name}")
async def file(request: Request, digest: str, name: str) -> Response:
    """Return a script, a style sheet or the icon of the page."""
    current, contents = _contents()
    if digest != current or name not in contents:
        raise HTTPException(404, "no such path")
    return _answer(request, name, contents[name], {"Cache-Control": "public, max-age=31536000, immutable"})


def _answer(request: Request, name: str, content: _File, caching: dict[str, str]) -> Response:
    headers = {**_HEADERS, **caching, "Vary": "Accept-Encoding"}
    media_type = _TYPES[PurePath(name).suffix]
    if not _accepts_gzip(request.headers.get("accept-encoding", "")):
        return Response(content.content, headers=headers, media_type=media_type)
    headers["Content-Encoding"] = "gzip"
    return Response(content.compressed, headers=headers, media_type=media_type)


def _accepts_gzip(header: str) -> bool:
    for coding in header.lower().split(","):
        name, _, weight = coding.replace(" ", "").partition(";q=")
        if name == "gzip":
            return weight.strip("0.") != "" or weight == ""
    return False


@cache
def _contents() -> tuple[str, dict[str, _File]]:
    """Return the digest of all files, and the files by name."""
    folder = files("sapbert.service") / "page"
    contents = {entry.name: entry.read_bytes() for entry in folder.iterdir()}
    named = b"".join(name.encode() + b"\0" + contents[name] for name in sorted(contents))
    digest = hashlib.sha256(named).hexdigest()[:16]
    contents[_PAGE] = contents[_PAGE].replace(b'="page/', f'="page/{digest}/'.encode())
    return digest, {
        name: _File(content, gzip.compress(content, 9, mtime=0)) for name, content in contents.items()
    }
