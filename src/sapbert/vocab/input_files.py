"""Find and read the files of a vocabulary release, however they are packed.

Releases come as folders, single files, gzip, zip, zip inside zip (UMLS calls them `.nlm`) and files split
into pieces (`MRCONSO.RRF.aa.gz`, `.ab.gz` …). `Release` finds a file by name in all of these, and
`InputReader` reads it as one stream; nothing is unpacked to disk. Large delimited files are read in blocks of
whole lines, so polars parses several blocks in parallel, memory does not grow with the file, and the line
number of every row is known. Lines, records and nested archives are limited, so that a damaged or malicious
file cannot fill the memory.
"""

from __future__ import annotations

import errno
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
"""Bytes per read. A small buffer is reused; memory for a whole block would have to be cleared each time."""
MAX_LINE_BYTES = 16 << 20
"""Longest line; the longest lines of real vocabularies have some kilobytes."""
MAX_RECORD_BYTES = 64 << 20
"""Largest record of an XML file."""
_ARCHIVE_SUFFIXES = (".zip", ".nlm")
_MAX_NESTED = 4
"""Archives inside each other; UMLS has two."""
_PIECE_SUFFIX = re.compile(r"\.[a-z]{2}$")
_MAX_EXAMPLES = 5
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Member:
    """One stored file of a release: plain or gzip, in a folder or an archive."""

    name: str
    """Its path, for messages: `umls.zip/META/MRCONSO.RRF.aa.gz`."""
    size: int
    """Bytes before decompression."""
    open: Callable[[], io.BufferedIOBase]

    @property
    def plain_name(self) -> str:
        """The file name without `.gz`."""
        return PurePosixPath(self.name).name.removesuffix(".gz")


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file to read: one member, or the pieces that it was split into."""

    name: str
    members: tuple[Member, ...]


class Release:
    """All files below a path, including those in archives."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise FormatError(path, None, "no such file or directory")
        self.path = path
        self.members = list(_members(path))

    def find(self, pattern: str) -> InputFile | None:
        """Return the file whose whole name (without `.gz`) matches `pattern`, ignoring case.

        If several match, the one in the fewest folders is taken: a release may contain subsets of itself.
        """
        expression = re.compile(pattern, re.IGNORECASE)
        by_folder: dict[str, list[Member]] = {}
        for member in self.members:
            stem = member.plain_name
            if expression.fullmatch(stem) or expression.fullmatch(_PIECE_SUFFIX.sub("", stem)):
                # The pieces of one file may be spread over several archives of one folder.
                folder = str(PurePosixPath(member.name).parent)
                by_folder.setdefault(re.sub(r"(?i)[^/]*\.nlm/", "*/", folder + "/"), []).append(member)
        if not by_folder:
            return None
        folder = min(by_folder, key=lambda name: (name.count("/"), name))
        members = sorted(by_folder[folder], key=lambda member: member.plain_name)
        whole = [member for member in members if expression.fullmatch(member.plain_name)]
        if whole:
            return InputFile(whole[0].plain_name, (whole[0],))
        file = InputFile(_PIECE_SUFFIX.sub("", members[0].plain_name), tuple(members))
        _refuse_missing_piece(file)
        return file

    def find_all(self, pattern: str) -> list[InputFile]:
        """Return every file that `find` could return, sorted by name; of equal names the one least deep."""
        expression = re.compile(pattern, re.IGNORECASE)
        by_name: dict[str, Member] = {}
        for member in sorted(self.members, key=lambda member: (member.name.count("/"), member.name)):
            if expression.fullmatch(member.plain_name):
                by_name.setdefault(member.plain_name, member)
        return [InputFile(name, (member,)) for name, member in sorted(by_name.items())]


@dataclass(slots=True)
class InputReader:
    """Reads input files, records their checksums, and stops at bad rows or counts them."""

    on_error: OnError = "stop"
    progress: Progress = no_progress
    checksums: dict[str, dict[str, object]] = field(default_factory=dict)
    """Name of each file that was read to its end → size and xxh3 of its uncompressed content."""
    skipped_rows: int = 0
    """Number of bad rows that were skipped."""
    skipped_examples: list[str] = field(default_factory=list)
    """The error messages of the first skipped rows."""

    def reject_row(self, error: FormatError) -> None:
        """Raise the error of a bad row, or count it if `on_error` is `skip`."""
        if self.on_error != "skip":
            raise error
        self.skipped_rows += 1
        if len(self.skipped_examples) < _MAX_EXAMPLES:
            self.skipped_examples.append(str(error))

    @contextmanager
    def stream(self, file: InputFile) -> Iterator[BinaryIO]:
        """Open the uncompressed content of `file`; a damaged file raises a FormatError while it is read."""
        content = _Content(file, self.progress)
        try:
            yield _LineReader(content, 1 << 20)
        except (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile, OSError) as error:
            # A damaged archive makes Python seek to an invalid position; other errors of the system are real.
            if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
                raise
            where, problem = content.current or file.name, f"damaged or truncated: {error}"
            raise FormatError(where, None, problem, hint="download it again") from error
        finally:
            content.close()
        if content.finished:
            self.checksums[file.name] = {"bytes": content.bytes, "xxh3": content.digest.hexdigest()}

    def blocks(self, file: InputFile) -> Iterator[bytes]:
        """Yield `file` in blocks of whole lines, each terminated by a newline."""
        empty = True
        with self.stream(file) as stream:
            pending = [stream.read(3).removeprefix(b"\xef\xbb\xbf")]
            size = 0
            while chunk := stream.read(_CHUNK_BYTES):
                size += len(chunk)
                if size >= BLOCK_BYTES and (end := chunk.rfind(b"\n") + 1):
                    yield b"".join((*pending, chunk[:end]))
                    pending, size, empty = [chunk[end:]], 0, False
                elif size > BLOCK_BYTES + MAX_LINE_BYTES:
                    raise _too_long(file.name)
                else:
                    pending.append(chunk)
            rest = b"".join(pending)
            if rest.strip():
                yield rest if rest.endswith(b"\n") else rest + b"\n"
                empty = False
        if empty:
            raise FormatError(file.name, None, "the file is empty", hint="download it again")

    @overload
    def frames(self, file: InputFile, layout: Layout, columns: list[str]) -> Iterator[pl.DataFrame]: ...

    @overload
    def frames(
        self, file: InputFile, layout: Layout, columns: list[str], function: Callable[[pl.DataFrame], Result]
    ) -> Iterator[Result]: ...

    def frames(
        self,
        file: InputFile,
        layout: Layout,
        columns: list[str],
        function: Callable[[pl.DataFrame], Any] = lambda frame: frame,
    ) -> Iterator[Any]:
        """Yield the given `columns` of a delimited file as frames of strings, in file order.

        Empty fields are empty strings. `function` is applied to each frame in worker threads.
        """

        def parse(block: tuple[int, bytes]) -> tuple[Any, list[BadLine], int]:
            parsed = parse_block(block[1], file.name, layout, columns, first=block[0] == 0)
            return function(parsed.frame), parsed.bad, parsed.lines

        line = 1
        for result, bad_lines, lines in ordered_map(parse, enumerate(self.blocks(file))):
            for bad in bad_lines:
                self.reject_row(FormatError(file.name, line + bad.offset, bad.problem, hint=bad.hint or None))
            line += lines
            yield result


class RecordStream:
    """Limits the bytes that an XML parser reads for one record; call `start_record` before each."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream = stream
        self._name = name
        self._size = 0

    def start_record(self) -> None:
        """Start to count again."""
        self._size = 0

    def read(self, size: int = -1) -> bytes:
        """Read some bytes."""
        piece = self._stream.read(size)
        self._size += len(piece)
        if self._size > MAX_RECORD_BYTES:
            problem = f"a record is longer than {MAX_RECORD_BYTES >> 20} MB"
            raise FormatError(self._name, None, problem, hint="is the file damaged?")
        return piece


class _LineReader(io.BufferedReader):
    """Yields lines of limited length."""

    raw: _Content

    def __next__(self) -> bytes:
        line = self.readline(MAX_LINE_BYTES + 1)
        if len(line) > MAX_LINE_BYTES:
            raise _too_long(self.raw.current)
        if not line:
            raise StopIteration
        return line


def _too_long(name: str) -> FormatError:
    problem = f"a line is longer than {MAX_LINE_BYTES >> 20} MB"
    return FormatError(name, None, problem, hint="is the file damaged or in another format?")


class _Content(io.RawIOBase):
    """The members of an input file as one stream: decompressed, hashed and counted."""

    def __init__(self, file: InputFile, progress: Progress) -> None:
        super().__init__()
        self.digest = xxh3_128()
        self.bytes = 0
        self.finished = False
        """Whether everything was read, including the checksum at the end of a gzip file."""
        self.current = ""
        self._name = file.name
        self._progress = progress
        self._total = sum(member.size for member in file.members)
        self._done = 0
        """Stored bytes of the members that were read completely."""
        self._remaining = deque(file.members)
        self._opened: tuple[io.BufferedIOBase, io.BufferedIOBase] | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        while (opened := self._opened or self._open_next()) is not None:
            stream, stored = opened
            if size := stream.readinto(view):
                self.digest.update(view[:size])
                self.bytes += size
                self._progress(self._name, self._done + _position(stored), self._total)
                return size
            self._done += _position(stored)
            self._close_member()
        self.finished = True
        return 0

    def close(self) -> None:
        self._close_member()
        super().close()

    def _open_next(self) -> tuple[io.BufferedIOBase, io.BufferedIOBase] | None:
        """Open the next member; returns its decompressed and its stored stream."""
        if not self._remaining:
            return None
        member = self._remaining.popleft()
        self.current = member.name
        stored = member.open()
        self._opened = (gzip.GzipFile(fileobj=stored) if member.name.endswith(".gz") else stored, stored)
        return self._opened

    def _close_member(self) -> None:
        for stream in self._opened or ():
            stream.close()
        self._opened = None


def _refuse_missing_piece(file: InputFile) -> None:
    """Refuse a gap between the first and the last piece; a missing last piece cannot be detected."""
    present = {member.plain_name[-2:] for member in file.members}
    for piece in (a + b for a, b in product(ascii_lowercase, repeat=2)):
        if piece > max(present):
            return
        if piece not in present:
            hint = "all archives of a release must be in one folder"
            raise FormatError(f"{file.name}.{piece}", None, "this piece is missing", hint=hint)


def _position(stream: io.BufferedIOBase) -> int:
    """Return the number of bytes read so far; 0 for a pipe, which has no position."""
    return stream.tell() if stream.seekable() else 0


def _members(path: Path) -> Iterator[Member]:
    if path.is_dir():
        for file in sorted(p for p in path.rglob("*") if p.is_file()):
            yield from _file_members(file, file.relative_to(path.parent).as_posix())
    else:
        yield from _file_members(path, path.name)


def _file_members(file: Path, name: str) -> Iterator[Member]:
    if file.suffix.lower() in _ARCHIVE_SUFFIXES:
        with open(file, "rb") as stream:
            yield from _archive_members(stream, name, lambda: file)
    else:
        yield Member(name, file.stat().st_size, lambda: open(file, "rb"))


def _archive_members(
    stream: io.BufferedIOBase, name: str, reopen: Callable[[], io.BufferedIOBase | Path], depth: int = 1
) -> Iterator[Member]:
    if depth > _MAX_NESTED:
        problem = f"more than {_MAX_NESTED} archives inside each other"
        raise FormatError(name, None, problem, hint="unpack it first")
    try:
        archive = zipfile.ZipFile(stream)
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise FormatError(name, None, f"not a zip archive: {error}", hint="download it again") from error
    for info in archive.infolist():
        if info.is_dir():
            continue

        inner = f"{name}/{info.filename}"

        def open_member(info: zipfile.ZipInfo = info, inner: str = inner) -> io.BufferedIOBase:
            # A zip opened by its path stays open until its last member is closed.
            with zipfile.ZipFile(reopen()) as reopened:
                return _open_packed(reopened, info, inner)

        if PurePosixPath(info.filename).suffix.lower() in _ARCHIVE_SUFFIXES:
            with _open_packed(archive, info, inner) as nested:
                yield from _archive_members(nested, inner, open_member, depth + 1)
        else:
            yield Member(inner, info.file_size, open_member)


def _open_packed(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> io.BufferedIOBase:
    try:
        return cast("io.BufferedIOBase", archive.open(info))
    except RuntimeError as error:  # encrypted, or compressed by a method that Python does not support
        raise FormatError(name, None, f"cannot be unpacked: {error}", hint="unpack it first") from error
