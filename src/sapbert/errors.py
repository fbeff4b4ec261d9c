"""All errors that this package raises on purpose, in one hierarchy.

Catch `SapbertError` to catch them all. Each message is one line that says where and what was found, and in
most cases what to do next; the command line prints it and exits with status 1. A bug of the caller (a wrong
type, arrays that do not fit) is a plain `ValueError` or `TypeError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path


class SapbertError(Exception):
    """A problem outside this package: a file, a setting, an artifact, a missing extra."""


class FormatError(SapbertError):
    """A file is invalid; the message names the file and, if known, the line."""

    def __init__(self, where: Path | str, line: int | None, problem: str, *, hint: str | None = None) -> None:
        place = f"{where}:{line}" if line is not None else f"{where}"
        super().__init__(f"{place}: {problem} ({hint})" if hint else f"{place}: {problem}")


class ConfigError(SapbertError):
    """A setting has an invalid value."""


class ArtifactError(SapbertError):
    """A folder is not an artifact, is of another kind, is damaged, or must not be replaced."""


class TrainingError(SapbertError):
    """A training run cannot continue."""


class MissingExtraError(SapbertError):
    """An optional dependency is not installed."""

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(f"this needs {module}, which is not installed: pip install 'sapbert[{extra}]'")


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """Name the extra to install if an import in this block fails."""
    try:
        yield
    except ImportError as error:
        module = (error.name or f"the extra {extra}").partition(".")[0]
        raise MissingExtraError(module, extra) from error


def suggestion(name: str, known: Iterable[str], *, limit: int = 1) -> str:
    """Return `; did you mean 'x'?` for the known names most similar to `name`; empty if none is similar.

    Starts with a separator, so that it can be appended to any message. Case is ignored.
    """
    by_lowercase = {candidate.lower(): candidate for candidate in known}
    near = get_close_matches(name.lower(), by_lowercase, n=limit)
    if not near:
        return ""
    *others, last = (repr(by_lowercase[candidate]) for candidate in near)
    choice = f"{', '.join(others)} or {last}" if others else last
    return f"; did you mean {choice}?"
