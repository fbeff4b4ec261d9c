"""How much is taken on at once, in all and for each key; what is too much is refused before it is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from starlette.exceptions import HTTPException

from sapbert.service.settings import KeySettings

_SAVED_SECONDS = 10
"""A key that was silent may ask for so many seconds' worth at once."""


def refused(status: int, message: str, *, retry_after: int | None = None) -> HTTPException:
    """Return what to raise where a request gets an error for an answer; try again after so many seconds."""
    return HTTPException(status, message, None if retry_after is None else {"Retry-After": f"{retry_after}"})


class Allowance:
    """What one key may still ask for.

    A request is let in while anything is left and then charged with what it turns out to cost, which may be
    more than was left: a long list is possible with a small rate, it only has to be paid off before the next.
    """

    def __init__(self, settings: KeySettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._requests = 0
        self._left = self._most
        self._at = clock()

    @property
    def _most(self) -> float:
        return max((self._settings.mentions_per_second or 0) * _SAVED_SECONDS, 1.0)

    @contextmanager
    def request(self) -> Iterator[None]:
        """Let a request in, or refuse it; until it ends it counts as one of several at once."""
        if self._requests >= self._settings.requests:
            raise refused(429, f"this key may have {self._settings.requests} requests at once", retry_after=1)
        self._refill()
        rate = self._settings.mentions_per_second
        if rate is not None and self._left <= 0:
            wait = math.ceil(-self._left / rate) + 1
            raise refused(429, f"this key may link {rate:g} mentions a second", retry_after=wait)
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1

    def charge(self, mentions: int) -> None:
        """Take off what a request costs."""
        self._left -= mentions

    def _refill(self) -> None:
        now = self._clock()
        self._left = min(
            self._left + (now - self._at) * (self._settings.mentions_per_second or 0), self._most
        )
        self._at = now


def allowances(keys: Mapping[str, KeySettings], clock: Callable[[], float]) -> dict[str, Allowance]:
    """Return an allowance for each key."""
    return {name: Allowance(settings, clock) for name, settings in keys.items()}
