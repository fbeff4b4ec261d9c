"""The script that trains the bundled encoder: its training data."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from types import ModuleType

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapbert.vocab.vocabulary import Vocabulary
from tests.defaults.conftest import load_script

SCRIPT = load_script("build_encoder")
HEADER = "concept_id\tname\tis_preferred\tlang\tis_permuted\n"
MESH = (
    HEADER
    + """\
D009203\tMyocardial Infarction\t1\ten\t0
D009203\tInfarction, Myocardial\t0\ten\t1
D009203\tHeart-Attack (acute)\t0\ten\t0
D009203\tHerzinfarkt\t0\tde\t0
D003924\tDiabetes, Type 2\t1\ten\t0
D003921\t++\t1\ten\t0
"""
)
MONDO = (
    "concept_id\tname\tis_preferred\tlang\n"
    "MONDO:0005068\tmyocardial infarction\t1\ten\n"
    "MONDO:0005068\tcoronary event\t0\ten\n"
    "MONDO:0005148\ttype 2 diabetes\t1\ten\n"
)
LEXICON = "name\tlay\nmyocardial infarction\tmy heart gave out\nmyocardial infarction\twidow maker\n"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with two vocabularies and a lexicon of its own."""
    module = SCRIPT
    (tmp_path / "lexicon.tsv").write_text(LEXICON)
    for name, text in (("mesh_descriptors", MESH), ("mondo", MONDO), ("xrefs", "concept_id\txref\n")):
        (tmp_path / f"{name}.tsv.gz").write_bytes(gzip.compress(text.encode()))
    monkeypatch.setattr(module, "LEXICON", tmp_path / "lexicon.tsv")
    monkeypatch.setattr(module, "WEIGHTS", {"mesh_descriptors": 1, "mondo": 1, module.LAY: 2})
    return module


def test_names_are_english_not_permuted_and_half_of_them_without_punctuation(
    script: ModuleType, tmp_path: Path
) -> None:
    assert script.table(tmp_path, "mesh_descriptors").rows() == [
        ("mesh:D009203", "Myocardial Infarction", True),
        ("mesh:D009203", "Heart Attack acute", False),
        ("mesh:D003924", "Diabetes, Type 2", True),
        ("mesh:D003921", "++", True),
    ]


def test_a_clinical_name_and_its_phrases_are_one_concept(script: ModuleType) -> None:
    assert script.lexicon().rows() == [
        ("lay:myocardial_infarction", "myocardial infarction", True),
        ("lay:myocardial_infarction", "my heart gave out", False),
        ("lay:myocardial_infarction", "widow maker", False),
    ]


@pytest.mark.parametrize(
    ("american", "british"),
    [
        ("Diarrhea", "Diarrhoea"),
        ("pulmonary edema with anemia", "pulmonary oedema with anaemia"),
        ("oedema, anaemia", "oedema, anaemia"),
        ("dyspnea", "dyspnoea"),
        ("fever", "fever"),
    ],
)
def test_british_spellings_are_added(script: ModuleType, american: str, british: str) -> None:
    assert script.to_british(american) == british


@given(st.text(alphabet="abz -,", max_size=20))
def test_a_misspelt_name_differs_by_one_letter_within_a_word(name: str) -> None:
    wrong = SCRIPT.misspell(name)

    assert abs(len(wrong) - len(name)) <= 1
    assert [word[:1] for word in re.split("[ ,-]", wrong)] == [word[:1] for word in re.split("[ ,-]", name)]
    if len(wrong) == len(name):
        assert sorted(wrong) == sorted(name)


def test_variants_are_further_names_and_never_preferred(script: ModuleType) -> None:
    rows = pl.DataFrame(
        [("x:1", f"anemia of kind {number}", True) for number in range(100)],
        schema=["concept_id", "name", "preferred"],
        orient="row",
    )

    found = script.variants(rows)

    assert found["name"].str.contains("anaemia").sum() == 100
    assert 2 <= len(found) - 100 <= 20
    assert not found["preferred"].any()


def test_equal_preferred_names_join_unless_repeated_in_one_vocabulary(script: ModuleType) -> None:
    names = pl.DataFrame(
        [
            ("a:1", "Heart Attack", "a"),
            ("b:1", "heart attack", "b"),
            ("a:2", "Colds", "a"),
            ("b:2", "colds", "b"),
            ("b:3", "colds", "b"),
            ("a:4", "RNA", "a"),
            ("b:4", "RNA", "b"),
        ],
        schema=["concept_id", "name", "source"],
        orient="row",
    )

    assert script.equal_names(names).rows() == [("b:1", "a:1")]


def test_vocabularies_are_merged_and_the_lexicon_stays_separate(script: ModuleType, tmp_path: Path) -> None:
    script.merge(tmp_path, tmp_path / "out")

    merged = Vocabulary.open(tmp_path / "out" / "merged")
    joined, lay = merged.concept("mondo:0005068"), merged.concept("lay:myocardial_infarction")
    assert joined is not None
    assert lay is not None
    assert joined.concept_id == "mesh:D009203"
    assert {name.text for name in joined.names} >= {"Heart Attack acute", "coronary event"}
    assert {name.text for name in lay.names} == {"myocardial infarction", "my heart gave out", "widow maker"}


def test_the_recipe_and_the_weights_refer_to_existing_files(shared_data: Path) -> None:
    tables = {path.name.removesuffix(".tsv.gz") for path in (shared_data / "vocabularies").glob("*.tsv.gz")}

    assert SCRIPT.RECIPE.is_file()
    assert set(SCRIPT.WEIGHTS) - {SCRIPT.LAY} <= tables
    # May not be shipped in spirit.
    assert not set(SCRIPT.WEIGHTS) & {"medic_2012_biosyn", "drugcentral", "pharmgkb.disease"}
