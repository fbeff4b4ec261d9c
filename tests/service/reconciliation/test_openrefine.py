"""Requests as OpenRefine sends them."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from starlette.testclient import TestClient

from sapbert.service.middleware.keys import make_key
from sapbert.service.settings import KeySettings
from tests.conftest import GOLDEN
from tests.service import schemas
from tests.service.conftest import Bench, MakeBench

REQUESTS = sorted((GOLDEN / "openrefine").glob("*.http"))
"""Requests as composed by OpenRefine (StandardReconConfig and its suggest widget), with invented content."""
ANSWERS = {
    "extend-columns": (schemas.EXTENDED, "name"),
    "manifest": (schemas.MANIFEST, "T033"),
    "propose-properties": (schemas.PROPOSED, "preferred_name"),
    "reconcile-column": (schemas.RESULTS, "mesh:D1"),
    "reconcile-guess-types": (schemas.RESULTS, "mesh:D1"),
    "reconcile-no-type": (schemas.RESULTS, "hp:1"),
    "suggest-entity": (schemas.SUGGESTED_CONCEPTS, "mesh:D1"),
    "suggest-identifier": (schemas.SUGGESTED_CONCEPTS, "mesh:D1"),
    "suggest-property": (schemas.SUGGESTED, "preferred_name"),
    "suggest-search-for-match": (schemas.SUGGESTED_CONCEPTS, "hp:2"),
    "suggest-type": (schemas.SUGGESTED, "T033"),
}
"""Schema of each answer and its first identifier; a preview is an HTML page."""


def first_of(answer: Any) -> Any:
    """The first identifier in an answer."""
    listed = [answer.get("q0", answer).get(name) for name in ("result", "properties", "meta", "defaultTypes")]
    return next(filter(None, listed))[0]["id"]


@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: path.stem)
def test_recorded_requests_of_openrefine_are_answered(bench: Bench, path: Any) -> None:
    head, _, body = path.read_bytes().decode().replace("\r\n", "\n").partition("\n\n")
    line, *rest = head.splitlines()
    method, target, _ = line.split(" ")
    headers = dict(header.split(": ", 1) for header in rest)

    answer = bench.client.request(method, target, headers=headers, content=body.strip())

    assert answer.status_code == 200, answer.text
    assert answer.headers["access-control-allow-origin"] == "*"
    if path.stem != "preview":
        shape, first = ANSWERS[path.stem]
        jsonschema.validate(answer.json(), shape)
        assert first_of(answer.json()) == first


def test_there_are_recorded_requests_of_openrefine() -> None:
    assert {path.stem for path in REQUESTS} == {*ANSWERS, "preview"}


def test_jsonp_is_not_supported(client: TestClient) -> None:
    """OpenRefine uses JSONP only if a service is not reachable otherwise."""
    for path in ("/reconcile", "/reconcile/disease/properties", "/reconcile/disease/suggest/type"):
        answer = client.get(path, params={"prefix": "T", "callback": "alert"})
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "alert" not in answer.text


def test_a_key_followed_by_a_second_question_mark_is_accepted(make_bench: MakeBench) -> None:
    key, digest = make_key()
    client = make_bench(keys={"alice": KeySettings(sha256=digest)}).client
    place = client.get("/reconcile", params={"key": key}).json()["extend"]["propose_properties"]

    answer = client.get(f"{place['service_url']}{place['service_path']}?type=T047")

    assert answer.status_code == 200
    jsonschema.validate(answer.json(), schemas.PROPOSED)
