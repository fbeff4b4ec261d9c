from __future__ import annotations

from starlette.testclient import TestClient

from sapbert.service.settings import Limits
from tests.service.conftest import MakeBench


def test_texts_are_annotated_with_offsets_and_context(client: TestClient) -> None:
    done = client.post("/v1/annotate", json={"texts": ["Now chest pain, no heart attack.", "😷"]})

    assert done.status_code == 200
    first, second = done.json()["answers"]
    pain, attack = first["annotations"]
    assert (pain["start"], pain["end"], pain["concept_id"], pain["negated"]) == (4, 14, "hp:2", False)
    assert (attack["mention"], attack["negated"]) == ("heart attack", True)
    assert attack["triggers"] == [{"kind": "negated", "start": 16, "end": 18, "phrase": "no"}]
    assert second == {"annotations": []}


def test_options_and_limits_are_checked(make_bench: MakeBench) -> None:
    client = make_bench(limits=Limits(mentions=1)).client

    assert client.post("/v1/annotate", json={"texts": ["a", "b"]}).status_code == 422
    assert client.post("/v1/annotate", json={"texts": ["a"], "min_confidence": 2}).status_code == 422
    unknown = client.post("/v1/annotate", json={"texts": ["a"], "types": ["T999"]})
    assert unknown.status_code == 422
    assert "no type" in unknown.json()["error"]
    types = client.post("/v1/annotate", json={"texts": ["chest pain"], "types": ["T047"]})
    assert types.json()["answers"] == [{"annotations": []}]
