"""When mapped arrays are refused; reading strings is tested with the pairs artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sapbert import arrays
from sapbert.arrays import Texts, TextsWriter, map_array, map_numbers, map_offsets, offset_type
from sapbert.errors import ArtifactError


def test_numbers_within_their_bounds_are_mapped(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([0, 2, 1], np.int32))

    assert map_numbers(tmp_path / "a.npy", np.int32, rows=3, below=3).tolist() == [0, 2, 1]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (np.array([0, 3], np.int32), "not between 0 and 2"),
        (np.array([0, -1], np.int32), "not between 0 and 2"),
        (np.array([0, 1], np.int64), "int64 instead of int32"),
        (np.array([0, 1, 1], np.int32), r"shape is \(3,\) instead of \(2,\)"),
        (np.array([[0, 1]], np.int32), r"shape is \(1, 2\) instead of \(2,\)"),
    ],
)
def test_numbers_out_of_their_bounds_are_refused(
    tmp_path: Path, content: NDArray[np.integer[Any]], problem: str
) -> None:
    np.save(tmp_path / "a.npy", content)
    with pytest.raises(ArtifactError, match=f"a.npy is damaged: .*{problem}; make the artifact again"):
        map_numbers(tmp_path / "a.npy", np.int32, rows=2, below=3)


@pytest.mark.parametrize("offsets", [[], [0], [1, 2, 4], [0, 2, 5], [0, 5, 4], [0, 3, 2, 4]])
def test_invalid_offsets_are_refused(tmp_path: Path, offsets: list[int]) -> None:
    np.save(tmp_path / "a.npy", np.array(offsets, np.int64))
    with pytest.raises(ArtifactError, match=r"a.npy is damaged: .*; make the artifact again"):
        map_offsets(tmp_path / "a.npy", rows=None, end=4)


@pytest.mark.parametrize("place", [0, 99_999])
def test_long_arrays_are_checked_from_the_first_to_the_last_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    monkeypatch.setattr(arrays, "_FULL_CHECK", 100)
    monkeypatch.setattr(arrays, "_PIECE", 10)
    numbers = np.zeros(100_000, np.int32)
    np.save(tmp_path / "whole.npy", numbers)
    numbers[place] = 7
    np.save(tmp_path / "a.npy", numbers)

    assert map_numbers(tmp_path / "whole.npy", np.int32, rows=None, below=1).sum() == 0
    with pytest.raises(ArtifactError, match="not between 0 and 0"):
        map_numbers(tmp_path / "a.npy", np.int32, rows=None, below=1)


@pytest.mark.parametrize(("most", "expected"), [(0, np.int32), (2**31 - 1, np.int32), (2**31, np.int64)])
def test_offsets_are_as_small_as_they_can_be(most: int, expected: type[np.generic]) -> None:
    assert offset_type(most) is expected


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))), st.data())
def test_strings_are_read_with_offsets_of_any_type(texts: list[str], data: st.DataObject) -> None:
    encoded = [text.encode() for text in sorted(texts, key=str.encode)]
    offsets = np.cumsum([0, *map(len, encoded)])
    content = np.frombuffer(b"".join(encoded), np.uint8)
    rows = data.draw(st.lists(st.sampled_from(range(len(texts)))) if texts else st.just([]))

    small, large = (Texts(content, offsets.astype(dtype)) for dtype in (np.int32, np.int64))

    assert small.take(rows) == large.take(rows) == [encoded[row].decode() for row in rows]
    assert small.span(0, len(texts)) == large.span(0, len(texts)) == [text.decode() for text in encoded]
    assert small.rows_of(texts).tolist() == large.rows_of(texts).tolist()


def test_an_empty_array_of_strings_can_be_mapped(tmp_path: Path) -> None:
    with TextsWriter(tmp_path / "t.npy", tmp_path / "t_offsets.npy"):
        pass
    assert len(Texts.open(tmp_path, "t", rows=0)) == 0


@pytest.mark.parametrize("header", [b"{'descr': '<i4', 'shape': (2,", b"{'descr': 1}", b"\x00", b"(" * 99])
def test_a_broken_header_is_refused(tmp_path: Path, header: bytes) -> None:
    np.save(tmp_path / "a.npy", np.zeros(2, np.int32))
    content = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(content[:10] + header.ljust(118) + content[128:])
    with pytest.raises(ArtifactError, match=r"a.npy is damaged: it contains no array"):
        map_array(tmp_path / "a.npy")
