"""Small bodies that would take seconds to parse or validate."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from sapbert.service.json_body import count_values
from sapbert.service.schemas import LinkRequest
from sapbert.service.settings import Limits
from tests.service.conftest import MakeBench, error_of

TOO_MANY = "too many values; send at most 200 mentions per request"
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def client(make_bench: MakeBench) -> TestClient:
    return make_bench(limits=Limits(mentions=200)).client


def post(client: TestClient, body: bytes, path: str = "/v1/link") -> Any:
    return client.post(path, content=body, headers=JSON)


@pytest.mark.parametrize(
    "body",
    [
        b'{"mentions": [' + b"0," * 1_000_000 + b"0]}",
        b'{"mentions": [' + b"[]," * 500_000 + b"0]}",
        b'{"mentions": ["a"], ' + b",".join(b'"%d": 0' % number for number in range(100_000)) + b"}",
        b'{"mentions": [' + b'"",' * 500_000 + b'""]}',
        b"[" * 1_000_000,
    ],
    ids=["numbers", "lists", "fields", "strings", "depth"],
)
@pytest.mark.parametrize("path", ["/v1/link", "/v1/map"])
def test_a_body_with_too_many_values_is_refused_before_it_is_parsed(
    client: TestClient, body: bytes, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json, "loads", lambda _: pytest.fail("parsed"))
    assert error_of_bytes(post(client, body, path), 422) == TOO_MANY


def error_of_bytes(answer: Any, status: int) -> str:
    """Like `error_of`, without `json.loads`."""
    assert answer.status_code == status
    return str(answer.content[11:-2].decode())


def test_validation_stops_at_the_first_error(client: TestClient) -> None:
    with pytest.raises(ValueError, match="1 validation error"):
        LinkRequest.model_validate({"mentions": [0] * 100})
    assert (
        error_of(post(client, b'{"mentions": [0, 0]}'), 422) == "mentions.0: Input should be a valid string"
    )


def test_a_request_with_many_unknown_fields_is_refused(client: TestClient) -> None:
    body = json.dumps({f"{number}": 0 for number in range(100)}).encode()
    assert error_of(post(client, body), 422) == "too many fields; a request has at most 32"


def test_a_large_body_is_parsed_outside_the_event_loop(make_bench: MakeBench) -> None:
    client = make_bench(limits=Limits()).client
    threads: dict[int, str] = {}
    original = json.loads

    def loads(text: Any) -> Any:
        threads[len(text)] = threading.current_thread().name
        return original(text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sapbert.service.json_body.json.loads", loads)
        for size in (10, 100_000):
            post(client, json.dumps({"mentions": ["a" * size]}).encode())
    small, large = (threads[length] for length in sorted(threads)[:2])
    assert not small.startswith("parsing")
    assert large.startswith("parsing")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('",[]{}\\a', max_size=5),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text('",\\', max_size=2), inner, max_size=5)
    ),
    max_leaves=30,
)


@example([[], []], False)
@given(json_values, st.booleans())
def test_no_more_values_are_counted_than_a_text_has(value: Any, indent: bool) -> None:
    def size(value: Any) -> int:
        if isinstance(value, dict):
            return 1 + len(value) + sum(map(size, value.values()))
        return 1 + sum(map(size, value)) if isinstance(value, list) else 1

    text = json.dumps(value, indent=2 if indent else None).encode()
    assert count_values(text, most=sys.maxsize) <= size(value)
    assert 4 * count_values(text, most=sys.maxsize) + 4 >= size(value)
