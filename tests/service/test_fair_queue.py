from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from sapbert.service.fair_queue import FairQueue

ROOM = 64


@dataclass(frozen=True, eq=False)
class Job:
    client: str
    size: int
    name: str = ""


def take(queue: FairQueue[Job]) -> Job:
    """Take one job."""
    [job] = queue.take(room=ROOM, fits=lambda _first, _other: False)
    return job


def queue_of(*jobs: Job) -> FairQueue[Job]:
    queue: FairQueue[Job] = FairQueue()
    for job in jobs:
        queue.add(job)
    return queue


def test_small_jobs_are_first_and_equal_jobs_in_order_of_arrival() -> None:
    queue = queue_of(Job("a", 64, "list"), Job("a", 1, "first"), Job("b", 1, "second"), Job("c", 5, "third"))
    assert [take(queue).name for _ in range(4)] == ["first", "second", "third", "list"]


def test_a_client_with_many_jobs_delays_mostly_itself() -> None:
    queue = queue_of(*[Job("greedy", 10) for _ in range(10)], Job("modest", 10))
    assert "modest" in [take(queue).client for _ in range(2)]


def test_a_list_is_passed_by_no_more_items_of_a_client_than_it_has() -> None:
    queue = queue_of(Job("list", 64))
    order = []
    for _ in range(80):
        queue.add(Job("single", 1))
        order.append(take(queue).client)
    assert order.index("list") == 63


def test_jobs_that_fit_share_a_batch() -> None:
    queue = queue_of(Job("a", 1, "x"), Job("b", 60, "x"), Job("c", 2, "y"), Job("d", 4, "x"))
    batch = queue.take(room=ROOM, fits=lambda first, other: first.name == other.name)
    assert [(job.client, job.size) for job in batch] == [("a", 1), ("d", 4)]
    assert take(queue).client == "c"


def test_cancelled_jobs_are_removed() -> None:
    queue = queue_of(Job("a", 1), Job("b", 2))
    queue.discard(lambda job: job.client == "a")
    assert [job.client for job in queue] == ["b"]
    assert queue.ahead("new", 64) == 2


def test_a_new_job_is_behind_what_would_be_served_before_it() -> None:
    queue = queue_of(*[Job(f"{number}", 64) for number in range(40)])
    assert queue.ahead("new", 1) == 40  # at most one item of each list
    assert queue.ahead("new", 64) == 40 * 64
    assert FairQueue[Job]().ahead("new", 64) == 0


jobs = st.builds(Job, st.sampled_from("abcd"), st.integers(1, 64))


@given(st.lists(st.lists(jobs, max_size=4), max_size=30))
def test_every_job_is_taken_once_and_no_client_gets_much_more_than_another(rounds: list[list[Job]]) -> None:
    """While two clients have jobs all the time, the items served to them differ by at most one job each."""
    queue: FairQueue[Job] = FairQueue()
    added: list[Job] = []
    taken: list[Job] = []
    for steady in ("x", "y"):
        for _ in range(3):
            queue.add(Job(steady, 64))
    served: dict[str, int] = defaultdict(int)
    for new in rounds:
        for job in new:
            queue.add(job)
            added.append(job)
        job = take(queue)
        served[job.client] += job.size
        if job.client in "xy":
            queue.add(Job(job.client, 64))
        else:
            taken.append(job)
        assert abs(served["x"] - served["y"]) <= 2 * 64
    while queue_length(queue):
        job = take(queue)
        if job.client not in "xy":
            taken.append(job)
    assert sorted(map(id, taken)) == sorted(map(id, added))


def queue_length(queue: FairQueue[Job]) -> int:
    return sum(1 for _ in queue)
