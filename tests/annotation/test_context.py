from __future__ import annotations

from pathlib import Path

import pytest

from sapbert.annotation.context.rules import ContextRules
from sapbert.annotation.context.sections import find_sections
from sapbert.errors import FormatError
from sapbert.index.lexicon.words import Splitter
from tests.annotation.conftest import MakeAnnotator


def context(text: str, mention: str, rules: ContextRules | None = None) -> dict[str, str]:
    start = text.index(mention)
    rules = rules or ContextRules.open()
    [found] = rules.find([text], Splitter().split([text]), [(0, start, start + len(mention))])
    for trigger in found:
        assert text[trigger.start : trigger.end] == trigger.phrase
    return {trigger.kind: trigger.phrase for trigger in found}


@pytest.mark.parametrize(
    ("text", "mention", "expected"),
    [
        ("No fever, chills or cough.", "cough", {"negated": "No"}),
        ("Denies fever but has cough.", "cough", {}),
        ("Fever and no cough", "Fever", {}),
        ("Fever. No cough", "Fever", {}),
        ("Pneumonia was ruled out.", "Pneumonia", {"negated": "was ruled out"}),
        ("To rule out pneumonia", "pneumonia", {"possible": "To rule out"}),
        ("Return if fever develops", "fever", {"hypothetical": "Return if"}),
        ("Stroke two years ago", "Stroke", {"historical": "years ago"}),
        ("No family history of asthma", "asthma", {"negated": "No", "family": "family history of"}),
        ("Not only fever", "fever", {}),
        ("No change in asthma", "asthma", {}),
    ],
)
def test_a_trigger_gives_context_to_the_mentions_in_its_scope(
    text: str, mention: str, expected: dict[str, str]
) -> None:
    assert context(text, mention) == expected


def test_rules_of_another_language_are_a_file(tmp_path: Path) -> None:
    (tmp_path / "de.tsv").write_text("# Deutsch\nkein\tnegated\tforward\t2\n")
    rules = ContextRules.open(tmp_path / "de.tsv")

    assert context("kein Fieber", "Fieber", rules) == {"negated": "kein"}
    assert context("kein Husten und Fieber", "Fieber", rules) == {}


@pytest.mark.parametrize(
    "line", ["no\tnegated", "no\tdenied\tforward", "--\tnegated\tforward", "no\tend\tnone\tx"]
)
def test_a_bad_rule_is_reported_with_its_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "rules.tsv").write_text(f"# comment\n{line}\n")
    with pytest.raises(FormatError, match=r"rules\.tsv:2: "):
        ContextRules.open(tmp_path / "rules.tsv")


def test_sections_are_known_headers() -> None:
    text = "Fever\nPAST MEDICAL HISTORY\nStroke\nFamily history: asthma\nOther: cough"
    sections = find_sections(text)

    assert [section.name for section in sections.sections] == ["past_medical_history", "family_history"]
    assert sections.of(0) is None
    found = sections.of(text.index("Stroke"))
    assert found is not None
    assert found.context == "historical"


def test_annotations_have_context_and_section(annotator_of: MakeAnnotator) -> None:
    text = "Chest pain, no fever.\nFamily history: breast cancer"
    [result] = annotator_of(nested=False).annotate([text])

    pain, fever, cancer = result.annotations
    assert (pain.negated, fever.negated, cancer.family) == (False, True, True)
    assert (fever.possible, fever.hypothetical, fever.historical, fever.family) == (False,) * 4
    assert cancer.section == "family_history"
    assert annotator_of(context=False).annotate([text])[0][1].context == ()
