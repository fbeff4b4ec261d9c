"""`sapbert reranker`, and how `export`, `link`, `evaluate` and `show` use its model."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sapbert.artifacts import load_manifest
from sapbert.protocols import RerankRequest
from sapbert.settings_file import combine_settings, read_settings_file
from sapbert.training.settings import RerankerSettings
from tests.cli.conftest import Sapbert, one_json, refused
from tests.conftest import GOLDEN
from tests.training.conftest import one_thread as one_thread
from tests.training.conftest import tiny_base as tiny_base

BENCHMARK = GOLDEN / "benchmarks" / "plain"
RECIPES = sorted((GOLDEN.parents[1] / "recipes").glob("reranker-*.toml"))
NAMES = "concept_id\tname\nx:1\theart attack\nx:1\tmyocardial infarction\nx:2\tcommon cold\nx:3\tmigraine\n"
MENTIONS = (
    "mention\tconcept_ids\tsentence\n"
    "heart attacks\tx:1\tTwo heart attacks, they say.\n"
    "colds\tx:2\tMany colds.\n"
    "headache\tx:3\tSuch a headache!\n"
)
HERE = "tests.cli.training.test_reranker"


class ByContext:
    """Ranks the name first that occurs in the context, or the last name if none does."""

    fingerprint = "by context"

    def rerank(self, requests: Sequence[RerankRequest]) -> list[NDArray[np.float32]]:
        return [
            np.array([5.0 if name in request.context else place for place, name in enumerate(request.names)])
            for request in requests
        ]


class Interrupted(ByContext):
    """Is interrupted at the mention "stop"."""

    fingerprint = "interrupted"

    def rerank(self, requests: Sequence[RerankRequest]) -> list[NDArray[np.float32]]:
        if any(request.mention == "stop" for request in requests):
            raise KeyboardInterrupt
        return super().rerank(requests)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, tiny_base: Path) -> Path:
    """An index, mentions and a reranker of them, each made by the command line."""
    from typer.testing import CliRunner

    from sapbert.cli.main import app

    folder = tmp_path_factory.mktemp("made")
    (folder / "names.tsv").write_text(NAMES)
    (folder / "train.tsv").write_text(MENTIONS)
    vocabulary, index, model = (folder / name for name in ("vocabulary", "index", "model"))
    learn = ["--mentions", folder / "train.tsv", "--context-column", "sentence", "--base", tiny_base]
    short = ["--epochs", 2, "--candidates", 3, "--batch-size", 2]
    for words in (
        ["read", "table", folder / "names.tsv", "-o", vocabulary],
        ["index", vocabulary, "--model", tiny_base, "-o", index],
        ["reranker", index, *learn, *short, "-o", model],
        ["export", model, "-o", folder / "reranker"],
    ):
        done = CliRunner().invoke(app, [str(word) for word in words])
        assert done.exit_code == 0, done.output
    return folder


def linked(done: Any) -> list[dict[str, str]]:
    assert done.code == 0, done.err
    return list(csv.DictReader(io.StringIO(done.out)))


def test_a_trained_reranker_orders_links(sapbert: Sapbert, made: Path) -> None:
    ask = ("link", "--index", made / "index", "colds of the heart", "-k", 3)
    plain, again = linked(sapbert(*ask)), linked(sapbert(*ask, "--reranker", made / "reranker"))

    assert {row["matched_by"] for row in plain} == {"dense"}
    assert {row["rerank_score"] for row in plain} == {""}
    assert {row["matched_by"] for row in again} == {"reranked"}
    scores = [float(row["rerank_score"]) for row in again]
    assert scores == sorted(scores, reverse=True)
    assert {(row["concept_id"], row["score"]) for row in again} == {
        (row["concept_id"], row["score"]) for row in plain
    }


def test_mentions_that_cannot_be_trained_on_are_reported(
    sapbert: Sapbert, made: Path, tiny_base: Path, tmp_path: Path
) -> None:
    table = tmp_path / "train.tsv"
    table.write_text(f"{MENTIONS}colds\tx:2\tMany colds.\nelsewhere\ty:1\tNot here.\n")
    learn = ("--mentions", table, "--base", tiny_base, "--epochs", 1, "--candidates", 3, "--held-out", 0)
    done = sapbert("reranker", made / "index", *learn, "-o", tmp_path / "model")

    assert "4 distinct mentions: 3 with a concept of the index, 3 with a correct one" in done.err


def test_show_describes_a_reranker(sapbert: Sapbert, made: Path) -> None:
    shown = sapbert("show", made / "model").out
    assert "reranker" in shown
    assert "score_weight" in shown
    assert load_manifest(made / "reranker").inputs["reranker"]["fingerprint"] in shown
    assert load_manifest(made / "model").settings["context"] is True


def test_context_comes_from_a_column(sapbert: Sapbert, made: Path, tmp_path: Path) -> None:
    table = tmp_path / "notes.jsonl"
    rows = [{"mention": "ill", "note": f"it is {name}"} for name in ("migraine", "common cold")]
    table.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"mention": "ill", "note": 3}]))
    ask = ("link", "--index", made / "index", "--file", table, "-k", 1, "--reranker", f"{HERE}:ByContext")

    with_context = linked(sapbert(*ask, "--context-column", "note"))
    without = linked(sapbert(*ask))

    assert [row["concept_id"] for row in with_context[:2]] == ["x:3", "x:2"]
    assert with_context[2]["concept_id"] == without[0]["concept_id"]
    assert len({row["concept_id"] for row in without}) == 1


def test_a_job_is_not_resumed_with_another_reranker(
    sapbert: Sapbert, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sapbert.linking.job.BATCH", 1)
    ask = ("link", "--index", made / "index", "ill", "stop", "-o", tmp_path / "links.csv", "--reranker")
    assert "add --resume to continue" in refused(sapbert(*ask, f"{HERE}:Interrupted"))

    resumed = sapbert(*ask, f"{HERE}:ByContext", "--resume")

    assert "reranker was 'interrupted', now 'by context'" in refused(resumed)


def test_evaluate_ranks_reranked_names(sapbert: Sapbert, made: Path, tmp_path: Path) -> None:
    ask = ("evaluate", "--benchmark", BENCHMARK, "--baseline", "edit", "--json")
    plain = one_json(sapbert(*ask, "-o", tmp_path / "plain"))
    again = one_json(sapbert(*ask, "--reranker", f"{HERE}:ByContext", "-o", tmp_path / "again"))
    told = sapbert(
        "evaluate", "--benchmark", BENCHMARK, "--baseline", "edit", "--reranker", made / "reranker"
    )

    assert again["dictionary"]["accuracy"]["1"] < plain["dictionary"]["accuracy"]["1"]
    manifests = [load_manifest(tmp_path / name) for name in ("plain", "again")]
    assert manifests[0].inputs["ranker"] != manifests[1].inputs["ranker"]
    assert manifests[1].settings["reranker"] == f"{HERE}:ByContext"
    assert f"edit, reranked by {made / 'reranker'}" in told.out


def test_wrong_options_are_refused_in_one_line(sapbert: Sapbert, made: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ask = (
        "reranker",
        made / "index",
        "--mentions",
        made / "train.tsv",
        "--base",
        tmp_path / "none",
        "-o",
        out,
    )
    (tmp_path / "r.toml").write_text("canditates = 3\n")
    (tmp_path / "other.tsv").write_text(MENTIONS.replace("x:", "y:"))

    assert "none: no such folder" in sapbert(*ask).err
    assert "model exists" in refused(sapbert(*ask, "-o", made / "model"))
    assert "did you mean 'candidates'?" in refused(sapbert(*ask, "--recipe", tmp_path / "r.toml"))
    assert "no column 'text' among" in refused(sapbert(*ask, "--context-column", "text"))
    assert "no mention has a concept" in refused(sapbert(*ask, "--mentions", tmp_path / "other.tsv"))
    assert "remove the other options" in refused(
        sapbert("export", made / "model", "--pooling", "cls", "-o", out)
    )
    link = ("link", "--index", made / "index", "ill")
    assert "is not exported; run: sapbert export" in refused(sapbert(*link, "--reranker", made / "model"))
    assert "no such file" in refused(sapbert(*link, "--reranker", tmp_path / "none"))
    assert "no column 'note'" in refused(
        sapbert(*link, "--reranker", f"{HERE}:ByContext", "--context-column", "note")
    )
    assert sapbert(*link, "--context-column", "mention").code == 2
    assert "not a Hugging Face model" in refused(
        sapbert("index", made / "vocabulary", "--model", made / "model", "-o", out)
    )
    assert not out.exists()


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_is_valid(path: Path) -> None:
    recipe = read_settings_file(path, RerankerSettings)
    assert combine_settings(recipe, {}, RerankerSettings) == RerankerSettings(**recipe)


def test_the_recipes_exist() -> None:
    assert [path.stem for path in RECIPES] == ["reranker-cpu", "reranker-gpu"]
