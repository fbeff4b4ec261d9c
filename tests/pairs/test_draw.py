from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sapbert.artifacts import load_manifest
from sapbert.errors import ArtifactError, ConfigError, SapbertError
from sapbert.pairs.artifact import Pairs
from sapbert.pairs.draw import draw_pairs
from sapbert.pairs.settings import Languages, PairSettings
from sapbert.text import fold
from sapbert.vocab import writer as writer_module
from sapbert.vocab.input_files import InputReader
from sapbert.vocab.vocabulary import Vocabulary
from sapbert.vocab.writer import write_vocabulary

Row = tuple[str, str, str]
"""Concept, name, language."""
NamePair = tuple[str, str, str]
"""Concept and two texts, in order."""


def write(path: Path, rows: list[Row], *, rows_a_frame: int = 100_000) -> Vocabulary:
    inputs = InputReader()
    with write_vocabulary(path, {}, inputs, overwrite=True) as writer:
        table = pl.DataFrame(rows, schema=["concept_id", "name", "language"], orient="row")
        for frame in table.iter_slices(rows_a_frame):
            writer.add(frame)
    return Vocabulary.open(path)


def pairs_of(pairs: Pairs) -> set[NamePair]:
    found = set()
    for a, b in pairs.pairs:
        assert pairs.concepts[a] == pairs.concepts[b]
        left, right = sorted((pairs.names[int(a)], pairs.names[int(b)]))
        found.add((pairs.concept_ids[int(pairs.concepts[a])], left, right))
    assert len(found) == len(pairs)
    return found


def homonyms_of(pairs: Pairs) -> dict[str, set[str]]:
    """Return ambiguous text → its concepts, from `pairs.homonyms`."""
    assert np.all(np.diff(pairs.homonyms[:, 0]) > 0)
    groups: dict[int, set[tuple[str, str]]] = {}
    for row, group in pairs.homonyms.tolist():
        concept = pairs.concept_ids[int(pairs.concepts[row])]
        groups.setdefault(group, set()).add((pairs.names[row], concept))
    # Groups are numbered by their first rows.
    assert list(groups) == list(range(len(groups)))
    by_text: dict[str, set[str]] = {}
    for members in groups.values():
        [text] = {text for text, _ in members}
        assert text not in by_text
        by_text[text] = {concept for _, concept in members}
    return by_text


Draw = Callable[..., Pairs]


@pytest.fixture
def draw(tmp_path: Path) -> Draw:
    """Draw pairs from rows of names."""

    def run(rows: list[Row], **options: object) -> Pairs:
        vocabulary = write(tmp_path / "vocabulary", rows)
        drawn = PairSettings(**options)  # type: ignore[arg-type]
        return draw_pairs(vocabulary, tmp_path / "pairs", drawn, overwrite=True)

    return run


def english(concept: str, *names: str) -> list[Row]:
    return [(concept, name, "en") for name in names]


def test_two_names_of_a_concept_are_a_pair(draw: Draw) -> None:
    pairs = draw(english("x:1", "Heart attack", "Myocardial infarction") + english("x:2", "Cold", "Sniffles"))

    assert pairs_of(pairs) == {
        ("x:1", "heart attack", "myocardial infarction"),
        ("x:2", "cold", "sniffles"),
    }
    assert pairs.manifest.counts == {"pairs": 2, "names": 4, "concepts": 2, "ambiguous names": 0}


def test_spelling_variants_do_not_make_a_pair(draw: Draw) -> None:
    pairs = draw(
        english("x:1", "Migraine", "MIGRAINE ", "\uff4digraine", "mi\u00adgraine") + english("x:2", "a", "b")
    )

    assert pairs_of(pairs) == {("x:2", "a", "b")}


def test_a_concept_of_one_name_makes_no_pair_but_is_kept(draw: Draw) -> None:
    pairs = draw(english("x:1", "Alone") + english("x:2", "a", "b"))

    assert pairs_of(pairs) == {("x:2", "a", "b")}
    assert pairs.concept_ids.span(0, len(pairs.concept_ids)) == ["x:1", "x:2"]


def test_a_name_of_invisible_characters_is_left_out(draw: Draw) -> None:
    pairs = draw(english("x:1", "\u200b\u200e") + english("x:2", "\ufeff", "a", "b"))

    assert pairs_of(pairs) == {("x:2", "a", "b")}
    assert len(pairs.names) == 2
    assert pairs.concept_ids.span(0, len(pairs.concept_ids)) == ["x:2"]


@pytest.mark.parametrize(
    "rows", [english("x:1", "One") + english("x:2", "Two", "TWO"), english("x:1", "\u200b")]
)
def test_a_vocabulary_without_any_pair_is_an_error_and_leaves_no_files(
    tmp_path: Path, rows: list[Row]
) -> None:
    vocabulary = write(tmp_path / "vocabulary", rows)

    with pytest.raises(SapbertError, match="no concept has two names that could make a pair"):
        draw_pairs(vocabulary, tmp_path / "pairs", PairSettings())
    assert [path.name for path in tmp_path.iterdir()] == ["vocabulary"]


def test_the_rule_across_languages_without_a_second_language_is_an_error(draw: Draw) -> None:
    with pytest.raises(SapbertError, match="no concept has two names"):
        draw(english("x:1", "a", "b"), languages=Languages.ACROSS)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Languages.ANY, {("cold", "flu"), ("cold", "gripe"), ("flu", "gripe")}),
        (Languages.WITHIN, {("cold", "flu")}),
        (Languages.ACROSS, {("cold", "gripe"), ("flu", "gripe")}),
    ],
)
def test_names_are_paired_by_their_languages(
    draw: Draw, rule: Languages, expected: set[tuple[str, str]]
) -> None:
    rows = [("x:1", "cold", "en"), ("x:1", "flu", "en"), ("x:1", "gripe", "es"), ("x:2", "frío", "es")]

    assert {pair[1:] for pair in pairs_of(draw(rows, languages=rule))} == expected


def test_at_most_the_limit_is_drawn_from_a_concept(draw: Draw) -> None:
    names = [f"name {number}" for number in range(20)]

    pairs = draw(english("x:1", *names) + english("x:2", "a", "b"), limit=7)

    drawn = pairs_of(pairs)
    assert len([pair for pair in drawn if pair[0] == "x:1"]) == 7
    assert ("x:2", "a", "b") in drawn


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit: int) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        PairSettings(limit=limit)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_that_is_no_64_bit_number_is_refused(seed: int) -> None:
    with pytest.raises(ConfigError, match="seed"):
        PairSettings(seed=seed)


def test_an_existing_artifact_is_replaced_only_with_overwrite(tmp_path: Path) -> None:
    vocabulary = write(tmp_path / "vocabulary", english("x:1", "a", "b"))
    first = draw_pairs(vocabulary, tmp_path / "pairs", PairSettings(seed=1))

    with pytest.raises(ArtifactError, match="exists"):
        draw_pairs(vocabulary, tmp_path / "pairs", PairSettings(seed=2))
    assert load_manifest(tmp_path / "pairs").settings["seed"] == first.manifest.settings["seed"] == 1


def test_the_manifest_has_the_settings_and_the_vocabulary(tmp_path: Path) -> None:
    vocabulary = write(tmp_path / "vocabulary", english("x:1", "a", "b"))

    manifest = draw_pairs(vocabulary, tmp_path / "pairs", PairSettings(limit=9)).manifest

    assert manifest.settings == {"limit": 9, "seed": 33, "languages": "any", "weights": {}}
    assert manifest.inputs == {"vocabulary": {"fingerprint": vocabulary.fingerprint}}


def test_progress_is_reported_per_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "ROWS_PER_PART", 2)
    vocabulary = write(tmp_path / "vocabulary", many_concepts(6))
    told: list[tuple[int, int]] = []

    draw_pairs(
        vocabulary,
        tmp_path / "pairs",
        PairSettings(),
        progress=lambda name, done, total: told.append((done, total)),
    )

    parts = len(vocabulary.parts())
    assert parts > 1
    assert told == [(done, parts) for done in range(1, parts + 1)]


def many_concepts(number: int) -> list[Row]:
    """Concepts of 1 to 15 names in three languages, some of them ambiguous, one of them large."""
    rows = []
    for concept in range(number):
        for name in range(1 + concept * 7 % 15 if concept % 10 else 200):
            text = f"shared {name}" if (concept + name) % 5 == 0 else f"Name {name} of {concept}"
            rows.append((f"x:{concept:04}", text, ("en", "es", "zh")[name % 3]))
    return rows


@pytest.mark.parametrize("rule", list(Languages))
def test_pairs_do_not_depend_on_the_files_of_the_vocabulary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: Languages
) -> None:
    rows = many_concepts(60)
    pairs = []
    for rows_a_part in (1, 120, 400_000):
        monkeypatch.setattr(writer_module, "ROWS_PER_PART", rows_a_part)
        vocabulary = write(tmp_path / f"vocabulary{rows_a_part}", rows, rows_a_frame=50)
        target = tmp_path / f"pairs{rows_a_part}"
        pairs.append((len(vocabulary.parts()), draw_pairs(vocabulary, target, PairSettings(languages=rule))))

    assert [parts for parts, _ in pairs] == sorted({parts for parts, _ in pairs}, reverse=True)
    assert len({drawn.manifest.fingerprint for _, drawn in pairs}) == 1
    assert homonyms_of(pairs[0][1])


def test_another_seed_makes_another_artifact(draw: Draw) -> None:
    rows = many_concepts(20)

    assert draw(rows, seed=1).manifest.fingerprint != draw(rows, seed=2).manifest.fingerprint
    assert draw(rows, seed=1).manifest.fingerprint == draw(rows, seed=1).manifest.fingerprint


THREADS_SCRIPT = """
import sys
from pathlib import Path
from sapbert.pairs.draw import PairSettings, draw_pairs
from sapbert.vocab.vocabulary import Vocabulary
import polars
pairs = draw_pairs(Vocabulary.open(sys.argv[1]), Path(sys.argv[2]), PairSettings(limit=5))
print(polars.thread_pool_size(), pairs.manifest.fingerprint)
"""


def test_threads_make_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "ROWS_PER_PART", 300)
    write(tmp_path / "vocabulary", many_concepts(60), rows_a_frame=50)

    def run(threads: str) -> list[str]:
        paths = [str(tmp_path / "vocabulary"), str(tmp_path / f"pairs{threads}")]
        done = subprocess.run(
            [sys.executable, "-c", THREADS_SCRIPT, *paths],
            env={**os.environ, "POLARS_MAX_THREADS": threads},
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.split()

    (one, alone), (four, together) = run("1"), run("4")
    assert (one, four) == ("1", "4")
    assert alone == together


names = st.sampled_from(
    ["cold", "COLD", "chill", "flu", "Flu ", "grippe", "\u200b", "kalt", "\uff26lu", "ß", "ss"]
)
rows = st.lists(
    st.tuples(st.sampled_from(["x:1", "x:2", "x:3", "y:1"]), names, st.sampled_from(["en", "de"])),
    min_size=1,
    max_size=40,
)


def folded(rows: list[Row]) -> dict[str, set[str]]:
    concepts: dict[str, set[str]] = {}
    for concept, name, _ in rows:
        if fold(name):
            concepts.setdefault(concept, set()).add(fold(name))
    return concepts


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=rows)
def test_pairs_and_ambiguous_names_equal_those_of_a_plain_loop(draw: Draw, rows: list[Row]) -> None:
    rows = rows + english("z:1", "always", "there")
    concepts = folded(rows)

    pairs = draw(rows)

    assert pairs_of(pairs) == {
        (concept, *pair) for concept, texts in concepts.items() for pair in combinations(sorted(texts), 2)
    }
    by_text: dict[str, set[str]] = {}
    for concept, texts in concepts.items():
        for text in texts:
            by_text.setdefault(text, set()).add(concept)
    ambiguous = {text: owners for text, owners in by_text.items() if len(owners) > 1}
    assert homonyms_of(pairs) == ambiguous
    assert pairs.manifest.counts["ambiguous names"] == sum(len(owners) for owners in ambiguous.values())


def test_names_of_the_real_medic_dictionary_make_pairs(shared_data: Path, tmp_path: Path) -> None:
    table = pl.read_csv(
        shared_data / "vocabularies" / "medic_2012_biosyn.tsv.gz", separator="\t", quote_char=None
    )
    rows = table.select("concept_id", "name", language="lang")
    vocabulary = write(tmp_path / "vocabulary", list(rows.iter_rows()))

    pairs = draw_pairs(vocabulary, tmp_path / "pairs", PairSettings())

    sizes = pl.Series(np.bincount(pairs.concepts))
    assert len(pairs) == int((sizes * (sizes - 1) // 2).clip(upper_bound=50).sum())
    by_text = rows.select("concept_id", text=pl.Series([fold(name) for name in rows["name"]])).unique()
    owners = by_text.group_by("text").len().filter(pl.col("len") > 1)
    assert len(homonyms_of(pairs)) == owners.height
