"""Compare what a block printed with what the page shows.

Numbers may differ a little: a quantized encoder rounds differently on different processors. Spaces between
words and colours do not count. A line `...` stands for any number of lines.
"""

from __future__ import annotations

import re

_TOLERANCE = 0.02
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_WORD = re.compile(r"\d+\.\d+|[^\s,]+|,")


def difference(shown: str, printed: str) -> str | None:
    """Return the first difference in words, or None if the output is as shown."""
    expected = [line for line in shown.splitlines() if line.strip()]
    found = [line for line in _COLOUR.sub("", printed).splitlines() if line.strip()]
    return _compare(expected, found)


def _compare(expected: list[str], found: list[str]) -> str | None:
    for number, line in enumerate(expected):
        if line.strip() == "...":
            rest = expected[number + 1 :]
            if any(_compare(rest, found[start:]) is None for start in range(number, len(found) + 1)):
                return None
            return f"nothing after '...' matches {rest[0] if rest else 'the end'!r}"
        if number >= len(found):
            return f"not printed: {line!r}"
        if not _same_line(line, found[number]):
            return f"shown {line!r}, printed {found[number]!r}"
    return f"not shown: {found[len(expected)]!r}" if len(found) > len(expected) else None


def _same_line(shown: str, printed: str) -> bool:
    expected, found = _WORD.findall(shown), _WORD.findall(printed)
    return len(expected) == len(found) and all(map(_same_word, expected, found))


def _same_word(shown: str, printed: str) -> bool:
    if shown == printed:
        return True
    try:
        return "." in shown and abs(float(shown) - float(printed)) <= _TOLERANCE
    except ValueError:
        return False
