"""The `sapbert` command and its verbs; what a verb needs is imported when it runs."""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from sapbert.cli.options import GroupedCommand
from sapbert.errors import SapbertError
from sapbert.version import __version__

_COMMANDS = {
    "fetch": "vocab",
    "read": "vocab",
    "merge": "vocab",
    "pairs": "vocab",
    "train": "training",
    "sweep": "training",
    "biosyn": "training",
    "export": "training",
    "index": "linking",
    "reranker": "training",
    "link": "linking",
    "calibrate": "linking",
    "benchmark": "evaluation",
    "evaluate": "evaluation",
    "compare": "evaluation",
    "errors": "evaluation",
    "reproduce": "evaluation",
    "plot": "evaluation",
    "serve": "linking",
    "show": "vocab",
}
"""Commands in the order that --help lists them, and the folder of each."""


class _Verbs(TyperGroup):
    """One verb a module, imported when it is asked for: all of them take a tenth of a second."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.commands: Any = dict.fromkeys(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002  # as TyperGroup has it
        return _verb(cmd_name) if cmd_name in self.commands else None


@cache
def _verb(name: str) -> Any:
    """The command of a module: its `app`, or its function of the same name."""
    module = import_module(f"sapbert.cli.{_COMMANDS[name]}.{name}")
    alone = typer.Typer(rich_markup_mode=None)
    if hasattr(module, "app"):
        alone.add_typer(module.app, name=name)
    else:
        alone.command(name, cls=GroupedCommand)(getattr(module, name))
    return get_group(alone).commands[name]


app = typer.Typer(
    name="sapbert",
    cls=_Verbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
)
_INTERRUPTED = 130


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"sapbert {__version__}")
        raise typer.Exit


@app.callback()
def sapbert(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """From any biomedical vocabulary to a working entity linker.

    `sapbert link "heart attack"` needs nothing else. For a vocabulary or an encoder of your own, each verb
    reads what the one before wrote: read a vocabulary, merge several, draw pairs, train on them, export the
    encoder, index the vocabulary, link mentions. Results go to files or standard output, words and progress
    to standard error.
    """


def main() -> None:
    """Run the command line: exit 0 done, 1 our error in one line, 2 wrong usage, 130 interrupted."""
    # numpy's threads go on asking for work, for 30 ms, on cores that the encoder needs; this bids them sleep.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "6")
    try:
        app()
    except SapbertError as error:
        _fail(str(error))
    except OSError as error:
        # A full disk, a forbidden folder: the user's to mend, not a bug to trace.
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except SystemExit as stop:
        # typer makes this of Ctrl-C, without a word.
        if stop.code == _INTERRUPTED:
            typer.echo("interrupted; nothing half-written was left behind", err=True)
        raise


def _fail(message: str) -> None:
    typer.echo(f"sapbert: {message}", err=True)
    sys.exit(1)
