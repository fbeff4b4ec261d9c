"""The `sapbert` command; each subcommand is imported when it is called, so that startup is fast."""

from __future__ import annotations

import ast
import os
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
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
    "flash": "training",
    "biosyn": "training",
    "export": "training",
    "index": "linking",
    "reranker": "training",
    "link": "linking",
    "annotate": "linking",
    "calibrate": "linking",
    "benchmark": "evaluation",
    "evaluate": "evaluation",
    "score": "evaluation",
    "compare": "evaluation",
    "errors": "evaluation",
    "reproduce": "evaluation",
    "plot": "evaluation",
    "serve": "linking",
    "show": "vocab",
}
"""Command → folder of its module, in the order of --help."""


class _LazyCommands(TyperGroup):
    """Imports the module of a command when it is called: importing all takes a tenth of a second."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.commands: Any = dict.fromkeys(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002  # signature of TyperGroup
        return _load_command(cmd_name) if cmd_name in self.commands else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  # signature of TyperGroup
        """List the commands of --help without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _summary(name)) for name in self.commands])


@cache
def _load_command(name: str) -> Any:
    """Return the command of a module: its group `app`, or its function of the same name."""
    module = import_module(f"sapbert.cli.{_COMMANDS[name]}.{name}")
    parent = typer.Typer(rich_markup_mode=None)
    if hasattr(module, "app"):
        parent.add_typer(module.app, name=name)
    else:
        parent.command(name, cls=GroupedCommand)(getattr(module, name))
    return get_group(parent).commands[name]


def _summary(name: str) -> str:
    """Read the first line of a command's help from the source of its module."""
    source = Path(__file__).parent / _COMMANDS[name] / f"{name}.py"
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return str(ast.get_docstring(node)).partition("\n")[0]
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "command_group":
            return str(ast.literal_eval(node.args[0]))
    raise LookupError(name)


app = typer.Typer(
    name="sapbert",
    cls=_LazyCommands,
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

    `sapbert link "heart attack"` works without any setup. For your own vocabulary or encoder, run the
    pipeline: read a vocabulary, merge several, draw pairs, train on them, export the encoder, index the
    vocabulary, link mentions. Results go to files or standard output, messages and progress to standard
    error.
    """


def main() -> None:
    """Run the command line. Exit code: 0 success, 1 error in one line, 2 wrong usage, 130 interrupted."""
    # numpy's idle threads spin for 30 ms on cores that the encoder needs; this lets them sleep.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "6")
    try:
        app()
    except SapbertError as error:
        _fail(str(error))
    except OSError as error:
        # A full disk or a missing permission is the user's to fix; a traceback would not help.
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except SystemExit as stop:
        # typer exits like this on Ctrl-C, without a message.
        if stop.code == _INTERRUPTED:
            typer.echo("interrupted; no partial output was left behind", err=True)
        raise


def _fail(message: str) -> None:
    typer.echo(f"sapbert: {message}", err=True)
    sys.exit(1)
