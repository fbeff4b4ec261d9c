"""What one reading takes in: its files, whatever wraps them, and what to do with a bad row.

Releases come as folders, single files, gzip, zip, zip inside zip (UMLS calls them `.nlm`) and files
cut into pieces (`MRCONSO.RRF.aa.gz`, `.ab.gz` …). `Release` finds a file by name through all of that
and hands it out as one stream; nothing is unpacked to disk. Large delimited files are read in blocks of
whole lines: polars parses blocks on several threads, memory stays flat, and every row's line is known.
"""

from __future__ import annotations

import gzip
import io
import re
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path, PurePosixPath
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast, overload

import polars as pl
from xxhash import xxh3_128

from sapbert.errors import FormatError
from sapbert.parallel import ordered_map
from sapbert.progress import Progress, no_progress
from sapbert.vocab.delimited import BadLine, Layout, parse_block
from sapbert.vocab.settings import OnError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BLOCK_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 20
"""Read at a time: so little memory is used again and again, where that of a block is cleared each time."""
_ARCHIVES = (".zip", ".nlm")
_PIECE = re.compile(r"\.[a-z]{2}$")
_KEPT_EXAMPLES = 5
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Member:
    """One file of a release as it lies there: plain or gzip, in a folder or an archive."""

    name: str
    """Where it is, for messages: `umls.zip/META/MRCONSO.RRF.aa.gz`."""
    size: int
    """Bytes before decompression."""
    open: Callable[[], io.BufferedIOBase]

    @property
    def plain_name(self) -> str:
        """The file name without `.gz`."""
        return PurePosixPath(self.name).name.removesuffix(".gz")


@dataclass(frozen=True, slots=True)
class Source:
    """One file to read: one member, or the pieces it was cut into."""

    name: str
    members: tuple[Member, ...]


class Release:
    """The files below a path, through folders and archives."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise FormatError(path, None, "no such file or directory")
        self.path = path
        self.members = list(_members(path))

    def find(self, pattern: str) -> Source | None:
        """Return the file whose name (without `.gz`) matches all of `pattern`, ignoring case.

        Of several, the one in the fewest folders is taken: a release may carry subsets of itself deeper down.
        """
        wanted = re.compile(pattern, re.IGNORECASE)
        by_folder: dict[str, list[Member]] = {}
        for member in self.members:
            stem = member.plain_name
            if wanted.fullmatch(stem) or wanted.fullmatch(_PIECE.sub("", stem)):
                # The pieces of one file may be spread over several archives of one folder.
                folder = str(PurePosixPath(member.name).parent)
                by_folder.setdefault(re.sub(r"(?i)[^/]*\.nlm/", "*/", folder + "/"), []).append(member)
        if not by_folder:
            return None
        folder = min(by_folder, key=lambda name: (name.count("/"), name))
        members = sorted(by_folder[folder], key=lambda member: member.plain_name)
        whole = [member for member in members if wanted.fullmatch(member.plain_name)]
        if whole:
            return Source(whole[0].plain_name, (whole[0],))
        source = Source(_PIECE.sub("", members[0].plain_name), tuple(members))
        _refuse_missing_piece(source)
        return source

    def find_all(self, pattern: str) -> list[Source]:
        """Return every file that `find` could return, in order of name; of one name the least deep."""
        wanted = re.compile(pattern, re.IGNORECASE)
        found: dict[str, Member] = {}
        for member in sorted(self.members, key=lambda member: (member.name.count("/"), member.name)):
            if wanted.fullmatch(member.plain_name):
                found.setdefault(member.plain_name, member)
        return [Source(name, (member,)) for name, member in sorted(found.items())]


@dataclass(slots=True)
class Intake:
    """Reads sources, remembers their checksums, and judges bad rows."""

    on_error: OnError = "stop"
    progress: Progress = no_progress
    inputs: dict[str, dict[str, object]] = field(default_factory=dict)
    """Name of each source read to its end → size and xxh3 of its uncompressed content."""
    skipped: int = 0
    """Bad rows passed over."""
    examples: list[str] = field(default_factory=list)
    """What was wrong with the first of them."""

    def bad(self, error: FormatError) -> None:
        """Stop at a bad row, or count it, as this reading was told."""
        if self.on_error == "stop":
            raise error
        self.skipped += 1
        if len(self.examples) < _KEPT_EXAMPLES:
            self.examples.append(str(error))

    @contextmanager
    def stream(self, source: Source) -> Iterator[BinaryIO]:
        """Open the uncompressed content of `source`; damage met while reading is a FormatError."""
        content = _Content(source, self.progress)
        try:
            yield io.BufferedReader(content, 1 << 20)
        except (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile) as error:
            where = content.current or source.name
            raise FormatError(where, None, f"damaged or cut off: {error}", hint="fetch it again") from error
        finally:
            content.close()
        if content.finished:
            self.inputs[source.name] = {"bytes": content.bytes, "xxh3": content.digest.hexdigest()}

    def blocks(self, source: Source) -> Iterator[bytes]:
        """Yield `source` in blocks of whole lines, each ended by a newline."""
        empty = True
        with self.stream(source) as stream:
            held = [stream.read(3).removeprefix(b"\xef\xbb\xbf")]
            size = 0
            while chunk := stream.read(_CHUNK_BYTES):
                size += len(chunk)
                if size >= BLOCK_BYTES and (end := chunk.rfind(b"\n") + 1):
                    yield b"".join((*held, chunk[:end]))
                    held, size, empty = [chunk[end:]], 0, False
                else:
                    held.append(chunk)
            rest = b"".join(held)
            if rest.strip():
                yield rest if rest.endswith(b"\n") else rest + b"\n"
                empty = False
        if empty:
            raise FormatError(source.name, None, "the file is empty", hint="fetch it again")

    @overload
    def frames(self, source: Source, layout: Layout, columns: list[str]) -> Iterator[pl.DataFrame]: ...

    @overload
    def frames(
        self, source: Source, layout: Layout, columns: list[str], each: Callable[[pl.DataFrame], R]
    ) -> Iterator[R]: ...

    def frames(
        self,
        source: Source,
        layout: Layout,
        columns: list[str],
        each: Callable[[pl.DataFrame], Any] = lambda frame: frame,
    ) -> Iterator[Any]:
        """Yield the wanted `columns` of a delimited source, as strings; empty fields are empty strings.

        What is yielded is `each(frame)`, called on several threads, in the order of the file.
        """

        def work(block: tuple[int, bytes]) -> tuple[Any, list[BadLine], int]:
            parsed = parse_block(block[1], source.name, layout, columns, first=block[0] == 0)
            return each(parsed.frame), parsed.bad, parsed.lines

        line = 1
        for result, bad_lines, lines in ordered_map(work, enumerate(self.blocks(source))):
            for bad in bad_lines:
                self.bad(FormatError(source.name, line + bad.offset, bad.found, hint=bad.hint or None))
            line += lines
            yield result


class _Content(io.RawIOBase):
    """The members of a source one after the other, decompressed, hashed and counted."""

    def __init__(self, source: Source, progress: Progress) -> None:
        super().__init__()
        self.digest = xxh3_128()
        self.bytes = 0
        self.finished = False
        """All was read, to the checksum at the end of a gzip."""
        self.current = ""
        self._name = source.name
        self._progress = progress
        self._total = sum(member.size for member in source.members)
        self._passed = 0
        self._left = deque(source.members)
        self._opened: tuple[io.BufferedIOBase, io.BufferedIOBase] | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        while (opened := self._opened or self._open_next()) is not None:
            stream, raw = opened
            if size := stream.readinto(view):
                self.digest.update(view[:size])
                self.bytes += size
                self._progress(self._name, self._passed + _position(raw), self._total)
                return size
            self._passed += _position(raw)
            self._close_member()
        self.finished = True
        return 0

    def close(self) -> None:
        self._close_member()
        super().close()

    def _open_next(self) -> tuple[io.BufferedIOBase, io.BufferedIOBase] | None:
        """Open the next member, as its content and as it lies there."""
        if not self._left:
            return None
        member = self._left.popleft()
        self.current = member.name
        raw = member.open()
        self._opened = (gzip.GzipFile(fileobj=raw) if member.name.endswith(".gz") else raw, raw)
        return self._opened

    def _close_member(self) -> None:
        for stream in self._opened or ():
            stream.close()
        self._opened = None


def _refuse_missing_piece(source: Source) -> None:
    """A gap between the first and the last piece is an error; that the last is missing cannot be known."""
    present = {member.plain_name[-2:] for member in source.members}
    for piece in (a + b for a, b in product(ascii_lowercase, repeat=2)):
        if piece > max(present):
            return
        if piece not in present:
            hint = "all archives of a release must lie together"
            raise FormatError(f"{source.name}.{piece}", None, "this piece is missing", hint=hint)


def _position(stream: io.BufferedIOBase) -> int:
    """How far a file was read; a pipe does not tell."""
    return stream.tell() if stream.seekable() else 0


def _members(path: Path) -> Iterator[Member]:
    if path.is_dir():
        for file in sorted(p for p in path.rglob("*") if p.is_file()):
            yield from _file_members(file, file.relative_to(path.parent).as_posix())
    else:
        yield from _file_members(path, path.name)


def _file_members(file: Path, name: str) -> Iterator[Member]:
    if file.suffix.lower() in _ARCHIVES:
        with open(file, "rb") as stream:
            yield from _archive_members(stream, name, lambda: file)
    else:
        yield Member(name, file.stat().st_size, lambda: open(file, "rb"))


def _archive_members(
    stream: io.BufferedIOBase, name: str, reopen: Callable[[], io.BufferedIOBase | Path]
) -> Iterator[Member]:
    try:
        archive = zipfile.ZipFile(stream)
    except zipfile.BadZipFile as error:
        raise FormatError(name, None, f"no zip archive: {error}", hint="fetch it again") from error
    for info in archive.infolist():
        if info.is_dir():
            continue

        inner = f"{name}/{info.filename}"

        def open_member(info: zipfile.ZipInfo = info, inner: str = inner) -> io.BufferedIOBase:
            # A zip opened by its path stays open until its last member is closed.
            with zipfile.ZipFile(reopen()) as reopened:
                return _open_packed(reopened, info, inner)

        if PurePosixPath(info.filename).suffix.lower() in _ARCHIVES:
            with _open_packed(archive, info, inner) as nested:
                yield from _archive_members(nested, inner, open_member)
        else:
            yield Member(inner, info.file_size, open_member)


def _open_packed(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> io.BufferedIOBase:
    try:
        return cast("io.BufferedIOBase", archive.open(info))
    except RuntimeError as error:  # encrypted, or compressed in a way that Python cannot undo
        raise FormatError(name, None, f"cannot be unpacked: {error}", hint="unpack it first") from error
