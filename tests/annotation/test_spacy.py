from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sapbert.annotation.annotator import Annotator
from sapbert.errors import ArtifactError
from tests.annotation.conftest import MakeAnnotator

spacy = pytest.importorskip("spacy")


@pytest.fixture
def component(annotator_of: MakeAnnotator) -> Any:
    from sapbert.annotation.spacy_component import SapbertComponent

    return SapbertComponent(annotator_of())


def test_concepts_are_found_and_longest_become_entities(component: Any) -> None:
    nlp = spacy.blank("en")
    doc, empty = component.pipe(nlp.pipe(["No fever; breast-cancer.", ""]))

    assert [(span.text, span.kb_id_) for span in doc.spans["sapbert"]] == [
        ("fever", "mesh:D3"),
        ("breast-cancer", "mesh:D1"),
        ("cancer", "mesh:D2"),
    ]
    assert [ent.text for ent in doc.ents] == ["fever", "breast-cancer"]
    fever = doc.ents[0]
    assert (fever._.is_negated, fever._.is_family, fever.label_) == (True, False, "C")
    assert fever._.kb_ents[0][0] == "mesh:D3"
    assert len(empty.spans["sapbert"]) == 0


def test_entities_of_an_ner_are_linked_and_kept(annotator_of: MakeAnnotator) -> None:
    from sapbert.annotation.spacy_component import SapbertComponent

    nlp = spacy.blank("en")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "DISEASE", "pattern": "pyrexia"}])
    doc = SapbertComponent(annotator_of(), mode="link", k=2)(nlp("A pyrexia"))

    [ent] = doc.ents
    assert (ent.text, ent.label_, ent.kb_id_) == ("pyrexia", "DISEASE", "mesh:D3")
    assert len(ent._.kb_ents) == 2


def test_a_saved_pipeline_needs_the_same_index(component: Any, tmp_path: Path) -> None:
    component.to_disk(tmp_path / "sapbert")
    assert component.from_disk(tmp_path / "sapbert") is component
    component.annotator.linker.fingerprint, before = "other", component.annotator.linker.fingerprint
    try:
        with pytest.raises(ArtifactError, match="give the same index"):
            component.from_disk(tmp_path / "sapbert")
    finally:
        component.annotator.linker.fingerprint = before


def test_the_factory_is_registered(annotator_of: MakeAnnotator, monkeypatch: pytest.MonkeyPatch) -> None:
    import sapbert.annotation.spacy_component  # noqa: F401  # registers the factory

    monkeypatch.setattr(Annotator, "open", lambda *_: annotator_of())
    nlp = spacy.blank("en")
    nlp.add_pipe("sapbert", config={"set_ents": False})

    doc = nlp("fever")
    assert not doc.ents
    assert len(doc.spans["sapbert"]) == 1
