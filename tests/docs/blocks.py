"""Find the fenced code blocks of a Markdown page, and the comments that say how a test treats them.

A page may carry three kinds of comment:

- `<!-- starts with: out/vocabulary out/index -->`, once, near the top: files that the page expects to exist.
- `<!-- not run: needs UMLS -->` directly above a block: the block is not run; its commands are still checked
  for options that do not exist.
- `<!-- file: simple.py -->` directly above a block: the block is written to that file, for later blocks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "recipes/*.md", "benchmarks/*.md", "examples/*.md", "data/*.md")
    for path in ROOT.glob(pattern)
    if not {"_build", "commands"} & set(path.relative_to(ROOT).parts)
)
_FENCE = re.compile(r"^ *(`{3,})(.*)$")
_NOT_RUN = re.compile(r"<!-- not run: (.+) -->")
_FILE = re.compile(r"<!-- file: (\S+) -->")
_STARTS_WITH = re.compile(r"<!-- starts with: (.+) -->")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    """Line of the opening fence, from 1."""
    language: str
    text: str
    not_run: str
    """Why the block is not run; empty if it is."""
    file: str
    """Name of the file that the block is the content of; empty if it is none."""
    follows_directly: bool
    """Whether only blank lines separate it from the block before: then a `text` block is its output."""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page in order; MyST directives (```{name}) are left out."""
    blocks: list[Block] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    above, number, directly = "", 0, False
    while number < len(lines):
        opened = _FENCE.match(lines[number])
        if opened is None:
            directly = directly and not lines[number].strip()
            above = lines[number] if lines[number].strip() else above
            number += 1
            continue
        end = next(n for n in range(number + 1, len(lines)) if lines[n].strip() == opened[1])
        if not opened[2].startswith("{"):
            reason, file = _NOT_RUN.search(above), _FILE.search(above)
            text = dedent("\n".join(lines[number + 1 : end]))
            blocks.append(
                Block(
                    page,
                    number + 1,
                    opened[2].strip(),
                    text,
                    reason[1] if reason else "",
                    file[1] if file else "",
                    directly,
                )
            )
        above, directly, number = "", True, end + 1
    return blocks


def starts_with(page: Path) -> list[str]:
    """Return the files that a page expects to exist before its first block."""
    found = _STARTS_WITH.search(page.read_text(encoding="utf-8"))
    return found[1].split() if found else []


def commands_of(block: Block) -> list[tuple[str, str]]:
    """Return each command of a console block (lines after `$ `, continued by a backslash) and its output."""
    commands: list[tuple[str, str]] = []
    continued = False
    for line in block.text.splitlines():
        if continued:
            command, output = commands[-1]
            commands[-1] = (f"{command}\n{line}", output)
        elif line.startswith("$ "):
            commands.append((line[2:], ""))
        elif commands:
            command, output = commands[-1]
            commands[-1] = (command, f"{output}{line}\n")
        continued = line.endswith("\\") and (continued or line.startswith("$ "))
    return commands
