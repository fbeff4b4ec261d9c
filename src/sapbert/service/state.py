"""The state of a worker: configuration and open linkers, replaced as a whole by a reload.

A request keeps the state with which it started. So a reload interrupts nothing: open requests finish with
the old indexes, which are closed after the last of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

from sapbert.errors import SapbertError
from sapbert.service.batching import Batcher
from sapbert.service.linkers import ServedLinker, open_linkers, verify_indexes
from sapbert.service.middleware.limits import KeyQuota, http_error, key_quotas
from sapbert.service.middleware.logs import log
from sapbert.service.middleware.metrics import Metrics
from sapbert.service.settings import ServiceSettings

_SMALL_BODY: Final = 1 << 16
"""Bytes that are parsed faster than a thread is started."""
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class State:
    """The configuration as it was read, with its open linkers and the quotas of its keys."""

    settings: ServiceSettings
    linkers: dict[str, ServedLinker]
    quotas: dict[str, KeyQuota]

    def linker(self, name: str | None) -> ServedLinker:
        """Return the linker with this name; for None, the first."""
        if name is None:
            return next(iter(self.linkers.values()))
        if name not in self.linkers:
            raise http_error(404, f"no such linker; the linkers are {', '.join(self.linkers)}")
        return self.linkers[name]


def load_state(settings: ServiceSettings, *, threads: int | None, verify: bool) -> State:
    """Open all linkers of a configuration; `verify` checks the checksums of their indexes."""
    if verify:
        verify_indexes(settings.linkers)
    return State(
        settings=settings,
        linkers=open_linkers(settings.linkers, threads=threads),
        quotas=key_quotas(settings.keys, time.monotonic),
    )


class Service:
    """The state of a worker, and what is kept across reloads."""

    def __init__(self, state: State, metrics: Metrics, *, log_mentions: bool = False) -> None:
        self.state = state
        self.metrics = metrics
        self.log_mentions = log_mentions
        self.in_flight = 0
        """Requests in progress."""
        self.buffered_bytes = 0
        """Size of the bodies of requests in progress."""
        self.batcher = Batcher(on_batch=metrics.count_batch)
        self._parser = ThreadPoolExecutor(1, thread_name_prefix="parsing")

    async def run_parser(self, parse: Callable[[], _Result], *, size: int) -> _Result:
        """Parse a body of `size` bytes; if it is large, on a thread that parses one body at a time."""
        if size <= _SMALL_BODY:
            return parse()
        return await asyncio.get_running_loop().run_in_executor(self._parser, parse)

    def close(self) -> None:
        """Let the threads end as soon as they are idle."""
        self.batcher.close()
        self._parser.shutdown(wait=False)

    def reload(self, load: Callable[[], State]) -> None:
        """Replace the state by the result of `load`; if it fails, keep the old state."""
        try:
            self.state = load()
        except (SapbertError, OSError) as error:
            log("reload failed; keeping the old configuration", error=error, fields={"message": str(error)})
        else:
            fingerprints = {name: served.linker.fingerprint for name, served in self.state.linkers.items()}
            log("reloaded", fields={"linkers": fingerprints})
