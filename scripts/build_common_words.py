"""Write `src/sapbert/annotation/common_words.txt`: words that are common in ordinary English.

    python scripts/build_common_words.py

The words are those of the documentation and the comments of Python's standard library: English prose about
something else than biomedicine, so a name of a concept that consists of such words ("role", "all", "lead") is
rarely a mention. A word counts if it occurs in lower case in three modules or topics.
"""

from __future__ import annotations

import ast
import re
import sysconfig
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

TARGET = Path(__file__).parents[1] / "src" / "sapbert" / "annotation" / "common_words.txt"
_WORD = re.compile(r"(?<![\w.])[a-z]{2,}(?![\w.(])")
_MIN_DOCUMENTS = 3


def _documents() -> Iterator[str]:
    yield from topics.values()
    library = Path(sysconfig.get_paths()["stdlib"])
    for module in sorted(library.rglob("*.py")):
        if {"site-packages", "test", "tests", "idle_test"} & set(module.parts):
            continue
        try:
            source = module.read_text(encoding="utf-8")
            tree = ast.parse(source)
        except (ValueError, SyntaxError):
            continue
        nodes = (
            node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        )
        docs = [ast.get_docstring(node) or "" for node in nodes]
        yield "\n".join([*docs, *re.findall(r"#\s+(.*)", source)])


def main() -> None:
    counts = Counter(word for document in _documents() for word in set(_WORD.findall(document)))
    words = sorted(word for word, count in counts.items() if count >= _MIN_DOCUMENTS)
    TARGET.write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    print(f"{len(words):,} words -> {TARGET.name}")


if __name__ == "__main__":
    main()
