from __future__ import annotations

import gzip
import io
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from xxhash import xxh3_128

from sapbert.errors import FormatError
from sapbert.vocab import intake as module
from sapbert.vocab.delimited import Layout
from sapbert.vocab.intake import Intake, Member, OnError, Release, Source, ordered_map

PATTERN = r"MRCONSO\.RRF"
CONTENT = b"".join(b"C%07d|ENG|invented name %d|\n" % (row, row) for row in range(200))
PIPES = Layout("|", ("id", "language", "name"), terminated=True, hint="is this MRCONSO.RRF?")
TABS = Layout("\t", ("id", "language", "name"), header=True, hint="is this CONCEPT.csv?")
BARE = Layout("\t", ("id", "language", "name"))


def zipped(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def lay(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def find(path: Path, pattern: str = PATTERN) -> Source:
    source = Release(path).find(pattern)
    assert source is not None
    return source


def content(source: Source, intake: Intake | None = None) -> bytes:
    with (intake or Intake()).stream(source) as stream:
        return stream.read()


def source_of(*pieces: bytes, name: str = "invented.txt") -> Source:
    """A source that needs no file."""

    def opener(piece: bytes) -> Callable[[], io.BytesIO]:
        return lambda: io.BytesIO(piece)

    return Source(name, tuple(Member(name, len(piece), opener(piece)) for piece in pieces))


@contextmanager
def blocks_of(size: int) -> Iterator[None]:
    """Cut sources into blocks of `size` bytes, also inside a hypothesis test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_BYTES", size)
        yield


# Finding files


def plain(folder: Path) -> Path:
    return lay(folder, {"META/MRCONSO.RRF": CONTENT}) / "META" / "MRCONSO.RRF"


def in_a_folder(folder: Path) -> Path:
    return lay(folder, {"META/MRCONSO.RRF": CONTENT, "META/MRSTY.RRF": b"other"}) / "META"


def in_a_deeper_folder(folder: Path) -> Path:
    return lay(folder, {"2026AA/META/MRCONSO.RRF": CONTENT, "2026AA/README.txt": b"other"})


def gzipped(folder: Path) -> Path:
    return lay(folder, {"MRCONSO.RRF.gz": gzip.compress(CONTENT)}) / "MRCONSO.RRF.gz"


def gzipped_in_members(folder: Path) -> Path:
    packed = gzip.compress(CONTENT[:100]) + gzip.compress(CONTENT[100:])
    return lay(folder, {"MRCONSO.RRF.gz": packed})


def in_a_zip(folder: Path) -> Path:
    return lay(folder, {"umls-mrconso.zip": zipped({"MRCONSO.RRF": CONTENT})}) / "umls-mrconso.zip"


def in_a_zip_in_a_folder(folder: Path) -> Path:
    return lay(folder, {"download/umls.ZIP": zipped({"2026AA/META/mrconso.rrf": CONTENT})})


def in_a_zip_in_a_zip(folder: Path) -> Path:
    inner = zipped({"2026AA/META/MRCONSO.RRF.gz": gzip.compress(CONTENT)})
    return lay(folder, {"full.zip": zipped({"2026AA-full/2026aa-1-meta.nlm": inner})}) / "full.zip"


def in_pieces_in_one_folder(folder: Path) -> Path:
    return lay(folder, {"META/MRCONSO.RRF.ab": CONTENT[777:], "META/MRCONSO.RRF.aa": CONTENT[:777]})


def in_pieces_in_several_archives(folder: Path) -> Path:
    """As the full release of UMLS: the pieces of one file in several `.nlm` of one zip, cut amid a line."""
    cuts = [0, 1001, 1002, 3500, len(CONTENT)]
    pieces = [gzip.compress(CONTENT[a:b]) for a, b in pairwise(cuts)]
    stored = zipfile.ZIP_STORED
    names = [f"2026AA/META/MRCONSO.RRF.{suffix}.gz" for suffix in ("aa", "ab", "ac", "ad")]
    first = zipped({names[0]: pieces[0], names[1]: pieces[1], "2026AA/META/MRSTY.RRF.gz": b"other"}, stored)
    second = zipped({names[3]: pieces[3], names[2]: pieces[2]}, stored)
    other = zipped({"2026AA/NET/SRDEF": b"other"})
    archives = {"2026aa-2-meta.nlm": second, "2026aa-1-meta.NLM": first, "2026aa-otherks.nlm": other}
    outer = zipped({f"2026AA-full/{name}": archive for name, archive in archives.items()}, stored)
    return lay(folder, {"umls-2026AA-full.zip": outer}) / "umls-2026AA-full.zip"


PACKAGINGS = [
    plain,
    in_a_folder,
    in_a_deeper_folder,
    gzipped,
    gzipped_in_members,
    in_a_zip,
    in_a_zip_in_a_folder,
    in_a_zip_in_a_zip,
    in_pieces_in_one_folder,
    in_pieces_in_several_archives,
]


@pytest.mark.parametrize("pack", PACKAGINGS)
def test_a_file_is_found_and_read_whatever_wraps_it(tmp_path: Path, pack: Callable[[Path], Path]) -> None:
    source, intake = find(pack(tmp_path)), Intake()
    assert source.name.upper() == "MRCONSO.RRF"
    assert content(source, intake) == CONTENT
    digest = xxh3_128(CONTENT).hexdigest()
    assert intake.inputs == {source.name: {"bytes": len(CONTENT), "xxh3": digest}}

    with blocks_of(999):
        assert b"".join(Intake().blocks(source)) == CONTENT
        frame = pl.concat(Intake().frames(source, PIPES, ["name"]))
    assert frame["name"].to_list() == [f"invented name {row}" for row in range(200)]


def test_the_least_deep_of_several_is_taken(tmp_path: Path) -> None:
    subset = {"MRCONSO.RRF": b"a subset"}
    deep = {"a/subset/MRCONSO.RRF": b"a subset", "a/b/MRCONSO.RRF.gz": b"?", "a/archive.zip": zipped(subset)}
    assert content(find(lay(tmp_path, {**deep, "z/MRCONSO.RRF": CONTENT}))) == CONTENT


def test_a_whole_file_is_taken_before_its_pieces(tmp_path: Path) -> None:
    both = {"MRCONSO.RRF.aa": b"a piece", "MRCONSO.RRF.ab": b"a piece", "MRCONSO.RRF": CONTENT}
    assert content(find(lay(tmp_path, both))) == CONTENT


@pytest.mark.parametrize(
    ("present", "missing"), [(("aa", "ac"), "ab"), (("ab",), "aa"), (("aa", "ba"), "ab")]
)
def test_a_missing_piece_is_named(tmp_path: Path, present: tuple[str, ...], missing: str) -> None:
    lay(tmp_path, {f"MRCONSO.RRF.{piece}.gz": gzip.compress(CONTENT) for piece in present})
    with pytest.raises(FormatError, match=rf"MRCONSO\.RRF\.{missing}: this piece is missing"):
        Release(tmp_path).find(PATTERN)


def test_a_name_must_match_as_a_whole_and_case_does_not_matter(tmp_path: Path) -> None:
    lay(tmp_path, {"OLD_MRCONSO.RRF": b"other", "MRCONSO.RRF.backup": b"other"})
    assert Release(tmp_path).find(PATTERN) is None
    lay(tmp_path, {"mrconso.rrf": CONTENT})
    assert content(find(tmp_path)) == CONTENT


def test_all_files_of_a_pattern_are_found_once_in_order(tmp_path: Path) -> None:
    supp = {"supp2026.xml": b"deeper", "desc2026.xml": b"in a zip"}
    lay(
        tmp_path, {"supp2026.xml.gz": gzip.compress(b"supp"), "a/mesh.zip": zipped(supp), "qual2026.txt": b""}
    )
    sources = Release(tmp_path).find_all(r"(desc|supp).*\.xml")
    assert [(source.name, content(source)) for source in sources] == [
        ("desc2026.xml", b"in a zip"),
        ("supp2026.xml", b"supp"),
    ]
    assert Release(tmp_path).find_all("nothing") == []


def test_a_path_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="nowhere: no such file or directory"):
        Release(tmp_path / "nowhere")


def test_an_empty_folder_holds_nothing(tmp_path: Path) -> None:
    assert Release(tmp_path).members == []
    assert Release(tmp_path).find(".*") is None


# Damaged files


@pytest.mark.parametrize("kept", [1, 5, 200, -9, -8, -1])
def test_a_gzip_that_is_cut_off_is_refused_and_leaves_no_checksum(tmp_path: Path, kept: int) -> None:
    lay(tmp_path, {"MRCONSO.RRF.gz": gzip.compress(CONTENT)[:kept]})
    intake = Intake()
    with pytest.raises(FormatError, match=r"MRCONSO\.RRF\.gz: damaged or cut off: .*\(fetch it again\)"):
        content(find(tmp_path), intake)
    with pytest.raises(FormatError, match="damaged or cut off"):
        list(intake.frames(find(tmp_path), PIPES, ["id"]))
    assert intake.inputs == {}


def test_a_flipped_byte_in_a_gzip_is_found(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(CONTENT))
    packed[len(packed) // 2] ^= 0x10
    lay(tmp_path, {"MRCONSO.RRF.gz": bytes(packed)})
    with pytest.raises(FormatError, match=r"MRCONSO\.RRF\.gz: damaged or cut off"):
        content(find(tmp_path))


def test_a_gzip_that_is_none_is_refused(tmp_path: Path) -> None:
    lay(tmp_path, {"MRCONSO.RRF.gz": CONTENT})
    with pytest.raises(FormatError, match=r"MRCONSO\.RRF\.gz: damaged or cut off: Not a gzipped file"):
        content(find(tmp_path))


def test_a_damaged_piece_is_named_by_its_place(tmp_path: Path) -> None:
    whole, cut = gzip.compress(CONTENT), gzip.compress(CONTENT)[:-20]
    lay(tmp_path, {"a.zip": zipped({"META/MRCONSO.RRF.aa.gz": whole, "META/MRCONSO.RRF.ab.gz": cut})})
    with pytest.raises(FormatError, match=r"a\.zip/META/MRCONSO\.RRF\.ab\.gz: damaged or cut off"):
        content(find(tmp_path))


@pytest.mark.parametrize("kind", ["empty", "text", "cut off"])
def test_a_zip_that_is_none_is_refused(tmp_path: Path, kind: str) -> None:
    whole = zipped({"MRCONSO.RRF": CONTENT})
    damaged = {"empty": b"", "text": b"no zip at all", "cut off": whole[:-30]}[kind]
    lay(tmp_path, {"umls.zip": damaged, "outer.zip": zipped({"META/inner.nlm": damaged})})
    with pytest.raises(FormatError, match=r"^umls\.zip: no zip archive: .*\(fetch it again\)"):
        Release(tmp_path / "umls.zip")
    with pytest.raises(FormatError, match=r"^outer\.zip/META/inner\.nlm: no zip archive"):
        Release(tmp_path / "outer.zip")


def test_a_zip_with_a_damaged_member_is_refused(tmp_path: Path) -> None:
    packed = bytearray(zipped({"MRCONSO.RRF": CONTENT}, zipfile.ZIP_STORED))
    packed[packed.index(b"invented name 7")] ^= 1
    lay(tmp_path, {"umls.zip": bytes(packed)})
    with pytest.raises(FormatError, match=r"umls\.zip/MRCONSO\.RRF: damaged or cut off: Bad CRC-32"):
        content(find(tmp_path))


def test_an_encrypted_zip_must_be_unpacked_first(tmp_path: Path) -> None:
    packed = bytearray(zipped({"MRCONSO.RRF": CONTENT}))
    for header, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        packed[packed.index(header) + flags] |= 1
    lay(tmp_path, {"umls.zip": bytes(packed)})
    with pytest.raises(
        FormatError, match=r"umls\.zip/MRCONSO\.RRF: cannot be unpacked: .*\(unpack it first\)"
    ):
        content(find(tmp_path))


# Blocks


@pytest.mark.parametrize("empty", [b"", b"\xef\xbb\xbf", b"\n", b" \r\n"])
def test_an_empty_file_is_refused(tmp_path: Path, empty: bytes) -> None:
    lay(tmp_path, {"MRCONSO.RRF": empty, "packed/MRCONSO.RRF.gz": gzip.compress(empty)})
    for path in (tmp_path, tmp_path / "packed"):
        with pytest.raises(FormatError, match=r"MRCONSO\.RRF: the file is empty"):
            list(Intake().blocks(find(path)))


@given(
    st.lists(st.binary(max_size=9).filter(lambda line: b"\n" not in line), min_size=1),
    st.booleans(),
    st.booleans(),
    st.integers(1, 20),
    st.integers(0, 30),
)
@example([b"a"], True, False, 4, 0)
@example([b"ab"], True, True, 1, 2)
def test_blocks_are_the_lines_of_the_file_however_it_is_cut(
    lines: list[bytes], ended: bool, marked: bool, size: int, cut: int
) -> None:
    mark = b"\xef\xbb\xbf"
    file = mark * marked + b"\n".join(lines) + b"\n" * ended
    data = file.removeprefix(mark)
    source, intake = source_of(file[:cut], file[cut:]), Intake()
    with blocks_of(size):
        try:
            blocks = list(intake.blocks(source))
        except FormatError:
            assert data.strip() == b""
            return
    assert all(block.endswith(b"\n") for block in blocks)
    joined = b"".join(blocks)
    # A last line that is blank and has no end may be left out.
    assert joined in (data, data + b"\n", data[: data.rfind(b"\n") + 1])
    assert joined.strip() == data.strip()
    assert intake.inputs["invented.txt"] == {"bytes": len(file), "xxh3": xxh3_128(file).hexdigest()}


def test_memory_is_that_of_a_block(tmp_path: Path) -> None:
    with blocks_of(1000):
        sizes = [len(block) for block in Intake().blocks(source_of(CONTENT))]
    assert len(sizes) > 5
    assert max(sizes) < 1100


def test_a_source_that_was_not_read_to_its_end_has_no_checksum() -> None:
    intake, source = Intake(), source_of(CONTENT * 500)
    with intake.stream(source) as stream:
        stream.read(10)
    assert intake.inputs == {}


def test_progress_is_told_in_bytes_as_they_lie_there(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    source = find(gzipped(tmp_path))
    content(source, Intake(progress=lambda name, done, total: told.append((name, done, total))))
    size = (tmp_path / "MRCONSO.RRF.gz").stat().st_size
    assert {(name, total) for name, _, total in told} == {("MRCONSO.RRF", size)}
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert told[-1][1] == size


# Frames


def rows(
    data: bytes, layout: Layout, intake: Intake, columns: list[str] | None = None
) -> list[tuple[str, ...]]:
    wanted = columns or list(layout.columns)
    return [row for frame in intake.frames(source_of(data), layout, wanted) for row in frame.iter_rows()]


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("last", [True, False])
def test_ends_of_lines_marks_and_blocks_do_not_matter(size: int, end: bytes, mark: bytes, last: bool) -> None:
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
            assert rows(data, layout, Intake()) == table
            assert rows(data, layout, Intake(), ["name", "id"]) == [(row[2], row[0]) for row in table]


def test_a_name_may_be_very_long() -> None:
    name = "é" * 100_000
    with blocks_of(1000):
        assert rows(f"C1|ENG|{name}|\nC2|ENG|b|\n".encode(), PIPES, Intake()) == [
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
def test_a_bad_line_is_named_by_its_number(size: int, at: int, line: bytes, problem: str) -> None:
    lines = CONTENT.splitlines()
    data = b"\n".join([*lines[:at], line, *lines[at:]])
    with blocks_of(size), pytest.raises(FormatError, match=rf"^invented\.txt:{at + 1}: {problem} \("):
        rows(data, PIPES, Intake(), ["id"])


def test_a_short_line_and_a_long_line_do_not_make_up_for_each_other() -> None:
    intake = Intake(on_error="skip")
    data = b"C1|ENG|a|\nC2|ENG|\nC3|ENG|c|more|\nC4|ENG|d|\n"
    assert rows(data, PIPES, intake, ["id", "name"]) == [("C1", "a"), ("C4", "d")]
    assert intake.skipped == 2


@pytest.mark.parametrize("size", [1, 25, 1 << 20])
def test_a_header_and_blank_lines_count_as_lines(size: int) -> None:
    data = b"id\tlanguage\tname\r\n\r\nC1\ten\ta\r\n\n  \nC2\ten\r\nC3\ten\tc\r\n"
    with blocks_of(size), pytest.raises(FormatError, match=r"^invented\.txt:6: expected 3 columns, found 2"):
        rows(data, TABS, Intake())
    intake = Intake(on_error="skip")
    with blocks_of(size):
        assert rows(data, TABS, intake) == [("C1", "en", "a"), ("C3", "en", "c")]
    assert intake.examples == ["invented.txt:6: expected 3 columns, found 2 (is this CONCEPT.csv?)"]


@pytest.mark.parametrize("header", [b"C1\ten\ta", b"id\tlanguage", b"id\tlanguage\tname\tmore", b"", b"\xff"])
@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_another_header_is_refused(header: bytes, on_error: OnError) -> None:
    with pytest.raises(
        FormatError, match=r"^invented\.txt:1: expected the columns id, language, name, found"
    ):
        rows(header + b"\nC1\ten\ta\n", TABS, Intake(on_error=on_error))


def test_a_header_alone_is_a_table_without_rows() -> None:
    assert rows(b"id\tlanguage\tname\n", TABS, Intake()) == []


def test_skipping_counts_the_bad_rows_and_keeps_the_first_few_as_examples() -> None:
    data = b"".join(b"C%d|ENG|name|\nbad %d\n" % (row, row) for row in range(9))
    intake = Intake(on_error="skip")
    with blocks_of(20):
        assert [row[0] for row in rows(data, PIPES, intake)] == [f"C{row}" for row in range(9)]
    assert intake.skipped == 9
    assert intake.examples == [
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
    intake, found = Intake(on_error="skip"), list[tuple[str, ...]]()
    with blocks_of(size):
        try:
            found = rows(end.join(lines) + end, PIPES, intake)
        except FormatError:
            assert (good, bad) == ([], [])
    # polars takes a byte-order mark away, wherever a block begins.
    assert [(row[0].lstrip("\ufeff"), *row[1:]) for row in found] == [
        (row[0].lstrip("\ufeff"), *row[1:]) for row in good
    ]
    assert intake.skipped == len(bad)
    assert [int(text.split(":")[1]) for text in intake.examples] == bad[:5]


# Work on several threads


def test_an_ordered_map_keeps_the_order_whichever_ends_first() -> None:
    second_done = threading.Event()

    def work(item: int) -> int:
        if item == 0:
            assert second_done.wait(timeout=60)
        elif item == 1:
            second_done.set()
        return item * item

    assert list(ordered_map(work, range(50))) == [item * item for item in range(50)]
    assert list(ordered_map(work, [])) == []


def test_an_ordered_map_passes_on_what_its_function_raises() -> None:
    def work(item: int) -> int:
        if item == 7:
            raise FormatError("somewhere", 7, "bad luck")
        return item

    results = ordered_map(work, range(1000))
    assert [next(results) for _ in range(7)] == list(range(7))
    with pytest.raises(FormatError, match="somewhere:7: bad luck"):
        next(results)


def test_an_ordered_map_passes_on_what_its_items_raise() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise FormatError("somewhere", None, "cut off")

    with pytest.raises(FormatError, match="somewhere: cut off"):
        list(ordered_map(str, items()))


def test_an_ordered_map_does_not_run_far_ahead_of_its_user() -> None:
    taken: list[int] = []

    def take(item: int) -> int:
        taken.append(item)
        return item

    results = ordered_map(str, map(take, range(10_000)))
    assert next(results) == "0"
    assert len(taken) < 1000
    results.close()  # type: ignore[attr-defined]  # it is a generator, though it only promises an iterator
