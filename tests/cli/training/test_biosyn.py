"""`sapbert biosyn`, and how `index`, `link` and `evaluate` use its model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sapbert.artifacts import load_manifest
from sapbert.encoder.model_folder import stored_sparse_weight
from sapbert.settings_file import combine_settings, read_settings_file
from sapbert.training.settings import BiosynSettings
from tests.cli.conftest import Sapbert, one_json, refused
from tests.conftest import GOLDEN
from tests.training.conftest import one_thread as one_thread
from tests.training.conftest import tiny_base as tiny_base

BENCHMARK = GOLDEN / "benchmarks" / "plain"
RECIPES = sorted((GOLDEN.parents[1] / "recipes").glob("biosyn*.toml"))
NAMES = "concept_id\tname\nx:1\theart attack\nx:1\tmyocardial infarction\nx:2\tcommon cold\nx:3\tmigraine\n"
MENTIONS = "mention\tconcept_ids\nheart attacks\tx:1\ncolds\tx:2\nheadache\tx:3\n"
SHORT = ("--epochs", 2, "--candidates", 3, "--learning-rate", 0.001)


@pytest.fixture
def vocabulary(sapbert: Sapbert, tmp_path: Path) -> Path:
    (tmp_path / "names.tsv").write_text(NAMES)
    (tmp_path / "train.tsv").write_text(MENTIONS)
    assert sapbert("read", "table", tmp_path / "names.tsv", "-o", tmp_path / "vocabulary").code == 0
    return tmp_path / "vocabulary"


@pytest.fixture
def model(sapbert: Sapbert, vocabulary: Path, tiny_base: Path, tmp_path: Path) -> Path:
    mentions, out = tmp_path / "train.tsv", tmp_path / "model"
    done = sapbert("biosyn", vocabulary, "--mentions", mentions, "--base", tiny_base, "-o", out, *SHORT)
    assert (done.code, done.out) == (0, "")
    assert f"model -> {out}" in done.err
    assert f"sparse_weight  {stored_sparse_weight(out)}" in sapbert("show", out).out
    return out


def test_link_uses_the_learned_sparse_weight(
    sapbert: Sapbert, vocabulary: Path, model: Path, tmp_path: Path
) -> None:
    encoder, weight = tmp_path / "encoder", stored_sparse_weight(model)
    assert weight > 0
    assert sapbert("export", model, "-o", encoder).code == 0
    assert sapbert("index", vocabulary, "--model", encoder, "-o", tmp_path / "both").code == 0
    assert (
        sapbert("index", vocabulary, "--model", encoder, "--no-hybrid", "-o", tmp_path / "vectors").code == 0
    )

    def best(index: str, *options: object) -> Any:
        done = sapbert("link", "--index", tmp_path / index, "hart attak", "-k", 1, "--json", *options)
        return one_json(done)

    assert best("both") == best("both", "--sparse-weight", repr(weight))
    assert best("both")["matched_by"] == "hybrid"
    assert best("vectors") == best("both", "--sparse-weight", 0)
    assert best("vectors")["matched_by"] == "dense"


def test_evaluate_ranks_by_vectors_and_ngrams(sapbert: Sapbert, model: Path, tmp_path: Path) -> None:
    ask = ("evaluate", "--benchmark", BENCHMARK, "--cache", tmp_path / "cache", "--json", "--model", model)
    both = one_json(sapbert(*ask, "-o", tmp_path / "both"))
    own = json.loads((model / "sapbert.json").read_text())
    (model / "sapbert.json").write_text(json.dumps({**own, "sparse_weight": 1000.0}))
    spelling = one_json(sapbert(*ask, "-o", tmp_path / "spelling"))
    tfidf = one_json(sapbert("evaluate", "--benchmark", BENCHMARK, "--baseline", "tfidf", "--json"))

    def ranker(name: str) -> object:
        return load_manifest(tmp_path / name).inputs["ranker"]

    assert both["dictionary"]["accuracy"].keys() == {"1", "5"}
    assert spelling["dictionary"]["accuracy"] == tfidf["dictionary"]["accuracy"]
    assert ranker("both") != ranker("spelling")


def test_a_run_stopped_before_its_first_checkpoint_does_not_claim_to_be_saved(
    sapbert: Sapbert, vocabulary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sapbert.training.biosyn.trainer.train_biosyn", interrupted)
    out = tmp_path / "model"
    ask = ("biosyn", vocabulary, "--mentions", tmp_path / "train.tsv", "--base", "b", "-o", out)

    assert "saved" not in sapbert(*ask).err
    (tmp_path / "model.run").mkdir()
    assert "saved in" in sapbert(*ask).err


def test_wrong_options_are_refused_in_one_line(sapbert: Sapbert, vocabulary: Path, tmp_path: Path) -> None:
    mentions, out = tmp_path / "train.tsv", tmp_path / "model"
    ask = ("biosyn", vocabulary, "--mentions", mentions, "--base", tmp_path / "none", "-o", out)
    (tmp_path / "r.toml").write_text("canditates = 3\n")

    assert "none: no such folder" in refused(sapbert(*ask))
    assert "did you mean 'candidates'?" in refused(sapbert(*ask, "--recipe", tmp_path / "r.toml"))
    assert "dense_share must be a fraction" in refused(sapbert(*ask, "--dense-share", 2))
    mentions.write_text(MENTIONS.replace("x:", "y:"))
    assert "no mention has a concept of" in refused(sapbert(*ask))
    assert not out.exists()


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_is_valid(path: Path) -> None:
    recipe = read_settings_file(path, BiosynSettings)
    assert combine_settings(recipe, {}, BiosynSettings) == BiosynSettings(**recipe)


def test_the_recipes_exist() -> None:
    assert [path.stem for path in RECIPES] == [
        "biosyn-askapatient",
        "biosyn-bc5cdr-chemical",
        "biosyn-bc5cdr-disease",
        "biosyn-ncbi-disease",
        "biosyn",
    ]
