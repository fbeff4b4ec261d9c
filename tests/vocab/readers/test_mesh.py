from __future__ import annotations

import gzip
import re
import shutil
import weakref
import zipfile
from pathlib import Path
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sapbert.errors import ConfigError, FormatError
from sapbert.text import tidy
from sapbert.vocab.input_files import InputReader, Release
from sapbert.vocab.readers.mesh import _records, read_mesh
from sapbert.vocab.readers.settings import MeshSettings
from sapbert.vocab.vocabulary import Concept, Vocabulary
from tests.conftest import GOLDEN, Read

MESH = GOLDEN / "mesh"
DESC = MESH / "desc2026.xml"
SUPP = MESH / "supp2026.xml"


def mesh(read: Read, path: Path, **options: object) -> Vocabulary:
    return read(lambda w, i: read_mesh(path, w, i, MeshSettings(**options)))  # type: ignore[arg-type]


def concept(vocabulary: Vocabulary, id: str) -> Concept:
    found = vocabulary.concept(id)
    assert found is not None
    return found


def names(found: Concept) -> dict[str, str]:
    return {name.text: name.scope for name in found.names}


def record(name: str, *, ui: str = "D000001", number: str = "C01") -> str:
    return (
        f"<DescriptorRecord><DescriptorUI>{ui}</DescriptorUI><TreeNumberList><TreeNumber>{number}</TreeNumber>"
        '</TreeNumberList><ConceptList><Concept PreferredConceptYN="Y"><ConceptUI>M1</ConceptUI><TermList>'
        f'<Term RecordPreferredTermYN="Y" ConceptPreferredTermYN="Y"><String>{escape(name)}</String></Term>'
        "</TermList></Concept></ConceptList></DescriptorRecord>"
    )


def write_desc(path: Path, *records: str, root: str = "DescriptorRecordSet") -> Path:
    path.write_text(f"<{root}>\n" + "\n".join(records) + f"\n</{root}>\n", encoding="utf-8")
    return path


def test_a_descriptor_has_the_terms_of_all_its_concepts_with_their_scopes(read: Read) -> None:
    fever = concept(mesh(read, DESC), "MESH:D990001")

    assert names(fever) == {
        "Glimmer Fever": "exact",
        'Østergård\'s "Shining" Disease': "exact",
        "Neonatal Glimmer Fever": "narrow",
        "Glimmer Fever of the Newborn": "narrow",
        "Luminous Fevers": "broad",
        "Glimmer Headache": "related",
    }
    assert fever.preferred_name == "Glimmer Fever"
    assert [name.text for name in fever.names if name.preferred] == ["Glimmer Fever"]
    assert {(name.language, name.source) for name in fever.names} == {("en", "mesh")}


def test_a_relation_may_be_stated_in_reverse_or_not_at_all(read: Read) -> None:
    beetles = names(concept(mesh(read, DESC), "mesh:D990002"))

    assert beetles["Duskbeetle Larvae"] == "narrow"
    assert beetles["Dawnbeetles"] == "related"


def test_types_are_the_letters_of_the_trees(read: Read) -> None:
    vocabulary = mesh(read, DESC)

    assert concept(vocabulary, "mesh:D990001").types == ("C", "F")
    assert vocabulary.type_labels["C"] == "Diseases"


def test_a_supplementary_record_has_the_letter_of_its_class(read: Read) -> None:
    vocabulary = mesh(read, SUPP)

    assert concept(vocabulary, "mesh:C990001").types == ("D",)
    assert concept(vocabulary, "mesh:C990002").types == ("C",)
    assert concept(vocabulary, "mesh:C990003").types == ("D",)
    assert "3-hydroxy-\u03b1-glimmeric acid" in names(concept(vocabulary, "mesh:C990001"))


def test_tree_numbers_and_headings_are_parents_and_scope_notes_definitions(
    read: Read, tmp_path: Path
) -> None:
    trees = {"D1": "C01", "D2": "C01.100", "D3": "C01.100.200", "D4": "C02.300"}
    path = write_desc(tmp_path / "d.xml", *(record(ui, ui=ui, number=trees[ui]) for ui in trees))
    vocabulary = mesh(read, path)

    assert vocabulary.ancestors("mesh:D3") == ("mesh:D2", "mesh:D1")
    assert vocabulary.parent_links.collect().rows() == [
        ("mesh:D2", "mesh:D1", "broader"),
        ("mesh:D3", "mesh:D2", "broader"),
    ]
    assert vocabulary.manifest.counts["tree numbers without a parent"] == 1

    both = mesh(read, MESH)
    assert both.parents("mesh:C990001") == ("mesh:D990002",)
    assert concept(both, "mesh:D990001").definition == "An invented fever that makes the <skin> shine."


def test_at_concept_level_a_narrower_concept_is_below_the_preferred_one(read: Read) -> None:
    vocabulary = mesh(read, DESC, level="concept")

    assert vocabulary.parents("mesh:M9900002") == ("mesh:M9900001",)
    assert vocabulary.parents("mesh:M9900003") == ()
    assert concept(vocabulary, "mesh:M9900001").definition is not None


def test_permuted_terms_are_dropped_and_counted_unless_kept(read: Read) -> None:
    without, with_them = mesh(read, DESC), mesh(read, DESC, keep_permuted=True)

    assert without.manifest.counts["permuted terms dropped"] == 2
    assert "permuted terms dropped" not in with_them.manifest.counts
    assert with_them.manifest.counts["names"] == without.manifest.counts["names"] + 2
    assert "Fever, Glimmer" in names(concept(with_them, "mesh:D990001"))


def test_at_concept_level_each_concept_has_its_own_terms(read: Read) -> None:
    vocabulary = mesh(read, DESC, level="concept")

    newborn = concept(vocabulary, "mesh:M9900002")
    assert names(newborn) == {"Neonatal Glimmer Fever": "exact", "Glimmer Fever of the Newborn": "exact"}
    assert newborn.preferred_name == "Neonatal Glimmer Fever"
    assert newborn.xrefs == ("mesh:D990001",)
    assert newborn.aliases == ()
    assert newborn.types == ("C", "F")


def test_at_concept_level_a_descriptor_is_found_as_its_preferred_concept(read: Read) -> None:
    vocabulary = mesh(read, DESC, level="concept")

    assert concept(vocabulary, "mesh:D990001").concept_id == "mesh:M9900001"


def test_a_record_without_terms_is_read_but_makes_no_concept(read: Read) -> None:
    vocabulary = mesh(read, DESC)

    assert vocabulary.concept("mesh:D990003") is None
    assert vocabulary.manifest.counts["records read"] == 3
    assert vocabulary.manifest.counts["concepts"] == 2


def test_a_folder_gives_descriptors_and_supplementary_records_together(read: Read) -> None:
    vocabulary = mesh(read, MESH)

    assert vocabulary.manifest.counts["concepts"] == 5
    assert set(vocabulary.manifest.inputs) == {"desc2026.xml", "supp2026.xml"}


def test_every_packing_gives_the_same_vocabulary(read: Read, tmp_path: Path) -> None:
    packed, zipped, folder = tmp_path / "desc2026.gz", tmp_path / "all.zip", tmp_path / "folder"
    packed.write_bytes(gzip.compress(DESC.read_bytes()))
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.write(DESC, "xml/desc2026.xml")
    folder.mkdir()
    shutil.copy(packed, folder)
    (folder / "readme.txt").write_text("not MeSH")
    renamed = Path(shutil.copy(DESC, tmp_path / "my headings.xml"))

    expected = mesh(read, DESC).fingerprint
    assert {mesh(read, path).fingerprint for path in (packed, zipped, folder, renamed)} == {expected}


def test_the_same_file_plain_and_packed_is_read_once(read: Read, tmp_path: Path) -> None:
    shutil.copy(DESC, tmp_path / "desc2026.xml")
    (tmp_path / "desc2026.gz").write_bytes(gzip.compress(DESC.read_bytes()))

    assert mesh(read, tmp_path).manifest.counts["records read"] == 3


def test_two_years_in_one_folder_are_refused(read: Read, tmp_path: Path) -> None:
    shutil.copy(DESC, tmp_path / "desc2025.xml")
    shutil.copy(DESC, tmp_path / "desc2026.xml")

    with pytest.raises(FormatError, match=r"contains both desc2025\.xml and desc2026\.xml"):
        mesh(read, tmp_path)


def test_a_translated_edition_says_its_language(read: Read, tmp_path: Path) -> None:
    french = tmp_path / "fredesc2026.xml"
    french.write_text(DESC.read_text("utf-8").replace('"eng"', '"fre"'), encoding="utf-8")

    assert {name.language for name in concept(mesh(read, french), "mesh:D990001").names} == {"fr"}


def test_names_beyond_one_frame_are_all_read(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = mesh(read, MESH, level="concept").fingerprint
    monkeypatch.setattr("sapbert.vocab.readers.mesh._ROWS_PER_FRAME", 2)

    assert mesh(read, MESH, level="concept").fingerprint == expected


def test_a_record_is_freed_when_the_next_is_read(tmp_path: Path) -> None:
    path = write_desc(tmp_path / "desc.xml", *(record("x" * 100_000, ui=f"D{number}") for number in range(5)))
    [source] = Release(path).find_all("desc.xml")
    held: list[weakref.ref[ET.Element]] = []

    for found in _records(source, InputReader()):
        assert all(element() is None for element in held)
        held.append(weakref.ref(found.element))
        del found

    assert len(held) == 5


def test_line_ends_and_a_byte_order_mark_change_nothing(read: Read, tmp_path: Path) -> None:
    windows = tmp_path / "desc.xml"
    windows.write_bytes(b"\xef\xbb\xbf" + DESC.read_bytes().replace(b"\n", b"\r\n"))

    assert mesh(read, windows).fingerprint == mesh(read, DESC).fingerprint


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"desc\.xml: the file is empty \(download it again\)"),
        (
            b"<QualifierRecordSet/>",
            r"desc\.xml: expected DescriptorRecordSet or .*, found QualifierRecordSet",
        ),
        (b"C0000001|ENG|P|\n", r"desc\.xml:1: not well-formed XML in column 1: .*is this desc\*\.xml"),
        (
            b"<DescriptorRecordSet>\n<a>\n</b>",
            r"desc\.xml:3: not well-formed XML in column 3: mismatched tag",
        ),
        (b"<DescriptorRecordSet>\n<DescriptorRecord>\n", r"desc\.xml:3: the file ends within a record"),
        (b"<DescriptorRecordSet>\n\xff", r"desc\.xml:2: not well-formed XML"),
        (b"<DescriptorRecordSet>\n\x00", r"desc\.xml:2: not well-formed XML"),
    ],
)
def test_a_file_of_another_kind_is_refused(read: Read, tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "desc.xml"
    path.write_bytes(content)

    with pytest.raises(FormatError, match=message):
        mesh(read, path)
    assert not list(tmp_path.glob("vocabulary*"))


def test_a_truncated_gzip_is_refused(read: Read, tmp_path: Path) -> None:
    path = tmp_path / "desc2026.xml.gz"
    path.write_bytes(gzip.compress(DESC.read_bytes())[:-20])

    with pytest.raises(FormatError, match=r"desc2026\.xml\.gz: damaged or truncated"):
        mesh(read, path)


def test_a_folder_without_mesh_is_refused(read: Read, tmp_path: Path) -> None:
    (tmp_path / "qual2026.xml").write_text("<QualifierRecordSet/>")

    with pytest.raises(FormatError, match=r"contains no desc\*\.xml or supp\*\.xml"):
        mesh(read, tmp_path)


def test_a_record_without_identifier_stops_or_is_skipped(read: Read, tmp_path: Path) -> None:
    path = write_desc(tmp_path / "desc.xml", record("Sound"), record("Lost", ui=" "))

    with pytest.raises(FormatError, match=r"desc\.xml: a DescriptorRecord has no DescriptorUI"):
        mesh(read, path)
    vocabulary = read(lambda w, i: read_mesh(path, w, i, MeshSettings()), on_error="skip")
    assert vocabulary.manifest.counts["concepts"] == vocabulary.manifest.counts["bad rows skipped"] == 1


def test_a_concept_without_identifier_matters_only_at_concept_level(read: Read, tmp_path: Path) -> None:
    path = write_desc(tmp_path / "desc.xml", record("Sound").replace("<ConceptUI>M1</ConceptUI>", ""))

    assert mesh(read, path).manifest.counts["concepts"] == 1
    with pytest.raises(FormatError, match="a Concept of D000001 has no ConceptUI"):
        mesh(read, path, level="concept")


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ConfigError, match="level is descriptor or concept, got 'term'"):
        MeshSettings(level="term")  # type: ignore[arg-type]


def test_a_name_of_100_kb_is_kept(read: Read, tmp_path: Path) -> None:
    path = write_desc(tmp_path / "desc.xml", record("x" * 100_000))

    assert len(concept(mesh(read, path), "mesh:D000001").preferred_name) == 100_000


# XML holds no control characters but white space, of which it makes \r a \n.
texts = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), min_size=1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.lists(texts, min_size=1, max_size=8))
def test_every_written_name_is_read_and_tidied(read: Read, tmp_path: Path, written: list[str]) -> None:
    records = [record(name, ui=f"D{number}") for number, name in enumerate(written)]
    path = write_desc(tmp_path / "desc.xml", record("Anchor", ui="D_"), *records)

    found = mesh(read, path).names.collect()

    expected = {(f"mesh:D{number}", tidy(name)) for number, name in enumerate(written) if tidy(name)}
    assert set(found.select("concept_id", "name").iter_rows()) == expected | {("mesh:D_", "Anchor")}
    for folder in tmp_path.glob("vocabulary*"):
        shutil.rmtree(folder)


@pytest.mark.shared_data
def test_all_real_descriptors_are_read(read: Read, tmp_path: Path, shared_data: Path) -> None:
    """Their names and concepts are real, the XML around them is made here: NLM's is not at hand."""
    table = shared_data / "vocabularies" / "mesh_descriptors.tsv.gz"
    rows = [line.split("\t") for line in gzip.decompress(table.read_bytes()).decode().splitlines()[1:]]
    records: dict[str, dict[str, list[str]]] = {}
    for _, descriptor, name, is_preferred, _, mesh_concept, is_permuted, _ in rows:
        flags = (
            f'RecordPreferredTermYN="{"NY"[int(is_preferred)]}" IsPermutedTermYN="{"NY"[int(is_permuted)]}"'
        )
        term = f"<Term {flags}><String>{escape(name)}</String></Term>"
        records.setdefault(descriptor, {}).setdefault(mesh_concept, []).append(term)
    path = write_desc(tmp_path / "desc.xml", *(real_record(ui, held) for ui, held in records.items()))

    vocabulary = mesh(read, path)

    counts = vocabulary.manifest.counts
    assert counts["concepts"] == 30_764
    assert counts["permuted terms dropped"] == sum(row[6] == "1" for row in rows)
    assert counts["names"] + counts["permuted terms dropped"] == 263_931
    assert concept(vocabulary, "mesh:D009203").preferred_name == "Myocardial Infarction"


def real_record(ui: str, concepts: dict[str, list[str]]) -> str:
    content = "".join(
        f"<Concept><ConceptUI>{held}</ConceptUI><TermList>{''.join(terms)}</TermList></Concept>"
        for held, terms in concepts.items()
    )
    content = f"<DescriptorUI>{ui}</DescriptorUI><ConceptList>{content}</ConceptList>"
    return f"<DescriptorRecord>{content}</DescriptorRecord>"


def test_golden_files_contain_only_invented_names() -> None:
    invented = re.compile(r"(?:[DCTQ]990\d{3}|M9900\d{3})")
    for path in (DESC, SUPP):
        for ui in re.findall(r"UI>\*?([A-Z]\d+)<", path.read_text("utf-8")):
            assert invented.fullmatch(ui)
