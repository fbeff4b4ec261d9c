from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sapbert.errors import ArtifactError, FormatError, SapbertError
from sapbert.pairs import reference
from sapbert.pairs.artifact import Pairs
from sapbert.pairs.draw import draw_pairs
from sapbert.pairs.reference import read_reference, write_reference
from sapbert.pairs.settings import PairSettings
from sapbert.text import fold
from sapbert.vocab.input_files import InputReader
from sapbert.vocab.settings import OnError
from tests.pairs.test_draw import Row, english, pairs_of, write

Draw = Callable[[list[Row]], Pairs]


@pytest.fixture
def draw(tmp_path: Path) -> Draw:
    def run(rows: list[Row]) -> Pairs:
        vocabulary = write(tmp_path / "vocabulary", rows)
        return draw_pairs(vocabulary, tmp_path / "pairs", PairSettings(), overwrite=True)

    return run


ReadText = Callable[..., Pairs]


@pytest.fixture
def read_text(tmp_path: Path) -> ReadText:
    """Read pairs from the bytes of a text file."""

    def run(content: bytes, *, prefix: str | None = None, on_error: OnError = "stop") -> Pairs:
        (tmp_path / "text.txt").write_bytes(content)
        inputs = InputReader(on_error=on_error)
        return read_reference(tmp_path / "text.txt", tmp_path / "read", inputs, prefix=prefix, overwrite=True)

    return run


SOME = english("x:1", "Cold", "common cold", "sniffles") + english("x:2", "Cold", "chill")


# Writing


def test_a_pair_is_one_line(draw: Draw, tmp_path: Path) -> None:
    left_out = write_reference(draw(SOME), tmp_path / "pairs.txt")

    assert left_out == 0
    assert sorted((tmp_path / "pairs.txt").read_text().splitlines()) == [
        "x:1||cold||common cold",
        "x:1||cold||sniffles",
        "x:1||common cold||sniffles",
        "x:2||cold||chill",
    ]


@pytest.mark.parametrize("at_a_time", [1, 2, 3, 1000])
def test_the_block_size_makes_no_difference(
    draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_a_time: int
) -> None:
    pairs = draw(SOME)
    write_reference(pairs, tmp_path / "whole.txt")
    monkeypatch.setattr(reference, "_PAIRS_PER_BLOCK", at_a_time)

    write_reference(pairs, tmp_path / "pieces.txt")

    assert (tmp_path / "pieces.txt").read_bytes() == (tmp_path / "whole.txt").read_bytes()


@pytest.mark.parametrize("name", ["a||b", "||", "x||", "trailing|", "|leading"])
def test_a_name_that_the_format_cannot_represent_is_left_out_and_counted(
    draw: Draw, tmp_path: Path, name: str
) -> None:
    pairs = draw(english("x:1", name, "b", "zz"))

    left_out = write_reference(pairs, tmp_path / "pairs.txt")

    lines = (tmp_path / "pairs.txt").read_text().splitlines()
    assert "x:1||b||zz" in lines
    assert left_out + len(lines) == len(pairs) == 3
    for line in lines:
        assert line.split("||")[1:] in (["b", "zz"], ["b", name], ["zz", name])


def test_a_single_bar_inside_a_name_is_kept(draw: Draw, tmp_path: Path) -> None:
    assert write_reference(draw(english("x:1", "a|b", "c")), tmp_path / "pairs.txt") == 0
    assert (tmp_path / "pairs.txt").read_text() == "x:1||a|b||c\n"


def test_an_existing_file_is_replaced_only_with_overwrite(draw: Draw, tmp_path: Path) -> None:
    (tmp_path / "pairs.txt").write_text("precious")

    with pytest.raises(ArtifactError, match="exists; choose another name or give --overwrite"):
        write_reference(draw(SOME), tmp_path / "pairs.txt")
    assert (tmp_path / "pairs.txt").read_text() == "precious"
    write_reference(draw(SOME), tmp_path / "pairs.txt", overwrite=True)
    assert (tmp_path / "pairs.txt").read_text().count("\n") == 4


def test_a_folder_is_never_replaced(draw: Draw, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()

    with pytest.raises(ArtifactError, match="is a folder"):
        write_reference(draw(SOME), tmp_path / "folder", overwrite=True)
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "vocabulary", "pairs"}


def test_missing_folders_are_created(draw: Draw, tmp_path: Path) -> None:
    write_reference(draw(SOME), tmp_path / "new" / "deep" / "pairs.txt")

    assert (tmp_path / "new" / "deep" / "pairs.txt").is_file()


class DiskFullError(Exception):
    pass


def test_a_failed_write_keeps_the_existing_file(
    draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = draw(SOME)
    (tmp_path / "pairs.txt").write_text("precious")
    monkeypatch.setattr(reference, "_PAIRS_PER_BLOCK", 1)
    calls = []
    real = reference._lines

    def fail_at_the_third(pairs: Pairs, start: int, stop: int) -> object:
        calls.append(start)
        if len(calls) == 3:
            raise DiskFullError
        return real(pairs, start, stop)

    monkeypatch.setattr(reference, "_lines", fail_at_the_third)
    with pytest.raises(DiskFullError):
        write_reference(pairs, tmp_path / "pairs.txt", overwrite=True)

    assert (tmp_path / "pairs.txt").read_text() == "precious"
    assert {path.name for path in tmp_path.iterdir()} == {"pairs.txt", "vocabulary", "pairs"}


# Reading


def test_a_file_of_the_reference_code_is_read_with_a_prefix(read_text: ReadText) -> None:
    pairs = read_text(b"C0009443||Cold||common cold\nC0009443||cold||sniffles\n", prefix="umls")

    assert pairs_of(pairs) == {
        ("umls:C0009443", "cold", "common cold"),
        ("umls:C0009443", "cold", "sniffles"),
    }
    assert pairs.manifest.inputs.keys() == {"text.txt"}


def test_an_error_about_a_missing_prefix_names_the_option(read_text: ReadText) -> None:
    with pytest.raises(FormatError, match=r"^text\.txt:2: 'C0009443' is not an id .* \(give --prefix\)"):
        read_text(b"umls:C1||a||b\nC0009443||cold||sniffles\n")


@pytest.mark.parametrize(
    "line", [b"x:1||only one", b"no separators", b"x:1||a||b||c", b"x:1||||b", b"x:1||a||", b"x:1||a|| "]
)
def test_a_line_with_other_fields_is_an_error_with_its_number(read_text: ReadText, line: bytes) -> None:
    with pytest.raises(FormatError, match=r"^text\.txt:3: expected id\|\|name\|\|name, found "):
        read_text(b"x:1||a||b\n\n" + line + b"\nx:1||c||d\n")


def test_invalid_utf8_is_an_error_with_its_line(read_text: ReadText) -> None:
    with pytest.raises(FormatError, match=r"^text\.txt:2: byte 0xff in column 6 is not UTF-8"):
        read_text(b"x:1||a||b\nx:1||\xff||c\n")


def test_bad_lines_can_be_skipped_and_are_counted(read_text: ReadText) -> None:
    content = b"x:1||a||b\nnonsense\nC1||a||b\nx:1||\xff||b\nx:1||a||c\n"

    pairs = read_text(content, on_error="skip")

    assert pairs_of(pairs) == {("x:1", "a", "b"), ("x:1", "a", "c")}
    assert pairs.manifest.counts["bad rows skipped"] == 3


@pytest.mark.parametrize("content", [b"x:1||same||SAME\n", b"x:1||a||A\nx:1||b||b\n"])
def test_a_file_without_a_pair_is_an_error_and_leaves_no_files(
    read_text: ReadText, tmp_path: Path, content: bytes
) -> None:
    with pytest.raises(SapbertError, match="no pair of two different names"):
        read_text(content)
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_an_empty_file_is_an_error(read_text: ReadText) -> None:
    with pytest.raises(FormatError, match=r"^text\.txt: the file is empty"):
        read_text(b"")


def test_repeated_and_reversed_pairs_count_once(read_text: ReadText) -> None:
    pairs = read_text(b"x:1||a||b\nx:1||b||a\nx:1||A||b\n")

    assert pairs_of(pairs) == {("x:1", "a", "b")}


def test_lines_may_come_in_any_order(read_text: ReadText) -> None:
    lines = [b"x:2||c||d\n", b"x:1||a||b\n", b"x:1||b||e\n", b"x:2||a||d\n"]

    in_order = read_text(b"".join(sorted(lines))).manifest
    assert read_text(b"".join(lines)).manifest.fingerprint == in_order.fingerprint


def test_windows_line_ends_a_byte_order_mark_and_gzip_make_no_difference(
    read_text: ReadText, tmp_path: Path
) -> None:
    plain = read_text(b"x:1||a||b\nx:1||a||c\n").manifest
    (tmp_path / "packed.txt.gz").write_bytes(gzip.compress(b"\xef\xbb\xbfx:1||a||b\r\n\r\nx:1||a||c"))

    packed = read_reference(tmp_path / "packed.txt.gz", tmp_path / "packed", InputReader())

    assert packed.manifest.fingerprint == plain.fingerprint


# Writing and reading


names = st.text(
    st.characters(codec="utf-8", exclude_characters="|") | st.sampled_from("|ab\u200b"),
    min_size=1,
    max_size=4,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(st.sampled_from(["x:1", "y:2"]), names, st.just("en")), max_size=8))
@example(rows=english("x:1", "a|", "b", "|c", "d||e"))
def test_a_written_file_can_be_read(draw: Draw, tmp_path: Path, rows: list[Row]) -> None:
    pairs = draw(rows + english("z:1", "always", "there"))

    left_out = write_reference(pairs, tmp_path / "pairs.txt", overwrite=True)
    again = read_reference(tmp_path / "pairs.txt", tmp_path / "again", InputReader(), overwrite=True)

    assert pairs_of(again) <= pairs_of(pairs)
    missing = pairs_of(pairs) - pairs_of(again)
    assert len(missing) == left_out
    assert all("|" in fold(left) + fold(right) for _, left, right in missing)
