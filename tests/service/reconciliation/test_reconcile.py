from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from sapbert.linking.linker import Linker
from sapbert.service.linkers import ServedLinker
from sapbert.service.middleware.keys import make_key
from sapbert.service.reconciliation.protocol import ExtendedProperty, ExtensionRequest, extend
from sapbert.service.reconciliation.routes import MAX_BATCH
from sapbert.service.settings import KeySettings, Limits
from sapbert.version import __version__
from tests.index.conftest import NgramEncoder, Row
from tests.linking.conftest import bench_of
from tests.service import schemas
from tests.service.conftest import MakeBench, error_of


def ask(client: TestClient, queries: Any, path: str = "/reconcile") -> Any:
    answer = client.post(path, data={"queries": json.dumps(queries)})
    assert answer.status_code == 200, answer.text
    jsonschema.validate(answer.json(), schemas.RESULTS)
    return answer.json()


def best(client: TestClient, **query: Any) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = ask(client, {"q0": query})["q0"]["result"]
    return result


def ids(result: list[dict[str, Any]]) -> list[str]:
    return [candidate["id"] for candidate in result]


# Queries


def test_results_are_keyed_by_query_name(client: TestClient) -> None:
    answer = ask(client, {"q0": {"query": "hart atack"}, "q1": {"query": "cold", "limit": 3}})

    assert list(answer) == ["q0", "q1"]
    first = answer["q0"]["result"][0]
    assert (first["id"], first["match"]) == ("mesh:D1", False)
    assert first["type"] == [{"id": "T047", "name": "T047"}]
    assert first["description"] == "matched name: Heart attack"
    assert 0 < first["score"] < 100
    scores = [candidate["score"] for candidate in answer["q1"]["result"]]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)


def test_only_a_name_of_a_single_concept_is_a_match(client: TestClient) -> None:
    certain = best(client, query="Heart Attack")
    assert [(row["id"], row["match"], row["score"]) for row in certain[:1]] == [("mesh:D1", True, 100.0)]
    assert not any(row["match"] for row in certain[1:])
    assert {"id": "exact", "value": True} in certain[0]["features"]

    # Two concepts have this name: OpenRefine would take the first without asking.
    assert [row["match"] for row in best(client, query="cold")[:2]] == [False, False]


def test_an_identifier_finds_its_concept(client: TestClient) -> None:
    for query in ("mesh:D1", "MESH:D1", "mesh:D9"):
        answer = best(client, query=query, limit=2)
        assert (answer[0]["id"], answer[0]["score"], answer[0]["match"]) == ("mesh:D1", 100.0, True)
        assert len(answer) <= 2
        assert ids(answer).count("mesh:D1") == 1


@pytest.mark.parametrize("types", ["T033", ["T033"], [{"id": "T033", "name": "Finding"}]])
def test_types_filter_candidates(client: TestClient, types: Any) -> None:
    assert ids(best(client, query="cold", type=types, type_strict="should")) == ["hp:1"]


@pytest.mark.parametrize("types", ["", [], [""]])
def test_an_empty_type_does_not_filter(client: TestClient, types: Any) -> None:
    assert best(client, query="cold", type=types) == best(client, query="cold")


def test_any_of_several_types_matches_unless_all_are_required(client: TestClient) -> None:
    both = ["T033", "T047"]
    assert set(ids(best(client, query="cold", type=both))) == {"hp:1", "mesh:D1", "mesh:D2"}
    assert best(client, query="cold", type=both, type_strict="all") == []


def test_known_properties_filter_candidates(client: TestClient) -> None:
    assert ids(best(client, query="cold", properties=[{"pid": "source", "v": "HPO"}]))[0] == "hp:1"
    assert "mesh:D1" not in ids(
        best(client, query="heart", properties=[{"pid": "type", "v": {"id": "T184"}}])
    )
    assert best(client, query="cold", properties=[{"pid": "colour", "v": ["blue", 7, True]}])
    assert ids(best(client, properties=[{"pid": "name", "v": "heart attack"}]))[0] == "mesh:D1"


@pytest.mark.parametrize(
    "query",
    [
        {"query": ""},
        {"query": "   "},
        {"properties": [{"pid": "source", "v": "HPO"}]},
        {"query": "cold", "type": "unheard of"},
        {"query": "cold", "properties": [{"pid": "source", "v": "unheard of"}]},
        {"query": "x" * 5_000},
    ],
)
def test_a_query_without_candidates_does_not_affect_others(client: TestClient, query: dict[str, Any]) -> None:
    answer = ask(client, {"bad": query, "good": {"query": "heart attack"}})
    assert answer["bad"] == {"result": []}
    assert answer["good"]["result"][0]["id"] == "mesh:D1"


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.fixed_dictionaries(
            {"query": st.text(alphabet="abcde mesh:D1", max_size=12)},
            optional={"limit": st.integers(1, 300), "type": st.sampled_from(["T047", ["T033", "x"], []])},
        ),
        max_size=8,
    )
)
@settings(max_examples=30)
def test_every_query_has_a_valid_result(make_bench: MakeBench, queries: dict[str, Any]) -> None:
    answer = ask(make_bench().client, queries)
    assert list(answer) == list(queries)
    for name, query in queries.items():
        scores = [candidate["score"] for candidate in answer[name]["result"]]
        assert scores == sorted(scores, reverse=True)
        assert len(scores) <= query.get("limit", 5)


def test_a_batch_has_the_same_results_as_single_queries(client: TestClient) -> None:
    queries = {
        f"q{n}": {"query": word, "limit": n + 1} for n, word in enumerate(["cold", "pain", "heart", "cold"])
    }
    together = ask(client, queries)
    assert together == {name: ask(client, {name: query})[name] for name, query in queries.items()}


def test_queries_in_the_url_are_answered(client: TestClient) -> None:
    queries = json.dumps({"q0": {"query": "heart attack"}})
    answer = client.get("/reconcile/disease", params={"queries": queries}).json()
    jsonschema.validate(answer, schemas.RESULTS)
    assert answer["q0"]["result"][0]["id"] == "mesh:D1"


@pytest.mark.parametrize(
    ("form", "status", "where"),
    [
        ({"queries": "{"}, 400, "queries: "),
        ({"queries": "[]"}, 422, "queries: Input should be an object"),
        ({"queries": '{"q0": 7}'}, 422, "queries.q0: "),
        ({"queries": '{"q0": {"query": "a", "limit": 0}}'}, 422, "queries.q0.limit: "),
        ({"queries": '{"q0": {"query": "a", "limit": true}}'}, 422, "queries.q0.limit: "),
        ({"queries": '{"q0": {"query": "a", "limit": NaN}}'}, 422, "queries.q0.limit: "),
        ({"queries": '{"q0": {"query": "a", "limit": 1e400}}'}, 422, "queries.q0.limit: "),
        ({"queries": '{"q0": {"query": ["a"]}}'}, 422, "queries.q0.query: "),
        ({"queries": "[" * 5_000}, 400, "queries: not valid JSON"),
        ({"queries": "[" * 20_000}, 413, "queries: at most 10,000 values"),
        ({"queries": '{"q0": {"type": [' + "0," * 20_000 + "0]}}"}, 413, "queries: at most 10,000 values"),
        ({"queries": '{"q0": {"type": [' + "0," * 9_000 + "0]}}"}, 422, "queries.q0.type.0: "),
        ({"extend": "7"}, 422, "extend: "),
        ({"extend": '{"ids": "x"}'}, 422, "extend.ids: "),
        ({"something": "else"}, 400, "send a form with JSON"),
        ({}, 415, "send application/x-www-form-urlencoded"),
    ],
)
def test_an_invalid_form_is_refused(
    client: TestClient, form: dict[str, str], status: int, where: str
) -> None:
    assert error_of(client.post("/reconcile", data=form), status).startswith(where)


def test_an_empty_cell_has_no_candidates_and_does_not_fail_its_batch(client: TestClient) -> None:
    queries = '{"q0": {"query": NaN}, "q1": {"query": null}, "q2": {"query": ""}, "q3": {"query": "cold"}}'
    answer = client.post("/reconcile", data={"queries": queries}).json()
    assert [answer[f"q{number}"]["result"] for number in range(3)] == [[], [], []]
    assert answer["q3"]["result"]


def test_a_form_above_the_limit_is_refused(make_bench: MakeBench) -> None:
    client = make_bench(limits=Limits()).client
    answer = client.post("/reconcile", data={"queries": "{}" + " " * (2 << 20)})
    assert error_of(answer, 413) == "the form may have at most 2,097,152 bytes"


def test_a_batch_above_the_limit_is_refused(client: TestClient) -> None:
    queries = {f"{number}": {"query": "cold"} for number in range(MAX_BATCH + 1)}
    answer = client.post("/reconcile", data={"queries": json.dumps(queries)})
    assert error_of(answer, 413) == f"at most {MAX_BATCH} queries per batch"
    extension = {"ids": ["x"] * (MAX_BATCH + 1), "properties": []}
    assert error_of(client.post("/reconcile", data={"extend": json.dumps(extension)}), 413)


# The manifest


def test_the_manifest_follows_the_protocol(client: TestClient) -> None:
    answer = client.get("/reconcile/drug").json()

    jsonschema.validate(answer, schemas.MANIFEST)
    assert (answer["name"], answer["serviceVersion"], answer["batchSize"]) == ("Drug", __version__, MAX_BATCH)
    assert "authentication" not in answer
    assert client.get("/reconcile").json()["name"] == "Disease"
    assert client.get("/reconcile").json()["defaultTypes"][0] == {"id": "T033", "name": "T033"}
    assert error_of(client.get("/reconcile/food"), 404)


def test_every_url_of_the_manifest_is_answered(client: TestClient) -> None:
    manifest = client.get("/reconcile").json()
    for kind, place in manifest["suggest"].items():
        answer = client.get(place["service_url"] + place["service_path"], params={"prefix": "a"}).json()
        jsonschema.validate(answer, schemas.SUGGESTED_CONCEPTS if kind == "entity" else schemas.SUGGESTED)
    place = manifest["extend"]["propose_properties"]
    jsonschema.validate(
        client.get(place["service_url"] + place["service_path"], params={"type": "T047"}).json(),
        schemas.PROPOSED,
    )
    assert manifest["view"]["url"] == "https://bioregistry.io/{{id}}"
    shown = manifest["preview"]["url"].replace("{{id}}", quote("mesh:D1", safe=""))
    assert client.get(shown).status_code == 200


def test_manifest_urls_use_the_public_url(make_bench: MakeBench) -> None:
    manifest = make_bench(public_url="https://example.org/link").client.get("/reconcile").json()
    jsonschema.validate(manifest, schemas.MANIFEST)
    assert manifest["preview"]["url"] == "https://example.org/link/reconcile/disease/preview?id={{id}}"


def test_a_manifest_requested_with_a_key_has_the_key_in_its_urls(make_bench: MakeBench) -> None:
    key, digest = make_key()
    client = make_bench(keys={"alice": KeySettings(sha256=digest)}).client

    stranger = client.get("/reconcile").json()
    own = client.get("/reconcile", params={"key": key}).json()

    for manifest in (stranger, own):
        jsonschema.validate(manifest, schemas.MANIFEST)
        assert manifest["authentication"] == {"type": "apiKey", "name": "key", "in": "query"}
    assert "key=" not in json.dumps(stranger["suggest"])
    place = own["suggest"]["type"]
    assert client.get(place["service_url"] + place["service_path"] + "&prefix=T").status_code == 200
    assert client.get(own["preview"]["url"].replace("{{id}}", "mesh:D1")).status_code == 200


def test_cross_origin_requests_are_allowed(client: TestClient) -> None:
    headers = {"Origin": "https://elsewhere.example", "Access-Control-Request-Method": "POST"}
    for path in ("/reconcile", "/reconcile/disease", "/reconcile/disease/suggest/entity"):
        allowed = client.options(path, headers=headers)
        assert allowed.status_code == 204
        assert allowed.headers["access-control-allow-origin"] == "*"
        assert "POST" in allowed.headers["access-control-allow-methods"]


# Suggesting, extending, showing


def suggested(client: TestClient, kind: str, **params: Any) -> list[dict[str, Any]]:
    answer = client.get(f"/reconcile/disease/suggest/{kind}", params=params).json()
    jsonschema.validate(answer, schemas.SUGGESTED_CONCEPTS if kind == "entity" else schemas.SUGGESTED)
    result: list[dict[str, Any]] = answer["result"]
    return result


def test_concepts_are_suggested_by_prefix(client: TestClient) -> None:
    assert ids(suggested(client, "entity", prefix="co")) == ["hp:1", "mesh:D2"]
    assert ids(suggested(client, "entity", prefix="co", cursor=1)) == ["mesh:D2"]
    assert ids(suggested(client, "entity", prefix="co", type="T033")) == ["hp:1"]
    assert ids(suggested(client, "entity", prefix="mesh:D1")) == ["mesh:D1"]
    answer = suggested(client, "entity", prefix="heart a")[0]
    assert (answer["description"], answer["notable"]) == ("Heart attack", [{"id": "T047", "name": "T047"}])


def test_the_nearest_concepts_are_suggested_if_no_name_has_the_prefix(client: TestClient) -> None:
    assert ids(suggested(client, "entity", prefix="hart atack"))[0] == "mesh:D1"
    assert suggested(client, "entity", prefix="hart atack", cursor=5) == []


def test_nothing_is_suggested_for_an_unknown_type(client: TestClient) -> None:
    assert suggested(client, "entity", prefix="co", type="unheard of") == []
    assert suggested(client, "entity", prefix="hart atack", type="unheard of") == []
    assert ids(suggested(client, "entity", prefix="co", type=["unheard of", "T033"])) == ["hp:1"]


def test_types_and_properties_are_suggested(client: TestClient) -> None:
    assert ids(suggested(client, "type", prefix="t0")) == ["T033", "T047"]
    assert ids(suggested(client, "property", prefix="sour")) == ["source"]
    assert ids(suggested(client, "property", prefix="name")) == ["preferred_name", "name"]


def test_data_is_extended_with_preferred_names_in_each_language(tmp_path: Path) -> None:
    rows: list[Row] = [("x:1", "fever", "M", "en", "1"), ("x:1", "Fieber", "O", "de", "1", "translation")]
    served = ServedLinker("x", "x", bench_of(tmp_path, rows, None, NgramEncoder(256)).linker)
    properties = [ExtendedProperty(id="preferred_name@de"), ExtendedProperty(id="preferred_name@en")]

    answer = extend(served, ExtensionRequest(ids=["x:1"], properties=properties))

    assert [each["name"] for each in answer["meta"]] == ["preferred name (de)", "preferred name (en)"]
    assert answer["rows"]["x:1"] == {
        "preferred_name@de": [{"str": "Fieber"}], "preferred_name@en": [{"str": "fever"}]
    }  # fmt: skip


def test_data_is_extended_with_properties_of_concepts(client: TestClient) -> None:
    body = {
        "ids": ["mesh:D9", "nothing:1"],
        "properties": [{"id": "name"}, {"id": "source"}, {"id": "alias"}, {"id": "x"}],
    }
    answer = client.post("/reconcile", data={"extend": json.dumps(body)}).json()

    jsonschema.validate(answer, schemas.EXTENDED)
    assert [column["id"] for column in answer["meta"]] == ["name", "source", "alias", "x"]
    assert answer["rows"]["mesh:D9"] == {
        "name": [{"str": "Cardiac infarction"}, {"str": "Heart attack"}, {"str": "Myocardial infarction"}],
        "source": [{"str": "MSH"}, {"str": "NCI"}],
        "alias": [{"str": "mesh:D9"}],
        "x": [],
    }
    assert answer["rows"]["nothing:1"] == {"name": [], "source": [], "alias": [], "x": []}


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_preview_escapes_names(client: TestClient) -> None:
    answer = client.get("/reconcile/drug/preview", params={"id": "chebi:2"})

    page = _Tags()
    page.feed(answer.text)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "water <b>" in page.text
    assert page.tags <= {"html", "meta", "title", "style", "h1", "p", "code", "ul", "li"}
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "frame-ancestors" not in policy
    assert error_of(client.get("/reconcile/drug/preview?id=chebi:7"), 404)


def test_a_preview_shows_how_many_names_are_left_out(make_bench: MakeBench, tmp_path: Any) -> None:
    from tests.index.conftest import NgramEncoder
    from tests.linking.conftest import bench_of

    rows = [("x:1", f"name {number}", "") for number in range(600)]
    linker: Linker = bench_of(tmp_path / "many", rows, None, NgramEncoder(16)).linker
    client = make_bench(served={"many": linker}).client

    assert "and 588 more" in client.get("/reconcile/many/preview?id=x:1").text
    shown = client.get("/v1/concepts/x:1").json()
    assert (len(shown["names"]), shown["name_count"]) == (500, 600)
