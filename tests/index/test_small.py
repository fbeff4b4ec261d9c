"""Small indexes: fewer dimensions, no inverted names, no encoder; and the forecast."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sapbert.encoder.pca import principal_axes
from sapbert.errors import ArtifactError, ConfigError, SapbertError
from sapbert.index import build as build_module
from sapbert.index.build import build_index
from sapbert.index.folder import AXES, encoder_of_index, open_index
from sapbert.index.name_table_writer import write_name_table
from sapbert.index.settings import IndexSettings, Kind, Precision
from sapbert.index.vectors import Vectors
from sapbert.resumable import run_folder
from tests.index.conftest import MakeVocabulary, NgramEncoder, Row, write

ROWS: list[Row] = [
    ("mesh:D1", "Myocardial Infarction", "MSH", "en", "1"),
    ("mesh:D1", "Infarction, Myocardial", "MSH"),
    ("mesh:D1", "Infarctions, Myocardial", "MSH"),
    ("mesh:D1", "INFARCTION, myocardial", "NCI"),
    ("mesh:D2", "Diabetes Mellitus, Type 2", "MSH", "en", "1"),
    ("mesh:D2", "Type 2 Diabetes Mellitus", "MSH"),
    ("mesh:D2", "Diabetes Mellitus, Non-Insulin-Dependent", "MSH"),
    ("mesh:D3", "Infarction, Cerebral", "MSH"),
    ("mesh:D4", "Cerebral Infarction", "MSH"),
]


@pytest.mark.parametrize("kind", Kind)
def test_an_index_with_fewer_dimensions_equals_searching_projected_vectors(
    vocabulary_of: MakeVocabulary, tmp_path: Path, kind: Kind
) -> None:
    settings = IndexSettings(kind=kind, precision=Precision.FP32, dimensions=12)
    encoder = NgramEncoder(32)

    build_index(vocabulary_of(ROWS), encoder, tmp_path / "index", settings)

    index, name_table, manifest = open_index(tmp_path / "index")
    cut = encoder_of_index(tmp_path / "index", manifest, encoder)
    names = cut.encode(name_table.folded.span(0, len(name_table)))
    assert (index.dimension, cut.dimension, manifest.details["dimension"]) == (12, 12, 12)
    assert Vectors.open(tmp_path / "index").data == pytest.approx(names, abs=1e-6)
    scores, rows = index.search(cut.encode(["infarct of the brain"]), 3)
    truth = names @ cut.encode(["infarct of the brain"])[0]
    assert rows[0].tolist() == np.argsort(-truth, kind="stable")[:3].tolist()
    assert scores[0] == pytest.approx(np.sort(truth)[::-1][:3], abs=1e-5)


def test_axes_suit_the_names(vocabulary_of: MakeVocabulary, tmp_path: Path) -> None:
    """There are 8 names, so 8 axes keep the cosines of any two as they are."""
    encoder = NgramEncoder(32)
    settings = IndexSettings(kind=Kind.FLAT, precision=Precision.FP32, dimensions=8)

    build_index(vocabulary_of(ROWS), encoder, tmp_path / "index", settings)

    _, name_table, _ = open_index(tmp_path / "index")
    whole = encoder.encode(name_table.folded.span(0, len(name_table)))
    cut = Vectors.open(tmp_path / "index").data
    assert cut @ cut.T == pytest.approx(whole @ whole.T, abs=1e-5)


def test_an_encoder_of_as_many_dimensions_is_left_alone(
    vocabulary_of: MakeVocabulary, tmp_path: Path
) -> None:
    encoder = NgramEncoder(32)

    manifest = build_index(vocabulary_of(ROWS), encoder, tmp_path / "index", IndexSettings(dimensions=32))

    assert encoder_of_index(tmp_path / "index", manifest, encoder) is encoder
    assert not (tmp_path / "index" / AXES).exists()


def test_an_index_without_axes_is_an_older_one_of_leading_dimensions(
    vocabulary_of: MakeVocabulary, tmp_path: Path
) -> None:
    encoder = NgramEncoder(32)
    manifest = build_index(vocabulary_of(ROWS), encoder, tmp_path / "index", IndexSettings(dimensions=12))

    cut = encoder_of_index(tmp_path / "index", replace(manifest, files={}), encoder)

    leading = encoder.encode(["cold", "heart attack"])[:, :12]
    expected = leading / np.linalg.norm(leading, axis=1, keepdims=True)
    assert cut.encode(["cold", "heart attack"]) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    "axes", [np.full((32, 12), np.nan), np.full((32, 12), 7), np.eye(12), np.eye(32, 12, dtype=np.int8)]
)
def test_damaged_axes_are_refused(
    vocabulary_of: MakeVocabulary, tmp_path: Path, axes: NDArray[np.generic]
) -> None:
    manifest = build_index(
        vocabulary_of(ROWS), NgramEncoder(32), tmp_path / "index", IndexSettings(dimensions=12)
    )
    stored = axes if axes.dtype == np.int8 else axes.astype(np.float32)
    np.save(tmp_path / "index" / AXES, stored)

    with pytest.raises(ArtifactError, match=r"axes\.npy is damaged"):
        encoder_of_index(tmp_path / "index", manifest, NgramEncoder(32))


def test_an_update_projects_the_full_vectors_of_the_older_index(
    vocabulary_of: MakeVocabulary, tmp_path: Path
) -> None:
    small = IndexSettings(kind=Kind.FLAT, precision=Precision.INT8, dimensions=12)
    full, encoder = IndexSettings(kind=Kind.FLAT, precision=Precision.FP32), NgramEncoder(32)
    vocabulary = vocabulary_of(ROWS)
    build_index(vocabulary, encoder, tmp_path / "full", full)
    build_index(vocabulary, encoder, tmp_path / "encoded", small)
    new = NgramEncoder(32)

    build_index(vocabulary, new, tmp_path / "cut", small, update=tmp_path / "full")

    for_axes_and_recall_only = len(new.encoded)
    assert for_axes_and_recall_only == 16
    for file in ("vectors.npy", "scales.npy", AXES):
        assert (tmp_path / "cut" / file).read_bytes() == (tmp_path / "encoded" / file).read_bytes()


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.INT4])
def test_an_update_keeps_the_projection(
    vocabulary_of: MakeVocabulary, tmp_path: Path, precision: Precision
) -> None:
    settings = IndexSettings(kind=Kind.FLAT, precision=precision, dimensions=12)
    build_index(vocabulary_of(ROWS), NgramEncoder(32), tmp_path / "old", settings)
    encoder = NgramEncoder(32)
    newer = vocabulary_of([*ROWS, ("mesh:D5", "Influenza"), ("mesh:D6", "Common Cold")])

    manifest = build_index(newer, encoder, tmp_path / "new", settings, update=tmp_path / "old")

    assert (tmp_path / "new" / AXES).read_bytes() == (tmp_path / "old" / AXES).read_bytes()
    assert sorted(encoder.encoded[-2:]) == ["common cold", "influenza"]
    index, name_table, _ = open_index(tmp_path / "new")
    names = name_table.folded.span(0, len(name_table))
    scores, rows = index.search(encoder_of_index(tmp_path / "new", manifest, encoder).encode(names), 1)
    assert rows[:, 0].tolist() == list(range(10))
    assert scores[:, 0] == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(("precision", "before"), [(Precision.INT8, None), (Precision.FP32, 14)])
def test_an_update_cannot_increase_the_dimensions(
    vocabulary_of: MakeVocabulary, tmp_path: Path, precision: Precision, before: int | None
) -> None:
    vocabulary = vocabulary_of(ROWS)
    old = IndexSettings(kind=Kind.FLAT, precision=precision, dimensions=before)
    build_index(vocabulary, NgramEncoder(32), tmp_path / "old", old)
    new = IndexSettings(kind=Kind.FLAT, precision=precision, dimensions=12)

    with pytest.raises(ConfigError, match=rf"stores {before or 32} dimensions as {precision}, .* become 12"):
        build_index(vocabulary, NgramEncoder(32), tmp_path / "new", new, update=tmp_path / "old")


def test_dimensions_must_be_positive() -> None:
    with pytest.raises(ConfigError, match="at least 1, got 0"):
        IndexSettings(dimensions=0)


def test_more_dimensions_than_the_encoder_has_are_refused(
    vocabulary_of: MakeVocabulary, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="has only 32 dimensions, got dimensions=33"):
        build_index(vocabulary_of(ROWS), NgramEncoder(32), tmp_path / "index", IndexSettings(dimensions=33))


def test_odd_dimensions_in_int4_are_refused_before_encoding(
    vocabulary_of: MakeVocabulary, tmp_path: Path
) -> None:
    encoder, settings = NgramEncoder(32), IndexSettings(dimensions=5, precision=Precision.INT4)
    with pytest.raises(ConfigError, match="pairs of dimensions, got 5; give an even --dimensions"):
        build_index(vocabulary_of(ROWS), encoder, tmp_path / "index", settings)
    assert encoder.encoded == []
    assert not run_folder(tmp_path / "index").exists()


def test_an_encoder_that_returns_nan_is_refused(vocabulary_of: MakeVocabulary, tmp_path: Path) -> None:
    class Broken(NgramEncoder):
        def encode(self, names: Sequence[str]) -> NDArray[np.float32]:
            return np.full((len(names), 32), np.nan, np.float32)

    with pytest.raises(SapbertError, match="returned NaN for 'cerebral infarction'"):
        build_index(vocabulary_of(ROWS), Broken(), tmp_path / "index", IndexSettings(dimensions=4))


def killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_build_is_not_resumed_with_other_dimensions_or_names(
    vocabulary_of: MakeVocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_module, "_measure", killed)
    vocabulary = vocabulary_of(ROWS)
    small = IndexSettings(dimensions=4)
    for settings in (IndexSettings(), IndexSettings(dimensions=12), IndexSettings(inverted=False)):
        with pytest.raises(KeyboardInterrupt):
            build_index(vocabulary, NgramEncoder(32), tmp_path / "index", settings, overwrite=True)
        with pytest.raises(ConfigError, match="contains a build with other inputs"):
            build_index(vocabulary, NgramEncoder(32), tmp_path / "index", small, resume=True)
    monkeypatch.undo()

    build_index(vocabulary, NgramEncoder(32), tmp_path / "index", small, overwrite=True)

    index, name_table, _ = open_index(tmp_path / "index")
    assert (index.dimension, len(name_table)) == (4, 8)


def test_a_build_is_not_resumed_with_another_projection(
    vocabulary_of: MakeVocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vocabulary, settings = vocabulary_of(ROWS), IndexSettings(dimensions=4)
    monkeypatch.setattr(build_module, "_measure", killed)
    with pytest.raises(KeyboardInterrupt):
        build_index(vocabulary, NgramEncoder(32), tmp_path / "index", settings)
    monkeypatch.undo()
    with monkeypatch.context() as patch:
        patch.setattr(build_module, "principal_axes", lambda *arguments: -principal_axes(*arguments))
        with pytest.raises(ConfigError, match="contains a build with other inputs: axes was"):
            build_index(vocabulary, NgramEncoder(32), tmp_path / "index", settings, resume=True)
    encoder = NgramEncoder(32)

    build_index(vocabulary, encoder, tmp_path / "index", settings, resume=True)

    assert len(encoder.encoded) == 16


def test_inverted_names_are_left_out_if_the_concept_has_the_name_without_comma(
    vocabulary_of: MakeVocabulary, tmp_path: Path
) -> None:
    name_table = write_name_table(vocabulary_of(ROWS), tmp_path, inverted=False)

    assert name_table.folded.span(0, len(name_table)) == [
        "cerebral infarction",
        "diabetes mellitus, non-insulin-dependent",
        "diabetes mellitus, type 2",  # preferred
        "infarction, cerebral",  # another concept's
        "infarction, myocardial",  # of a source that has no other
        "infarctions, myocardial",  # other words
        "myocardial infarction",
        "type 2 diabetes mellitus",
    ]
    row = int(name_table.rows_of(["infarction, myocardial"])[0])
    assert [name_table.sources[number] for number in name_table.link_sources[name_table.links_of(row)]] == [
        "NCI"
    ]


words = st.lists(st.sampled_from(["a", "b", "c,", "d-e", "F"]), min_size=1, max_size=4).map(" ".join)


@given(st.lists(st.tuples(st.sampled_from(["x:1", "x:2"]), words), min_size=1, max_size=12))
def test_leaving_out_inverted_names_loses_no_set_of_words(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("inverted")
    vocabulary = write(folder / "vocabulary", rows)

    def bags(names: Sequence[str]) -> set[str]:
        return {" ".join(sorted(re.findall(r"\w+", name))) for name in names}

    found = {}
    for inverted in (True, False):
        (folder / str(inverted)).mkdir()
        name_table = write_name_table(vocabulary, folder / str(inverted), inverted=inverted)
        links = [
            (int(number), row)
            for row in range(len(name_table))
            for number in name_table.link_concepts[name_table.links_of(row)]
        ]
        found[inverted] = {
            number: bags([name_table.folded[row] for own, row in links if own == number])
            for number, _ in links
        }
    assert found[True] == found[False]


def test_an_index_may_be_built_without_its_encoder(vocabulary_of: MakeVocabulary, tmp_path: Path) -> None:
    build_index(vocabulary_of(ROWS), NgramEncoder(), tmp_path / "index", IndexSettings(), carry_encoder=False)

    _, _, manifest = open_index(tmp_path / "index")
    assert not (tmp_path / "index" / "encoder").exists()
    assert manifest.inputs["encoder"] == {"fingerprint": "trigrams-32"}


def test_the_forecast_is_reported_before_encoding(
    vocabulary_of: MakeVocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_module, "ROWS_PER_CHUNK", 5)
    ticks = iter([10.0, 12.0, 20.0, 22.0])
    monkeypatch.setattr(build_module, "perf_counter", lambda: next(ticks))
    forecasts: list[tuple[int, float]] = []

    def stop_after_a_chunk(_name: str, done: int, _total: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    def build(progress: object = None, *, resume: bool = False) -> None:
        build_index(
            vocabulary_of(ROWS),
            NgramEncoder(),
            tmp_path / "index",
            IndexSettings(),
            resume=resume,
            progress=progress or (lambda *_: None),  # type: ignore[arg-type]
            on_forecast=lambda names, rate: forecasts.append((names, rate)),
        )

    with pytest.raises(KeyboardInterrupt):
        build(stop_after_a_chunk)
    build(resume=True)

    assert forecasts == [(8, 4.0), (3, 4.0)]
