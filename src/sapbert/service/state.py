"""What a worker works with; replaced as a whole when the configuration is read again.

A request takes hold of the state when it begins and keeps it to its end. So reloading drops nothing: old
requests finish with the old indexes, which are closed when the last of them is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from sapbert.errors import SapbertError
from sapbert.service.batching import Batcher
from sapbert.service.linkers import Served, open_linkers, verify_indexes
from sapbert.service.middleware.limits import Allowance, allowances, refused
from sapbert.service.middleware.logs import log
from sapbert.service.middleware.metrics import Metrics
from sapbert.service.settings import ServiceSettings


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class State:
    """One reading of the configuration."""

    settings: ServiceSettings
    linkers: dict[str, Served]
    allowances: dict[str, Allowance]

    def linker(self, name: str | None) -> Served:
        """Return the linker of this name, or the first."""
        if name is None:
            return next(iter(self.linkers.values()))
        if name not in self.linkers:
            raise refused(404, f"there is no such linker; there is {', '.join(self.linkers)}")
        return self.linkers[name]


def load_state(settings: ServiceSettings, *, threads: int | None, verify: bool) -> State:
    """Open all that a configuration names; `verify` compares the checksums of indexes."""
    if verify:
        verify_indexes(settings.linkers)
    return State(
        settings=settings,
        linkers=open_linkers(settings.linkers, threads=threads),
        allowances=allowances(settings.keys, time.monotonic),
    )


class Service:
    """A worker's state, and what outlives a reload of it."""

    def __init__(self, state: State, metrics: Metrics, *, log_mentions: bool = False) -> None:
        self.state = state
        self.metrics = metrics
        self.log_mentions = log_mentions
        self.in_flight = 0
        """Requests being worked on."""
        self.held_bytes = 0
        """Of bodies that were read and are not answered."""
        self.batcher = Batcher(on_batch=metrics.batch)

    def reload(self, load: Callable[[], State]) -> None:
        """Replace the state by what `load` returns; where it fails, the old one goes on."""
        try:
            self.state = load()
        except (SapbertError, OSError) as error:
            log("reload failed; the old configuration goes on", error=error, fields={"message": str(error)})
        else:
            fingerprints = {name: served.linker.fingerprint for name, served in self.state.linkers.items()}
            log("reloaded", fields={"linkers": fingerprints})
