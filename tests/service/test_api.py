from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from sapbert.linking.calibration.file import Calibration
from sapbert.linking.calibration.model import Platt
from sapbert.linking.linker import Linker
from sapbert.linking.settings import LinkSettings, Method
from sapbert.service import batching
from sapbert.service.schemas import LinkAnswer
from sapbert.service.settings import Limits
from sapbert.version import __version__
from tests.service.conftest import Bench, MakeBench, error_of

NDJSON = {"Accept": "application/x-ndjson"}
WORDS = st.text(alphabet="aehrtcold ", max_size=20)


def lines(answer: Any) -> list[Any]:
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in answer.text.splitlines()]


def half_sure(linker: Linker, *, exact: bool) -> Linker:
    """Return the same linker with a calibration that gives 0.5 for every score."""
    half = Platt(0.0, 0.0, 0.0)
    calibration = Calibration(
        index="f00d", exact=exact, sparse_weight=0.0, method=Method.PLATT, curve=half, threshold=None
    )
    return Linker(
        linker.encoder, linker.search, linker.name_table, fingerprint="f00d", calibration=calibration
    )


def post(client: TestClient, body: bytes, path: str = "/v1/link") -> Any:
    return client.post(path, content=body, headers={"Content-Type": "application/json"})


# Linking


def test_mentions_are_linked_best_first(client: TestClient) -> None:
    answer = client.post("/v1/link", json={"mentions": ["hart atack", "COLD", ""], "k": 2})

    result = answer.json()
    LinkAnswer.model_validate(result)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert (result["linker"], result["fingerprint"]) == ("disease", "f00d")
    assert [row["mention"] for row in result["answers"]] == ["hart atack", "COLD", ""]
    best = result["answers"][0]["candidates"][0]
    assert (best["concept_id"], best["matched_name"]) == ("mesh:D1", "Heart attack")
    assert best["matched_by"] == "dense"
    assert (best["types"], best["confidence"]) == (["T047"], None)
    assert [row["concept_id"] for row in result["answers"][1]["candidates"]] == ["hp:1", "mesh:D2"]
    assert result["answers"][2]["candidates"] == []


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({"types": ["T033"]}, LinkSettings(types=("T033",))),
        ({"sources": ["HPO"]}, LinkSettings(sources=("HPO",))),
        ({"prefixes": ["HPO"]}, LinkSettings(prefixes=("hp",))),
        ({"threshold": 0.5}, LinkSettings(threshold=0.5)),
        ({"exact": False}, LinkSettings(exact=False)),
    ],
)
def test_options_have_the_same_effect_as_in_the_linker(
    bench: Bench, linkers: dict[str, Linker], options: dict[str, Any], settings: LinkSettings
) -> None:
    mentions = ["cold", "hart atack", "pain in the chest"]

    result = bench.link(*mentions, k=3, **options)

    expected = linkers["disease"].link(mentions, k=3, settings=settings)
    assert [
        [(c["concept_id"], c["score"], c["matched_by"]) for c in row["candidates"]] for row in result
    ] == [[(c.concept_id, c.score, c.matched_by) for c in row] for row in expected]


def test_a_linker_is_chosen_by_name(client: TestClient) -> None:
    result = client.post("/v1/link?linker=drug", json={"mentions": ["aspirin"]}).json()
    assert (result["linker"], result["answers"][0]["candidates"][0]["concept_id"]) == ("drug", "chebi:1")

    error = error_of(client.post("/v1/link?linker=food", json={"mentions": ["bread"]}), 404)
    assert error == "no such linker; the linkers are disease, drug"


@given(st.lists(WORDS, min_size=1, max_size=200), st.integers(min_value=1, max_value=4))
@settings(max_examples=25)
def test_a_stream_has_the_same_answers_as_a_whole_answer(
    make_bench: MakeBench, mentions: list[str], k: int
) -> None:
    client = make_bench().client
    body = {"mentions": mentions, "k": k}

    whole = client.post("/v1/link", json=body).json()["answers"]

    assert [row["mention"] for row in whole] == mentions
    assert lines(client.post("/v1/link", json=body, headers=NDJSON)) == whole


def test_surrogate_pairs_are_accepted_and_unpaired_surrogates_refused(client: TestClient) -> None:
    assert post(client, b'{"mentions": ["\\ud83d\\ude00"]}').json()["answers"][0]["mention"] == "\U0001f600"
    for path, body, where in (
        ("/v1/link", b'{"mentions": ["cold", "\\ud83d cold"]}', "mentions.1"),
        ("/v1/link", b'{"mentions": ["cold"], "types": ["\\udc00"]}', "types.0"),
        ("/v1/map", b'{"mention": "\\ud83d"}', "mention"),
    ):
        assert (
            error_of(post(client, body, path), 422)
            == f"{where}: not valid Unicode: a surrogate without its pair"
        )


def test_a_long_list_is_linked_in_chunks(make_bench: MakeBench) -> None:
    bench = make_bench()
    mentions = [f"cold {number}" for number in range(200)]

    bench.link(*mentions)

    text = bench.client.get("/metrics").text
    assert f'sapbert_batch_mentions_bucket{{le="{float(batching.BATCH_SIZE)}"}} 4' in text
    assert "sapbert_batch_mentions_sum 200" in text


def test_a_very_large_answer_must_be_streamed(make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sapbert.service.api.MAX_UNSTREAMED_CANDIDATES", 10)
    client = make_bench().client
    body = {"mentions": ["cold"] * 6, "k": 2}

    assert "Accept: application/x-ndjson" in error_of(client.post("/v1/link", json=body), 422)
    assert len(lines(client.post("/v1/link", json=body, headers=NDJSON))) == 6


def test_a_calibrated_linker_returns_confidences(make_bench: MakeBench, linkers: dict[str, Linker]) -> None:
    plain = linkers["disease"]
    bench = make_bench(served={"sure": half_sure(plain, exact=True)})

    assert [c["confidence"] for c in bench.link("cold", k=2)[0]["candidates"]] == [0.5, None]
    assert bench.client.get("/v1/version").json()["linkers"][0]["calibrated"] is True
    error = error_of(bench.client.post("/v1/link", json={"mentions": ["cold"], "exact": False}), 422)
    assert error == "the calibration was fitted with --exact; use --exact, or calibrate again"


def test_exact_matches_rank_first_by_default_unless_calibrated_without_them(
    make_bench: MakeBench, linkers: dict[str, Linker]
) -> None:
    plain = linkers["disease"]
    bench = make_bench(served={"sure": half_sure(plain, exact=False)})
    assert bench.link("cold")[0]["candidates"][0]["matched_by"] == "dense"
    assert make_bench().link("cold")[0]["candidates"][0]["matched_by"] == "exact"


# Invalid requests


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ({}, 422, "mentions: Field required"),
        ({"mentions": []}, 422, "mentions: List should have at least 1 item after validation, not 0"),
        ({"mentions": ["a"], "k": 0}, 422, "k: Input should be greater than or equal to 1"),
        ({"mentions": ["a"], "k": 101}, 422, "k: Input should be less than or equal to 100"),
        ({"mentions": ["a"], "threshold": 2}, 422, "threshold: Input should be less than or equal to 1"),
        ({"mentions": ["a"], "treshold": 1}, 422, "treshold: Extra inputs are not permitted"),
        ({"mentions": ["a", 7]}, 422, "mentions.1: Input should be a valid string"),
        ({"mentions": ["a"], "k": True}, 422, "k: Input should be a valid integer"),
        ({"mentions": ["a"], "k": "3"}, 422, "k: Input should be a valid integer"),
        ({"mentions": ["a"], "k": 1.5}, 422, "k: Input should be a valid integer"),
        ({"mentions": ["a"], "threshold": True}, 422, "threshold: Input should be a valid number"),
        ({"mentions": ["a"], "exact": 1}, 422, "exact: Input should be a valid boolean"),
        ({"mentions": ["a"] * 201}, 422, "mentions: at most 200 per request"),
        ({"mentions": ["a" * 101]}, 422, "mentions: at most 100 characters each"),
        (
            {"mentions": ["a"], "types": ["T9"]},
            422,
            "the index has no type 'T9'; it has T033, T047, T184",
        ),
        (["a"], 422, "body: Input should be a valid dictionary or object to extract fields from"),
    ],
)  # fmt: skip
def test_an_invalid_value_is_reported_in_one_line(
    client: TestClient, body: Any, status: int, error: str
) -> None:
    assert error_of(client.post("/v1/link", json=body), status) == error


def test_a_whole_number_may_be_written_with_a_decimal_point(bench: Bench) -> None:
    assert bench.link("cold", k=2.0) == bench.link("cold", k=2)


@pytest.mark.parametrize("path", ["/v1/link", "/v1/map"])
@pytest.mark.parametrize(
    "kind", [None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_a_body_with_another_content_type_is_refused(client: TestClient, path: str, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    result = client.post(path, content=b'{"mentions": ["cold"]}', headers=headers)
    assert error_of(result, 415) == "send application/json and set the Content-Type header"


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON"])
def test_variants_of_the_json_content_type_are_accepted(client: TestClient, kind: str) -> None:
    result = client.post("/v1/link", content=b'{"mentions": ["cold"]}', headers={"Content-Type": kind})
    assert result.status_code == 200


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e400"])
def test_numbers_that_are_not_finite_are_refused(client: TestClient, number: bytes) -> None:
    result = post(client, b'{"mentions": ["a"], "threshold": ' + number + b"}")
    assert error_of(result, 422) == "threshold: Input should be a finite number"
    assert error_of(post(client, b'{"mentions": ["a"], "k": ' + number + b"}"), 422).startswith("k: ")


def test_errors_do_not_repeat_mentions(client: TestClient) -> None:
    secret = "Jane Doe"
    for mentions in ([{"name": secret}], secret, [secret * 20], [[secret]]):
        answer = client.post("/v1/link", json={"mentions": mentions})
        assert answer.status_code == 422
        assert secret not in answer.text


def test_an_error_midway_is_the_last_line_of_a_stream(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench()
    work = bench.service.batcher.submit
    seen = []

    async def fail_later(*arguments: Any, **options: Any) -> Any:
        seen.append(arguments)
        if len(seen) > 1:
            raise TimeoutError
        return await work(*arguments, **options)

    monkeypatch.setattr(bench.service.batcher, "submit", fail_later)
    body = {"mentions": [f"warm {number}" for number in range(100)]}
    result = lines(bench.client.post("/v1/link", json=body, headers=NDJSON))
    assert len(result) == batching.BATCH_SIZE + 1
    assert result[-1] == {"error": "no answer within 30 seconds; try again"}

    seen.clear()
    body = {"mentions": [f"warmer {number}" for number in range(100)]}
    answer = bench.client.post("/v1/link", json=body)
    assert error_of(answer, 503) == result[-1]["error"]
    assert answer.headers["retry-after"] == "5"


# Concepts, names, maps


def test_a_concept_is_shown_with_its_names_and_neighbours(client: TestClient) -> None:
    result = client.get("/v1/concepts/mesh:D1?neighbours=2").json()

    assert (result["concept_id"], result["types"], result["sources"]) == ("mesh:D1", ["T047"], ["MSH", "NCI"])
    assert result["names"] == [
        {"name": "Cardiac infarction", "sources": ["MSH"], "kind": "", "languages": ["en"]},
        {"name": "Heart attack", "sources": ["MSH"], "kind": "", "languages": ["en"]},
        {"name": "Myocardial infarction", "sources": ["NCI"], "kind": "", "languages": ["en"]},
    ]
    assert (result["name_count"], result["aliases"]) == (3, ["mesh:D9"])
    assert len(result["neighbours"]) == 2
    assert result["neighbours"][0]["score"] >= result["neighbours"][1]["score"]
    assert "mesh:D1" not in [near["concept_id"] for near in result["neighbours"]]


@pytest.mark.parametrize("concept_id", ["mesh:D9", "MSH:D1", "MESH:D1"])
def test_a_concept_is_found_by_alias_and_by_any_spelling_of_its_prefix(
    client: TestClient, concept_id: str
) -> None:
    result = client.get(f"/v1/concepts/{concept_id}?neighbours=0").json()
    assert (result["concept_id"], result["neighbours"]) == ("mesh:D1", [])


@pytest.mark.parametrize("concept_id", ["mesh:D3", "../../etc/passwd", "%2e%2e/x", "x" * 150])
def test_an_unknown_concept_is_not_found(client: TestClient, concept_id: str) -> None:
    assert error_of(client.get(f"/v1/concepts/{concept_id}"), 404)


def test_names_are_found_by_prefix(client: TestClient) -> None:
    result = client.get("/v1/search", params={"prefix": "C"}).json()["results"]

    assert [(row["matched_name"], row["concept_id"]) for row in result] == [
        ("Cardiac infarction", "mesh:D1"),
        ("Chest pain", "hp:2"),
        ("cold", "hp:1"),
        ("cold", "mesh:D2"),
    ]
    typed = client.get("/v1/search", params={"prefix": "c", "type": ["T033", "T184"], "limit": 1}).json()
    assert [row["concept_id"] for row in typed["results"]] == ["hp:2"]
    spaced = client.get("/v1/search", params={"prefix": "c", "namespace": ["MSH"]}).json()
    assert [row["concept_id"] for row in spaced["results"]] == ["mesh:D1", "mesh:D2"]
    assert client.get("/v1/search?prefix=zzz").json() == {"results": []}
    assert client.get("/v1/search?prefix=%20").json() == {"results": []}


@pytest.mark.parametrize(("searched", "linked"), [("type", "types"), ("namespace", "prefixes")])
def test_a_search_refuses_unknown_filters_like_linking(
    client: TestClient, searched: str, linked: str
) -> None:
    error = error_of(client.get("/v1/search", params={"prefix": "c", searched: "T9"}), 422)
    assert error == error_of(client.post("/v1/link", json={"mentions": ["c"], linked: ["T9"]}), 422)
    assert "the index has no " in error


def test_identifiers_are_found_by_prefix(client: TestClient) -> None:
    result = client.get("/v1/search", params={"prefix": "MESH:D"}).json()["results"]
    assert [row["concept_id"] for row in result] == ["mesh:D1", "mesh:D2"]


def test_a_map_has_the_nearest_names_of_a_mention(client: TestClient) -> None:
    result = client.post("/v1/map", json={"mention": "hart atack", "names": 5}).json()

    assert len(result["points"]) == 5
    assert result["points"][0]["name"] == "Heart attack"
    assert [point["score"] for point in result["points"]] == sorted(
        (point["score"] for point in result["points"]), reverse=True
    )
    assert 0 <= result["explained"][1] <= result["explained"][0] <= 1
    assert (result["x"], result["y"]) >= (0, 0)
    cold = next(point for point in result["points"] if point["name"] in ("Cold", "cold", "Common cold"))
    assert cold["concept_ids"] in (["hp:1", "mesh:D2"], ["mesh:D2"])
    assert error_of(client.post("/v1/map", json={"mention": "x" * 101}), 422)


# What runs here


def test_the_version_describes_linkers_and_limits(client: TestClient) -> None:
    result = client.get("/v1/version").json()

    assert result["sapbert"] == __version__
    assert result["limits"] == {"body_bytes": 100_000, "mentions": 200, "mention_characters": 100}
    assert result["linkers"][0] == {
        "name": "disease",
        "title": "Disease",
        "fingerprint": "f00d",
        "encoder": "trigrams-256",
        "names": 7,
        "concepts": 4,
        "prefixes": ["hp", "mesh"],
        "sources": ["HPO", "MSH", "NCI"],
        "kinds": ["own"],
        "languages": ["en"],
        "types": ["T033", "T047", "T184"],
        "calibrated": False,
    }
    assert result["linkers"][1]["name"] == "drug"


def test_a_service_is_ready_until_it_is_overloaded(make_bench: MakeBench) -> None:
    bench = make_bench(limits=Limits(requests=1))
    assert bench.client.get("/v1/ready").json() == {"status": "ok"}

    bench.service.in_flight = 1

    busy = bench.client.get("/v1/ready")
    assert (busy.status_code, busy.json()) == (503, {"status": "busy"})
    assert bench.client.get("/v1/health").json() == {"status": "ok"}


def test_unknown_paths_are_not_found(client: TestClient) -> None:
    assert error_of(client.get("/v1/nothing"), 404) == "no such path"
    assert error_of(client.get("/v1/link"), 405) == "method not allowed for this path"
    assert error_of(client.get("/docs"), 404)
