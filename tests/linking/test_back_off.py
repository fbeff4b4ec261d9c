from __future__ import annotations

from pathlib import Path

import pytest

from sapbert.errors import ConfigError
from sapbert.index.name_table import NameTable
from sapbert.index.name_table_writer import write_name_table
from sapbert.linking.back_off import back_off
from sapbert.linking.candidate import Candidate
from sapbert.linking.formats.linked_mention import LinkedMention
from sapbert.linking.formats.sssom import SssomFormat
from sapbert.linking.settings import LinkSettings
from tests.index.conftest import Facts, write
from tests.linking.conftest import Bench

ROWS = [
    ("x:1", "Disease"),
    ("x:2", "Headache"),
    ("x:3", "Migraine"),
    ("x:4", "Migraine with aura"),
    ("x:5", "Migraine without aura"),
    ("x:6", "Eye pain"),
    ("x:7", "Thing"),
]
PARENTS = [
    ("x:2", "x:1", "is_a"),
    ("x:6", "x:1", "is_a"),
    ("x:3", "x:2", "is_a"),
    ("x:4", "x:3", "is_a"),
    ("x:5", "x:3", "is_a"),
    ("x:1", "x:7", "is_a"),
]


@pytest.fixture
def table(tmp_path: Path) -> NameTable:
    facts: Facts = {"parents": PARENTS, "definitions": [("x:3", "A headache.", "en", "x")]}
    (tmp_path / "entries").mkdir()
    return write_name_table(write(tmp_path / "vocabulary", ROWS, facts), tmp_path / "entries")


def candidates(**confidences: float) -> list[Candidate]:
    return [
        Candidate(f"x:{number[1:]}", "…", "…", 0.5, confidence, "dense")
        for number, confidence in confidences.items()
    ]


def test_the_closest_ancestor_that_is_sure_enough_comes_first(table: NameTable) -> None:
    found = candidates(x4=0.5, x5=0.4, x6=0.1)

    answer, *others = back_off(found, table, 0.85)

    assert (answer.concept_id, answer.preferred_name) == ("x:3", "Migraine")
    assert (answer.matched_by, answer.confidence) == ("ancestor", 0.9)
    assert answer.definition == "A headache."
    assert others == found


def test_an_ancestor_that_is_a_candidate_adds_its_own_confidence(table: NameTable) -> None:
    answer, *others = back_off(candidates(x4=0.5, x3=0.2, x5=0.2), table, 0.85)
    assert (answer.concept_id, answer.confidence) == ("x:3", 0.9)
    assert [each.concept_id for each in others] == ["x:4", "x:5"]


@pytest.mark.parametrize("required", [0.5, 0.99])
def test_nothing_changes_if_the_best_is_sure_or_no_ancestor_is(table: NameTable, required: float) -> None:
    found = candidates(x4=0.5, x5=0.3)
    assert back_off(found, table, required) == found


def test_a_distant_or_filtered_ancestor_is_no_answer(table: NameTable) -> None:
    # From x:4, x:1 is three steps up and x:7 four.
    found = candidates(x4=0.5, x7=0.5)
    assert back_off(found, table, 0.9) == found
    both = candidates(x4=0.5, x5=0.5)
    allowed = table.hierarchy.within([3, 4, 5])
    assert back_off(both, table, 0.9, allowed) == both


def test_back_off_needs_the_confidence_of_every_candidate(bench: Bench) -> None:
    with pytest.raises(ConfigError, match="calibrate with --ranker"):
        bench.linker.link(["cold"], settings=LinkSettings(back_off=0.9))


def test_sssom_calls_an_ancestor_a_broad_match(table: NameTable) -> None:
    [answer, *_] = back_off(candidates(x4=0.5, x5=0.4), table, 0.85)
    rows = SssomFormat(("x",), "f", "{}").rows([LinkedMention(1, "some migraine", {}, [answer])])
    assert "\tskos:broadMatch\tx:3\t" in rows
