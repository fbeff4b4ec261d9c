"""OBO Graphs JSON: what only this format has. `test_ontology` compares it with the other two."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sapbert.errors import FormatError
from sapbert.vocab.readers.obo import read_obo
from sapbert.vocab.readers.settings import OboSettings
from sapbert.vocab.settings import OnError
from sapbert.vocab.vocabulary import Vocabulary
from tests.conftest import Read

IFO = "http://purl.obolibrary.org/obo/IFO_"
NODE = {"id": f"{IFO}1", "type": "CLASS", "lbl": "Glass elbow"}


def read_document(read: Read, folder: Path, document: Any, on_error: OnError = "stop") -> Vocabulary:
    path = folder / "invented.json"
    path.write_bytes(document if isinstance(document, bytes) else json.dumps(document, indent=1).encode())
    return read(lambda writer, inputs: read_obo(path, writer, inputs, OboSettings()), on_error=on_error)


def test_all_graphs_of_a_document_are_read(read: Read, tmp_path: Path) -> None:
    other = {"id": "IFO:2", "type": "CLASS", "lbl": "Velvet cough"}

    vocabulary = read_document(read, tmp_path, {"graphs": [{"nodes": [NODE]}, {}, {"nodes": [other]}]})

    assert vocabulary.names.collect()["concept_id"].to_list() == ["ifo:1", "ifo:2"]


def test_preds_may_be_iris_and_skos_labels_are_names(read: Read, tmp_path: Path) -> None:
    skos = "http://www.w3.org/2004/02/skos/core#"
    meta = {
        "synonyms": [{"pred": "http://www.geneontology.org/formats/oboInOwl#hasRelatedSynonym", "val": "a"}],
        "basicPropertyValues": [
            {"pred": f"{skos}altLabel", "val": "b"},
            {"pred": f"{skos}prefLabel", "val": "c"},
        ],
    }

    concept = read_document(read, tmp_path, {"graphs": [{"nodes": [{**NODE, "meta": meta}]}]}).concept(
        "IFO:1"
    )

    assert concept is not None
    found = [(name.text, name.preferred, name.scope) for name in concept.names]
    assert found[0] == ("Glass elbow", True, "exact")
    assert set(found[1:]) == {("a", False, "related"), ("b", False, "exact"), ("c", False, "exact")}


def test_a_node_without_id_and_an_invalid_synonym_are_errors(read: Read, tmp_path: Path) -> None:
    without_id = {"graphs": [{"nodes": [NODE, {"type": "CLASS", "lbl": "a"}]}]}
    bad_synonym = {
        "graphs": [{"nodes": [{**NODE, "meta": {"synonyms": [{"pred": "sounds_like", "val": "a"}]}}]}]
    }

    with pytest.raises(FormatError, match=r"^invented.json: node 2 has no id"):
        read_document(read, tmp_path, without_id)
    with pytest.raises(FormatError, match=rf"^invented.json: a synonym of {IFO}1 has pred 'sounds_like'"):
        read_document(read, tmp_path, bad_synonym)


def test_bad_nodes_and_synonyms_are_skipped_on_request(read: Read, tmp_path: Path) -> None:
    synonyms = [{"pred": "sounds_like", "val": "a"}, {"pred": "hasExactSynonym"}, None]
    nodes = [{**NODE, "meta": {"synonyms": synonyms}}, {"type": "CLASS", "lbl": "b"}, None]

    vocabulary = read_document(read, tmp_path, {"graphs": [{"nodes": nodes}]}, on_error="skip")

    assert vocabulary.names.collect()["name"].to_list() == ["Glass elbow"]
    assert vocabulary.manifest.counts["bad rows skipped"] == 3


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b'{"graphs": [\n{"nodes": [\n{"id": "a"', "invented.json:3: invalid JSON: Expecting ',' delimiter"),
        (b'{"graphs": [\n{"nodes": [{"id": "\xff"}]}]}', "invented.json:2: byte 0xff is not UTF-8"),
        (b'{"terms": []}', "invented.json: this JSON has no `graphs`"),
        (b'{"graphs": "none"}', "invented.json: not structured as OBO Graphs"),
        (b'{"graphs": [{"nodes": [1]}]}', "invented.json: not structured as OBO Graphs"),
        (b'{"graphs": [{"nodes": []}]}', "invented.json: contains no term"),
        (b'{"graphs": ' + b"[" * 100_000, "invented.json: not structured as OBO Graphs"),
    ],
)
def test_damage_is_named(read: Read, tmp_path: Path, content: bytes, error: str) -> None:
    with pytest.raises(FormatError, match=f"^{error}"):
        read_document(read, tmp_path, content)
