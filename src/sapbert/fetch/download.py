"""Fetch a file so that it is there whole or not at all, and never fetch a byte twice.

What has come is kept in `.NAME.partial`, with a note of which version of the file it is of (ETag or date):
after a cut connection, a kill or a full disk only the rest is asked for. The server sends it only of that
very version (`If-Range`); a file that has changed meanwhile, or whose version no server tells, is sent anew.
A file that is here is fetched again only if it has changed.

The standard library does all of this; a package for it would be larger than the module.
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

from sapbert.artifacts import try_lock
from sapbert.errors import SapbertError
from sapbert.progress import Progress, no_progress
from sapbert.resumable import full_disk_explained
from sapbert.version import __version__

FAILURES = 4
"""Times in a row that a connection may break without bringing anything."""
_TIMEOUT = 60
_PIECE = 1 << 18
_BUSY = (408, 425, 429, 500, 502, 503, 504)
"""What a server says that may answer in a while."""


class Fetched(NamedTuple):
    """A file that is here whole."""

    path: Path
    bytes: int
    sha256: str
    new: bool
    """False where the file that was here already is still the published one."""
    checked: bool
    """Whether it was compared with a checksum that the server publishes."""


@dataclass(frozen=True, slots=True)
class _Version:
    """Which version of a file some bytes are of."""

    address: str
    etag: str | None
    date: str | None

    @classmethod
    def of(cls, address: str, headers: Mapping[str, str]) -> _Version:
        return cls(address, headers.get("ETag"), headers.get("Last-Modified"))

    @property
    def strong(self) -> str | None:
        """What `If-Range` takes: a weak ETag says that two files mean the same, not that bytes are equal."""
        return self.date if self.etag is None or self.etag.startswith("W/") else self.etag


class _CutError(Exception):
    """A connection ended too early, or was never made."""


class _Part:
    """What has come of a file."""

    def __init__(self, target: Path) -> None:
        self.path = target.with_name(f".{target.name}.partial")
        self._note = target.with_name(f".{target.name}.partial.json")
        self.version = _read_note(self._note)

    @property
    def size(self) -> int:
        """Bytes that are here."""
        return self.path.stat().st_size if self.path.exists() else 0

    def begin(self, version: _Version) -> None:
        """Drop what is here, and note what will come."""
        self.path.write_bytes(b"")
        self._note.write_text(json.dumps(asdict(version)), encoding="utf-8")
        self.version = version

    def drop(self) -> None:
        """Delete everything."""
        self.path.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)
        self.version = None

    def finish(self, target: Path) -> None:
        """Put the file where it belongs, with a note of its version."""
        with open(self.path, "rb+") as file:
            os.fsync(file.fileno())
        note = _note_of(target)
        note.unlink(missing_ok=True)  # of the file that is about to be replaced
        self.path.replace(target)
        self._note.replace(note)


def download(
    address: str,
    target: Path,
    *,
    on_size: Callable[[int, int], None] = lambda _size, _here: None,
    progress: Progress = no_progress,
    pause: Callable[[float], None] = time.sleep,
) -> Fetched:
    """Fetch `address` to `target`, going on with what an earlier call left.

    `on_size` hears, before anything comes, how many bytes the file has (0: the server does not say) and how
    many are here; `pause` waits some seconds before another try.
    """
    if urlsplit(address).scheme not in ("http", "https"):
        raise SapbertError(f"{address}: only http and https addresses are fetched")
    target.parent.mkdir(parents=True, exist_ok=True)
    with _alone(target), full_disk_explained(target.parent, "give the same command again to continue"):
        part = _Part(target)
        failures = 0
        while True:
            before = part.size
            try:
                answer = _Request(address, target, part, on_size, progress).send()
                break
            except _CutError as cut:
                failures = 1 if part.size > before else failures + 1
                if failures >= FAILURES:
                    raise SapbertError(_gave_up(address, target, part, cut)) from cut
                pause(2.0**failures)
        if answer is None:
            return _described(target, new=False, checked=False)
        checked = _verify(part, answer, address)
        part.finish(target)
        return _described(target, new=True, checked=checked)


class _Request(NamedTuple):
    """One request for all that is still wanted."""

    address: str
    target: Path
    part: _Part
    on_size: Callable[[int, int], None]
    progress: Progress

    def send(self) -> Mapping[str, str] | None:
        """Ask and take in; return the answer's headers when the file is whole, None if it has not changed."""
        with _open(Request(self.address, headers=self._headers())) as response:  # noqa: S310  # see `download`
            if response.status == http.HTTPStatus.NOT_MODIFIED:
                return None
            headers: Mapping[str, str] = response.headers
            if response.status == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                self._require_all(headers)
                return headers
            total = self._place(response)
            self.on_size(total, self.part.size)
            self._take(response, total)
            if total and self.part.size != total:
                raise _CutError(f"{self.part.size:,} of {total:,} bytes came")
            return headers

    def _headers(self) -> dict[str, str]:
        headers = {"User-Agent": f"sapbert/{__version__}", "Accept-Encoding": "identity"}
        part = self.part
        if part.version is not None and part.version.address == self.address and part.size:
            if part.version.strong is not None:
                headers |= {"Range": f"bytes={part.size}-", "If-Range": part.version.strong}
            return headers
        here = _read_note(_note_of(self.target))
        if self.target.exists() and here is not None and here.address == self.address:
            headers |= {"If-None-Match": here.etag} if here.etag else {}
            headers |= {"If-Modified-Since": here.date} if here.date else {}
        return headers

    def _place(self, response: Any) -> int:
        """Make ready for what comes; return the size of the whole file, 0 where it is not known."""
        version = _Version.of(self.address, response.headers)
        if response.status == http.HTTPStatus.PARTIAL_CONTENT:
            span = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
            if span is None or int(span[1]) != self.part.size or self._is_other(version):
                self.part.drop()
                raise _CutError("the rest of another file came")
            return int(span[2])
        self.part.begin(version)
        return int(response.headers.get("Content-Length") or 0)

    def _require_all(self, headers: Mapping[str, str]) -> None:
        """Make sure that nothing more comes because all is here, as after a kill at the last moment."""
        if headers.get("Content-Range") != f"bytes */{self.part.size}":
            self.part.drop()
            raise _CutError("it has fewer bytes than are here")

    def _is_other(self, version: _Version) -> bool:
        """Tell that what comes is not of the version that is here, though the server should have noticed."""
        here = self.part.version
        return here is None or version.strong not in (None, here.strong)

    def _take(self, response: Any, total: int) -> None:
        size = self.part.size
        with open(self.part.path, "ab") as file:
            while piece := _read(response):
                file.write(piece)
                size += len(piece)
                self.progress(self.target.name, size, max(total, size))


def _read(response: Any) -> bytes:
    try:
        piece: bytes = response.read(_PIECE)
    except (http.client.HTTPException, OSError) as error:
        raise _CutError(str(error) or type(error).__name__) from error
    return piece


@contextmanager
def _open(request: Request) -> Iterator[Any]:
    try:
        response = urlopen(request, timeout=_TIMEOUT)  # noqa: S310  # see `download`
    except HTTPError as error:
        if error.code not in (304, 416):
            error.close()  # it holds the connection
            said = f"the server says {error.code} {error.reason}"
            if error.code in _BUSY:
                raise _CutError(said) from error
            raise SapbertError(f"{request.full_url}: {said}; has the file moved?") from error
        response = error
    except (URLError, http.client.HTTPException, OSError) as error:
        raise _CutError(str(getattr(error, "reason", error))) from error
    with response:
        yield response


def _verify(part: _Part, headers: Mapping[str, str], address: str) -> bool:
    """Compare with what the server publishes; what differs is deleted."""
    published = _published(headers)
    if published is None:
        return False
    algorithm, wanted = published
    with open(part.path, "rb") as file:
        found = hashlib.file_digest(file, algorithm).digest()
    if found != wanted:
        part.drop()
        raise SapbertError(
            f"{address}: its {algorithm} is {found.hex()}, not {wanted.hex()} as published; it was deleted, "
            "try again"
        )
    return True


def _published(headers: Mapping[str, str]) -> tuple[str, bytes] | None:
    """Find the checksum of the whole file: as RFC 9530 has it, or as Google's storage does."""
    forms = (
        ("sha256", "Repr-Digest", r"sha-256=:([A-Za-z0-9+/=]+):"),
        ("md5", "x-goog-hash", r"md5=([A-Za-z0-9+/=]+)"),
    )
    for algorithm, header, pattern in forms:
        if found := re.search(pattern, headers.get(header) or ""):
            return algorithm, base64.b64decode(found[1])
    return None


def _described(target: Path, *, new: bool, checked: bool) -> Fetched:
    with open(target, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Fetched(target, target.stat().st_size, digest, new, checked)


def _gave_up(address: str, target: Path, part: _Part, cut: _CutError) -> str:
    kept = f"; {part.size:,} bytes are kept, the same command goes on" if part.size else ""
    older = f"; an older copy is at {target}" if target.exists() else ""
    return f"{address}: {cut}, {FAILURES} times in a row{kept}{older}"


def _note_of(target: Path) -> Path:
    return target.with_name(f".{target.name}.json")


def _read_note(note: Path) -> _Version | None:
    try:
        return _Version(**json.loads(note.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Keep two processes from writing one file."""
    with open(target.with_name(f".{target.name}.lock"), "w") as lock:
        if os.name == "posix" and not try_lock(lock):
            raise SapbertError(f"{target} is being fetched by another process")
        yield
