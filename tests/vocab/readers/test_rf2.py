from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sapbert.errors import ConfigError, FormatError
from sapbert.text import tidy
from sapbert.vocab.readers.rf2 import read_snomed
from sapbert.vocab.readers.settings import SnomedSettings
from sapbert.vocab.vocabulary import Concept, Vocabulary
from tests.conftest import GOLDEN, Read

SNOMED = GOLDEN / "snomed"
RELEASE = SNOMED / "SnomedCT_InventedRF2_PRODUCTION_20260101T120000Z"
US, GB, ES = "900000000000509007", "900000000000508004", "448879004"
TUMOR = "snomedct:990001001"
CONCEPTS = "Snapshot/Terminology/sct2_Concept_Snapshot_INT_20260101.txt"
DESCRIPTIONS = "Snapshot/Terminology/sct2_Description_Snapshot-en_INT_20260101.txt"
REFSET = "Snapshot/Refset/Language/der2_cRefset_LanguageSnapshot-en_INT_20260101.txt"


def snomed(read: Read, path: Path, **options: object) -> Vocabulary:
    return read(lambda w, i: read_snomed(path, w, i, SnomedSettings(**options)))  # type: ignore[arg-type]


def concept(vocabulary: Vocabulary, id: str) -> Concept:
    found = vocabulary.concept(id)
    assert found is not None
    return found


def names(vocabulary: Vocabulary, id: str = TUMOR) -> set[str]:
    return {name.text for name in concept(vocabulary, id).names}


def preferred(vocabulary: Vocabulary, id: str = TUMOR) -> dict[str, str]:
    return {name.language: name.text for name in concept(vocabulary, id).names if name.preferred}


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A copy of the golden release, to be damaged."""
    return Path(shutil.copytree(RELEASE, tmp_path / "release"))


def change(path: Path, old: str, new: str) -> None:
    content = path.read_bytes()
    assert old.encode() in content
    path.write_bytes(content.replace(old.encode(), new.encode()))


def test_active_descriptions_of_active_concepts_are_names(read: Read) -> None:
    vocabulary = snomed(read, RELEASE)

    assert names(vocabulary) == {
        "Tumor of shimmer gland",
        "Shimmer gland tumor",
        "Shimmer gland tumour",
        'So-called "glow lump"',
        "tumor de la glándula del destello",
        "tumor del destello",
    }
    assert vocabulary.concept("snomedct:990003001") is None
    assert vocabulary.manifest.counts["inactive descriptions dropped"] == 1
    assert vocabulary.manifest.counts["descriptions of inactive concepts dropped"] == 2


def test_active_is_a_relationships_are_parents_and_text_definitions_definitions(
    read: Read, release: Path
) -> None:
    header = (
        "id effectiveTime active moduleId sourceId destinationId relationshipGroup typeId "
        "characteristicTypeId modifierId"
    )
    rows = [
        "1 20260101 1 9 990001001 990004007 0 116680003 9 9",
        "2 20260101 0 9 990001001 990002006 0 116680003 9 9",
        "3 20260101 1 9 990001001 990002006 0 363698007 9 9",
        "4 20260101 1 9 990002006 990003001 0 116680003 9 9",
    ]
    path = release / "Snapshot/Terminology/sct2_Relationship_Snapshot_INT_20260101.txt"
    path.write_text("\r\n".join(row.replace(" ", "\t") for row in [header, *rows, ""]))

    vocabulary = snomed(read, release)

    assert vocabulary.parent_links.collect().rows() == [
        ("snomedct:990001001", "snomedct:990004007", "is_a"),
        ("snomedct:990002006", "snomedct:990003001", "is_a"),
    ]
    assert vocabulary.manifest.counts["parents that are not in the vocabulary"] == 1
    [definition] = vocabulary.definitions.collect().rows()
    assert definition[2:] == ("en", "snomedct")


def test_full_and_delta_files_are_not_read(read: Read) -> None:
    vocabulary = snomed(read, RELEASE)

    assert vocabulary.concept("snomedct:990009009") is None
    assert vocabulary.manifest.inputs
    assert all("Snapshot" in name for name in vocabulary.manifest.inputs)


def test_the_tag_of_a_fully_specified_name_is_a_type_and_not_part_of_the_name(read: Read) -> None:
    vocabulary = snomed(read, RELEASE)

    assert concept(vocabulary, TUMOR).types == ("disorder",)
    assert concept(vocabulary, "snomedct:990002006").types == ("procedure",)
    assert names(vocabulary, "snomedct:990002006") == {"Removal of glow (left)", "Deglowing"}


def test_a_fully_specified_name_without_tag_is_kept_unchanged(read: Read) -> None:
    untagged = concept(snomed(read, RELEASE), "snomedct:990004007")

    assert untagged.types == ()
    assert untagged.preferred_name == "Untagged thing"


@pytest.mark.parametrize(
    ("refsets", "expected"),
    [
        ((US,), "Shimmer gland tumor"),
        ((GB,), "Shimmer gland tumour"),
        ((US, GB), "Shimmer gland tumor"),
        ((GB, US), "Shimmer gland tumour"),
    ],
)
def test_the_first_refset_decides_what_is_preferred(
    read: Read, refsets: tuple[str, ...], expected: str
) -> None:
    assert preferred(snomed(read, RELEASE, refsets=refsets)) == {"en": expected}


def test_each_language_has_its_preferred_name(read: Read) -> None:
    vocabulary = snomed(read, RELEASE)

    assert preferred(vocabulary)["es"] == "tumor del destello"
    assert preferred(vocabulary)["en"] in {"Shimmer gland tumor", "Shimmer gland tumour"}


def test_the_name_preferred_by_most_refsets_is_preferred(read: Read, release: Path) -> None:
    # The row that British English gave up: active again, and preferring the American spelling.
    change(
        release / REFSET,
        f"\t0\t900000000000207008\t{GB}\t990102016\t900000000000549004",
        f"\t1\t900000000000207008\t{GB}\t990102016\t900000000000548007",
    )
    assert preferred(snomed(read, release))["en"] == "Shimmer gland tumor"


def test_only_names_that_a_chosen_refset_accepts_are_kept(read: Read) -> None:
    vocabulary = snomed(read, RELEASE, refsets=(GB,))

    assert names(vocabulary) == {"Tumor of shimmer gland", "Shimmer gland tumour", 'So-called "glow lump"'}
    assert vocabulary.manifest.counts["descriptions in no chosen refset dropped"] == 4


def test_without_language_refsets_the_fully_specified_name_is_preferred(read: Read, release: Path) -> None:
    shutil.rmtree(release / "Snapshot" / "Refset")

    assert preferred(snomed(read, release))["en"] == "Tumor of shimmer gland"


def test_languages_can_be_chosen_and_types_stay_english(read: Read) -> None:
    vocabulary = snomed(read, RELEASE, languages=("ES",))

    assert names(vocabulary) == {"tumor de la glándula del destello", "tumor del destello"}
    assert concept(vocabulary, TUMOR).types == ("disorder",)


def test_a_type_in_another_language_is_better_than_none(read: Read, release: Path) -> None:
    change(release / DESCRIPTIONS, "gland (disorder)", "gland")

    assert concept(snomed(read, release), TUMOR).types == ("trastorno",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"languages": ("en", "sv")}, "the release has no name in sv; it has en, es"),
        ({"refsets": (US, "123")}, f"has no language refset 123; it has {ES}, {GB}, {US}"),
    ],
)
def test_a_language_or_refset_that_the_release_lacks_is_refused(
    read: Read, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        snomed(read, RELEASE, **options)


def test_folders_and_zips_give_the_same_vocabulary(read: Read, tmp_path: Path) -> None:
    archive = tmp_path / "SnomedCT_Invented.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        for file in SNOMED.rglob("*.txt"):
            zipped.write(file, file.relative_to(SNOMED))

    expected = snomed(read, SNOMED).fingerprint
    assert snomed(read, RELEASE / "Snapshot").fingerprint == expected
    assert snomed(read, archive).fingerprint == expected


def test_line_ends_and_a_byte_order_mark_change_nothing(read: Read, release: Path) -> None:
    for file in release.rglob("*.txt"):
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\r\n", b"\n"))

    assert snomed(read, release).fingerprint == snomed(read, RELEASE).fingerprint


def test_of_a_component_in_two_editions_the_later_row_is_used(read: Read, release: Path) -> None:
    national = {
        CONCEPTS: ("990004007\t20260101\t1", "990004007\t20260301\t0"),
        DESCRIPTIONS: ("990102016\t20260101\t1", "990102016\t20250301\t0"),
    }
    for file, (old, new) in national.items():
        extension = release / file.replace("INT", "XX1000999")
        shutil.copy(release / file, extension)
        change(extension, old, new)

    vocabulary = snomed(read, release)

    assert vocabulary.concept("snomedct:990004007") is None
    assert "Shimmer gland tumor" in names(vocabulary)


def test_two_releases_in_one_folder_are_refused(read: Read, release: Path) -> None:
    shutil.copy(release / CONCEPTS, release / CONCEPTS.replace("20260101", "20250101"))

    with pytest.raises(FormatError, match=r"contains both \S+_20250101\.txt and \S+_20260101\.txt"):
        snomed(read, release)


@pytest.mark.parametrize(("file", "what"), [(CONCEPTS, "Concept"), (DESCRIPTIONS, "Description")])
def test_a_folder_without_snapshot_files_is_refused(read: Read, release: Path, file: str, what: str) -> None:
    for found in (release / file).parent.glob(f"sct2_{what}_*"):
        found.unlink()

    with pytest.raises(FormatError, match=rf"contains no sct2_{what}_Snapshot\*\.txt"):
        snomed(read, release)


def test_a_wrong_header_is_refused(read: Read, release: Path) -> None:
    change(release / DESCRIPTIONS, "languageCode", "language")

    with pytest.raises(FormatError, match=r"-en_INT_20260101\.txt:1: expected the columns id, effectiveTime"):
        snomed(read, release)


def test_a_row_with_missing_columns_stops_or_is_skipped(read: Read, release: Path) -> None:
    change(release / DESCRIPTIONS, "Shimmer gland tumour\t900000000000448009", "Shimmer gland tumour")

    with pytest.raises(FormatError, match=r"-en_INT_20260101\.txt:4: expected 9 columns, found 8"):
        snomed(read, release)
    vocabulary = read(lambda w, i: read_snomed(release, w, i, SnomedSettings()), on_error="skip")
    assert vocabulary.manifest.counts["bad rows skipped"] == 1
    assert names(vocabulary) == names(snomed(read, RELEASE)) - {"Shimmer gland tumour"}


def test_bytes_that_are_not_utf8_are_refused(read: Read, release: Path) -> None:
    path = release / DESCRIPTIONS
    path.write_bytes(path.read_bytes().replace(b"Deglowing", b"D\xe9glowing"))

    with pytest.raises(FormatError, match=r"-en_INT_20260101\.txt:8: byte 0xe9 in column \d+ is not UTF-8"):
        snomed(read, release)


def test_an_empty_file_is_refused(read: Read, release: Path) -> None:
    (release / CONCEPTS).write_bytes(b"")

    with pytest.raises(FormatError, match="the file is empty"):
        snomed(read, release)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r"), max_size=30)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.lists(texts, max_size=8))
def test_every_written_term_is_read_and_tidied(read: Read, tmp_path: Path, terms: list[str]) -> None:
    release = Path(shutil.copytree(RELEASE, tmp_path / "release", dirs_exist_ok=True))
    row = "{}\t20260101\t1\t0\t990004007\ten\t900000000000013009\t{}\t900000000000448009\r\n"
    with open(release / DESCRIPTIONS, "a", encoding="utf-8", newline="") as file:
        file.writelines(row.format(number, term) for number, term in enumerate(terms))

    found = names(snomed(read, release), "snomedct:990004007")

    assert found == {tidy(term) for term in terms if tidy(term)} | {"Untagged thing"}
    for folder in tmp_path.glob("vocabulary*"):
        shutil.rmtree(folder)
