from __future__ import annotations

import gzip
import random
import shutil
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest

from sapbert.errors import FormatError
from sapbert.vocab import input_files as intake_module
from sapbert.vocab import writer as writer_module
from sapbert.vocab.readers.rrf import read_umls
from sapbert.vocab.readers.settings import RrfSettings
from sapbert.vocab.vocabulary import Vocabulary
from tests.conftest import GOLDEN, Read

META = GOLDEN / "umls" / "META"


def umls(read: Read, path: Path = META, **options: object) -> Vocabulary:
    return read(lambda w, i: read_umls(path, w, i, RrfSettings(**options)))  # type: ignore[arg-type]


def ids(vocabulary: Vocabulary) -> set[str]:
    return set(vocabulary.names.select("concept_id").collect().to_series())


@pytest.fixture
def meta(tmp_path: Path) -> Path:
    """A copy of the golden META folder, to be changed."""
    return Path(shutil.copytree(META, tmp_path / "META"))


def texts(vocabulary: Vocabulary, id: str) -> set[str]:
    concept = vocabulary.concept(id)
    assert concept is not None
    return {name.text for name in concept.names}


def conso_row(cui: str, name: str) -> str:
    return f"{cui}|ENG|P|L1|PF|S1|Y|A1||X||MSH|PT|X|{name}|0|N||\n"


def zipped(folder: Path, inside: str = "") -> bytes:
    content = BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.iterdir()):
            archive.write(file, f"{inside}{file.name}")
    return content.getvalue()


def gzip_pieces(file: Path, pieces: int) -> dict[str, bytes]:
    """Cut a file into gzip pieces in the middle of lines, as the full release does."""
    content = file.read_bytes()
    size = len(content) // pieces + 1
    return {
        f"{file.name}.a{'abcdefgh'[number]}.gz": gzip.compress(content[number * size : (number + 1) * size])
        for number in range(pieces)
    }


def as_conso_with_siblings(meta: Path, to: Path) -> Path:
    return meta / "MRCONSO.RRF"


def as_gzip_with_siblings(meta: Path, to: Path) -> Path:
    for file in sorted(meta.iterdir()):
        (to / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
    return to / "MRCONSO.RRF.gz"


def as_metathesaurus_zip(meta: Path, to: Path) -> Path:
    (to / "umls-2026AA-metathesaurus.zip").write_bytes(zipped(meta, "2026AA/META/"))
    return to / "umls-2026AA-metathesaurus.zip"


def as_folder_of_a_zip(meta: Path, to: Path) -> Path:
    as_metathesaurus_zip(meta, to)
    return to


def as_full_release_zip(meta: Path, to: Path) -> Path:
    """Zip in zip, MRCONSO cut into pieces that lie in two of the inner zips, the last piece first."""
    pieces = gzip_pieces(meta / "MRCONSO.RRF", 3)
    others = {f.name: f.read_bytes() for f in meta.iterdir() if f.name not in ("MRCONSO.RRF", "MRREL.RRF")}
    names = list(pieces)
    volumes = {
        "2026aa-1-meta.nlm": {names[2]: pieces[names[2]], **others},
        "2026aa-2-meta.nlm": {names[0]: pieces[names[0]], **gzip_pieces(meta / "MRREL.RRF", 1)},
        "2026aa-3-meta.nlm": {names[1]: pieces[names[1]]},
        "2026aa-otherks.nlm": {"NET/SRDEF": b"STY|T047|Disease or Syndrome|\n"},
    }
    path = to / "umls-2026AA-full.zip"
    with zipfile.ZipFile(path, "w") as outer:
        outer.writestr("2026AA-full/README.txt", "invented")
        for volume, files in volumes.items():
            content = BytesIO()
            with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as inner:
                for name, data in files.items():
                    inner.writestr(f"2026AA/META/{name}", data)
            outer.writestr(f"2026AA-full/{volume}", content.getvalue())
    return path


def as_unpacked_full_release(meta: Path, to: Path) -> Path:
    """The outer zip unpacked, its `.nlm` zips left as they are."""
    with zipfile.ZipFile(as_full_release_zip(meta, to)) as outer:
        outer.extractall(to / "unpacked")
    return to / "unpacked"


PACKINGS = [
    as_conso_with_siblings,
    as_gzip_with_siblings,
    as_metathesaurus_zip,
    as_folder_of_a_zip,
    as_full_release_zip,
    as_unpacked_full_release,
]


@pytest.mark.parametrize("pack", PACKINGS)
def test_every_packing_of_a_release_gives_the_same_vocabulary(
    read: Read, tmp_path: Path, pack: Callable[[Path, Path], Path]
) -> None:
    folder = umls(read, languages=("all",))
    (tmp_path / "packed").mkdir()

    packed = umls(read, pack(META, tmp_path / "packed"), languages=("all",))

    assert packed.fingerprint == folder.fingerprint
    assert packed.manifest.counts == folder.manifest.counts
    assert packed.manifest.inputs == folder.manifest.inputs


def test_mrconso_alone_is_enough(read: Read, tmp_path: Path) -> None:
    alone = Path(shutil.copy(META / "MRCONSO.RRF", tmp_path))

    vocabulary = umls(read, alone)

    assert vocabulary.manifest.inputs.keys() == {"MRCONSO.RRF"}
    assert texts(vocabulary, "umls:C9000002") == {"bravolin", "Bravolinum"}
    assert vocabulary.types.collect().is_empty()


def test_mrconso_may_have_another_name(read: Read, tmp_path: Path) -> None:
    renamed = Path(shutil.copy(META / "MRCONSO.RRF", tmp_path / "my names.txt"))

    assert ids(umls(read, renamed)) == ids(umls(read, tradenames=False))


def test_the_official_zip_of_mrconso_alone_can_be_read(read: Read, tmp_path: Path) -> None:
    path = tmp_path / "umls-2026AA-mrconso.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(META / "MRCONSO.RRF", "MRCONSO.RRF")

    assert ids(umls(read, path)) == ids(umls(read))


def test_a_subset_in_a_subfolder_is_not_read_instead_of_the_release(read: Read, meta: Path) -> None:
    (meta / "subset").mkdir()
    (meta / "subset" / "MRCONSO.RRF").write_text(conso_row("C9000001", "Wrong file"))

    assert umls(read, meta).fingerprint == umls(read).fingerprint


# Order and cutting make no difference


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_order_of_mrconso_makes_no_difference(read: Read, meta: Path, seed: int) -> None:
    for name in ("MRCONSO.RRF", "MRREL.RRF", "MRSTY.RRF", "MRCUI.RRF"):
        lines = (meta / name).read_text().splitlines(keepends=True)
        random.Random(seed).shuffle(lines)
        (meta / name).write_text("".join(lines))

    assert umls(read, meta, languages=("all",)).fingerprint == umls(read, languages=("all",)).fingerprint


@pytest.mark.parametrize("block", [1, 64, 1000])
def test_blocks_and_parts_of_any_size_give_the_same_vocabulary(
    read: Read, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    whole = umls(read, languages=("all",))
    monkeypatch.setattr(intake_module, "BLOCK_BYTES", block)
    monkeypatch.setattr(writer_module, "ROWS_PER_PART", 2)

    cut = umls(read, languages=("all",))

    assert cut.fingerprint == whole.fingerprint
    assert cut.manifest.counts == whole.manifest.counts
    assert len(cut.parts()) > len(whole.parts()) == 1


def test_windows_line_ends_and_a_byte_order_mark_make_no_difference(read: Read, meta: Path) -> None:
    for file in meta.iterdir():
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))

    assert umls(read, meta).fingerprint == umls(read).fingerprint


# Bad input


def test_a_truncated_last_line_is_reported(read: Read, meta: Path, tmp_path: Path) -> None:
    content = (meta / "MRCONSO.RRF").read_bytes()
    (meta / "MRCONSO.RRF").write_bytes(content[:-40])

    with pytest.raises(FormatError, match=r"^MRCONSO\.RRF:24: expected 18 columns, found \d+ "):
        umls(read, meta)
    assert [path.name for path in tmp_path.iterdir()] == ["META"]


def test_a_last_line_without_newline_is_complete(read: Read, meta: Path) -> None:
    content = (meta / "MRCONSO.RRF").read_bytes()
    (meta / "MRCONSO.RRF").write_bytes(content[:-1])

    assert umls(read, meta).fingerprint == umls(read).fingerprint


def test_bad_rows_can_be_skipped_and_are_counted(read: Read, meta: Path) -> None:
    lines = (meta / "MRCONSO.RRF").read_bytes().splitlines(keepends=True)
    damaged = [*lines[:3], b"C9000001|ENG|oops|\n", *lines[3:], b"C9\xff" + lines[0][2:]]
    (meta / "MRCONSO.RRF").write_bytes(b"".join(damaged))

    vocabulary = read(lambda w, i: read_umls(meta, w, i, RrfSettings()), on_error="skip")

    assert vocabulary.fingerprint == umls(read).fingerprint
    assert vocabulary.manifest.counts["bad rows skipped"] == 2
    assert [line.split(": ")[0] for line in vocabulary.manifest.details["skipped"]] == [
        "MRCONSO.RRF:4",
        "MRCONSO.RRF:26",
    ]


def test_bad_utf8_is_named_with_its_line(read: Read, meta: Path) -> None:
    content = (meta / "MRCONSO.RRF").read_bytes()
    (meta / "MRCONSO.RRF").write_bytes(content.replace(b"scintillante", b"scintill\xe4nte"))

    with pytest.raises(FormatError, match=r"^MRCONSO\.RRF:10: byte 0xe4 .* not UTF-8"):
        umls(read, meta)


def test_another_file_of_the_release_is_not_read_as_mrconso(read: Read) -> None:
    with pytest.raises(FormatError, match=r"^MRSTY\.RRF:1: expected 18 columns, found 6 \(is this MRCONSO"):
        umls(read, META / "MRSTY.RRF")


def test_a_bad_row_in_a_companion_file_is_named(read: Read, meta: Path) -> None:
    with open(meta / "MRREL.RRF", "a") as file:
        file.write("C9000001|too short|\n")

    with pytest.raises(FormatError, match=r"^MRREL\.RRF:10: expected 16 columns, found 2"):
        umls(read, meta)


def test_a_rank_that_is_not_a_number_is_reported(read: Read, meta: Path) -> None:
    with open(meta / "MRRANK.RRF", "a") as file:
        file.write("first|MSH|MH|N|\n")

    with pytest.raises(FormatError, match=r"^MRRANK\.RRF:14: rank 'first' is not a number"):
        umls(read, meta)


def test_a_file_of_bad_rows_only_is_refused_also_when_they_are_skipped(read: Read) -> None:
    with pytest.raises(
        FormatError, match=r"^MRSTY\.RRF: all \d+ rows are invalid \(MRSTY\.RRF:1: expected 18"
    ):
        read(
            lambda writer, inputs: read_umls(META / "MRSTY.RRF", writer, inputs, RrfSettings()),
            on_error="skip",
        )


def test_a_folder_without_mrconso_is_refused_with_a_hint(read: Read, meta: Path) -> None:
    (meta / "MRCONSO.RRF").unlink()

    with pytest.raises(FormatError, match=r"contains no MRCONSO\.RRF \(give the release folder, its zip"):
        umls(read, meta)


def test_a_zip_of_something_else_is_refused(read: Read, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a.txt", "a")
        archive.writestr("b.txt", "b")

    with pytest.raises(FormatError, match=r"other\.zip: contains no MRCONSO\.RRF"):
        umls(read, tmp_path / "other.zip")


def test_an_empty_mrconso_is_refused(read: Read, tmp_path: Path) -> None:
    (tmp_path / "MRCONSO.RRF").touch()

    with pytest.raises(FormatError, match=r"^MRCONSO\.RRF: the file is empty"):
        umls(read, tmp_path / "MRCONSO.RRF")


def test_a_truncated_gzip_piece_is_named(read: Read, tmp_path: Path) -> None:
    for name, content in gzip_pieces(META / "MRCONSO.RRF", 2).items():
        (tmp_path / name).write_bytes(content)
    last = tmp_path / "MRCONSO.RRF.ab.gz"
    last.write_bytes(last.read_bytes()[:-20])

    with pytest.raises(FormatError, match=r"MRCONSO\.RRF\.ab\.gz: damaged or truncated"):
        umls(read, tmp_path)


def test_long_names_and_quotes_are_kept(read: Read, tmp_path: Path) -> None:
    long = "x" * 100_000
    names = [long, '"quoted" name', '5" needle', "comma, tab\tand NUL\0here", "e\u0301"]
    path = tmp_path / "MRCONSO.RRF"
    path.write_text("".join(conso_row("C1", name) for name in names), newline="")

    assert texts(umls(read, path), "umls:C1") == {*names[:3], "comma, tab and NUL here", "e\u0301"}
