"""Artifacts: folders with a `manifest.json` that describes and verifies their files.

Every stage writes one. The manifest says what it is (`kind`), how it was made (settings, inputs, versions),
whether it is complete (size and digest of each file) and whether two are the same (`fingerprint`, computed
from the content and not from bytes on disk, time or place).

Digests are 128-bit xxh3, which detects damage; SHA-256 would take thirteen times as long. Neither detects an
attack, because anyone who can change a file can change its manifest. A bare GPU machine may lack xxhash: it
writes SHA-256, and compares only the sizes of files with another digest.

A writer works in a hidden folder beside its target (`new/`, `.lock`, temporary files) and renames `new/` once
everything is on disk, so the target is always complete or absent. To replace an artifact, the two folders are
exchanged in one step; on file systems that cannot, the old one is `old/` for a moment. A killed writer leaves
only `.NAME.partial-*`. The next writer of the same target removes it and restores an artifact set aside in
it; a lock distinguishes the leftovers of a dead writer from a running one.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sapbert.errors import ArtifactError
from sapbert.file_system import exchange, sync, try_lock
from sapbert.version import __version__

MANIFEST = "manifest.json"
FORMAT = 2
"""Increased when older versions cannot read what this one writes."""
_ALGORITHMS: dict[str, Any] = {"sha256": hashlib.sha256}
"""Available algorithms; the last one is used for writing."""
with suppress(ImportError):
    from xxhash import xxh3_128

    _ALGORITHMS["xxh3"] = xxh3_128
_COMMANDS = {
    "vocabulary": "sapbert read",
    "pairs": "sapbert pairs",
    "model": "sapbert train",
    "adapter": "sapbert train",
    "encoder": "sapbert export",
    "reranker": "sapbert reranker",
    "index": "sapbert index",
    "benchmark": "sapbert benchmark",
    "evaluation": "sapbert evaluate",
}
"""Kind of artifact → the command that writes it."""
_NEW, _OLD, _REPLACED, _LOCK, _UNLOCKED = "new", "old", "replaced", ".lock", "unlocked"
_STARTED = 60
"""Seconds after which a running writer has locked its folder."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One file of an artifact."""

    bytes: int
    digest: str
    """Algorithm and digest, such as `xxh3:` and 32 hexadecimal digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The content of `manifest.json`."""

    kind: str
    """`vocabulary`, `pairs`, …"""
    fingerprint: str
    """Equal for equal content."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the command that made this artifact."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """Name of each input → its checksum, or its fingerprint if it is an artifact."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Numbers of items inside, and of items that were left out."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Anything else that readers of this kind need."""
    files: Mapping[str, FileRecord] = field(default_factory=dict)
    """Path inside the artifact → its record."""
    format: int = FORMAT
    sapbert: str = __version__
    created: str = ""


class Draft:
    """An artifact being written: write files below `path`, then call `seal`."""

    def __init__(self, path: Path, disk: Executor) -> None:
        self.path = path
        self.manifest: Manifest | None = None
        self._disk = disk
        self._syncing: list[Future[None]] = []

    def sync_in_background(self, file: Path) -> None:
        """Start to sync `file` to disk, so that there is less to wait for at the end."""
        self._syncing.append(self._disk.submit(sync, file))

    def wait_for_syncs(self) -> None:
        """Wait until all files are synced."""
        for done in self._syncing:
            done.result()

    def seal(
        self,
        kind: str,
        *,
        fingerprint: str | None = None,
        settings: Mapping[str, Any],
        inputs: Mapping[str, Any],
        counts: Mapping[str, int],
        details: Mapping[str, Any] | None = None,
    ) -> Manifest:
        """Describe the finished content; nothing may be written below `path` afterwards.

        Without a `fingerprint`, it is computed from the files, for kinds whose content has one form on disk.
        """
        names = sorted(p.relative_to(self.path).as_posix() for p in _files_below(self.path))
        with ThreadPoolExecutor() as pool:
            files = dict(zip(names, pool.map(_record, (self.path / name for name in names)), strict=True))
        self.manifest = Manifest(
            kind=kind,
            fingerprint=fingerprint or fingerprint_of({name: file.digest for name, file in files.items()}),
            settings=settings,
            inputs=inputs,
            counts=counts,
            details=details or {},
            files=files,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        return self.manifest


@contextmanager
def create(target: Path, *, overwrite: bool = False) -> Iterator[Draft]:
    """Write an artifact that appears at `target` when the block ends without an error.

    An existing artifact is not changed before that; without `overwrite` it is an error.
    """
    target = Path(os.path.abspath(target))
    with _os_errors_named(target), work_folder(target) as work, ThreadPoolExecutor(1) as disk:
        refuse_occupied(target, overwrite=overwrite)
        draft = Draft(work / _NEW, disk)
        draft.path.mkdir()
        yield draft
        if draft.manifest is None:
            raise RuntimeError("a draft must be sealed before its block ends")
        draft.wait_for_syncs()
        _write_manifest(draft.path, draft.manifest)
        refuse_occupied(target, overwrite=overwrite, kind=draft.manifest.kind)
        _move_in(work, target, overwrite=overwrite)
        sync(target.parent)


@contextmanager
def _os_errors_named(target: Path) -> Iterator[None]:
    """Name the target in an error of the operating system that names no file, such as a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(target)
        raise


def _move_in(work: Path, target: Path, *, overwrite: bool) -> None:
    """Move the new artifact to `target`, and an older one from there into `work`."""
    new, old = work / _NEW, work / _OLD
    if overwrite and os.path.lexists(target):
        if exchange(new, target):
            return
        # `_clear` restores the old artifact if the next rename fails.
        os.rename(target, old)
    elif target.is_dir():
        target.rmdir()  # fails, as it should, if another writer was faster
    os.rename(new, target)
    if os.path.lexists(old):
        # From here on the old one must not be restored, even if another writer replaces ours.
        os.rename(old, work / _REPLACED)


@contextmanager
def work_folder(target: Path) -> Iterator[Path]:
    """Create a temporary folder beside `target` and remove it at the end.

    The leftovers of a killed process are removed by the next one that writes `target`.
    """
    target = Path(os.path.abspath(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(target)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}.partial-", dir=target.parent))
    try:
        with open(work / _UNLOCKED, "w") as lock:
            # Other writers consider an unlocked `.lock` abandoned, so it gets this name once it is locked.
            if try_lock(lock):
                os.rename(work / _UNLOCKED, work / _LOCK)
            yield work
    finally:
        _clear(work, target)


@contextmanager
def create_file(target: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a path to write to; it becomes the file `target` when the block ends without an error.

    For files that other programs read and that cannot be artifacts: text, tables, figures.
    """
    require_free(target, overwrite=overwrite)
    with work_folder(target) as work:
        partial = work / target.name
        yield partial
        sync(partial)
        partial.replace(target)


def require_free(target: Path, *, overwrite: bool) -> None:
    """Refuse to write a file over a folder or, without `overwrite`, over a file."""
    if target.is_dir():
        raise ArtifactError(f"{target} is a folder; give the name of a file")
    if target.exists() and not overwrite:
        raise ArtifactError(f"{target} exists; choose another name or give --overwrite")


def load_manifest(
    path: Path, *, kind: str | None = None, verify: bool = True, largest: int | None = None
) -> Manifest:
    """Read and check the manifest of the artifact at `path`.

    `verify` compares the checksum of every file, or of files up to `largest` bytes; of other files only
    existence and size are checked.
    """
    manifest = _parse_manifest(path, kind)
    if kind is not None and manifest.kind != kind:
        hint = f"; make one with `{_COMMANDS[kind]}`" if kind in _COMMANDS else ""
        raise ArtifactError(
            f"{path} is {kind_with_article(manifest.kind)}, not {kind_with_article(kind)}{hint}"
        )

    def check(name: str) -> None:
        record = manifest.files[name]
        small = largest is None or record.bytes <= largest
        _check_file(path, name, record, verify=verify and small)

    with ThreadPoolExecutor() as pool:
        # Hashing releases the interpreter lock, so files are checked in parallel.
        list(pool.map(check, manifest.files))
    return manifest


def kind_with_article(kind: str) -> str:
    """Return a kind as part of a sentence: a vocabulary, an index, a folder of pairs."""
    if kind.endswith("s"):
        return f"a folder of {kind}"
    return f"an {kind}" if kind.startswith(tuple("aeiou")) else f"a {kind}"


def fingerprint_of(parts: Mapping[str, str]) -> str:
    """Combine named digests into one fingerprint; the order of `parts` does not matter."""
    text = "\n".join(f"{name} {digest}" for name, digest in sorted(parts.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _parse_manifest(path: Path, kind: str | None = None) -> Manifest:
    file = path / MANIFEST
    if not file.is_file():
        raise ArtifactError(_no_manifest(path, kind))
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        version = int(content["format"])
        if version < FORMAT:
            raise ArtifactError(f"{path} was written by an older sapbert; make it again")
        if version > FORMAT:
            raise ArtifactError(
                f"{path} was written by sapbert {content.get('sapbert')} in format {version}; "
                f"this is sapbert {__version__}, which reads up to {FORMAT}: upgrade it"
            )
        if content.pop("checksum") != _checksum(content):
            raise ValueError("it does not match its own checksum")
        content["files"] = {name: FileRecord(**record) for name, record in content["files"].items()}
        return Manifest(**content)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        problem = f"no {error}" if isinstance(error, KeyError) else error
        raise ArtifactError(f"{file} is damaged: {problem}; make the artifact again") from error


def _no_manifest(path: Path, kind: str | None) -> str:
    """Say why `path` is not an artifact, and which command writes the expected kind."""
    command = f"`{_COMMANDS[kind]}`" if kind in _COMMANDS else "sapbert"
    if not path.exists():
        return f"{path}: no such file or directory; expected a folder written by {command}"
    problem = f"{path} is not a folder written by {command} (no {MANIFEST})"
    is_table = kind == "vocabulary" and path.is_file()
    return f"{problem}; read a table with `sapbert read table`" if is_table else problem


def _check_file(path: Path, name: str, record: FileRecord, *, verify: bool) -> None:
    file = path / name
    if not file.is_file():
        raise ArtifactError(f"{path} is damaged: {name} is missing; make it again")
    size = file.stat().st_size
    if size != record.bytes:
        raise ArtifactError(
            f"{path} is damaged: {name} has {size} bytes instead of {record.bytes}; make it again"
        )
    algorithm = record.digest.partition(":")[0]
    if verify and algorithm in _ALGORITHMS and _digest(file, algorithm) != record.digest:
        raise ArtifactError(f"{path} is damaged: {name} does not match its checksum; make it again")


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    content = asdict(manifest)
    content["checksum"] = _checksum(content)
    # Undecodable bytes of file names are not valid UTF-8; they are written as escapes.
    with open(folder / MANIFEST, "w", encoding="utf-8", errors="backslashreplace") as file:
        json.dump(content, file, indent=2, ensure_ascii=False)
        file.write("\n")
    for path in [*_files_below(folder), *(p for p in folder.rglob("*") if p.is_dir()), folder]:
        sync(path)


def refuse_occupied(target: Path, *, overwrite: bool, kind: str | None = None) -> None:
    """Refuse a target that `create` would refuse; call it before long work.

    An artifact of another `kind` is never replaced, nor is a symbolic link.
    """
    if not os.path.lexists(target) or (target.is_dir() and not any(target.iterdir())):
        return
    found = _kind_at(target)
    if found is None:
        raise ArtifactError(f"{target} exists and is not an artifact; choose another name or remove it")
    if not overwrite:
        raise ArtifactError(f"{target} exists; choose another name or give --overwrite")
    if target.is_symlink():
        raise ArtifactError(f"{target} is a symbolic link; give the folder it points to, or remove it")
    if kind is not None and found != kind:
        raise ArtifactError(f"{target} is {kind_with_article(found)}; choose another name or remove it")


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _kind_at(path: Path) -> str | None:
    """Return the kind of an artifact; None for others: browser extensions have a `manifest.json` too."""
    try:
        content = json.loads((path / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return None
    is_artifact = isinstance(content, dict) and {"kind", "fingerprint", "files"} <= content.keys()
    return str(content["kind"]) if is_artifact else None


def _clear(work: Path, target: Path) -> None:
    """Remove a temporary folder; restore the artifact set aside in it unless it was replaced."""
    if os.path.lexists(work / _OLD) and not os.path.lexists(target):
        with suppress(OSError):  # another writer was faster
            os.rename(work / _OLD, target)
    # The lock is removed last, so that an interrupted cleanup is finished by the next writer.
    for folder in (*(path for path in work.glob("*") if path.is_dir()), work):
        shutil.rmtree(folder, ignore_errors=True)


def _remove_leftovers(target: Path) -> None:
    for work in target.parent.glob(f".{glob.escape(target.name)}.partial-*"):
        # A writer killed at its first step has left an empty folder, or one with a lock of the first name.
        old = time.time() - work.stat().st_mtime > _STARTED if work.exists() else False
        if old:
            with suppress(OSError):
                work.rmdir()
        for name in (_LOCK, _UNLOCKED) if old else (_LOCK,):
            with suppress(OSError), open(work / name, "r+") as lock:
                if try_lock(lock):
                    _clear(work, target)


def _files_below(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def _record(file: Path) -> FileRecord:
    return FileRecord(file.stat().st_size, _digest(file, list(_ALGORITHMS)[-1]))


def _digest(file: Path, algorithm: str) -> str:
    with open(file, "rb") as stream:
        return f"{algorithm}:{hashlib.file_digest(stream, _ALGORITHMS[algorithm]).hexdigest()}"
