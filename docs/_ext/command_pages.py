"""Write the command-line reference from the program itself, when the site is built.

One page per command goes to `docs/reference/commands/`, which is not under version control: its description,
and the text that `--help` prints.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from typer.main import get_command

from sapbert.cli.main import app as sapbert

_FOLDER = Path(__file__).parents[1] / "reference" / "commands"
_WIDTH = 100


def setup(app: Any) -> dict[str, Any]:
    """Write the pages before Sphinx looks for documents."""
    app.connect("config-inited", lambda _app, _config: write_pages(_FOLDER))
    return {"parallel_read_safe": True}


def write_pages(folder: Path) -> None:
    """Write one page per command; a page that would not change is not touched, so builds stay incremental."""
    folder.mkdir(exist_ok=True)
    program = get_command(sapbert)
    context = program.context_class(program, info_name="sapbert")
    for name in program.list_commands(context):
        page = "\n".join(_described(program.get_command(context, name), f"sapbert {name}", depth=1))
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != page:
            path.write_text(page, encoding="utf-8")


def _described(command: Any, name: str, *, depth: int) -> list[str]:
    """Return the lines of one command, and of its own commands below it."""
    lines = [f"{'#' * depth} {name}", ""]
    context = command.context_class(command, info_name=name, terminal_width=_WIDTH, max_content_width=_WIDTH)
    if not hasattr(command, "list_commands"):
        return [*lines, "```text", command.get_help(context), "```", ""]
    lines += [inspect.cleandoc(command.help or ""), ""]
    for inner in command.list_commands(context):
        lines += _described(command.get_command(context, inner), f"{name} {inner}", depth=depth + 1)
    return lines
