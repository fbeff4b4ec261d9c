"""The order in which the jobs of several clients are run: fair between clients, small jobs first.

Each job gets a finish time on a virtual clock that counts items (self-clocked fair queueing): the time until
which its client was served, plus the sizes of its own smaller jobs and of the job. The earliest finish time
is next. So a single mention passes the chunks of long lists, a client with many jobs delays mostly itself,
and a job is passed by no more items of another client than it has.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, Protocol, TypeVar


class Sized(Protocol):
    """A job."""

    @property
    def client(self) -> Hashable:
        """Whose job it is."""

    @property
    def size(self) -> int:
        """Number of items."""


_Job = TypeVar("_Job", bound=Sized)


@dataclass(slots=True, eq=False)
class _Client(Generic[_Job]):
    served_until: float
    """Virtual time until which its jobs have been served."""
    clock: float = 0.0
    """Virtual time among its own jobs."""
    jobs: list[tuple[float, int, _Job]] = field(default_factory=list)
    """Finish time on the client's clock, serial number, job; sorted."""
    queued: int = 0
    """Items of its jobs."""

    def remove(self, is_removed: Callable[[_Job], bool]) -> list[tuple[float, int, _Job]]:
        """Remove jobs and return them."""
        removed = [entry for entry in self.jobs if is_removed(entry[2])]
        if removed:
            self.jobs = [entry for entry in self.jobs if not is_removed(entry[2])]
            self.queued -= sum(job.size for _, _, job in removed)
        return removed

    def finish_times(self) -> Iterator[tuple[float, int, _Job]]:
        """Yield the finish times of its jobs on the common clock."""
        time = self.served_until
        for _, number, job in self.jobs:
            time += job.size
            yield time, number, job


class FairQueue(Generic[_Job]):
    """Queued jobs."""

    def __init__(self) -> None:
        self._clock = 0.0
        self._clients: dict[Hashable, _Client[_Job]] = {}
        self._numbers = count()

    def __iter__(self) -> Iterator[_Job]:
        """Return the queued jobs, in no particular order."""
        return (job for client in self._clients.values() for _, _, job in client.jobs)

    def add(self, job: _Job) -> None:
        """Append a job."""
        client = self._clients.setdefault(job.client, _Client(self._clock))
        insort(client.jobs, (client.clock + job.size, next(self._numbers), job))
        client.queued += job.size

    def discard(self, is_cancelled: Callable[[_Job], bool]) -> None:
        """Remove cancelled jobs."""
        for client in self._clients.values():
            client.remove(is_cancelled)
        self._forget_idle_clients()

    def take(self, *, room: int, fits: Callable[[_Job, _Job], bool]) -> list[_Job]:
        """Remove the next job, and with it others that `fits` it in the same batch, up to `room` items."""
        ordered = sorted(entry for client in self._clients.values() for entry in client.finish_times())
        batch: list[_Job] = []
        for time, _, job in ordered:
            if not batch:
                self._clock = max(self._clock, time)
            elif job.size > room or not fits(batch[0], job):
                continue
            batch.append(job)
            room -= job.size
        self._remove(batch)
        return batch

    def ahead(self, client: Hashable, size: int) -> float:
        """Return about how many queued items would be served before a new job."""
        known = self._clients.get(client, _Client(self._clock))
        own = sum(job.size for finish, _, job in known.jobs if finish <= known.clock + size)
        finish = known.served_until + own + size
        return own + sum(
            min(other.queued, max(0.0, finish - other.served_until))
            for name, other in self._clients.items()
            if name != client
        )

    def _remove(self, batch: list[_Job]) -> None:
        taken = set(map(id, batch))
        for client in self._clients.values():
            removed = client.remove(lambda job: id(job) in taken)
            if removed:
                client.served_until += sum(job.size for _, _, job in removed)
                client.clock = max(client.clock, removed[-1][0])
        self._forget_idle_clients()

    def _forget_idle_clients(self) -> None:
        self._clients = {
            name: client
            for name, client in self._clients.items()
            if client.jobs or client.served_until > self._clock
        }
