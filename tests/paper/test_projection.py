from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapbert.artifacts import create
from sapbert.errors import ArtifactError, ConfigError
from sapbert.pairs.artifact import Pairs
from sapbert.paper.projection import NameSample, nearest_neighbour_share, project, sample_names
from sapbert.paper.settings import MAX_CONCEPTS, ProjectionSettings
from sapbert.plots.figures import COLOURS
from sapbert.plots.tsne import SHAPES, marker_of
from sapbert.plots.tsne_page import tsne_page
from sapbert.text import fold
from sapbert.vocab.input_files import InputReader
from sapbert.vocab.writer import write_vocabulary
from tests.index.conftest import NgramEncoder
from tests.pages.test_document import Elements

SMALL = ProjectionSettings(concepts=3, names=3)


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    """Five concepts, of which one has two names only, and one three that fold to two."""
    rows = [(f"x:{concept}", f"Name {number} of {concept}") for concept in "ABC" for number in range(5)]
    rows += [("x:D", "one"), ("x:D", "two"), ("x:E", "Some"), ("x:E", "some"), ("x:E", "more")]
    table = pl.DataFrame(rows, schema=["concept_id", "name"], orient="row")
    preferred = table.with_columns(rank=pl.col("name").str.starts_with("Name 4").cast(pl.Int32))
    with write_vocabulary(tmp_path / "vocabulary", {}, InputReader()) as writer:
        writer.add(preferred)
    return tmp_path / "vocabulary"


def test_names_are_drawn_from_a_vocabulary(vocabulary: Path) -> None:
    found = sample_names(vocabulary, SMALL)

    assert found.ids == ("x:A", "x:B", "x:C")
    assert found.labels == ("Name 4 of A", "Name 4 of B", "Name 4 of C")
    assert found.concepts.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert len(set(found.names)) == 9
    for name, concept in zip(found.names, found.concepts, strict=True):
        assert name.endswith(f"of {'abc'[concept]}")
        assert name == fold(name)


def test_names_are_drawn_from_pairs(tiny_pairs: Pairs) -> None:
    found = sample_names(tiny_pairs.path, ProjectionSettings(concepts=20, names=4))

    assert Counter(found.concepts.tolist()) == dict.fromkeys(range(20), 4)
    of = {(tiny_pairs.names[row], tiny_pairs.concept_ids[own]) for row, own in enumerate(tiny_pairs.concepts)}
    assert {(name, found.ids[own]) for name, own in zip(found.names, found.concepts, strict=True)} <= of
    assert all((label, concept) in of for label, concept in zip(found.labels, found.ids, strict=True))


def test_the_same_seed_draws_the_same_names(tiny_pairs: Pairs) -> None:
    def drawn(seed: int) -> tuple[str, ...]:
        return sample_names(tiny_pairs.path, ProjectionSettings(concepts=5, names=2, seed=seed)).names

    assert drawn(1) == drawn(1) != drawn(2)


def test_impossible_samples_are_errors(vocabulary: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="only 3 concepts have 3 names or more, expected 4; use fewer"):
        sample_names(vocabulary, ProjectionSettings(concepts=4, names=3))
    with pytest.raises(ConfigError, match=f"concepts must be from 2 to {MAX_CONCEPTS}, got 57"):
        ProjectionSettings(concepts=57)
    with create(tmp_path / "other") as draft:
        draft.seal("index", settings={}, inputs={}, counts={})
    with pytest.raises(ArtifactError, match="is an index; expected a vocabulary or pairs"):
        sample_names(tmp_path / "other", SMALL)


def test_projections_fit_the_unit_square_and_are_deterministic(vocabulary: Path) -> None:
    sample = sample_names(vocabulary, SMALL)
    first, second = (project(sample, NgramEncoder(64), SMALL) for _ in range(2))

    assert first.points.shape == (9, 2)
    assert first.points.min() >= 0
    assert first.points.max() <= 1
    assert np.ptp(first.points, axis=0).max() == pytest.approx(1)
    assert (first.points == second.points).all()


@given(st.integers(2, 12), st.integers(0, 1_000))
def test_the_nearest_name_is_found_as_a_loop_finds_it(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(count, 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    concepts = rng.integers(0, 3, count)

    near = 0
    for own in range(count):
        others = [other for other in range(count) if other != own]
        best = max(others, key=lambda other: float(vectors[own] @ vectors[other]))
        near += concepts[best] == concepts[own]
    assert nearest_neighbour_share(vectors, concepts) == near / count


def test_markers_are_unique_and_neighbours_differ_in_colour_and_shape() -> None:
    looks = [marker_of(concept) for concept in range(MAX_CONCEPTS)]

    assert len(set(looks)) == MAX_CONCEPTS
    assert {colour for colour, _ in looks} == set(range(len(COLOURS)))
    assert {shape for _, shape in looks} == set(range(len(SHAPES)))
    for one, other in pairwise(looks):
        assert one[0] != other[0]
        assert one[1] != other[1]


def test_the_page_contains_every_name_and_point_as_data(vocabulary: Path) -> None:
    drawn = sample_names(vocabulary, SMALL)
    sample = NameSample(
        drawn.ids, ("<b>x", *drawn.labels[1:]), ("</script><b>", *drawn.names[1:]), drawn.concepts
    )
    found = {"before/model": project(drawn, NgramEncoder(64), SMALL)}

    page = tsne_page(sample, found)

    assert "<b>" not in page
    data = json.loads(Elements(page).data)
    assert data["names"][0] == ["</script><b>", 0]
    assert data["concepts"][0]["label"] == "<b>x"
    assert data["models"][0]["name"] == "before/model"
    assert len(data["names"]) == 9
    assert np.allclose(data["models"][0]["points"], found["before/model"].points, atol=1e-4)
