"""Locks, syncing and atomic exchange of files and folders."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_HERE = -100
"""`AT_FDCWD`: paths are relative to the working folder."""
_EXCHANGE = 2
"""`RENAME_EXCHANGE` on Linux and `RENAME_SWAP` on macOS."""


def try_lock(file: IO[str]) -> bool:
    """Lock `file` until it is closed; False if another process has locked it or locks are unavailable."""
    return _lock(file) is True


def _lock(file: IO[str]) -> bool | None:
    """Lock `file`; False if another process has locked it, None if locks are unavailable."""
    try:
        import fcntl
    except ImportError:  # Windows: leftovers of killed writers must be deleted by hand.
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network file systems
        return None
    return True


@contextmanager
def lock_file(path: Path) -> Iterator[bool]:
    """Hold the lock on the file `path`, which exists only while it is held.

    Yields False if another process holds it, and True if locks are unavailable, as on Windows.
    """
    while True:
        with open(path, "w") as file:
            locked = _lock(file)
            if locked and not _is_open_at(path, file):
                continue  # The process that held the lock has removed the file.
            try:
                yield locked is not False
            finally:
                if locked:
                    path.unlink(missing_ok=True)
            return


def _is_open_at(path: Path, file: IO[str]) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def exchange(one: Path, other: Path) -> bool:
    """Exchange two paths in one step; False if the operating system or the file system cannot."""
    import ctypes

    if os.name != "posix":
        return False
    library = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    if hasattr(library, "renameat2"):
        failed = library.renameat2(_HERE, names[0], _HERE, names[1], _EXCHANGE)
    elif hasattr(library, "renamex_np"):
        failed = library.renamex_np(*names, _EXCHANGE)
    else:
        return False
    return not failed


def sync(path: Path) -> None:
    """Write a file or the entries of a folder to disk."""
    flags = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) if path.is_dir() else os.O_RDWR
    try:
        handle = os.open(path, flags)
    except PermissionError:  # Windows cannot open a directory.
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
