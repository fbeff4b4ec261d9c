from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException

from sapbert.service.middleware.keys import make_key, owner_of
from sapbert.service.middleware.limits import KeyQuota
from sapbert.service.settings import KeySettings

DIGEST = "0" * 64


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def let_in(quota: KeyQuota, cost: int) -> bool:
    try:
        with quota.request():
            quota.charge(cost)
    except HTTPException:
        return False
    return True


def test_a_burst_is_allowed_and_then_the_rate_applies() -> None:
    clock = Clock()
    quota = KeyQuota(KeySettings(sha256=DIGEST, mentions_per_second=2), clock)

    assert [let_in(quota, 1) for _ in range(22)] == [True] * 20 + [False] * 2
    clock.now = 1.0
    assert [let_in(quota, 1) for _ in range(3)] == [True, True, False]


def test_an_unused_key_accumulates_no_more_than_a_burst() -> None:
    clock = Clock()
    quota = KeyQuota(KeySettings(sha256=DIGEST, mentions_per_second=2), clock)
    clock.now = 1_000_000.0
    assert [let_in(quota, 1) for _ in range(22)] == [True] * 20 + [False] * 2


def test_a_list_longer_than_the_rate_delays_the_next_request() -> None:
    clock = Clock()
    quota = KeyQuota(KeySettings(sha256=DIGEST, mentions_per_second=10), clock)

    assert let_in(quota, 1_100)
    with pytest.raises(HTTPException) as refusal, quota.request():
        pass
    assert refusal.value.headers == {"Retry-After": "101"}
    clock.now = 101.0
    assert let_in(quota, 1)


@given(
    st.floats(min_value=0.1, max_value=100),
    st.lists(st.tuples(st.floats(min_value=0, max_value=5), st.integers(1, 50)), max_size=60),
)
def test_on_average_the_rate_is_not_exceeded(rate: float, requests: list[tuple[float, int]]) -> None:
    clock = Clock()
    quota = KeyQuota(KeySettings(sha256=DIGEST, mentions_per_second=rate), clock)
    spent = last = 0
    for wait, cost in requests:
        clock.now += wait
        if let_in(quota, cost):
            spent, last = spent + cost, cost
    assert spent - last <= rate * clock.now + max(10 * rate, 1) + 1e-6


def test_a_failed_request_does_not_count_as_concurrent() -> None:
    quota = KeyQuota(KeySettings(sha256=DIGEST, requests=1), Clock())
    for _ in range(3):
        with pytest.raises(RuntimeError), quota.request():
            raise RuntimeError


def test_without_a_rate_mentions_are_not_limited() -> None:
    quota = KeyQuota(KeySettings(sha256=DIGEST), Clock())
    assert all(let_in(quota, 10**6) for _ in range(5))


def test_a_key_is_recognised_by_its_digest() -> None:
    key, digest = make_key()
    keys = {"bob": KeySettings(sha256=DIGEST), "alice": KeySettings(sha256=digest)}

    assert owner_of(key, keys) == "alice"
    assert owner_of(digest, keys) is None
    assert key.startswith("sapbert_")
    assert len(key) > 40
    assert key not in repr(keys)


@given(st.text())
def test_other_texts_are_not_recognised_as_keys(text: str) -> None:
    assert owner_of(text, {"alice": KeySettings(sha256=make_key()[1])}) is None


@given(st.integers(0, 63))
def test_a_digest_that_differs_in_one_digit_is_not_recognised(position: int) -> None:
    key, digest = make_key()
    other = digest[:position] + ("0" if digest[position] != "0" else "1") + digest[position + 1 :]
    assert owner_of(key, {"alice": KeySettings(sha256=other)}) is None
