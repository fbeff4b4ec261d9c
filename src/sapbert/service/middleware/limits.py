"""Limits per API key, and the errors with which requests are refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from starlette.exceptions import HTTPException

from sapbert.service.settings import KeySettings

_BURST_SECONDS = 10
"""An unused key accumulates this many seconds' worth of mentions."""


def http_error(status: int, message: str, *, retry_after: int | None = None) -> HTTPException:
    """Return an exception that is answered with this status; `retry_after` is in seconds."""
    return HTTPException(status, message, None if retry_after is None else {"Retry-After": f"{retry_after}"})


class KeyQuota:
    """Concurrent requests and mentions per second of one key: a token bucket that may go negative.

    A request is admitted while tokens are left and then charged its full cost. So a list longer than the rate
    is possible, but the next request has to wait until the debt is paid off.
    """

    def __init__(self, settings: KeySettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._requests = 0
        self._tokens = self._capacity
        self._refilled_at = clock()

    @property
    def _capacity(self) -> float:
        return max((self._settings.mentions_per_second or 0) * _BURST_SECONDS, 1.0)

    @contextmanager
    def request(self) -> Iterator[None]:
        """Admit or refuse a request; it counts as concurrent until the block ends."""
        if self._requests >= self._settings.requests:
            limit = self._settings.requests
            raise http_error(429, f"this key is limited to {limit} concurrent requests", retry_after=1)
        self._refill()
        rate = self._settings.mentions_per_second
        if rate is not None and self._tokens <= 0:
            wait = math.ceil(-self._tokens / rate) + 1
            raise http_error(429, f"this key is limited to {rate:g} mentions per second", retry_after=wait)
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1

    def charge(self, mentions: int) -> None:
        """Subtract the cost of a request."""
        self._tokens -= mentions

    def _refill(self) -> None:
        now = self._clock()
        gained = (now - self._refilled_at) * (self._settings.mentions_per_second or 0)
        self._tokens = min(self._tokens + gained, self._capacity)
        self._refilled_at = now


def key_quotas(keys: Mapping[str, KeySettings], clock: Callable[[], float]) -> dict[str, KeyQuota]:
    """Return one quota per key."""
    return {name: KeyQuota(settings, clock) for name, settings in keys.items()}
