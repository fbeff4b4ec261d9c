"""Download a file atomically and resume interrupted downloads.

The partial download is kept in `.NAME.partial`, with a record of the version of the file (ETag or date).
After a broken connection, a kill or a full disk, only the rest is requested, with `If-Range`, so that the
server sends it only if the version is the same; otherwise, or if the version is unknown, it sends the whole
file. A complete file is downloaded again only if it has changed.

The standard library suffices; a dependency for this would be larger than the module.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from sapbert.errors import SapbertError
from sapbert.file_system import lock_file
from sapbert.progress import Progress, no_progress
from sapbert.resumable import full_disk_explained
from sapbert.version import __version__

FAILURES = 4
"""Consecutive failed attempts without any data after which a download is given up."""
_TIMEOUT = 60
_CHUNK_BYTES = 1 << 18
_BUSY = (408, 425, 429, 500, 502, 503, 504)
"""HTTP status codes after which a retry may succeed."""


class Fetched(NamedTuple):
    """A completely downloaded file."""

    path: Path
    bytes: int
    sha256: str
    new: bool
    """False if the existing file is still the published one."""
    checked: bool
    """Whether it was compared with a checksum published by the server."""


@dataclass(frozen=True, slots=True)
class _Version:
    """Identifies a version of a file."""

    address: str
    etag: str | None
    date: str | None

    @classmethod
    def of(cls, address: str, headers: Mapping[str, str]) -> _Version:
        return cls(address, headers.get("ETag"), headers.get("Last-Modified"))

    @property
    def strong(self) -> str | None:
        """The validator for `If-Range`; a weak ETag does not guarantee equal bytes."""
        return self.date if self.etag is None or self.etag.startswith("W/") else self.etag


class _ConnectionError(Exception):
    """A connection failed or ended too early."""


class _Part:
    """The part of a file that was downloaded so far."""

    def __init__(self, target: Path) -> None:
        self.path = target.with_name(f".{target.name}.partial")
        self._version_file = target.with_name(f".{target.name}.partial.json")
        self.version = _read_version(self._version_file)

    @property
    def size(self) -> int:
        """Number of downloaded bytes."""
        return self.path.stat().st_size if self.path.exists() else 0

    def restart(self, version: _Version) -> None:
        """Discard the downloaded bytes and record the version of the new download."""
        self.path.write_bytes(b"")
        self._version_file.write_text(json.dumps(asdict(version)), encoding="utf-8")
        self.version = version

    def discard(self) -> None:
        """Delete the file and the record of its version."""
        self.path.unlink(missing_ok=True)
        self._version_file.unlink(missing_ok=True)
        self.version = None

    def finish(self, target: Path) -> None:
        """Move the file to `target` and record its version."""
        with open(self.path, "rb+") as file:
            os.fsync(file.fileno())
        version_file = _version_file(target)
        version_file.unlink(missing_ok=True)  # of the file that is replaced next
        self.path.replace(target)
        self._version_file.replace(version_file)


def download(
    address: str,
    target: Path,
    *,
    on_size: Callable[[int, int], None] = lambda _size, _here: None,
    progress: Progress = no_progress,
    pause: Callable[[float], None] = time.sleep,
) -> Fetched:
    """Download `address` to `target`, continuing an interrupted download.

    `on_size` is called before the transfer with the size of the file in bytes (0 if unknown) and the number
    of bytes downloaded earlier; `pause` waits some seconds before a retry.
    """
    if urlsplit(address).scheme not in ("http", "https"):
        raise SapbertError(f"{address}: only http and https are supported")
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target), full_disk_explained(target.parent, "give the same command again to continue"):
        part = _Part(target)
        failures = 0
        while True:
            before = part.size
            try:
                headers = _Request(address, target, part, on_size, progress).send()
                break
            except _ConnectionError as error:
                failures = 1 if part.size > before else failures + 1
                if failures >= FAILURES:
                    raise SapbertError(_give_up_message(address, target, part, error)) from error
                pause(2.0**failures)
        if headers is None:
            return _describe(target, new=False, checked=False)
        checked = _verify(part, headers, address)
        part.finish(target)
        return _describe(target, new=True, checked=checked)


class _Request(NamedTuple):
    """One request for the missing part of a file."""

    address: str
    target: Path
    part: _Part
    on_size: Callable[[int, int], None]
    progress: Progress

    def send(self) -> Mapping[str, str] | None:
        """Download; return the response headers when the file is complete, None if it has not changed."""
        with _open(Request(self.address, headers=self._headers())) as response:  # noqa: S310  # see `download`
            if response.status == http.HTTPStatus.NOT_MODIFIED:
                return None
            headers: Mapping[str, str] = response.headers
            if response.status == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                self._require_all(headers)
                return headers
            total = self._prepare(response)
            self.on_size(total, self.part.size)
            self._receive(response, total)
            if total and self.part.size != total:
                raise _ConnectionError(f"received {self.part.size:,} of {total:,} bytes")
            return headers

    def _headers(self) -> dict[str, str]:
        headers = {"User-Agent": f"sapbert/{__version__}", "Accept-Encoding": "identity"}
        part = self.part
        if part.version is not None and part.version.address == self.address and part.size:
            if part.version.strong is not None:
                headers |= {"Range": f"bytes={part.size}-", "If-Range": part.version.strong}
            return headers
        here = _read_version(_version_file(self.target))
        if self.target.exists() and here is not None and here.address == self.address:
            headers |= {"If-None-Match": here.etag} if here.etag else {}
            headers |= {"If-Modified-Since": here.date} if here.date else {}
        return headers

    def _prepare(self, response: Any) -> int:
        """Prepare the partial file for the response; return the size of the whole file, 0 if unknown."""
        version = _Version.of(self.address, response.headers)
        if response.status == http.HTTPStatus.PARTIAL_CONTENT:
            span = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
            if span is None or int(span[1]) != self.part.size or self._is_other(version):
                self.part.discard()
                raise _ConnectionError("the server sent the rest of another version")
            return int(span[2])
        self.part.restart(version)
        return int(response.headers.get("Content-Length") or 0)

    def _require_all(self, headers: Mapping[str, str]) -> None:
        """Check that the server has no more data because the file is complete, as after a late kill."""
        if headers.get("Content-Range") != f"bytes */{self.part.size}":
            self.part.discard()
            raise _ConnectionError("the file is shorter than what was downloaded")

    def _is_other(self, version: _Version) -> bool:
        """Return whether the response is of another version, which the server should have noticed."""
        here = self.part.version
        return here is None or version.strong not in (None, here.strong)

    def _receive(self, response: Any, total: int) -> None:
        size = self.part.size
        with open(self.part.path, "ab") as file:
            while piece := _read(response):
                file.write(piece)
                size += len(piece)
                self.progress(self.target.name, size, max(total, size))


def _read(response: Any) -> bytes:
    try:
        piece: bytes = response.read(_CHUNK_BYTES)
    except (http.client.HTTPException, OSError) as error:
        raise _ConnectionError(str(error) or type(error).__name__) from error
    return piece


@contextmanager
def _open(request: Request) -> Iterator[Any]:
    try:
        response = urlopen(request, timeout=_TIMEOUT)  # noqa: S310  # see `download`
    except HTTPError as error:
        if error.code not in (304, 416):
            error.close()  # it keeps the connection open
            problem = f"the server responded {error.code} {error.reason}"
            if error.code in _BUSY:
                raise _ConnectionError(problem) from error
            raise SapbertError(f"{request.full_url}: {problem}; has the file moved?") from error
        response = error
    except (URLError, http.client.HTTPException, OSError) as error:
        raise _ConnectionError(str(getattr(error, "reason", error))) from error
    with response:
        yield response


def _verify(part: _Part, headers: Mapping[str, str], address: str) -> bool:
    """Compare with the published checksum; delete the file if it differs."""
    published = _published(headers)
    if published is None:
        return False
    algorithm, expected = published
    with open(part.path, "rb") as file:
        actual = hashlib.file_digest(file, algorithm).digest()
    if actual != expected:
        part.discard()
        raise SapbertError(
            f"{address}: its {algorithm} is {actual.hex()}, but the server published {expected.hex()}; "
            "the file was deleted, try again"
        )
    return True


def _published(headers: Mapping[str, str]) -> tuple[str, bytes] | None:
    """Find the checksum of the whole file, in the header of RFC 9530 or of Google Cloud Storage."""
    forms = (
        ("sha256", "Repr-Digest", r"sha-256=:([A-Za-z0-9+/=]+):"),
        ("md5", "x-goog-hash", r"md5=([A-Za-z0-9+/=]+)"),
    )
    for algorithm, header, pattern in forms:
        if match := re.search(pattern, headers.get(header) or ""):
            return algorithm, base64.b64decode(match[1])
    return None


def _describe(target: Path, *, new: bool, checked: bool) -> Fetched:
    with open(target, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Fetched(target, target.stat().st_size, digest, new, checked)


def _give_up_message(address: str, target: Path, part: _Part, error: _ConnectionError) -> str:
    kept = f"; {part.size:,} bytes are kept, give the same command again to continue" if part.size else ""
    older = f"; an older copy is at {target}" if target.exists() else ""
    return f"{address}: {error} ({FAILURES} attempts failed){kept}{older}"


def _version_file(target: Path) -> Path:
    return target.with_name(f".{target.name}.json")


def _read_version(note: Path) -> _Version | None:
    try:
        return _Version(**json.loads(note.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    """Keep two processes from writing the same file."""
    with lock_file(target.with_name(f".{target.name}.lock")) as locked:
        if not locked:
            raise SapbertError(f"{target} is being downloaded by another process")
        yield
