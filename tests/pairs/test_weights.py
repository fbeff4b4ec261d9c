"""Pairs that are drawn more or less often, by the source of their names."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sapbert.errors import ConfigError
from sapbert.pairs.artifact import Pairs
from sapbert.pairs.draw import draw_pairs
from sapbert.pairs.settings import PairSettings
from sapbert.vocab import writer as writer_module
from sapbert.vocab.input_files import InputReader
from sapbert.vocab.vocabulary import Vocabulary
from sapbert.vocab.writer import write_vocabulary

Row = tuple[str, str, str]
"""Concept, name and source."""
ROWS = [
    ("x:1", "Vomiting", "MSH"),
    ("x:1", "vomiting", "LAY"),
    ("x:1", "Emesis", "MSH"),
    ("x:1", "threw up", "LAY"),
    ("x:2", "Gene", "HGNC"),
    ("x:2", "GN", "HGNC"),
]


def write(path: Path, rows: list[Row]) -> Vocabulary:
    with write_vocabulary(path, {}, InputReader()) as writer:
        writer.add(pl.DataFrame(rows, schema=["concept_id", "name", "source"], orient="row"))
    return Vocabulary.open(path)


def times(pairs: Pairs) -> Counter[tuple[str, ...]]:
    """Count how often each pair is drawn."""
    texts = pairs.names.span(0, len(pairs.names))
    return Counter(tuple(sorted((texts[left], texts[right]))) for left, right in pairs.pairs)


def draw(tmp_path: Path, rows: list[Row], **weights: float) -> Pairs:
    vocabulary = write(tmp_path / "vocabulary", rows)
    return draw_pairs(vocabulary, tmp_path / "pairs", PairSettings(weights=weights))


def test_a_pair_is_drawn_as_often_as_the_larger_weight_of_its_names(tmp_path: Path) -> None:
    assert times(draw(tmp_path, ROWS, LAY=3, HGNC=0)) == {
        # "vomiting" is a name of LAY and of MeSH.
        ("emesis", "vomiting"): 3,
        ("emesis", "threw up"): 3,
        ("threw up", "vomiting"): 3,
    }


def test_a_fractional_weight_is_a_probability(tmp_path: Path) -> None:
    rows = [(f"x:{concept}", f"{concept} {name}", "S") for concept in range(1000) for name in "ab"]

    drawn = times(draw(tmp_path, rows, S=1.25))

    assert set(drawn.values()) == {1, 2}
    assert 200 < sum(count == 2 for count in drawn.values()) < 300


def test_pairs_of_one_concept_are_repeated_independently(tmp_path: Path) -> None:
    rows = [("x:1", f"name {number}", "S") for number in range(30)]
    vocabulary = write(tmp_path / "vocabulary", rows)
    wanted = PairSettings(limit=400, weights={"S": 0.5})

    drawn = draw_pairs(vocabulary, tmp_path / "pairs", wanted)

    assert 150 < len(drawn) < 250


def test_an_unknown_source_is_refused_with_a_list_of_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no name is from the source LYA, only from HGNC, LAY, MSH"):
        draw(tmp_path, ROWS, LYA=3)
    assert not (tmp_path / "pairs").exists()


@pytest.mark.parametrize("weight", [-1, float("inf"), float("nan")])
def test_a_weight_must_be_at_least_0(weight: float) -> None:
    with pytest.raises(ConfigError, match="weight of source LAY"):
        PairSettings(weights={"LAY": weight})


def test_pairs_do_not_depend_on_the_files_of_the_vocabulary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        (f"x:{concept}", f"{concept} {name}", "ST"[name % 2]) for concept in range(40) for name in range(5)
    ]
    fingerprints = set()
    for rows_a_part in (1, 30, 400_000):
        monkeypatch.setattr(writer_module, "ROWS_PER_PART", rows_a_part)
        vocabulary = write(tmp_path / f"vocabulary{rows_a_part}", rows)
        pairs = draw_pairs(
            vocabulary, tmp_path / f"pairs{rows_a_part}", PairSettings(weights={"S": 0.5, "T": 0.3})
        )
        fingerprints.add(pairs.manifest.fingerprint)

    assert len(fingerprints) == 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.dictionaries(st.sampled_from(["MSH", "LAY", "HGNC"]), st.integers(0, 4)))
def test_integer_weights_repeat_the_unweighted_pairs(
    tmp_path_factory: pytest.TempPathFactory, weights: dict[str, int]
) -> None:
    place = tmp_path_factory.mktemp("weights")
    vocabulary = write(place / "vocabulary", [*ROWS, ("x:3", "a", "OTHER"), ("x:3", "b", "OTHER")])
    sources: dict[str, set[str]] = {}
    for _, name, source in ROWS:
        sources.setdefault(name.lower(), set()).add(source)

    def expected(pair: tuple[str, ...]) -> int:
        return max(weights.get(source, 1) for name in pair for source in sources.get(name, {"OTHER"}))

    plain = times(draw_pairs(vocabulary, place / "plain", PairSettings()))
    weighted = times(draw_pairs(vocabulary, place / "weighted", PairSettings(weights=weights)))

    assert weighted == Counter({pair: expected(pair) for pair in plain if expected(pair)})
