from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sapbert.errors import FormatError
from sapbert.vocab.delimited import Layout
from sapbert.vocab.input_files import InputReader
from sapbert.vocab.settings import OnError
from tests.vocab.sources import CONTENT, PIPES, blocks_of, source_of

TABS = Layout("\t", ("id", "language", "name"), header=True, hint="is this CONCEPT.csv?")
BARE = Layout("\t", ("id", "language", "name"))


def rows(
    data: bytes, layout: Layout, inputs: InputReader, columns: list[str] | None = None
) -> list[tuple[str, ...]]:
    wanted = columns or list(layout.columns)
    return [row for frame in inputs.frames(source_of(data), layout, wanted) for row in frame.iter_rows()]


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("last", [True, False])
def test_line_ends_byte_order_marks_and_block_sizes_do_not_matter(
    size: int, end: bytes, mark: bytes, last: bool
) -> None:
    table = [
        ("C1", "ENG", 'a "quoted'),
        ("C2", "", "nul\x00byte"),
        ("C3", "HEB", "שפעת"),
        ("C4", "ENG", "x" * 99),
    ]
    lines = ["\t".join(row).encode() for row in table]
    for layout, head, stop in ((PIPES, [], b"|"), (TABS, [b"ID\tLanguage\tname"], b""), (BARE, [], b"")):
        separated = [line.replace(b"\t", layout.separator.encode()) + stop for line in lines]
        data = mark + end.join([*head, *separated]) + end * last
        with blocks_of(size):
            assert rows(data, layout, InputReader()) == table
            assert rows(data, layout, InputReader(), ["name", "id"]) == [(row[2], row[0]) for row in table]


@pytest.mark.parametrize("blank", range(9))
def test_blank_lines_are_not_rows(blank: int) -> None:
    data = b"C1|ENG|a|\n" + b"\n" * blank + b"C2|ENG|b|\n"
    assert rows(data, PIPES, InputReader()) == [("C1", "ENG", "a"), ("C2", "ENG", "b")]


def test_short_lines_are_not_joined() -> None:
    inputs = InputReader(on_error="skip")
    assert rows(b"C1\tENG\ta\nC2\nC3\nC4\n", BARE, inputs) == [("C1", "ENG", "a")]
    assert inputs.skipped_rows == 3


def test_a_name_may_be_very_long() -> None:
    name = "é" * 100_000
    with blocks_of(1000):
        assert rows(f"C1|ENG|{name}|\nC2|ENG|b|\n".encode(), PIPES, InputReader()) == [
            ("C1", "ENG", name),
            ("C2", "ENG", "b"),
        ]


BAD = [
    (b"C9|ENG|", "expected 3 columns, found 2"),
    (b"C9|ENG|name|more|", "expected 3 columns, found 4"),
    (b"C9|ENG|name|more", "expected 3 columns, found 4"),
    (b"C9|ENG|name", r"expected '\|' at the end of the line"),
    (b"|", "expected 3 columns, found 1"),
    (b"||||", "expected 3 columns, found 4"),
    (b"garbage", "expected 3 columns, found 1"),
    (b"C9|ENG|\xe9t\xe9|", "byte 0xe9 in column 8 is not UTF-8"),
    (b"C9|\xff|name|", "byte 0xff in column 4 is not UTF-8"),
]


@pytest.mark.parametrize("size", [1, 30, 1 << 20])
@pytest.mark.parametrize("at", [0, 57, 199])
@pytest.mark.parametrize(("line", "problem"), BAD)
def test_a_bad_line_is_reported_with_its_number(size: int, at: int, line: bytes, problem: str) -> None:
    lines = CONTENT.splitlines()
    data = b"\n".join([*lines[:at], line, *lines[at:]])
    with blocks_of(size), pytest.raises(FormatError, match=rf"^invented\.txt:{at + 1}: {problem} \("):
        rows(data, PIPES, InputReader(), ["id"])


def test_a_short_and_a_long_line_do_not_cancel_out() -> None:
    inputs = InputReader(on_error="skip")
    data = b"C1|ENG|a|\nC2|ENG|\nC3|ENG|c|more|\nC4|ENG|d|\n"
    assert rows(data, PIPES, inputs, ["id", "name"]) == [("C1", "a"), ("C4", "d")]
    assert inputs.skipped_rows == 2


@pytest.mark.parametrize("size", [1, 25, 1 << 20])
def test_a_header_and_blank_lines_count_as_lines(size: int) -> None:
    data = b"id\tlanguage\tname\r\n\r\nC1\ten\ta\r\n\n  \nC2\ten\r\nC3\ten\tc\r\n"
    with blocks_of(size), pytest.raises(FormatError, match=r"^invented\.txt:6: expected 3 columns, found 2"):
        rows(data, TABS, InputReader())
    inputs = InputReader(on_error="skip")
    with blocks_of(size):
        assert rows(data, TABS, inputs) == [("C1", "en", "a"), ("C3", "en", "c")]
    assert inputs.skipped_examples == ["invented.txt:6: expected 3 columns, found 2 (is this CONCEPT.csv?)"]


@pytest.mark.parametrize("header", [b"C1\ten\ta", b"id\tlanguage", b"id\tlanguage\tname\tmore", b"", b"\xff"])
@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_another_header_is_refused(header: bytes, on_error: OnError) -> None:
    with pytest.raises(
        FormatError, match=r"^invented\.txt:1: expected the columns id, language, name, found"
    ):
        rows(header + b"\nC1\ten\ta\n", TABS, InputReader(on_error=on_error))


def test_a_file_with_only_a_header_has_no_rows() -> None:
    assert rows(b"id\tlanguage\tname\n", TABS, InputReader()) == []


def test_skipping_counts_the_bad_rows_and_keeps_the_first_few_as_examples() -> None:
    data = b"".join(b"C%d|ENG|name|\nbad %d\n" % (row, row) for row in range(9))
    inputs = InputReader(on_error="skip")
    with blocks_of(20):
        assert [row[0] for row in rows(data, PIPES, inputs)] == [f"C{row}" for row in range(9)]
    assert inputs.skipped_rows == 9
    assert inputs.skipped_examples == [
        f"invented.txt:{line}: expected 3 columns, found 1 (is this MRCONSO.RRF?)"
        for line in (2, 4, 6, 8, 10)
    ]


fields = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="|\n\r"), max_size=4)
good_lines = st.tuples(fields, fields, fields).map(lambda row: "|".join(row).encode() + b"|")
odd_lines = st.lists(fields, max_size=6).map(lambda row: "|".join(row).encode() + b"|")
loose_lines = st.tuples(good_lines, fields).map(lambda parts: parts[0] + parts[1].encode())
broken_lines = good_lines.map(lambda line: b"\xff" + line)
any_lines = good_lines | odd_lines | loose_lines | broken_lines | fields.map(str.encode)


@given(st.lists(any_lines, min_size=1), st.integers(1, 40), st.sampled_from([b"\n", b"\r\n"]))
@example([b"1|2|3|", b"1|2|", b"1|2|3|4|"], 99, b"\n")
def test_every_line_is_a_row_or_blank_or_bad(lines: list[bytes], size: int, end: bytes) -> None:
    good, bad = [], []
    for number, line in enumerate(lines, 1):
        try:
            *row, rest = line.decode().split("|")
            blank = not line.strip(b" ")
        except UnicodeDecodeError:
            row, rest, blank = [], "broken", False
        if len(row) == 3 and not rest:
            good.append(tuple(row))
        elif not blank:
            bad.append(number)
    inputs, found = InputReader(on_error="skip"), list[tuple[str, ...]]()
    with blocks_of(size):
        try:
            found = rows(end.join(lines) + end, PIPES, inputs)
        except FormatError:
            assert (good, bad) == ([], [])
    # polars takes a byte-order mark away, wherever a block begins.
    assert [(row[0].lstrip("\ufeff"), *row[1:]) for row in found] == [
        (row[0].lstrip("\ufeff"), *row[1:]) for row in good
    ]
    assert inputs.skipped_rows == len(bad)
    assert [int(text.split(":")[1]) for text in inputs.skipped_examples] == bad[:5]
