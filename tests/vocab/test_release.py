from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from xxhash import xxh3_128

from sapbert.errors import FormatError
from sapbert.vocab.input_files import InputReader, Release
from tests.vocab.sources import CONTENT, PATTERN, PIPES, blocks_of, content, find, gzipped, write_files


def zipped(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


# Finding files


def plain(folder: Path) -> Path:
    return write_files(folder, {"META/MRCONSO.RRF": CONTENT}) / "META" / "MRCONSO.RRF"


def in_a_folder(folder: Path) -> Path:
    return write_files(folder, {"META/MRCONSO.RRF": CONTENT, "META/MRSTY.RRF": b"other"}) / "META"


def in_a_deeper_folder(folder: Path) -> Path:
    return write_files(folder, {"2026AA/META/MRCONSO.RRF": CONTENT, "2026AA/README.txt": b"other"})


def gzipped_in_members(folder: Path) -> Path:
    packed = gzip.compress(CONTENT[:100]) + gzip.compress(CONTENT[100:])
    return write_files(folder, {"MRCONSO.RRF.gz": packed})


def in_a_zip(folder: Path) -> Path:
    return write_files(folder, {"umls-mrconso.zip": zipped({"MRCONSO.RRF": CONTENT})}) / "umls-mrconso.zip"


def in_a_zip_in_a_folder(folder: Path) -> Path:
    return write_files(folder, {"download/umls.ZIP": zipped({"2026AA/META/mrconso.rrf": CONTENT})})


def in_a_zip_in_a_zip(folder: Path) -> Path:
    inner = zipped({"2026AA/META/MRCONSO.RRF.gz": gzip.compress(CONTENT)})
    return write_files(folder, {"full.zip": zipped({"2026AA-full/2026aa-1-meta.nlm": inner})}) / "full.zip"


def in_pieces_in_one_folder(folder: Path) -> Path:
    return write_files(folder, {"META/MRCONSO.RRF.ab": CONTENT[777:], "META/MRCONSO.RRF.aa": CONTENT[:777]})


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
    return write_files(folder, {"umls-2026AA-full.zip": outer}) / "umls-2026AA-full.zip"


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
def test_a_file_is_found_and_read_in_any_packing(tmp_path: Path, pack: Callable[[Path], Path]) -> None:
    source, inputs = find(pack(tmp_path)), InputReader()
    assert source.name.upper() == "MRCONSO.RRF"
    assert content(source, inputs) == CONTENT
    digest = xxh3_128(CONTENT).hexdigest()
    assert inputs.checksums == {source.name: {"bytes": len(CONTENT), "xxh3": digest}}

    with blocks_of(999):
        assert b"".join(InputReader().blocks(source)) == CONTENT
        frame = pl.concat(InputReader().frames(source, PIPES, ["name"]))
    assert frame["name"].to_list() == [f"invented name {row}" for row in range(200)]


def test_of_several_files_the_one_in_the_fewest_folders_is_read(tmp_path: Path) -> None:
    subset = {"MRCONSO.RRF": b"a subset"}
    deep = {"a/subset/MRCONSO.RRF": b"a subset", "a/b/MRCONSO.RRF.gz": b"?", "a/archive.zip": zipped(subset)}
    assert content(find(write_files(tmp_path, {**deep, "z/MRCONSO.RRF": CONTENT}))) == CONTENT


def test_a_whole_file_has_precedence_over_its_pieces(tmp_path: Path) -> None:
    both = {"MRCONSO.RRF.aa": b"a piece", "MRCONSO.RRF.ab": b"a piece", "MRCONSO.RRF": CONTENT}
    assert content(find(write_files(tmp_path, both))) == CONTENT


@pytest.mark.parametrize(
    ("present", "missing"), [(("aa", "ac"), "ab"), (("ab",), "aa"), (("aa", "ba"), "ab")]
)
def test_a_missing_piece_is_named(tmp_path: Path, present: tuple[str, ...], missing: str) -> None:
    write_files(tmp_path, {f"MRCONSO.RRF.{piece}.gz": gzip.compress(CONTENT) for piece in present})
    with pytest.raises(FormatError, match=rf"MRCONSO\.RRF\.{missing}: this piece is missing"):
        Release(tmp_path).find(PATTERN)


def test_a_name_must_match_as_a_whole_and_case_does_not_matter(tmp_path: Path) -> None:
    write_files(tmp_path, {"OLD_MRCONSO.RRF": b"other", "MRCONSO.RRF.backup": b"other"})
    assert Release(tmp_path).find(PATTERN) is None
    write_files(tmp_path, {"mrconso.rrf": CONTENT})
    assert content(find(tmp_path)) == CONTENT


def test_all_files_of_a_pattern_are_found_once_in_order(tmp_path: Path) -> None:
    supp = {"supp2026.xml": b"deeper", "desc2026.xml": b"in a zip"}
    write_files(
        tmp_path, {"supp2026.xml.gz": gzip.compress(b"supp"), "a/mesh.zip": zipped(supp), "qual2026.txt": b""}
    )
    sources = Release(tmp_path).find_all(r"(desc|supp).*\.xml")
    assert [(source.name, content(source)) for source in sources] == [
        ("desc2026.xml", b"in a zip"),
        ("supp2026.xml", b"supp"),
    ]
    assert Release(tmp_path).find_all("nothing") == []


def test_a_missing_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="nowhere: no such file or directory"):
        Release(tmp_path / "nowhere")


def test_an_empty_folder_has_no_files(tmp_path: Path) -> None:
    assert Release(tmp_path).members == []
    assert Release(tmp_path).find(".*") is None


# Damaged files


@pytest.mark.parametrize("kept", [1, 5, 200, -9, -8, -1])
def test_a_truncated_gzip_is_refused_and_gets_no_checksum(tmp_path: Path, kept: int) -> None:
    write_files(tmp_path, {"MRCONSO.RRF.gz": gzip.compress(CONTENT)[:kept]})
    inputs = InputReader()
    with pytest.raises(FormatError, match=r"MRCONSO\.RRF\.gz: damaged or truncated: .*\(download it again\)"):
        content(find(tmp_path), inputs)
    with pytest.raises(FormatError, match="damaged or truncated"):
        list(inputs.frames(find(tmp_path), PIPES, ["id"]))
    assert inputs.checksums == {}


def test_a_flipped_byte_in_a_gzip_is_detected(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(CONTENT))
    packed[len(packed) // 2] ^= 0x10
    write_files(tmp_path, {"MRCONSO.RRF.gz": bytes(packed)})
    with pytest.raises(FormatError, match=r"MRCONSO\.RRF\.gz: damaged or truncated"):
        content(find(tmp_path))


def test_a_file_that_is_not_gzip_is_refused(tmp_path: Path) -> None:
    write_files(tmp_path, {"MRCONSO.RRF.gz": CONTENT})
    with pytest.raises(FormatError, match=r"MRCONSO\.RRF\.gz: damaged or truncated: Not a gzipped file"):
        content(find(tmp_path))


def test_a_damaged_piece_is_named_with_its_path(tmp_path: Path) -> None:
    whole, cut = gzip.compress(CONTENT), gzip.compress(CONTENT)[:-20]
    write_files(tmp_path, {"a.zip": zipped({"META/MRCONSO.RRF.aa.gz": whole, "META/MRCONSO.RRF.ab.gz": cut})})
    with pytest.raises(FormatError, match=r"a\.zip/META/MRCONSO\.RRF\.ab\.gz: damaged or truncated"):
        content(find(tmp_path))


@pytest.mark.parametrize("kind", ["empty", "text", "cut off"])
def test_a_file_that_is_not_a_zip_is_refused(tmp_path: Path, kind: str) -> None:
    whole = zipped({"MRCONSO.RRF": CONTENT})
    damaged = {"empty": b"", "text": b"no zip at all", "cut off": whole[:-30]}[kind]
    write_files(tmp_path, {"umls.zip": damaged, "outer.zip": zipped({"META/inner.nlm": damaged})})
    with pytest.raises(FormatError, match=r"^umls\.zip: not a zip archive: .*\(download it again\)"):
        Release(tmp_path / "umls.zip")
    with pytest.raises(FormatError, match=r"^outer\.zip/META/inner\.nlm: not a zip archive"):
        Release(tmp_path / "outer.zip")


def test_a_zip_with_a_damaged_member_is_refused(tmp_path: Path) -> None:
    packed = bytearray(zipped({"MRCONSO.RRF": CONTENT}, zipfile.ZIP_STORED))
    packed[packed.index(b"invented name 7")] ^= 1
    write_files(tmp_path, {"umls.zip": bytes(packed)})
    with pytest.raises(FormatError, match=r"umls\.zip/MRCONSO\.RRF: damaged or truncated: Bad CRC-32"):
        content(find(tmp_path))


def test_an_encrypted_zip_must_be_unpacked_first(tmp_path: Path) -> None:
    packed = bytearray(zipped({"MRCONSO.RRF": CONTENT}))
    for header, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        packed[packed.index(header) + flags] |= 1
    write_files(tmp_path, {"umls.zip": bytes(packed)})
    with pytest.raises(
        FormatError, match=r"umls\.zip/MRCONSO\.RRF: cannot be unpacked: .*\(unpack it first\)"
    ):
        content(find(tmp_path))


def test_archives_may_be_nested_only_a_few_times(tmp_path: Path) -> None:
    content, name = CONTENT, "MRCONSO.RRF"
    for depth in range(1, 6):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr(name, content)
        content, name = packed.getvalue(), f"{depth}.zip"
        (tmp_path / name).write_bytes(content)

    assert [member.plain_name for member in Release(tmp_path / "4.zip").members] == ["MRCONSO.RRF"]
    with pytest.raises(FormatError, match=r"1\.zip: more than 4 archives inside each other"):
        Release(tmp_path / "5.zip")


def test_a_zip_truncated_anywhere_is_refused_by_name(tmp_path: Path) -> None:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr("MRCONSO.RRF", CONTENT[:200])
        archive.writestr("MRSTY.RRF", CONTENT[:100])
    data = whole.getvalue()
    path = tmp_path / "umls.zip"
    for start in range(1, len(data), 7):
        # The end of the file, with the directory of the archive, is what Python looks for.
        path.write_bytes(data[start:])
        with pytest.raises(FormatError, match=r"umls\.zip"):
            content(find(path))
