"""The progress callback that all long jobs share."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with a label (a file name or a unit such as `names`), the amount done and the total amount."""


def no_progress(_label: str, _done: int, _total: int) -> None:
    """Report nothing."""
