from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from mcp.client import Client

from sapbert.service.mcp import create_server
from sapbert.service.state import State


@pytest.fixture
def call(make_state: Callable[..., State]) -> Callable[..., Any]:
    """Call a tool like a language model; return the answer, or the text of an error."""

    def run(name: str, **arguments: Any) -> Any:
        async def ask() -> Any:
            async with Client(create_server(make_state())) as client:
                return await client.call_tool(name, arguments)

        result = anyio.run(ask)
        return result.content[0].text if result.is_error else result.structured_content

    return run


def test_there_are_three_read_only_tools(make_state: Callable[..., State]) -> None:
    async def ask() -> Any:
        async with Client(create_server(make_state())) as client:
            return await client.list_tools()

    tools = {tool.name: tool for tool in anyio.run(ask).tools}
    assert set(tools) == {"link", "concept", "search"}
    for tool in tools.values():
        assert tool.description
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint
    assert tools["link"].input_schema["required"] == ["mentions"]


def test_mentions_are_linked(call: Callable[..., Any]) -> None:
    result = call("link", mentions=["hart atack", "COLD", ""], k=2)["result"]

    assert [answer["mention"] for answer in result] == ["hart atack", "COLD", ""]
    assert result[0]["candidates"][0]["concept_id"] == "mesh:D1"
    assert [row["concept_id"] for row in result[1]["candidates"]] == ["hp:1", "mesh:D2"]
    assert result[2]["candidates"] == []
    assert (
        call("link", mentions=["aspirin"], linker="drug")["result"][0]["candidates"][0]["matched_by"]
        == "exact"
    )
    typed = call("link", mentions=["cold"], types=["T033"])["result"]
    assert [row["concept_id"] for row in typed[0]["candidates"]] == ["hp:1"]


def test_a_concept_is_shown_and_names_are_searched(call: Callable[..., Any]) -> None:
    assert [name["name"] for name in call("concept", concept_id="mesh:D9")["names"]] == [
        "Cardiac infarction", "Heart attack", "Myocardial infarction"
    ]  # fmt: skip
    assert [row["concept_id"] for row in call("search", prefix="heart")["results"]] == ["mesh:D1"]


@pytest.mark.parametrize(
    ("tool", "arguments", "problem"),
    [
        ("link", {"mentions": ["cold"], "linker": "food"}, "no such linker; the linkers are disease, drug"),
        ("link", {"mentions": ["cold"], "types": ["T9"]}, "the index has no type 'T9'"),
        ("link", {"mentions": []}, "mentions: List should have at least 1 item after validation, not 0"),
        ("link", {}, "mentions: Field required"),
        ("link", {"mentions": ["cold", 7], "k": 99}, "mentions.1: Input should be a valid string; k: Input "),
        ("concept", {"concept_id": "mesh:D7"}, "no concept mesh:D7"),
        ("search", {"prefix": ""}, "prefix: String should have at least 1 character"),
        ("search", {"prefix": "c", "limit": "many"}, "limit: Input should be a valid integer"),
    ],
)
def test_wrong_arguments_are_reported_in_one_line(
    call: Callable[..., Any], tool: str, arguments: dict[str, Any], problem: str
) -> None:
    text = call(tool, **arguments)
    assert problem in text
    assert "\n" not in text
