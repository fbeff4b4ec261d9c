"""API keys and their limits."""

from __future__ import annotations

import pytest

from tests.service.conftest import MakeBench, bearer, error_of, with_key

ASKED = {"mentions": ["cold"]}


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8000", 200),
        ("127.0.0.1:8000", 200),
        ("[::1]:8000", 200),
        ("link.example.org", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example:8000", 421),
        ("evil-link.example.org", 421),
        ("evil.link.example.org", 421),
        ("link.example.org.evil.example", 421),
        ("example.org", 421),
        ("[::1", 400),
        ("[nonsense]", 400),
    ],
)
def test_without_keys_an_unknown_host_name_is_refused(make_bench: MakeBench, host: str, status: int) -> None:
    bench = make_bench(public_url="https://link.example.org")
    result = bench.client.post("/v1/link", json={"mentions": ["cold"]}, headers={"Host": host})
    assert result.status_code == status


def test_an_invalid_host_is_refused_even_with_a_key(make_bench: MakeBench, key: str) -> None:
    headers = {"Host": "[::1", **bearer(key)}
    refusal = with_key(make_bench, key).client.get("/reconcile", headers=headers)
    assert error_of(refusal, 400) == "the Host header is not valid"


def test_a_valid_key_gives_access(make_bench: MakeBench, key: str) -> None:
    client = with_key(make_bench, key).client
    assert client.post("/v1/link", json=ASKED, headers=bearer(key)).status_code == 200
    elsewhere = {"Host": "any.example", **bearer(key)}
    assert client.post("/v1/link", json=ASKED, headers=elsewhere).status_code == 200


NONE, UNKNOWN = "an API key is required: send Authorization: Bearer KEY", "unknown API key"


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ({}, NONE),
        ({"Authorization": "Basic x"}, NONE),
        (bearer(""), NONE),
        (bearer("wrong"), UNKNOWN),
        (bearer("\u00e9"), UNKNOWN),
    ],
)
@pytest.mark.parametrize(
    "path", ["/v1/link", "/v1/version", "/metrics", "/v1/openapi.json", "/reconcile?queries={}"]
)
def test_without_a_key_requests_are_refused(
    make_bench: MakeBench, key: str, path: str, headers: dict[str, str], error: str
) -> None:
    client = with_key(make_bench, key).client
    encoded = {name.encode(): value.encode() for name, value in headers.items()}
    result = client.request("POST" if path == "/v1/link" else "GET", path, headers=encoded)
    assert error_of(result, 401) == error
    assert result.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("path", ["/v1/health", "/v1/ready", "/reconcile", "/reconcile/drug"])
def test_public_paths_need_no_key(make_bench: MakeBench, key: str, path: str) -> None:
    assert with_key(make_bench, key).client.get(path).status_code == 200


def test_a_wrong_key_is_refused_even_on_public_paths(make_bench: MakeBench, key: str) -> None:
    client = with_key(make_bench, key).client
    assert error_of(client.get("/reconcile", headers=bearer("wrong")), 401) == UNKNOWN
    assert error_of(client.get("/reconcile", params={"key": "wrong"}), 401) == UNKNOWN


def test_a_key_in_the_url_is_accepted_only_for_reconciliation(make_bench: MakeBench, key: str) -> None:
    client = with_key(make_bench, key).client
    assert (
        client.get("/reconcile/disease/suggest/type", params={"prefix": "T", "key": key}).status_code == 200
    )
    assert client.get("/v1/version", params={"key": key}).status_code == 401


def test_a_key_has_its_own_limits(make_bench: MakeBench, key: str) -> None:
    client = with_key(make_bench, key, mentions_per_second=0.001).client
    body = {"mentions": ["cold"] * 50}

    assert client.post("/v1/link", json=body, headers=bearer(key)).status_code == 200
    late = client.post("/v1/link", json=body, headers=bearer(key))

    assert error_of(late, 429) == "this key is limited to 0.001 mentions per second"
    assert int(late.headers["retry-after"]) == pytest.approx(49_001, abs=2)


def test_a_key_limits_concurrent_requests(make_bench: MakeBench, key: str) -> None:
    bench = with_key(make_bench, key, requests=1)
    with bench.service.state.quotas["alice"].request():
        refusal = bench.client.get("/v1/version", headers=bearer(key))
    assert error_of(refusal, 429) == "this key is limited to 1 concurrent requests"
    assert bench.client.get("/v1/version", headers=bearer(key)).status_code == 200
