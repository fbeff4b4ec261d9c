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
        str | None, typer.Argument(help="Vocabulary; without a name, all are listed.", show_default=False)
    ] = None,
) -> None:
    """Download an open vocabulary from its publisher.

    Prints the path of the file, and the command that reads it. Files are kept below SAPBERT_HOME. An
    interrupted download is continued; an existing file is downloaded again only if it has changed.
    """
    from sapbert.cache import cache_folder
    from sapbert.fetch.catalogue import CATALOGUE, find_publication
    from sapbert.fetch.download import download

    folder = cache_folder() / "vocabularies"
    if name is None:
        _list(CATALOGUE, folder)
        return
    publication = find_publication(name)
    typer.echo(
        f"{publication.title}\n  from     {publication.address}\n  licence  {publication.licence}", err=True
    )
    with progress_bar() as progress:
        fetched = download(
            publication.address, folder / publication.file, on_size=_report_size, progress=progress
        )
    _report(publication, fetched)
    typer.echo(fetched.path)


def _list(catalogue: tuple[Publication, ...], folder: Path) -> None:
    rows = [("name", "vocabulary", "licence", "downloaded")]
    for publication in catalogue:
        downloaded = "yes" if (folder / publication.file).exists() else ""
        rows.append((publication.name, publication.title, publication.licence, downloaded))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip())


def _report_size(size: int, downloaded: int) -> None:
    total = f"{size / _MEGA:,.1f} MB" if size else "unknown"
    present = f", {downloaded / _MEGA:,.1f} MB already downloaded" if downloaded else ""
    typer.echo(f"  size     {total}{present}", err=True)


def _report(publication: Publication, fetched: Fetched) -> None:
    state = "downloaded" if fetched.new else "already downloaded, unchanged"
    checked = ", as published" if fetched.checked else ""
    options = f" {publication.options}" if publication.options else ""
    path = shlex.quote(str(fetched.path))
    read = f"sapbert read {publication.kind} {path}{options} -o {publication.name}"
    typer.echo(f"  {state}  (SHA-256 {fetched.sha256}{checked})\nnext: {read}", err=True)
