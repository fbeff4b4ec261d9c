from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from xxhash import xxh3_128

from sapbert.errors import FormatError
from sapbert.vocab import input_files
from sapbert.vocab.input_files import InputReader
from tests.vocab.sources import CONTENT, blocks_of, content, find, gzipped, source_of, write_files


@pytest.mark.parametrize("empty", [b"", b"\xef\xbb\xbf", b"\n", b" \r\n"])
def test_an_empty_file_is_refused(tmp_path: Path, empty: bytes) -> None:
    write_files(tmp_path, {"MRCONSO.RRF": empty, "packed/MRCONSO.RRF.gz": gzip.compress(empty)})
    for path in (tmp_path, tmp_path / "packed"):
        with pytest.raises(FormatError, match=r"MRCONSO\.RRF: the file is empty"):
            list(InputReader().blocks(find(path)))


@given(
    st.lists(st.binary(max_size=9).filter(lambda line: b"\n" not in line), min_size=1),
    st.booleans(),
    st.booleans(),
    st.integers(1, 20),
    st.integers(0, 30),
)
@example([b"a"], True, False, 4, 0)
@example([b"ab"], True, True, 1, 2)
def test_blocks_contain_the_lines_of_the_file_for_any_block_size(
    lines: list[bytes], ended: bool, marked: bool, size: int, cut: int
) -> None:
    mark = b"\xef\xbb\xbf"
    file = mark * marked + b"\n".join(lines) + b"\n" * ended
    data = file.removeprefix(mark)
    source, inputs = source_of(file[:cut], file[cut:]), InputReader()
    with blocks_of(size):
        try:
            blocks = list(inputs.blocks(source))
        except FormatError:
            assert data.strip() == b""
            return
    assert all(block.endswith(b"\n") for block in blocks)
    joined = b"".join(blocks)
    # Blank lines at the end may be left out.
    assert joined == data + b"\n" or (data.startswith(joined) and not data[len(joined) :].strip())
    assert inputs.checksums["invented.txt"] == {"bytes": len(file), "xxh3": xxh3_128(file).hexdigest()}


def test_a_line_that_would_fill_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_files, "MAX_LINE_BYTES", 50)
    long = source_of(b"short\n" + b"x" * 200 + b"\n")
    with blocks_of(30), pytest.raises(FormatError, match=r"invented\.txt: a line is longer than"):
        list(InputReader().blocks(long))
    with InputReader().stream(long) as stream:
        assert next(stream) == b"short\n"
        with pytest.raises(FormatError, match=r"invented\.txt: a line is longer than"):
            next(stream)


def test_an_xml_record_that_would_fill_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_files, "MAX_RECORD_BYTES", 100)
    stream = input_files.RecordStream(io.BytesIO(bytes(1000)), "a.xml")
    for _ in range(3):
        stream.read(90)
        stream.start_record()
    with pytest.raises(FormatError, match=r"a\.xml: a record is longer than"):
        stream.read(101)


def test_memory_is_limited_to_one_block(tmp_path: Path) -> None:
    with blocks_of(1000):
        sizes = [len(block) for block in InputReader().blocks(source_of(CONTENT))]
    assert len(sizes) > 5
    assert max(sizes) < 1100
    assert min(sizes[:-1]) > 900


def test_a_file_that_was_not_read_to_its_end_has_no_checksum() -> None:
    inputs, source = InputReader(), source_of(CONTENT * 500)
    with inputs.stream(source) as stream:
        stream.read(10)
    assert inputs.checksums == {}


def test_progress_is_reported_in_stored_bytes(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    source = find(gzipped(tmp_path))
    content(source, InputReader(progress=lambda name, done, total: told.append((name, done, total))))
    size = (tmp_path / "MRCONSO.RRF.gz").stat().st_size
    assert {(name, total) for name, _, total in told} == {("MRCONSO.RRF", size)}
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert told[-1][1] == size
