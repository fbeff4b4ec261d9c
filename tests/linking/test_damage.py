"""Damaged index files of unchanged size: a one-line error, never a traceback."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sapbert.errors import SapbertError
from sapbert.index import folder
from sapbert.index.build import build_index
from sapbert.index.folder import damage_explained, open_index
from sapbert.index.settings import IndexSettings, Kind, Precision
from sapbert.linking.candidate import Candidate
from sapbert.linking.hybrid import open_hybrid
from sapbert.linking.linker import Linker
from sapbert.linking.search import DenseSearch
from sapbert.linking.settings import LinkSettings
from tests.index.conftest import NgramEncoder, write
from tests.linking.conftest import FACTS, ROWS

HEADER = 128
ENCODER = NgramEncoder(64)
MENTIONS = ["hart atack", "COLD", "pain in the chest", "low temp"]
UNDETECTED_ZEROS = {
    "entries/alias_concepts.npy",
    "entries/capitals.npy",
    "entries/link_concepts.npy",
    "entries/link_sources.npy",
    "entries/type_numbers.npy",
    "sparse/counts.npy",
    "sparse/ngrams.npy",
    "sparse/numbers.npy",
    "sparse/scales.npy",
}
"""Files in which zeros are valid: if they are large, only `sapbert show` detects that all are zero. In
capitals, any bits are valid."""
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "zeros": lambda content: content[:HEADER] + bytes(len(content) - HEADER),
    "ones": lambda content: content[:HEADER] + b"\xff" * (len(content) - HEADER),
    "flipped": lambda content: content[:HEADER] + bytes(255 - byte for byte in content[HEADER:]),
    "reversed": lambda content: content[:HEADER] + content[:HEADER:-1],
    "huge": lambda content: content[:HEADER] + (b"\xff" * 7 + b"\x7f") * (len(content) // 8 - HEADER // 8),
    "headless": lambda content: bytes(HEADER) + content[HEADER:],
}
PLAUSIBLE = {"flipped", "reversed"}
"""The damaged bytes may still be valid text and numbers in range."""
KINDS = {"flat": (Kind.FLAT, Precision.FP32), "ann": (Kind.ANN, Precision.INT8)}


def files(path: Path) -> list[str]:
    """Return the files of an index without its encoder, whose checksums are always compared."""
    names = (file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())
    return sorted(name for name in names if not name.startswith(("encoder/", "manifest")))


@pytest.fixture(scope="module", params=KINDS)
def index(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("damage")
    kind, precision = KINDS[request.param]
    extra = [(f"x:{number}", f"invented name {number}", "MSH") for number in range(150)]
    vocabulary = write(made / "vocabulary", [*ROWS, *extra], FACTS)
    wanted = IndexSettings(kind=kind, precision=precision, hybrid=True)
    build_index(vocabulary, ENCODER, made / "index", wanted)
    return made / "index"


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every file as one that is too large to compare its checksum on opening."""
    monkeypatch.setattr(folder, "SMALL", -1)


Answers = list[list[list[Candidate]]]
SETTINGS = (
    LinkSettings(),
    LinkSettings(exact=False, types=("T047",)),
    LinkSettings(exact=False, sources=("HPO",)),
    LinkSettings(exact=False, prefixes=("hp",)),
)


def answers(path: Path) -> Answers:
    """Return the links of an index with all kinds of settings."""
    with damage_explained(path):
        index, name_table, _ = open_index(path, threads=1)
        found: Answers = []
        for search in (DenseSearch(index), open_hybrid(index, path, 0.5)):
            linker = Linker(ENCODER, search, name_table, fingerprint="f00d")
            linker.add_mentions([("chill", "mesh:D9"), ("chill", "hp:2")])
            found.extend(linker.link([*MENTIONS, "chill"], k=4, settings=wanted) for wanted in SETTINGS)
        return found


def answers_or_error(path: Path) -> Answers | str:
    try:
        return answers(path)
    except SapbertError as error:
        return str(error)


@contextmanager
def damaged(file: Path, damage: Callable[[bytes], bytes]) -> Iterator[None]:
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    try:
        yield
    finally:
        file.write_bytes(whole)


def test_one_flipped_bit_of_a_file_of_some_megabytes_is_detected(tmp_path: Path) -> None:
    names = [(f"x:{number}", f"invented name {number}", "MSH") for number in range(300)]
    build_index(
        write(tmp_path / "vocabulary", names, FACTS), NgramEncoder(1024), tmp_path / "index", IndexSettings()
    )
    file = tmp_path / "index" / "vectors.npy"
    content = bytearray(file.read_bytes())
    assert len(content) > 1 << 20
    content[-3] ^= 1
    file.write_bytes(content)

    with pytest.raises(SapbertError, match=r"vectors\.npy does not match its checksum"):
        open_index(tmp_path / "index")


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_error_names_the_damaged_file(index: Path, damage: str) -> None:
    whole = answers(index)
    for name in files(index):
        content = (index / name).read_bytes()
        if len(content) > HEADER and DAMAGES[damage](content) != content:
            with (
                damaged(index / name, DAMAGES[damage]),
                pytest.raises(SapbertError, match=rf"{name} .*again"),
            ):
                answers(index)
    assert answers(index) == whole


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("damage", DAMAGES)
def test_bounds_are_checked_in_files_too_large_for_a_checksum(index: Path, damage: str) -> None:
    whole = answers(index)
    for name in files(index):
        if (index / name).stat().st_size <= HEADER:
            continue
        with damaged(index / name, DAMAGES[damage]):
            found = answers_or_error(index)
        if isinstance(found, str):
            assert re.fullmatch(r".* damaged: .* again.*", found)
        else:
            assert damage in PLAUSIBLE or name in UNDETECTED_ZEROS or found == whole, f"{name} {damage}"


@pytest.mark.usefixtures("large")
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_flipped_byte_never_causes_a_traceback(index: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(files(index)))
    size = (index / name).stat().st_size
    place = data.draw(st.integers(0, size - 1))
    change = data.draw(st.integers(1, 255))

    def flip(content: bytes) -> bytes:
        return content[:place] + bytes([content[place] ^ change]) + content[place + 1 :]

    with damaged(index / name, flip):
        answers_or_error(index)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("index", ["ann"], indirect=True)
@pytest.mark.parametrize("damage", ["zeros", "flipped"])
def test_codes_that_do_not_match_the_vectors_are_refused(index: Path, damage: str) -> None:
    with (
        damaged(index / "codes.npy", DAMAGES[damage]),
        pytest.raises(SapbertError, match=r"codes.npy .*again"),
    ):
        open_index(index)


def test_an_error_without_damage_is_not_changed(index: Path) -> None:
    with pytest.raises(ValueError, match="a bug"), damage_explained(index):
        raise ValueError("a bug")


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("value", [np.nan, np.inf, 300])
def test_an_invalid_vector_is_refused_by_the_search(index: Path, value: float) -> None:
    """Opening an index does not check every vector."""
    if (index / "scales.npy").exists():
        name, start, number = "scales.npy", HEADER + 4, np.array(min(value, 1), np.float32).tobytes()
    else:
        name, start, number = (
            "vectors.npy",
            HEADER + 4 * ENCODER.dimension,
            np.array(value, np.float32).tobytes(),
        )

    def damage_vector(content: bytes) -> bytes:
        return content[:start] + number + content[start + len(number) :]

    with damaged(index / name, damage_vector), pytest.raises(SapbertError, match=f"{name} .*again"):
        answers(index)
