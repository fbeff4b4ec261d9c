"""`sapbert serve`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from sapbert.cli.options import with_options
from sapbert.defaults import DEFAULT
from sapbert.errors import needing
from sapbert.service.server_settings import ServerSettings


@with_options()
def serve(
    settings: ServerSettings,
    index_or_config: Annotated[
        str,
        typer.Argument(
            help="Index, or a TOML file that configures several.",
            show_default="bundled MeSH index",
        ),
    ] = DEFAULT,
    mcp: Annotated[
        bool,
        typer.Option("--mcp", help="Serve a language model over standard input and output (MCP) instead."),
    ] = False,
    new_key: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Create a key and print its entry for the TOML file."),
    ] = None,
) -> None:
    """Serve linkers over HTTP to programs, OpenRefine and curators.

    SIGHUP reloads the configuration without dropping requests. Logs are JSON lines on standard error.
    """
    if new_key is not None:
        _print_key(new_key)
        return
    if mcp:
        _serve_mcp(index_or_config, settings.threads)
        return
    with needing("serve"):
        from sapbert.service.server import ServerPlan
        from sapbert.service.server import serve as run
    run(ServerPlan(source=index_or_config, **asdict(settings)), _announce)


def _announce(address: str, linkers: Sequence[str]) -> None:
    typer.echo(f"{address} serving {', '.join(linkers)}; press Ctrl-C to stop", err=True)


def _serve_mcp(index_or_config: str, threads: int | None) -> None:
    with needing("mcp"):
        from sapbert.service.mcp import serve_stdio
        from sapbert.service.settings import load_settings
        from sapbert.service.state import load_state
    serve_stdio(load_state(load_settings(index_or_config), threads=threads, verify=True))


def _print_key(name: str) -> None:
    with needing("serve"):
        from sapbert.service.middleware.keys import make_key
        from sapbert.service.settings import require_name
    require_name(name)
    key, digest = make_key()
    # Starts with a newline, because the file that it is appended to may not end with one.
    typer.echo(f'\n[keys."{name}"]\nsha256 = "{digest}"')
    typer.echo(f"key of {name}, not stored anywhere: {key}", err=True)
