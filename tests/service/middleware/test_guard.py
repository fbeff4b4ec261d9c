from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from starlette.types import ASGIApp, Message

from sapbert.linking.linker import Linker
from sapbert.service.middleware.limits import http_error
from sapbert.service.middleware.logs import LOGGER, JsonFormatter
from sapbert.service.settings import Limits
from tests.service.conftest import LIMITS, Bench, MakeBench, bearer, error_of, fresh, with_key

ASKED = {"mentions": ["cold"]}
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """The lines of the log."""
    result: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            result.append(self.format(record))

    handler = Kept()
    handler.setFormatter(JsonFormatter(texts=False))
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    yield result
    LOGGER.removeHandler(handler)


async def answer(app: ASGIApp, messages: Sequence[Message], **scope: Any) -> list[Message]:
    """Send a request to an application message by message; after the last one, nothing arrives."""
    waiting = iter(messages)
    sent: list[Message] = []

    async def receive() -> Message:
        for message in waiting:
            return message
        return await asyncio.Future[Message]()

    async def send(message: Message) -> None:
        sent.append(message)

    complete_scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/link",
        "query_string": b"",
        "headers": [],
        **scope,
    }
    await app(complete_scope, receive, send)
    return sent


# Limits


def test_a_body_with_a_too_large_content_length_is_not_read(make_bench: MakeBench) -> None:
    app = make_bench().app
    headers = [(b"content-length", b"50000000"), (b"content-type", b"application/json")]

    sent = asyncio.run(answer(app, [], headers=headers))

    assert sent[0]["status"] == 413
    assert (b"connection", b"close") in sent[0]["headers"]
    assert json.loads(sent[1]["body"]) == {"error": "the body may have at most 100,000 bytes"}


def test_reading_stops_when_a_body_exceeds_the_limit(make_bench: MakeBench) -> None:
    bench = make_bench()
    piece = {"type": "http.request", "body": b"x" * 60_000, "more_body": True}

    sent = asyncio.run(answer(bench.app, [piece, piece]))

    assert sent[0]["status"] == 413
    assert (bench.service.in_flight, bench.service.buffered_bytes) == (0, 0)


def test_a_body_that_does_not_arrive_occupies_no_slot(make_bench: MakeBench) -> None:
    bench = make_bench(limits=Limits(requests=1))

    async def scenario() -> int:
        part: Message = {"type": "http.request", "body": b'{"mentions"', "more_body": True}
        slow = [asyncio.ensure_future(answer(bench.app, [part])) for _ in range(3)]
        while bench.service.buffered_bytes < 3 * 11:
            await asyncio.sleep(0)
        assert bench.service.in_flight == 0
        whole: list[Message] = [{"type": "http.request", "body": json.dumps(ASKED).encode()}]
        sent = await answer(bench.app, whole, headers=[(b"content-type", b"application/json")])
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        return int(sent[0]["status"])

    assert asyncio.run(scenario()) == 200
    assert (bench.service.in_flight, bench.service.buffered_bytes) == (0, 0)


def test_the_body_of_a_get_request_is_not_awaited(make_bench: MakeBench) -> None:
    bench = make_bench(limits=Limits(seconds=0.01))
    headers = [(b"content-length", b"100")]
    sent = asyncio.run(answer(bench.app, [], method="GET", path="/v1/version", headers=headers))
    assert sent[0]["status"] == 200


def test_the_address_of_the_client_may_be_a_list(make_bench: MakeBench) -> None:
    scope = {"method": "GET", "path": "/v1/search", "query_string": b"prefix=c", "client": ["127.0.0.1", 1]}
    assert asyncio.run(answer(make_bench().app, [], **scope))[0]["status"] == 200


def test_bodies_are_limited_in_total_while_they_arrive(make_bench: MakeBench) -> None:
    bench = make_bench()
    bench.service.buffered_bytes = 16 * LIMITS.body_bytes - 5
    sent = asyncio.run(answer(bench.app, [{"type": "http.request", "body": b"123456", "more_body": True}]))
    assert sent[0]["status"] == 503
    assert bench.service.buffered_bytes == 16 * LIMITS.body_bytes - 5


def test_linking_stops_when_the_client_disconnects(
    make_bench: MakeBench, linkers: dict[str, Linker], monkeypatch: pytest.MonkeyPatch, logged: list[str]
) -> None:
    bench = make_bench(served={"new": fresh(linkers["disease"])})
    cancelled: list[bool] = []

    async def never(*_asked: Any, **_options: Any) -> Any:
        try:
            await asyncio.Future()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    monkeypatch.setattr(bench.service.batcher, "submit", never)
    messages: list[Message] = [
        {"type": "http.request", "body": json.dumps(ASKED).encode()},
        {"type": "http.disconnect"},
    ]
    for accept in (b"application/json", b"application/x-ndjson"):
        headers = [(b"content-type", b"application/json"), (b"accept", accept)]
        assert asyncio.run(answer(bench.app, messages, headers=headers)) == []
    assert cancelled == [True, True]
    assert bench.service.in_flight == 0
    assert [json.loads(line)["status"] for line in logged] == [499, 499]


def test_a_body_that_does_not_arrive_times_out(make_bench: MakeBench) -> None:
    bench = make_bench(limits=Limits(seconds=0.01))
    sent = asyncio.run(answer(bench.app, [{"type": "http.request", "body": b"{", "more_body": True}]))
    assert sent[0]["status"] == 408
    assert bench.service.in_flight == 0


def test_a_client_that_disconnects_gets_no_answer(make_bench: MakeBench, logged: list[str]) -> None:
    bench = make_bench()
    assert asyncio.run(answer(bench.app, [{"type": "http.disconnect"}])) == []
    assert (bench.service.in_flight, json.loads(logged[-1])["status"]) == (0, 499)


def test_requests_above_the_limit_are_refused_immediately(make_bench: MakeBench) -> None:
    bench = make_bench(limits=Limits(requests=1))
    bench.service.in_flight = 1
    refusal = bench.client.post("/v1/link", json=ASKED)
    assert error_of(refusal, 503) == "too many requests at once; try again"
    assert refusal.headers["retry-after"] == "1"


def test_the_total_size_of_bodies_in_memory_is_limited(make_bench: MakeBench) -> None:
    bench = make_bench()
    bench.service.buffered_bytes = 16 * LIMITS.body_bytes
    assert "large" in error_of(bench.client.post("/v1/link", json=ASKED), 503)
    bench.service.buffered_bytes = 0
    assert bench.client.post("/v1/link", json=ASKED).status_code == 200
    assert bench.service.buffered_bytes == 0


def test_a_request_is_refused_if_its_expected_wait_is_too_long(
    make_bench: MakeBench, linkers: dict[str, Linker], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench(limits=Limits(queue_seconds=5), served={"new": fresh(linkers["disease"])})
    monkeypatch.setattr(bench.service.batcher, "expected_wait", lambda *_: 7.4)

    refusal = bench.client.post("/v1/link", json=ASKED)
    assert error_of(refusal, 503) == "the expected wait is 7 seconds; try again later"
    assert refusal.headers["retry-after"] == "8"
    assert error_of(bench.client.get("/v1/concepts/mesh:D1"), 503)
    assert bench.client.get("/v1/ready").json() == {"status": "busy"}
    bench.service.in_flight = 10**6
    assert bench.client.post("/v1/link", json=ASKED).headers["retry-after"] == "8"


@pytest.mark.parametrize("with_keys", [False, True])
def test_work_counts_to_the_key_or_else_to_the_connection(
    make_bench: MakeBench, linkers: dict[str, Linker], key: str, with_keys: bool
) -> None:
    bench = with_key(make_bench, key) if with_keys else make_bench(served={"new": fresh(linkers["disease"])})
    clients: list[Any] = []
    require_capacity = bench.service.batcher.require_capacity

    def record(seconds: float, client: Any, size: int = 1) -> None:
        clients.append((client, size))
        require_capacity(seconds, client, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.service.batcher, "require_capacity", record)
        bench.client.get("/v1/search?prefix=c", headers=bearer(key))
    assert clients == [("alice" if with_keys else ("testclient", 50000), 1)]


def test_linking_that_takes_too_long_times_out(
    make_bench: MakeBench, linkers: dict[str, Linker], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench(limits=Limits(seconds=0.01), served={"new": fresh(linkers["disease"])})

    async def never(*_asked: Any, **_options: Any) -> Any:
        await asyncio.Future()

    monkeypatch.setattr(bench.service.batcher, "submit", never)
    assert (
        error_of(bench.client.post("/v1/link", json=ASKED), 503) == "no answer within 0.01 seconds; try again"
    )


def test_a_client_that_does_not_read_is_disconnected(make_bench: MakeBench, logged: list[str]) -> None:
    bench = make_bench(limits=Limits(seconds=0.01))
    body = json.dumps(ASKED).encode()

    async def stuck() -> None:
        messages: list[Message] = [{"type": "http.request", "body": body}]

        async def receive() -> Message:
            return messages.pop() if messages else await asyncio.Future()

        async def send(message: Message) -> None:
            if message["type"] == "http.response.body":
                await asyncio.Future()

        headers = [(b"content-type", b"application/json")]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/link",
            "query_string": b"",
            "headers": headers,
        }
        await bench.app(scope, receive, send)

    asyncio.run(stuck())
    assert bench.service.in_flight == 0
    assert json.loads(logged[-1])["status"] == 499


# All answers


@pytest.mark.parametrize("path", ["/v1/health", "/v1/nothing", "/v1/version", "/metrics"])
def test_every_answer_has_a_request_id_and_security_headers(bench: Bench, path: str) -> None:
    first, second = bench.client.get(path), bench.client.get(path)

    assert {name: first.headers[name] for name in HEADERS} == HEADERS
    assert len(first.headers["x-request-id"]) == 32
    assert first.headers["x-request-id"] != second.headers["x-request-id"]
    assert "server" not in first.headers


@pytest.mark.parametrize("path", ["/", "/v1/health", "/v1/search?prefix=c", "/reconcile"])
def test_head_is_answered_like_get_without_a_body(bench: Bench, logged: list[str], path: str) -> None:
    head, get = bench.client.head(path), bench.client.get(path)

    assert (head.status_code, head.content) == (200, b"")
    for name in ("content-length", "content-type"):
        assert head.headers[name] == get.headers[name]
    assert [json.loads(line)["method"] for line in logged] == ["HEAD", "GET"]


def test_head_needs_the_same_key_as_get(make_bench: MakeBench, key: str) -> None:
    client = with_key(make_bench, key).client
    assert [client.head(path).status_code for path in ("/reconcile", "/v1/version")] == [200, 401]
    assert client.head("/v1/link", headers=bearer(key)).status_code == 405


def test_pages_of_other_origins_may_read_only_reconciliation(bench: Bench) -> None:
    elsewhere = {"Origin": "https://elsewhere.example"}
    for path in ("/reconcile", "/reconcile/nothing", "/reconcile/disease/suggest/type?prefix=T"):
        assert bench.client.get(path, headers=elsewhere).headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-origin" not in bench.client.get("/v1/version", headers=elsewhere).headers


def test_an_internal_error_is_logged_and_not_disclosed(
    make_bench: MakeBench, linkers: dict[str, Linker], logged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench(served={"new": fresh(linkers["disease"])})

    def fail(*_asked: Any, **_options: Any) -> Any:
        raise OSError("/secret/path: Jane Doe")

    monkeypatch.setattr(bench.service.state.linkers["new"].linker, "link", fail)
    result = bench.client.post("/v1/link", json={"mentions": ["Jane Doe"]})

    assert "internal error" in error_of(result, 500)
    line = json.loads(logged[-1])
    assert (line["level"], line["error"], line["status"]) == ("error", "OSError", 500)
    assert line["id"] == result.headers["x-request-id"]
    assert any("test_guard.py" in frame and frame.endswith(" fail") for frame in line["at"])
    assert "Jane" not in logged[-1]
    assert "secret" not in logged[-1]


# The log


def test_the_log_has_requests_but_not_their_text(bench: Bench, logged: list[str]) -> None:
    bench.link("Jane Doe has a cold", "cold")
    bench.client.get("/v1/search?prefix=jane")
    bench.client.get("/v1/concepts/jane")

    requests = [json.loads(line) for line in logged]
    assert [(line["method"], line["route"], line["status"]) for line in requests] == [
        ("POST", "/v1/link", 200),
        ("GET", "/v1/search", 200),
        ("GET", "/v1/concepts/{concept_id:path}", 404),
    ]
    assert (requests[0]["mentions"], requests[0]["linker"], requests[0]["key"]) == (2, "disease", None)
    assert "jane" not in "".join(logged).lower()


def test_the_log_has_mentions_with_log_mentions(make_bench: MakeBench, logged: list[str]) -> None:
    make_bench(log_mentions=True).link("Jane\nDoe", "cold")
    assert len(logged) == 1
    assert json.loads(logged[0])["texts"] == ["Jane\nDoe", "cold"]


def test_the_log_has_the_name_of_the_key(make_bench: MakeBench, key: str, logged: list[str]) -> None:
    with_key(make_bench, key).client.get("/v1/version", headers=bearer(key))
    assert json.loads(logged[0])["key"] == "alice"
    assert key not in logged[0]


def test_messages_of_errors_are_logged_only_with_texts() -> None:
    try:
        raise ValueError("Jane")
    except ValueError as error:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "failed", None, (type(error), error, None))
    assert "Jane" not in JsonFormatter(texts=False).format(record)
    assert json.loads(JsonFormatter(texts=True).format(record))["message"] == "Jane"


# Reloading


def test_a_reload_replaces_the_linkers_and_drops_no_request(
    make_bench: MakeBench, linkers: dict[str, Linker], make_state: Any, logged: list[str]
) -> None:
    bench = make_bench(served={"old": linkers["disease"]})
    old = bench.service.state

    bench.service.reload(lambda: make_state(served={"new": linkers["drug"]}))

    assert [row["name"] for row in bench.client.get("/v1/version").json()["linkers"]] == ["new"]
    assert old.linker(None).linker is linkers["disease"]
    assert json.loads(logged[0])["linkers"] == {"new": "f00d"}


def test_a_failed_reload_keeps_the_old_configuration(bench: Bench, logged: list[str]) -> None:
    from sapbert.errors import ArtifactError

    def damaged() -> Any:
        raise ArtifactError("index is damaged")

    bench.service.reload(damaged)

    assert bench.client.get("/v1/version").status_code == 200
    line = json.loads(logged[0])
    assert (line["level"], line["event"], line["message"]) == (
        "error",
        "reload failed; keeping the old configuration",
        "index is damaged",
    )


def test_a_request_refused_before_routing_is_logged_with_its_route(
    make_bench: MakeBench, key: str, logged: list[str]
) -> None:
    client = with_key(make_bench, key).client
    for path in ("/v1/version", "/v1/concepts/secret"):
        assert client.get(path).status_code == 401
    assert [json.loads(line)["route"] for line in logged] == ["/v1/version", "other"]


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b"[" * 500])
def test_invalid_json_is_reported(bench: Bench, body: bytes) -> None:
    result = bench.client.post("/v1/link", content=body, headers={"Content-Type": "application/json"})
    assert error_of(result, 400) == "the body is not valid JSON"


def test_an_error_may_have_a_retry_after_header() -> None:
    assert http_error(429, "slow down", retry_after=3).headers == {"Retry-After": "3"}
    assert http_error(404, "gone").headers is None
