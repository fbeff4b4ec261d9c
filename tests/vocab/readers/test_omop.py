from __future__ import annotations

import gzip
import shutil
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sapbert.curies import parse_curie
from sapbert.errors import ConfigError, FormatError
from sapbert.text import tidy
from sapbert.vocab.readers.omop import read_omop
from sapbert.vocab.readers.settings import OmopSettings
from sapbert.vocab.vocabulary import Concept, Vocabulary
from tests.conftest import GOLDEN, Read

OMOP = GOLDEN / "omop"


def omop(read: Read, path: Path, **options: object) -> Vocabulary:
    return read(lambda w, i: read_omop(path, w, i, OmopSettings(**options)))  # type: ignore[arg-type]


def concept(vocabulary: Vocabulary, id: str) -> Concept:
    found = vocabulary.concept(id)
    assert found is not None
    return found


def ids(vocabulary: Vocabulary) -> set[str]:
    return set(vocabulary.names.select("concept_id").collect().to_series())


@pytest.fixture
def download(tmp_path: Path) -> Path:
    """A copy of the golden download, to be damaged."""
    return Path(shutil.copytree(OMOP, tmp_path / "download"))


def change(path: Path, old: str, new: str) -> None:
    content = path.read_bytes()
    assert old.encode() in content
    path.write_bytes(content.replace(old.encode(), new.encode()))


def test_a_concept_has_its_name_its_synonyms_its_domain_and_its_code(read: Read) -> None:
    fever = concept(omop(read, OMOP), "omop:900001")

    assert {(name.text, name.language) for name in fever.names} == {
        ("Glimmer fever", "en"),
        ('"Shining" disease', "en"),
        ("Fiebre del destello", "es"),
        ("Schimmerfieber", "de"),
        ("Febro brila", "und"),
    }
    assert [name.text for name in fever.names if name.preferred] == ["Glimmer fever"]
    assert {name.source for name in fever.names} == {"SNOMED"}
    assert fever.types == ("Condition",)
    assert fever.aliases == ("snomedct:99000001",)


def test_parents_are_valid_is_a_relationships(read: Read, download: Path) -> None:
    (download / "CONCEPT_RELATIONSHIP.csv").write_text(
        "concept_id_1\tconcept_id_2\trelationship_id\tvalid_start_date\tvalid_end_date\tinvalid_reason\n"
        "900001\t900005\tIs a\t19700101\t20991231\t\n"
        "900005\t900001\tSubsumes\t19700101\t20991231\t\n"
        "900001\t900007\tIs a\t19700101\t20991231\tD\n"
        "900004\t900001\tIs a\t19700101\t20991231\t\n"
    )
    assert omop(read, download).parent_links.collect().rows() == [("omop:900001", "omop:900005", "is_a")]


def test_without_relationships_parents_are_direct_ancestors(read: Read, download: Path) -> None:
    (download / "CONCEPT_ANCESTOR.csv").write_text(
        "ancestor_concept_id\tdescendant_concept_id\tmin_levels_of_separation\tmax_levels_of_separation\n"
        "900001\t900001\t0\t0\n"
        "900005\t900001\t1\t2\n"
        "900007\t900001\t2\t2\n"
    )
    assert omop(read, download).parent_links.collect().rows() == [("omop:900001", "omop:900005", "broader")]


@pytest.mark.parametrize(
    ("code", "id"),
    [
        ("SNOMED:99000007", "omop:900007"),
        ("icd10cm:Z99.0", "omop:900002"),
        ("rxnorm_extension:OMOP990003", "omop:900003"),
        ("HP:0990005", "omop:900005"),
        ("dm_d:990006", "omop:900006"),
    ],
)
def test_a_concept_is_found_by_the_code_of_its_own_vocabulary(read: Read, code: str, id: str) -> None:
    assert concept(omop(read, OMOP), code).concept_id == id


def test_quotes_are_data(read: Read) -> None:
    assert concept(omop(read, OMOP), "omop:900002").preferred_name == 'Fever, "glimmering" type'


def test_the_row_for_no_matching_concept_is_not_a_concept(read: Read) -> None:
    assert omop(read, OMOP).concept("omop:0") is None


def test_invalid_concepts_are_dropped_with_their_synonyms_and_counted_unless_kept(read: Read) -> None:
    valid, everything = omop(read, OMOP), omop(read, OMOP, keep_invalid=True)

    assert valid.concept("omop:900004") is None
    assert valid.manifest.counts["invalid concepts dropped"] == 1
    assert {name.text for name in concept(everything, "omop:900004").names} == {
        "Old glimmer fever",
        "Glimmering",
    }


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"vocabularies": ("SNOMED",)}, {"omop:900001", "omop:900007"}),
        ({"domains": ("Condition",)}, {"omop:900001", "omop:900002", "omop:900005"}),
        ({"domains": ("Drug", "Specimen")}, {"omop:900003", "omop:900006", "omop:900007"}),
        ({"standard_only": True}, {"omop:900001", "omop:900003", "omop:900007"}),
        ({"standard_only": True, "vocabularies": ("SNOMED",), "domains": ("Condition",)}, {"omop:900001"}),
    ],
)
def test_filters_select_concepts(read: Read, options: dict[str, object], expected: set[str]) -> None:
    assert ids(omop(read, OMOP, **options)) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"vocabularies": ("SNOMED", "Snomed")},
            r"CONCEPT\.csv has no vocabulary Snomed; it has HPO, ICD10CM",
        ),
        ({"domains": ("condition",)}, r"CONCEPT\.csv has no domain condition; it has Condition, Drug"),
    ],
)
def test_a_vocabulary_or_domain_that_the_file_lacks_is_refused(
    read: Read, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        omop(read, OMOP, **options)


def test_folders_zips_and_gzip_give_the_same_vocabulary(read: Read, tmp_path: Path) -> None:
    archive, packed = tmp_path / "vocabulary_download_v5.zip", tmp_path / "packed"
    packed.mkdir()
    with zipfile.ZipFile(archive, "w") as zipped:
        for file in OMOP.iterdir():
            zipped.write(file, file.name)
            (packed / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))

    expected = omop(read, OMOP).fingerprint
    assert omop(read, archive).fingerprint == expected
    assert omop(read, packed).fingerprint == expected


def test_line_ends_a_byte_order_mark_and_capital_headers_change_nothing(read: Read, download: Path) -> None:
    for file in download.iterdir():
        header, _, rows = file.read_bytes().partition(b"\n")
        file.write_bytes(b"\xef\xbb\xbf" + (header.upper() + b"\n" + rows).replace(b"\n", b"\r\n"))

    assert omop(read, download).fingerprint == omop(read, OMOP).fingerprint


def test_concepts_can_be_read_without_synonyms(read: Read) -> None:
    alone = omop(read, OMOP / "CONCEPT.csv")

    assert ids(alone) == ids(omop(read, OMOP))
    assert [name.text for name in concept(alone, "omop:900001").names] == ["Glimmer fever"]


def test_a_concept_without_a_name_has_its_synonyms(read: Read, download: Path) -> None:
    change(download / "CONCEPT.csv", "glimmerol 5 MG Oral Tablet", "")

    assert concept(omop(read, download), "omop:900003").preferred_name == "Glimmerol tablet"


def test_a_folder_without_concepts_is_refused(read: Read, download: Path) -> None:
    (download / "CONCEPT.csv").rename(download / "CONCEPT_CPT4.csv")

    with pytest.raises(FormatError, match=r"contains no CONCEPT\.csv"):
        omop(read, download)


@pytest.mark.parametrize("file", ["CONCEPT.csv", "CONCEPT_SYNONYM.csv"])
def test_commas_instead_of_tabs_are_refused(read: Read, download: Path, file: str) -> None:
    change(download / file, "\t", ",")

    with pytest.raises(FormatError, match=rf"{file}:1: expected the columns concept_id, .*separated by tabs"):
        omop(read, download)


def test_a_row_with_missing_columns_stops_or_is_skipped(read: Read, download: Path) -> None:
    change(download / "CONCEPT.csv", "900006\tglimmerol\t", "900006\t")

    with pytest.raises(FormatError, match=r"CONCEPT\.csv:8: expected 10 columns, found 9"):
        omop(read, download)
    vocabulary = read(lambda w, i: read_omop(download, w, i, OmopSettings()), on_error="skip")
    assert vocabulary.manifest.counts["bad rows skipped"] == 1
    assert ids(vocabulary) == ids(omop(read, OMOP)) - {"omop:900006"}


def test_an_identifier_that_is_not_a_number_stops_or_is_skipped(read: Read, download: Path) -> None:
    change(download / "CONCEPT.csv", "900006", "nine")

    with pytest.raises(FormatError, match=r"CONCEPT\.csv: concept_id 'nine' of 'glimmerol' is not a number"):
        omop(read, download)
    vocabulary = read(lambda w, i: read_omop(download, w, i, OmopSettings()), on_error="skip")
    assert ids(vocabulary) == ids(omop(read, OMOP)) - {"omop:900006"}


def test_bytes_that_are_not_utf8_are_refused(read: Read, download: Path) -> None:
    path = download / "CONCEPT_SYNONYM.csv"
    path.write_bytes(path.read_bytes().replace(b"Schimmer", b"Sch\xefmmer"))

    with pytest.raises(FormatError, match=r"CONCEPT_SYNONYM\.csv:5: byte 0xef in column \d+ is not UTF-8"):
        omop(read, download)


def test_an_empty_file_is_refused(read: Read, download: Path) -> None:
    (download / "CONCEPT_SYNONYM.csv").write_bytes(b"")

    with pytest.raises(FormatError, match=r"CONCEPT_SYNONYM\.csv: the file is empty"):
        omop(read, download)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r"), max_size=30)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.lists(texts, max_size=8), texts)
def test_names_and_aliases_are_valid_for_any_column_content(
    read: Read, tmp_path: Path, synonyms: list[str], code: str
) -> None:
    download = Path(shutil.copytree(OMOP, tmp_path / "download", dirs_exist_ok=True))
    change(download / "CONCEPT.csv", "900007\tSample\tSpecimen\tSNOMED", f"900007\tSample\tSpecimen\t{code}")
    with open(download / "CONCEPT_SYNONYM.csv", "a", encoding="utf-8", newline="") as file:
        file.writelines(f"900007\t{name}\t4180186\n" for name in synonyms)

    found = concept(omop(read, download), "omop:900007")

    assert {name.text for name in found.names} == {tidy(name) for name in synonyms if tidy(name)} | {"Sample"}
    assert all(parse_curie(alias) == alias for alias in found.aliases)
    for folder in tmp_path.glob("vocabulary*"):
        shutil.rmtree(folder)
