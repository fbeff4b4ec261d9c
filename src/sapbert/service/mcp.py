"""A linker as tools for language models: the Model Context Protocol over standard input and output.

The model that calls has no use for vectors or streams, so there are three tools and plain answers. A process
serves one client, which started it: keys, limits and the log of the HTTP service have no place here.
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
from sapbert.service.link_requests import rows_of
from sapbert.service.linkers import Served
from sapbert.service.schemas import Answer, Candidate, Concept, SearchAnswer, fault_of
from sapbert.service.state import State
from sapbert.version import __version__

_INSTRUCTIONS = (
    "Finds the concepts of biomedical vocabularies that words stand for. Use `link` for words from a text, "
    "`search` for names that begin so, `concept` for all that is known of an identifier. An answer of `link` "
    "without candidates means NIL: the vocabulary has no such concept."
)
_MOST_MENTIONS = 100
_READS = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)

LinkerName = Annotated[str | None, Field(description="Name of a vocabulary; without it, the first.")]


class _Server(MCPServer[None]):
    """Tells of wrong arguments in one line each, where pydantic's report of them fills a page."""

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
            raise ToolError("; ".join(map(fault_of, faults))) from error.__cause__


def create_server(state: State) -> MCPServer[None]:
    """Return a server with the tools `link`, `concept` and `search`."""
    # What fails is told to the model; in the log it would be what a patient said.
    server = _Server("sapbert", version=__version__, instructions=_INSTRUCTIONS, log_level="ERROR")
    there = ", ".join(state.linkers)

    def served(name: str | None) -> Served:
        if name is not None and name not in state.linkers:
            raise ToolError(f"there is no such linker; there is {there}")
        return state.linker(name)

    @server.tool(annotations=_READS)
    def link(
        mentions: Annotated[list[str], Field(min_length=1, max_length=_MOST_MENTIONS)],
        k: Annotated[int, Field(ge=1, le=20, description="Candidates of a mention.")] = 5,
        types: Annotated[list[str], Field(description="Only concepts of these types.")] = [],  # noqa: B006
        linker: LinkerName = None,
    ) -> list[Answer]:
        """Link words from a text to concepts: candidates with scores, the best first, none for NIL."""
        own = served(linker)
        settings: LinkSettings = own.settings(types=types)
        try:
            answers = own.linker.link(mentions, k=k, settings=settings)
        except ConfigError as error:
            raise ToolError(str(error)) from error
        return [
            Answer(mention=mention, candidates=[Candidate(**row) for row in rows_of(own, found)])
            for mention, found in zip(mentions, answers, strict=True)
        ]

    @server.tool(annotations=_READS)
    def concept(concept_id: str, linker: LinkerName = None) -> Concept:
        """Show a concept by its identifier, such as mesh:D009203: names, types, sources, nearest concepts."""
        own = served(linker)
        number = own.number_of(concept_id)
        if number is None:
            raise ToolError(f"there is no concept {concept_id}")
        return lookup.concept_of(own, number, neighbours=10)

    @server.tool(annotations=_READS)
    def search(
        prefix: Annotated[str, Field(min_length=1, max_length=200)],
        limit: Annotated[int, Field(ge=1, le=100)] = 10,
        linker: LinkerName = None,
    ) -> SearchAnswer:
        """Find concepts by how one of their names, or their identifier, begins."""
        return SearchAnswer(results=lookup.search(served(linker), prefix, limit=limit))

    return server


def serve_stdio(state: State) -> None:
    """Serve the process that started this one until it closes standard input."""
    create_server(state).run("stdio")
