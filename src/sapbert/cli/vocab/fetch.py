"""`sapbert fetch`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapbert.cli.output import progress_bar

if TYPE_CHECKING:
    from sapbert.fetch.catalogue import Publication
    from sapbert.fetch.download import Fetched

_MEGA = 1e6


def fetch(
    name: Annotated[
        str | None, typer.Argument(help="Which; without a name all are listed.", show_default=False)
    ] = None,
) -> None:
    """Get an open vocabulary from its publisher.

    Its path is printed, and the command that reads it. Files are kept under SAPBERT_HOME. A cut download goes
    on where it was; a file that is here is fetched again only if it has changed.
    """
    from sapbert.cache import cache_folder
    from sapbert.fetch.catalogue import CATALOGUE, find_publication
    from sapbert.fetch.download import download

    folder = cache_folder() / "vocabularies"
    if name is None:
        _list(CATALOGUE, folder)
        return
    wanted = find_publication(name)
    typer.echo(f"{wanted.title}\n  from     {wanted.address}\n  licence  {wanted.licence}", err=True)
    with progress_bar() as progress:
        fetched = download(wanted.address, folder / wanted.file, on_size=_tell_size, progress=progress)
    _tell(wanted, fetched)
    typer.echo(fetched.path)


def _list(catalogue: tuple[Publication, ...], folder: Path) -> None:
    here = {own.name: "yes" if (folder / own.file).exists() else "" for own in catalogue}
    rows = [(own.name, own.title, own.licence, here[own.name]) for own in catalogue]
    rows.insert(0, ("name", "vocabulary", "licence", "here"))
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(f"{text:<{width}}" for text, width in zip(row, wide, strict=True)).rstrip())


def _tell_size(size: int, here: int) -> None:
    whole = f"{size / _MEGA:,.1f} MB" if size else "not told"
    typer.echo(f"  size     {whole}{f', {here / _MEGA:,.1f} are here' if here else ''}", err=True)


def _tell(wanted: Publication, fetched: Fetched) -> None:
    state = "fetched" if fetched.new else "here already, and unchanged"
    checked = ", as published" if fetched.checked else ""
    options = f" {wanted.options}" if wanted.options else ""
    read = f"sapbert read {wanted.kind} {shlex.quote(str(fetched.path))}{options} -o {wanted.name}"
    typer.echo(f"  {state}  (SHA-256 {fetched.sha256}{checked})\nnext: {read}", err=True)
