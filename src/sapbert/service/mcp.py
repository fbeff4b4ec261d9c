"""Linkers as tools for language models: the Model Context Protocol (MCP) over standard input and output.

A language model needs neither vectors nor streams, so there are three tools with plain answers. A process
has one client, which started it; keys, limits and the log of the HTTP service do not apply.
"""

from __future__ import annotations

from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import Field, ValidationError

from sapbert.errors import ConfigError
from sapbert.linking.settings import LinkSettings
from sapbert.service import lookup
from sapbert.service.link_requests import candidate_rows
from sapbert.service.linkers import ServedLinker
from sapbert.service.schemas import Answer, Candidate, Concept, SearchAnswer, validation_message
from sapbert.service.state import State
from sapbert.version import __version__

_INSTRUCTIONS = (
    "Links mentions to the concepts of biomedical vocabularies. Use `link` for words from a text, `search` "
    "to find names by prefix, and `concept` for the details of an identifier. An answer of `link` without "
    "candidates means NIL: the vocabulary has no such concept."
)
_MAX_MENTIONS = 100
_READS = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)

LinkerName = Annotated[str | None, Field(description="Name of the linker. Default: the first one.")]


class _Server(MCPServer[None]):
    """Reports wrong arguments in one line each, instead of pydantic's long report."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[None, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool."""
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            faults = error.__cause__.errors(include_url=False, include_input=False)
            raise ToolError("; ".join(map(validation_message, faults))) from error.__cause__


def create_server(state: State) -> MCPServer[None]:
    """Return a server with the tools `link`, `concept` and `search`."""
    # Errors are returned to the model. They are not logged, because they may quote patient data.
    server = _Server("sapbert", version=__version__, instructions=_INSTRUCTIONS, log_level="ERROR")
    known = ", ".join(state.linkers)

    def served_linker(name: str | None) -> ServedLinker:
        if name is not None and name not in state.linkers:
            raise ToolError(f"no such linker; the linkers are {known}")
        return state.linker(name)

    @server.tool(annotations=_READS)
    def link(
        mentions: Annotated[list[str], Field(min_length=1, max_length=_MAX_MENTIONS)],
        k: Annotated[int, Field(ge=1, le=20, description="Candidates per mention.")] = 5,
        types: Annotated[list[str], Field(description="Only concepts of these types.")] = [],  # noqa: B006
        linker: LinkerName = None,
    ) -> list[Answer]:
        """Link mentions to concepts. Returns scored candidates per mention, best first; none means NIL."""
        served = served_linker(linker)
        settings: LinkSettings = served.default_settings(types=types)
        try:
            answers = served.linker.link(mentions, k=k, settings=settings)
        except ConfigError as error:
            raise ToolError(str(error)) from error
        return [
            Answer(
                mention=mention, candidates=[Candidate(**row) for row in candidate_rows(served, candidates)]
            )
            for mention, candidates in zip(mentions, answers, strict=True)
        ]

    @server.tool(annotations=_READS)
    def concept(concept_id: str, linker: LinkerName = None) -> Concept:
        """Get the names, types, sources and nearest concepts of an identifier such as mesh:D009203."""
        served = served_linker(linker)
        number = served.concept_number(concept_id)
        if number is None:
            raise ToolError(f"no concept {concept_id}")
        return lookup.describe_concept(served, number, neighbours=10)

    @server.tool(annotations=_READS)
    def search(
        prefix: Annotated[str, Field(min_length=1, max_length=200)],
        limit: Annotated[int, Field(ge=1, le=100)] = 10,
        linker: LinkerName = None,
    ) -> SearchAnswer:
        """Find concepts with a name or an identifier that starts with the prefix."""
        return SearchAnswer(results=lookup.search(served_linker(linker), prefix, limit=limit))

    return server


def serve_stdio(state: State) -> None:
    """Run the server until the client closes standard input."""
    create_server(state).run("stdio")
