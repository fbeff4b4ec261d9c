"""What the three ontology formats share: an ontology gives the same vocabulary in each."""

from __future__ import annotations

import gzip
import json
import tempfile
import warnings
import xml.etree.ElementTree as ET
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pronto.ontology import Ontology

from sapbert.errors import ConfigError, SapbertError
from sapbert.text import tidy
from sapbert.vocab.input_files import InputReader
from sapbert.vocab.readers.obo import read_obo
from sapbert.vocab.readers.ontology import concept_curies
from sapbert.vocab.readers.settings import OboSettings
from sapbert.vocab.settings import SCOPES, OnError
from sapbert.vocab.vocabulary import Vocabulary
from sapbert.vocab.writer import write_vocabulary
from tests.conftest import GOLDEN, Read

ALL_SCOPES = OboSettings(scopes=SCOPES)
FORMATS = ("obo", "json", "owl")
NAMESPACES = {
    "owl": "http://www.w3.org/2002/07/owl#",
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "oboInOwl": "http://www.geneontology.org/formats/oboInOwl#",
}
Row = tuple[str, str, str]
Terms = dict[str, list[tuple[str, str]]]
"""Local id → name and scope of each name; the first is the label."""


def ifo(format: str) -> Path:
    return GOLDEN / "obo" / f"ifo.{format}"


def rows(vocabulary: Vocabulary) -> set[Row]:
    """Concept, name and scope of every name."""
    columns = [pl.col("concept_id"), pl.col("name"), pl.col("scope").cast(pl.String)]
    return set(vocabulary.names.select(columns).collect().iter_rows())


def test_a_term_becomes_a_concept_with_names_types_xrefs_and_aliases(read: Read) -> None:
    vocabulary = read(lambda writer, inputs: read_obo(ifo("obo"), writer, inputs, OboSettings()))

    concept = vocabulary.concept("IFO:0000902")

    assert concept is not None
    assert concept.concept_id == "ifo:0000002"
    assert [(name.text, name.preferred, name.scope) for name in concept.names] == [
        ("Glass elbow syndrome", True, "exact"),
        ("Elbow, glass", False, "exact"),
        ("GES", False, "exact"),
        ("Ringing elbow", False, "related"),
        ('So-called "glass" elbow', False, "exact"),
    ]
    assert {(name.language, name.source) for name in concept.names} == {("en", "ifo")}
    assert concept.xrefs == ("mesh:D999901", "snomedct:999901008", "umls:C9999901")
    assert concept.aliases == ("ifo:0000004", "ifo:0000902", "ifo:0000903")  # the first was replaced by it
    assert concept.types == ()


def test_parents_and_definitions_are_read(read: Read) -> None:
    vocabulary = read(lambda writer, inputs: read_obo(ifo("obo"), writer, inputs, OboSettings()))

    assert vocabulary.parent_links.collect().rows() == [
        ("ifo:0000002", "ifo:0000001", "is_a"),
        ("ifo:0000003", "ifo:0000002", "is_a"),
        ("ifo:0000005", "ifo:0000001", "is_a"),
        ("ifo:0000005", "ifo:0000002", "part_of"),
    ]
    assert vocabulary.definitions.collect().rows() == [
        ("ifo:0000002", 'An elbow that "rings" when touched.', "en", "ifo"),
        ("ifo:0000005", "A cough, soft as velvet.", "en", "ifo"),
    ]


def test_only_a_namespace_that_is_not_the_default_is_a_type(read: Read) -> None:
    vocabulary = read(lambda writer, inputs: read_obo(ifo("obo"), writer, inputs, OboSettings()))

    assert vocabulary.types.collect().rows() == [("ifo:0000003", "invented_process")]


@pytest.mark.parametrize("format", FORMATS)
def test_dropped_items_are_counted(read: Read, format: str) -> None:
    vocabulary = read(lambda writer, inputs: read_obo(ifo(format), writer, inputs, OboSettings()))

    counts = vocabulary.manifest.counts
    assert counts["concepts"] == 6
    assert counts["terms read"] == 8
    assert counts["obsolete terms dropped"] == 1
    assert counts["terms without a name"] == 1
    assert counts["synonyms of other scopes dropped"] == 3
    assert counts["xrefs without a CURIE dropped"] == 3
    assert set(vocabulary.manifest.inputs) == {f"ifo.{format}"}
    assert vocabulary.manifest.inputs[f"ifo.{format}"]["bytes"] == ifo(format).stat().st_size


@pytest.mark.parametrize("scopes", [(), ("exact",), ("exact", "related"), SCOPES])
def test_one_ontology_is_one_vocabulary_in_all_three_formats(read: Read, scopes: tuple[str, ...]) -> None:
    chosen = OboSettings(scopes=scopes)
    vocabularies = [read(lambda w, i, f=f: read_obo(ifo(f), w, i, chosen)) for f in FORMATS]  # type: ignore[misc]  # a default argument binds f

    assert len({vocabulary.fingerprint for vocabulary in vocabularies}) == 1
    assert {scope for _, _, scope in rows(vocabularies[0])} == {"exact", *scopes}


def test_a_gzipped_file_under_any_name_reads_like_the_plain_one(read: Read, tmp_path: Path) -> None:
    packed = [tmp_path / f"{suffix}.txt.gz" for suffix in FORMATS]
    for path, suffix in zip(packed, FORMATS, strict=True):
        path.write_bytes(gzip.compress(ifo(suffix).read_bytes()))

    vocabularies = [
        read(lambda writer, inputs, p=p: read_obo(p, writer, inputs, ALL_SCOPES))  # type: ignore[misc]  # a default argument binds p
        for p in [ifo("obo"), *packed]
    ]

    assert len({vocabulary.fingerprint for vocabulary in vocabularies}) == 1


def test_an_unknown_scope_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown synonym scope 'EXACT'; expected one of exact, related, narrow, broad"
    ):
        OboSettings(scopes=("EXACT",))


# What others make of the same files.


CONDITIONAL = ("ifo:0000003", "ifo:0000001")
"""A parent with the modifier `gci_relation`, which pronto ignores."""


class ByPronto(NamedTuple):
    """An ontology as pronto reads it: live terms only."""

    names: set[Row]
    """With scopes."""
    aliases: set[tuple[str, str]]
    """Alternative ids and predecessors."""
    parents: set[tuple[str, str]]
    """By is_a only."""
    definitions: dict[str, str]


def by_pronto(path: Path) -> ByPronto:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        terms = list(Ontology(str(path)).terms())
        live = [term for term in terms if not term.obsolete]
        curies = dict(zip([t.id for t in live], concept_curies(pl.Series([t.id for t in live])), strict=True))
        scopes: dict[tuple[str, str], list[int]] = {}
        for term in live:
            named = [(term.name, "exact")] if term.name is not None else []
            for name, scope in [*named, *((s.description, str(s.scope).lower()) for s in term.synonyms)]:
                scopes.setdefault((curies[term.id], tidy(name)), []).append(SCOPES.index(scope))
        aliases = {(curies[term.id], alias.lower()) for term in live for alias in term.alternate_ids}
        replaced = ((new.id, old.id) for old in terms for new in old.replaced_by)
        aliases |= {(curies[new], old.lower()) for new, old in replaced if new in curies}
        parents = {
            (curies[term.id], curies[parent.id])
            for term in live
            for parent in term.superclasses(distance=1, with_self=False)
            if term.name is not None
        }
        definitions = {curies[term.id]: tidy(term.definition) for term in live if term.definition}
    names = {(*key, SCOPES[min(found)]) for key, found in scopes.items()}
    return ByPronto(names, aliases, parents, definitions)


def assert_equals_pronto(vocabulary: Vocabulary, path: Path) -> None:
    expected = by_pronto(path)
    assert rows(vocabulary) == expected.names
    assert set(vocabulary.aliases.collect().iter_rows()) == expected.aliases
    is_a = vocabulary.parent_links.filter(pl.col("relation") == "is_a")
    found = set(is_a.select("concept_id", "parent_id").collect().iter_rows())
    assert found == expected.parents - {CONDITIONAL}
    definitions = vocabulary.definitions.select("concept_id", "text").collect()
    assert dict(definitions.iter_rows()) == expected.definitions


@pytest.mark.parametrize("format", FORMATS)
def test_the_three_formats_equal_what_pronto_reads(read: Read, format: str) -> None:
    vocabulary = read(lambda writer, inputs: read_obo(ifo(format), writer, inputs, ALL_SCOPES))

    assert_equals_pronto(vocabulary, ifo(format))


@pytest.mark.shared_data
def test_hpo_equals_pronto_and_the_published_table(read: Read, shared_data: Path) -> None:
    """The table holds every scope and no obsolete term: 19,034 concepts, 41,498 names."""
    path = shared_data / "raw" / "hp.obo.gz"
    table = pl.read_csv(
        shared_data / "vocabularies" / "hpo_2025-01.tsv.gz", separator="\t", quote_char=None
    ).select(pl.col("concept_id").str.replace("HP:", "hp:"), "name", pl.col("is_preferred") == 1)

    vocabulary = read(lambda writer, inputs: read_obo(path, writer, inputs, ALL_SCOPES))

    assert vocabulary.manifest.counts["concepts"] == 19_034
    assert vocabulary.manifest.counts["names"] == 41_498
    assert vocabulary.manifest.counts["obsolete terms dropped"] == 450
    found = vocabulary.names.select("concept_id", "name", "preferred").collect()
    assert set(found.iter_rows()) == set(table.iter_rows())
    assert_equals_pronto(vocabulary, path)
    counts = vocabulary.manifest.counts
    assert (counts["parents"], counts["definitions"], counts["roots"]) == (23_392, 16_449, 1)


@pytest.mark.shared_data
def test_broad_and_narrow_synonyms_of_hpo_are_dropped_by_default(read: Read, shared_data: Path) -> None:
    path = shared_data / "raw" / "hp.obo.gz"

    vocabulary = read(lambda writer, inputs: read_obo(path, writer, inputs, OboSettings()))

    assert vocabulary.manifest.counts["concepts"] == 19_034
    assert vocabulary.manifest.counts["names"] == 40_514


# Laws.


def test_iris_become_curies_by_their_ending() -> None:
    expected = {
        "http://purl.obolibrary.org/obo/HP_0000118": "hp:0000118",
        "http://www.orpha.net/ORDO/Orphanet_558": "orphanet:558",
        "http://www.ebi.ac.uk/efo/EFO_0000400": "efo:0000400",
        "http://purl.obolibrary.org/obo/NCIT_C3262": "ncit:C3262",
        "http://purl.obolibrary.org/obo/NCBITaxon_Union_0000023": "ncbitaxon_union:0000023",
        "#IFO_0000001": "ifo:0000001",
        "HPO:0000118": "hp:0000118",
        "http://en.wikipedia.org/wiki/Glass_elbow": None,
        "http://www.w3.org/2002/07/owl#Thing": None,
        "http://example.org/IFO_0000001/history": None,
        "elbow": None,
        "": None,
    }

    assert concept_curies(pl.Series(list(expected))).to_list() == list(expected.values())


def write_obo(terms: Terms) -> bytes:
    escapes = {"\n": "\\n", "\\": "\\\\", '"': '\\"', "!": "\\!", "{": "\\{", "\t": "\\t"}
    table = str.maketrans({**escapes, "\r": "\\n"})
    text = "format-version: 1.4\n"
    for local, ((label, _), *synonyms) in terms.items():
        text += f"\n[Term]\nid: IFO:{local}\nname: {label.translate(table)}\n"
        text += "".join(f'synonym: "{s.translate(table)}" {scope.upper()} []\n' for s, scope in synonyms)
    return text.encode()


def write_json(terms: Terms) -> bytes:
    nodes = [
        {
            "id": f"http://purl.obolibrary.org/obo/IFO_{local}",
            "type": "CLASS",
            "lbl": label,
            "meta": {"synonyms": [{"pred": f"has{c.title()}Synonym", "val": s} for s, c in synonyms]},
        }
        for local, ((label, _), *synonyms) in terms.items()
    ]
    return json.dumps({"graphs": [{"nodes": nodes}]}).encode()


def write_owl(terms: Terms) -> bytes:
    def tag(name: str) -> str:
        prefix, _, local = name.partition(":")
        return f"{{{NAMESPACES[prefix]}}}{local}"

    root = ET.Element(tag("rdf:RDF"))
    for local, ((label, _), *synonyms) in terms.items():
        iri = f"http://purl.obolibrary.org/obo/IFO_{local}"
        element = ET.SubElement(root, tag("owl:Class"), {tag("rdf:about"): iri})
        ET.SubElement(element, tag("rdfs:label")).text = label
        for text, scope in synonyms:
            ET.SubElement(element, tag(f"oboInOwl:has{scope.title()}Synonym")).text = text
    return bytes(ET.tostring(root, encoding="utf-8"))


def read_bytes(content: bytes, *, on_error: OnError = "stop") -> tuple[str, set[Row]]:
    with tempfile.TemporaryDirectory() as folder:
        path, out, inputs = Path(folder, "invented"), Path(folder, "out"), InputReader(on_error=on_error)
        path.write_bytes(content)
        with write_vocabulary(out, {}, inputs) as writer:
            read_obo(path, writer, inputs, ALL_SCOPES)
        vocabulary = Vocabulary.open(out)
        return vocabulary.fingerprint, rows(vocabulary)


# What XML can hold: no control characters, no surrogates, no noncharacters.
texts = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff")
    | st.sampled_from('\n\t\\"!{}[]:, '),
    min_size=1,
).filter(tidy)
ontologies = st.dictionaries(
    st.from_regex(r"[0-9]{1,7}", fullmatch=True),
    st.lists(st.tuples(texts, st.sampled_from(SCOPES)), min_size=1, max_size=4),
    min_size=1,
    max_size=5,
)


@settings(max_examples=20)
@given(ontologies)
def test_any_names_are_the_same_in_all_formats(terms: Terms) -> None:
    found = [read_bytes(write(terms)) for write in (write_obo, write_json, write_owl)]

    expected: dict[tuple[str, str], int] = {}
    for local, names in terms.items():
        for position, (name, scope) in enumerate(names):
            rank = SCOPES.index(scope) if position else 0
            key = (f"ifo:{local}", tidy(name))
            expected[key] = min(rank, expected.get(key, rank))
    assert found[0][1] == {(*key, SCOPES[rank]) for key, rank in expected.items()}
    assert found[0] == found[1] == found[2]


@settings(max_examples=40)
@given(
    st.sampled_from(FORMATS),
    st.floats(min_value=0, max_value=1),
    st.binary(max_size=4),
    st.booleans(),
    st.sampled_from(["stop", "skip"]),
)
def test_a_damaged_file_is_read_or_refused_but_never_crashes(
    format: str, where: float, junk: bytes, cut: bool, on_error: OnError
) -> None:
    content = ifo(format).read_bytes()
    at = int(where * len(content))

    with suppress(SapbertError):
        read_bytes(content[:at] + junk + (b"" if cut else content[at + len(junk) :]), on_error=on_error)
