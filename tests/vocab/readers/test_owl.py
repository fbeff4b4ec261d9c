"""OWL: what only this format has. `test_ontology` compares it with the other two."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import polars as pl
import pytest

from sapbert.errors import FormatError
from sapbert.vocab.readers.obo import read_obo
from sapbert.vocab.readers.settings import OboSettings
from sapbert.vocab.vocabulary import Vocabulary
from tests.conftest import Read

ROOT = (
    '<rdf:RDF xmlns:owl="http://www.w3.org/2002/07/owl#" xmlns:efo="http://www.ebi.ac.uk/efo/"\n'
    ' xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:obo="http://purl.obolibrary.org/obo/"\n'
    ' xmlns:rdfs="http://www.w3.org/2000/01/rdf-schema#" xmlns:skos="http://www.w3.org/2004/02/skos/core#"\n'
    ' xmlns:oboInOwl="http://www.geneontology.org/formats/oboInOwl#">\n'
)


def read_owl_text(
    read: Read, folder: Path, content: str, *, head: str = "", encoding: str = "utf-8"
) -> Vocabulary:
    path = folder / "invented.owl"
    path.write_text(f"{head}{ROOT}{content}</rdf:RDF>", encoding=encoding)
    return read(lambda writer, inputs: read_obo(path, writer, inputs, OboSettings()))


def names(vocabulary: Vocabulary) -> list[tuple[str, str, bool]]:
    return sorted(
        vocabulary.names.select("name", pl.col("language").cast(pl.String), "preferred").collect().rows()
    )


def elbow(children: str) -> str:
    return f'<owl:Class rdf:about="http://purl.obolibrary.org/obo/IFO_1">{children}</owl:Class>'


def test_every_language_keeps_its_names_and_a_preferred_one(read: Read, tmp_path: Path) -> None:
    vocabulary = read_owl_text(
        read,
        tmp_path,
        elbow(
            '<rdfs:label>Glass elbow</rdfs:label><rdfs:label xml:lang="de">Glasellbogen</rdfs:label>'
            '<rdfs:label xml:lang="pt-BR">Cotovelo de vidro</rdfs:label>'
            '<oboInOwl:hasExactSynonym xml:lang="DE">Klirrender Ellbogen</oboInOwl:hasExactSynonym>'
        ),
    )

    assert names(vocabulary) == [
        ("Cotovelo de vidro", "pt", True),
        ("Glasellbogen", "de", True),
        ("Glass elbow", "en", True),
        ("Klirrender Ellbogen", "de", False),
    ]


def test_skos_and_efo_names_are_names_and_a_label_is_preferred(read: Read, tmp_path: Path) -> None:
    vocabulary = read_owl_text(
        read,
        tmp_path,
        elbow(
            "<skos:prefLabel>A</skos:prefLabel><skos:altLabel>B</skos:altLabel><rdfs:label>C</rdfs:label>"
            "<efo:alternative_term>D</efo:alternative_term>"
        ),
    )

    assert names(vocabulary) == [
        ("A", "en", False),
        ("B", "en", False),
        ("C", "en", True),
        ("D", "en", False),
    ]


def test_a_preferred_label_alone_is_the_preferred_name(read: Read, tmp_path: Path) -> None:
    assert names(read_owl_text(read, tmp_path, elbow("<skos:prefLabel>A</skos:prefLabel>"))) == [
        ("A", "en", True)
    ]


def test_classes_in_the_long_form_are_classes(read: Read, tmp_path: Path) -> None:
    vocabulary = read_owl_text(
        read,
        tmp_path,
        '<rdf:Description rdf:about="http://purl.obolibrary.org/obo/IFO_1">'
        '<rdf:type rdf:resource="http://www.w3.org/2002/07/owl#Class"/><rdfs:label>A</rdfs:label></rdf:Description>'
        '<rdf:Description rdf:about="http://purl.obolibrary.org/obo/IFO_2"><rdfs:label>B</rdfs:label></rdf:Description>'
        '<owl:Class rdf:ID="IFO_3"><rdfs:label>C</rdfs:label></owl:Class>'
        "<owl:Class><rdfs:label>nameless union</rdfs:label></owl:Class>",
    )

    assert vocabulary.names.collect()["concept_id"].to_list() == ["ifo:1", "ifo:3"]
    assert vocabulary.manifest.counts["terms read"] == 2


def test_iris_without_a_curie_are_dropped_and_counted(read: Read, tmp_path: Path) -> None:
    thing = '<owl:Class rdf:about="http://www.w3.org/2002/07/owl#Thing"><rdfs:label>Thing</rdfs:label></owl:Class>'

    vocabulary = read_owl_text(read, tmp_path, elbow("<rdfs:label>A</rdfs:label>") + thing)

    assert names(vocabulary) == [("A", "en", True)]
    assert vocabulary.manifest.counts["terms without a CURIE dropped"] == 1


def test_the_declared_encoding_is_honoured(read: Read, tmp_path: Path) -> None:
    head = '<?xml version="1.0" encoding="UTF-16"?>'

    vocabulary = read_owl_text(
        read, tmp_path, elbow("<rdfs:label>Köhler</rdfs:label>"), head=head, encoding="utf-16"
    )

    assert names(vocabulary) == [("Köhler", "en", True)]


def test_entities_of_the_file_are_resolved_and_others_refused(read: Read, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    own = '<!DOCTYPE rdf:RDF [<!ENTITY a "glass">]>'
    outside = f'<!DOCTYPE rdf:RDF [<!ENTITY a SYSTEM "{secret.as_uri()}">]>'
    label = elbow("<rdfs:label>&a; elbow</rdfs:label>")

    assert names(read_owl_text(read, tmp_path, label, head=own)) == [("glass elbow", "en", True)]
    with pytest.raises(FormatError, match=r"^invented.owl:5: invalid XML: undefined entity"):
        read_owl_text(read, tmp_path, label, head=outside)


def test_exponentially_expanding_entities_are_refused(read: Read, tmp_path: Path) -> None:
    nested = "".join(f'<!ENTITY e{n + 1} "{f"&e{n};" * 10}">' for n in range(9))
    bomb = f'<!DOCTYPE rdf:RDF [<!ENTITY e0 "{"ha" * 50}">{nested}]>'

    with pytest.raises(FormatError, match=r"^invented.owl:5: invalid XML: limit on input amplification"):
        read_owl_text(read, tmp_path, elbow("<rdfs:label>&e9;</rdfs:label>"), head=bomb)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (ROOT + "<owl:Class>\n<rdfs:label>a", "invented.owl:6: invalid XML: no element found"),
        (ROOT + elbow("<rdfs:label>a\0b</rdfs:label>"), "invented.owl:5: invalid XML: not well-formed"),
        ("<Ontology/>", "invented.owl: expected OWL as RDF/XML, found the XML element 'Ontology'"),
        (ROOT + "</rdf:RDF>", "invented.owl: contains no term"),
    ],
)
def test_damage_is_named_with_its_line(read: Read, tmp_path: Path, content: str, error: str) -> None:
    path = tmp_path / "invented.owl"
    path.write_text(content)

    with pytest.raises(FormatError, match=f"^{error}"):
        read(lambda writer, inputs: read_obo(path, writer, inputs, OboSettings()))


def test_the_batch_size_makes_no_difference(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    classes = "".join(
        f'<owl:Class rdf:about="http://example.org/IFO_{n % 70}"><rdfs:label>name {n}</rdfs:label>'
        f"{'<owl:deprecated>true</owl:deprecated>' if n == 99 else ''}</owl:Class>"
        for n in range(100)
    )
    whole = read_owl_text(read, tmp_path, classes)

    monkeypatch.setattr("sapbert.vocab.readers.owl.ROWS_PER_BATCH", 7)

    assert read_owl_text(read, tmp_path, classes).fingerprint == whole.fingerprint
    assert whole.manifest.counts["concepts"] == 69


def test_elements_are_freed_while_reading(read: Read, tmp_path: Path) -> None:
    axiom = f"<owl:Axiom><owl:annotatedTarget>{'x' * 1000}</owl:annotatedTarget></owl:Axiom>\n"
    content = elbow("<rdfs:label>A</rdfs:label>") + axiom * 20_000

    path = tmp_path / "long.owl"
    path.write_text(f"{ROOT}{content}</rdf:RDF>")

    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        read(lambda writer, inputs: read_obo(path, writer, inputs, OboSettings()))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak - before < len(content) / 4
