"""Parse a block of whole lines of a delimited file without quoting.

polars pads a line with too few fields and truncates one with too many. Therefore the shape of a block is
checked first: its sequence of separators and line ends must repeat one pattern. Only a block that fails this
check is parsed line by line.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from sapbert.errors import FormatError

_END = "_end"
"""Column after the last separator if lines end with a separator; always empty."""
_NEWLINE = ord("\n")


class BadLine(NamedTuple):
    """A line of a block that cannot be parsed."""

    offset: int
    """Number of lines before it in its block."""
    problem: str
    hint: str


class Parsed(NamedTuple):
    """A parsed block."""

    frame: pl.DataFrame
    bad: list[BadLine]
    lines: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a delimited file without quoting."""

    separator: str
    columns: tuple[str, ...]
    terminated: bool = False
    """Each line ends with a separator (UMLS)."""
    header: bool = False
    hint: str = ""
    """Added to the error if a line has a different number of columns."""


def parse_block(data: bytes, name: str, layout: Layout, columns: list[str], *, first: bool) -> Parsed:
    """Parse the given `columns`; `first` says that the header, if there is one, is in this block."""
    if first and layout.header:
        _check_header(data, name, layout)
        data = data[data.index(b"\n") + 1 :]
    header = int(first and layout.header)
    regular = _is_regular(data, layout)
    if not regular and b"\r\n" in data:
        data = data.replace(b"\r\n", b"\n")
        regular = _is_regular(data, layout)
    if regular:
        with suppress(pl.exceptions.PolarsError):
            frame = _parse(data, layout, columns)
            return Parsed(frame, [], frame.height + header)
    good, bad = _good_lines(data, layout)
    in_block = [line._replace(offset=line.offset + header) for line in bad]
    return Parsed(_parse(good, layout, columns), in_block, data.count(b"\n") + header)


def _is_regular(data: bytes, layout: Layout) -> bool:
    """Return whether every line has the right number of separators, including a final one if required."""
    text = pl.Series(np.frombuffer(data, np.uint8))
    ends, separators = text == _NEWLINE, text == ord(layout.separator)
    delimiters = text.filter(ends | separators).to_numpy()
    per_line = _separators_per_line(layout) + 1
    last = delimiters[per_line - 1 :: per_line]
    if len(delimiters) != per_line * len(last) or len(last) != ends.sum() or (last != _NEWLINE).any():
        return False
    return not layout.terminated or not (ends[1:] & ~separators[:-1]).any()


def _parse(data: bytes, layout: Layout, columns: list[str]) -> pl.DataFrame:
    """Parse lines with the right number of separators; a PolarsError means invalid UTF-8."""
    names = [*layout.columns, _END] if layout.terminated else list(layout.columns)
    schema = dict.fromkeys(names, pl.String)
    if not data:
        return pl.DataFrame(schema=schema).select(columns)
    scan = pl.scan_csv(
        data,
        separator=layout.separator,
        has_header=False,
        schema=schema,
        quote_char=None,
        empty_string_is_null=False,
    )
    return scan.select(columns).collect()


def _separators_per_line(layout: Layout) -> int:
    return len(layout.columns) - (0 if layout.terminated else 1)


def _good_lines(data: bytes, layout: Layout) -> tuple[bytes, list[BadLine]]:
    """Separate the lines of a block into those that can be parsed and bad ones; blank lines are dropped."""
    good: list[bytes] = []
    bad: list[BadLine] = []
    separator = layout.separator.encode()
    for offset, line in enumerate(data.split(b"\n")):
        if not line.strip(b" \r"):
            continue
        unterminated = not (layout.terminated and line.endswith(separator))
        fields = line.count(separator) + unterminated
        if fields != len(layout.columns):
            bad.append(
                BadLine(offset, f"expected {len(layout.columns)} columns, found {fields}", layout.hint)
            )
        elif unterminated and layout.terminated:
            bad.append(BadLine(offset, f"expected {layout.separator!r} at the end of the line", layout.hint))
        elif (problem := _bad_utf8(line)) is not None:
            bad.append(BadLine(offset, problem, "the file must be UTF-8"))
        else:
            good.append(line)
    return b"".join(line + b"\n" for line in good), bad


def _bad_utf8(line: bytes) -> str | None:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return f"byte 0x{line[error.start]:02x} in column {error.start + 1} is not UTF-8"
    return None


def _check_header(data: bytes, name: str, layout: Layout) -> None:
    line = data[: data.index(b"\n")].decode("utf-8", "replace").rstrip("\r")
    header = line.split(layout.separator)
    if [column.lower() for column in header] != [column.lower() for column in layout.columns]:
        raise FormatError(
            name,
            1,
            f"expected the columns {', '.join(layout.columns)}, found {line[:200]!r}",
            hint=layout.hint or None,
        )
