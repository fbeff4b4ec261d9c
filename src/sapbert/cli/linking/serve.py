"""`sapbert serve`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from sapbert.defaults import DEFAULT
from sapbert.errors import needing


def serve(
    what: Annotated[
        str,
        typer.Argument(
            help="An index, or a TOML file that names several.", show_default="MeSH, which comes along"
        ),
    ] = DEFAULT,
    host: Annotated[str, typer.Option(help="Address to listen on; others need a key.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, help="Processes; they share the index in memory.")] = 1,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Of the encoder, in each worker.", show_default="cores / workers"),
    ] = None,
    mcp: Annotated[
        bool, typer.Option("--mcp", help="Serve a language model over standard input and output instead.")
    ] = False,
    without_keys: Annotated[
        bool, typer.Option("--without-keys", help="Let others ask without a key.")
    ] = False,
    log_mentions: Annotated[
        bool, typer.Option("--log-mentions", help="Write mentions to the log; they may be patient data.")
    ] = False,
    new_key: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Make a key and print what belongs into the TOML file."),
    ] = None,
) -> None:
    """Serve linkers over HTTP to programs, OpenRefine and curators.

    SIGHUP reads the configuration again without dropping a request. Logs are JSON lines on standard error.
    """
    if new_key is not None:
        _print_key(new_key)
        return
    if mcp:
        _serve_mcp(what, threads)
        return
    with needing("serve"):
        from sapbert.service.server import Plan
        from sapbert.service.server import serve as run
    run(
        Plan(
            what=what,
            host=host,
            port=port,
            workers=workers,
            threads=threads,
            without_keys=without_keys,
            log_mentions=log_mentions,
        ),
        _announce,
    )


def _announce(address: str, linkers: Sequence[str]) -> None:
    typer.echo(f"{address} serves {', '.join(linkers)}; Ctrl-C stops it", err=True)


def _serve_mcp(what: str, threads: int | None) -> None:
    with needing("mcp"):
        from sapbert.service.mcp import serve_stdio
        from sapbert.service.settings import settings_of
        from sapbert.service.state import load_state
    serve_stdio(load_state(settings_of(what), threads=threads, verify=True))


def _print_key(name: str) -> None:
    with needing("serve"):
        from sapbert.service.middleware.keys import make_key
        from sapbert.service.settings import require_name
    require_name(name)
    key, digest = make_key()
    # An empty line first: the file it is appended to may not end with one.
    typer.echo(f'\n[keys."{name}"]\nsha256 = "{digest}"')
    typer.echo(f"the key of {name}, which is kept nowhere: {key}", err=True)
