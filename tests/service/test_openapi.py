"""The OpenAPI description, checked with generated requests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance
from starlette.testclient import TestClient

from sapbert.service.api import MAX_UNSTREAMED_CANDIDATES
from sapbert.service.lookup import MAX_NAMES
from sapbert.service.reconciliation.routes import MAX_BATCH
from tests.service.conftest import MakeBench

OPERATIONS = [
    ("/v1/link", "POST"),
    ("/v1/annotate", "POST"),
    ("/v1/concepts/{concept_id}", "GET"),
    ("/v1/search", "GET"),
    ("/v1/map", "POST"),
    ("/v1/version", "GET"),
    ("/v1/health", "GET"),
    ("/v1/ready", "GET"),
    ("/metrics", "GET"),
]
FILTERED = ("/v1/link", "/v1/annotate", "/v1/search", "/v1/map")


@pytest.fixture(scope="module")
def described(make_bench: MakeBench) -> Any:
    return schemathesis.openapi.from_asgi("/v1/openapi.json", make_bench().app)


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_answers_conform_to_the_openapi_schema(described: Any, path: str, method: str) -> None:
    operation = described[path][method]
    cases = st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in GenerationMode))

    @given(cases)
    @settings(
        max_examples=20,
        database=None,
        derandomize=True,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    def hold(case: Any) -> None:
        # Words that an index does not know, and configured limits, are not part of the description.
        case.call_and_validate(excluded_checks=[positive_data_acceptance] if path in FILTERED else [])

    hold()


def test_every_operation_is_described_with_examples(client: TestClient) -> None:
    result = client.get("/v1/openapi.json").json()

    assert set(result["paths"]) == {path for path, _ in OPERATIONS}
    for operations in result["paths"].values():
        for operation in operations.values():
            assert operation["summary"]
    schemas = result["components"]["schemas"]
    for name in ("LinkRequest", "LinkAnswer", "Candidate", "MapRequest", "ErrorMessage"):
        assert schemas[name]["examples"], name


def test_documented_bounds_match_the_schema(client: TestClient) -> None:
    result = client.get("/v1/openapi.json").json()
    link, drawn = (
        result["components"]["schemas"][name]["properties"] for name in ("LinkRequest", "MapRequest")
    )
    search, concept = (
        {parameter["name"]: parameter["schema"] for parameter in result["paths"][path]["get"]["parameters"]}
        for path in ("/v1/search", "/v1/concepts/{concept_id}")
    )
    max_values = {link[name]["maxItems"] for name in ("types", "sources", "prefixes")}

    assert documented() == {
        "`k` of a link request": (link["k"]["minimum"], link["k"]["maximum"]),
        "mentions times `k`, unless streamed": (1, MAX_UNSTREAMED_CANDIDATES),
        "`types`, `sources`, `kinds` or `prefixes`": (0, *max_values),
        "`names` of a map": (drawn["names"]["minimum"], drawn["names"]["maximum"]),
        "`limit` of a search": (search["limit"]["minimum"], search["limit"]["maximum"]),
        "characters of a search `prefix`": (search["prefix"]["minLength"], search["prefix"]["maxLength"]),
        "`neighbours` of a concept": (concept["neighbours"]["minimum"], concept["neighbours"]["maximum"]),
        "names of a concept that are returned": (0, MAX_NAMES),
        "queries or identifiers in a `/reconcile` batch": (0, MAX_BATCH),
    }


def documented() -> dict[str, tuple[int, ...]]:
    """The bounds of the table in docs/reference/service.md."""
    text = (Path(__file__).parents[2] / "docs" / "reference" / "service.md").read_text()
    rows = re.findall(r"^\| (.+) \| (\d+) \| ([\d,]+) \|$", text, flags=re.MULTILINE)
    return {what: (int(least), int(most.replace(",", ""))) for what, least, most in rows}


def test_the_examples_of_the_schema_are_accepted(client: TestClient) -> None:
    schemas = client.get("/v1/openapi.json").json()["components"]["schemas"]
    for path, name in (("/v1/link", "LinkRequest"), ("/v1/map", "MapRequest")):
        for example in schemas[name]["examples"]:
            assert client.post(path, json=example).status_code == 200
