"""Every error this package raises on purpose, in one tree.

Catch `SapbertError` to catch them all. Each message is one line that says where, what was found
and what to do next; the command line prints it and exits 1. A caller's own mistake (a wrong type, arrays
that do not fit) stays a plain `ValueError` or `TypeError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path


class SapbertError(Exception):
    """Something outside this package is not as it must be."""


class FormatError(SapbertError):
    """A file is not what it should be; knows the file and, where there is one, the line."""

    def __init__(self, where: Path | str, line: int | None, found: str, *, hint: str | None = None) -> None:
        place = f"{where}:{line}" if line is not None else f"{where}"
        super().__init__(f"{place}: {found} ({hint})" if hint else f"{place}: {found}")


class ConfigError(SapbertError):
    """A setting has a value that cannot work."""


class ArtifactError(SapbertError):
    """A directory is no artifact, is of another kind, is damaged, or may not be replaced."""


class TrainingError(SapbertError):
    """A training run cannot go on."""


class MissingExtraError(SapbertError):
    """An optional dependency is not installed."""

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(f"this needs {module}, which is not installed: pip install 'sapbert[{extra}]'")


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """Name the extra where the imports in this block fail."""
    try:
        yield
    except ImportError as error:
        module = (error.name or f"what {extra} brings").partition(".")[0]
        raise MissingExtraError(module, extra) from error


def suggestion(name: str, known: Iterable[str], *, most: int = 1) -> str:
    """Return `; did you mean 'x'?` for the known names most similar to `name`; empty if none is similar.

    Starts with a separator, so that it can be appended to any message. Case is ignored.
    """
    by_lowercase = {candidate.lower(): candidate for candidate in known}
    near = get_close_matches(name.lower(), by_lowercase, n=most)
    if not near:
        return ""
    *others, last = (repr(by_lowercase[candidate]) for candidate in near)
    choice = f"{', '.join(others)} or {last}" if others else last
    return f"; did you mean {choice}?"
