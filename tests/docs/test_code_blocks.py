"""Every code block of README and the documentation runs, and prints what the page shows.

The blocks of one page run in order in one temporary folder that holds `examples/` and `recipes/`. A random
BERT with two layers takes the place of all-MiniLM-L6-v2 (`out/minilm`), so training takes seconds.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from sapbert.cli.main import app, main
from tests.docs.blocks import PAGES, ROOT, Block, blocks_of, commands_of, starts_with
from tests.docs.compare import difference

_LANGUAGES = {"console", "python", "toml", "json", "text", "tsv", "csv", "http", "bibtex"}
_SHELL = ("cat", "echo", "head", "ls", "mkdir", "printf", "tail", "wc")
"""Commands other than `sapbert` that a block may run."""
_SHELL_SIGNS = re.compile(r"[|<>]|&&|\$\(")
_WITH_BLOCKS = [page for page in PAGES if blocks_of(page)]


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


class _Terminal(io.StringIO):
    """Standard output as a terminal, where `sapbert link` prints a table."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return files that several pages start with, each made once: `prepared("out/index")`."""
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "out").mkdir()
    examples = ROOT / "examples"
    making: dict[str, Callable[[], object]] = {
        "out/vocabulary": lambda: _sapbert("read", "table", examples / "common.tsv", "-o", "out/vocabulary"),
        "out/pairs": lambda: _sapbert("pairs", make("out/vocabulary"), "-o", "out/pairs"),
        "out/index": lambda: _sapbert(
            "index", make("out/vocabulary"), "--model", "default", "-o", "out/index"
        ),
        "out/minilm": lambda: _random_encoder(folder / "out" / "minilm"),
        "benchmark": lambda: shutil.copytree(
            ROOT / "tests" / "golden" / "benchmarks" / "plain", folder / "benchmark"
        ),
    }

    def make(name: str) -> Path:
        if not (folder / name).exists():
            here = Path.cwd()
            os.chdir(folder)
            try:
                making[name]()
            finally:
                os.chdir(here)
        return folder / name

    return make


def _random_encoder(folder: Path) -> None:
    from tests.encoder.tiny import tiny_bert  # loads torch, which most pages do not need

    tiny_bert(folder)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder as after cloning: examples and recipes, nothing under `out`."""
    for name in ("examples", "recipes", "data"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("SAPBERT_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.mark.parametrize("page", _WITH_BLOCKS, ids=_name)
def test_blocks_run_and_print_what_the_page_shows(
    page: Path, folder: Path, prepared: Callable[[str], Path]
) -> None:
    for name in starts_with(page):
        made = prepared(name)
        (folder / name).symlink_to(made, target_is_directory=True)
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = None
    for block in blocks_of(page):
        if block.not_run:
            printed = None
        elif block.file:
            (folder / block.file).write_text(block.text)
        elif block.language == "python":
            printed = _run_python(block, names)
        elif block.language == "console":
            _run_console(block)
        elif block.language == "text" and printed is not None and block.follows_directly:
            problem = difference(block.text, printed)
            assert problem is None, f"{block}: {problem}"
        elif block.language in ("toml", "json"):
            {"toml": tomllib.loads, "json": json.loads}[block.language](block.text)


@pytest.mark.parametrize("page", _WITH_BLOCKS, ids=_name)
def test_every_block_names_its_language(page: Path) -> None:
    unknown = [str(block) for block in blocks_of(page) if block.language not in _LANGUAGES]
    assert unknown == []


@pytest.mark.parametrize("page", _WITH_BLOCKS, ids=_name)
def test_commands_name_options_that_exist(page: Path) -> None:
    problems = [
        f"{block}: {problem}"
        for block in blocks_of(page)
        if block.language == "console"
        for command, _ in commands_of(block)
        for problem in _unknown_options(command)
    ]
    assert problems == []


def test_blocks_that_do_not_run_say_why() -> None:
    reasons = [block.not_run for page in _WITH_BLOCKS for block in blocks_of(page) if block.not_run]
    assert all(reason.startswith(("needs ", "takes ", "installs ", "sends ")) for reason in reasons), reasons


def _run_python(block: Block, names: dict[str, Any]) -> str:
    # Lines up to the block are kept blank, so that a traceback names the line of the page.
    source = "\n" * block.line + block.text
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(source, str(block.page), "exec"), names)
    return printed.getvalue()


def _run_console(block: Block) -> None:
    for command, shown in commands_of(block):
        words = shlex.split(command.replace("\\\n", " "), comments=True)
        if words[0] == "sapbert" and not _SHELL_SIGNS.search(command):
            code, printed = _sapbert(*words[1:])
        else:
            code, printed = _shell(block, command)
        expected = 1 if shown.startswith("sapbert: ") else 0
        assert code == expected, f"{block}: {command} ended with {code}: {printed}"
        if shown.strip():
            problem = difference(shown, printed)
            assert problem is None, f"{block}: {command}: {problem}\n{printed}"


def _sapbert(*arguments: object) -> tuple[int, str]:
    """Run the command line in this process; return its exit status and output (or its messages)."""
    before = sys.argv
    sys.argv = ["sapbert", *map(str, arguments)]
    code: object = 0
    try:
        with redirect_stdout(_Terminal()) as out, redirect_stderr(io.StringIO()) as err:
            main()
    except SystemExit as stop:
        code = stop.code
    finally:
        sys.argv = before
    return (code if isinstance(code, int) else 0), out.getvalue() or err.getvalue()


def _shell(block: Block, command: str) -> tuple[int, str]:
    allowed = (*_SHELL, "sapbert")
    words = command.split()
    assert words[0] in allowed, f"{block}: {words[0]} is not run by the tests; add <!-- not run: reason -->"
    function = f'sapbert() {{ "{sys.executable}" -m sapbert "$@"; }}\n'
    done = subprocess.run(
        ["bash", "-c", function + command], capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout or done.stderr


def _unknown_options(command: str) -> list[str]:
    """Return options of a `sapbert` command line that its command does not have."""
    command = command.replace("\\\n", " ")
    if "sapbert " not in command or _SHELL_SIGNS.search(command):
        return []
    words = shlex.split(command, comments=True)
    if words[0] != "sapbert":
        return []
    found: Any = get_command(app)
    used = 1
    for word in words[1:]:
        if not hasattr(found, "list_commands") or word.startswith("-"):
            break
        context = found.context_class(found, info_name=word)
        inner = found.get_command(context, word)
        if inner is None:
            return [f"no command {word!r} in {command!r}"]
        found, used = inner, used + 1
    context = found.context_class(found, info_name="sapbert")
    known = {name for each in found.get_params(context) for name in (*each.opts, *each.secondary_opts)}
    options = [word.split("=")[0] for word in words[used:] if re.match(r"--?[a-z]", word)]
    return [f"no option {option} in {command!r}" for option in options if option not in known]
