from __future__ import annotations

import csv
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapbert.errors import ArtifactError, ConfigError, FormatError
from sapbert.pairs.artifact import Pairs
from sapbert.paper.results_table import SweepResult, best_first, markdown_table, summarise_metrics
from sapbert.paper.sweep import Sweep, _name, read_sweep, run_sweep
from sapbert.training.alignment.trainer import train
from sapbert.training.settings import TrainSettings
from tests.training.alignment.test_trainer import CPU, assert_same_model

RECIPES = Path(__file__).parents[2] / "recipes"
SHORT = "batch_size = 8\nheld_out = 5\nevaluate_every = 2\ncheckpoint_every = 1\nepochs = 0.2\n"
TWO = f"{SHORT}[sweep]\nlearning_rate = [1e-3, 1e-4]\n"


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return tmp_path / "recipe.toml"


def sweep_of(recipe: Path, text: str) -> Sweep:
    recipe.write_text(text)
    return read_sweep(recipe)


# What a recipe asks for


def test_every_combination_of_a_table_is_a_cell(recipe: Path) -> None:
    sweep = sweep_of(
        recipe, "epochs = 3\n[sweep]\nloss = ['nca']\nloss_settings.scale = [1, 5]\nmargin = [0.1, 0.3]\n"
    )
    assert sweep.varied == ("loss", "loss_settings.scale", "margin")
    assert sweep.cells == tuple(
        TrainSettings(epochs=3, loss="nca", loss_settings={"scale": scale}, margin=margin)
        for scale in (1, 5)
        for margin in (0.1, 0.3)
    )


def test_several_tables_are_all_run_and_equal_cells_once(recipe: Path) -> None:
    # An epoch is the default, whichever way it is written.
    sweep = sweep_of(recipe, "[[sweep]]\nmargin = [0.1, 0.2]\n[[sweep]]\nepochs = [2, 1]\n")
    assert sweep.cells == (TrainSettings(margin=0.1), TrainSettings(), TrainSettings(epochs=2))
    assert sweep.varied_values(sweep.cells[0]) == {"margin": 0.1, "epochs": 1}


def test_loss_settings_that_are_not_swept_stay(recipe: Path) -> None:
    sweep = sweep_of(recipe, "[loss_settings]\noffset = 0.4\n[sweep]\nloss_settings.positive_scale = [2]\n")
    assert sweep.cells[0].loss_settings == {"offset": 0.4, "positive_scale": 2}


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=5),
    st.lists(st.sampled_from([0.1, 0.2]), min_size=1, max_size=4),
)
def test_cells_are_the_different_combinations(sizes: list[int], margins: list[float]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sweep = sweep_of(Path(folder) / "r.toml", f"[sweep]\nbatch_size = {sizes}\nmargin = {margins}\n")
    expected = dict.fromkeys((size, margin) for size in sizes for margin in margins)
    assert [(cell.batch_size, cell.margin) for cell in sweep.cells] == list(expected)


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("sweep-ms", 18),
        ("sweep-losses", 19),
        ("sweep-pretraining", 19),
        ("sweep-finetune", 35),
        ("sweep-cpu-quickstart", 4),
    ],
)
def test_each_sweep_of_the_recipes_loads(name: str, cells: int) -> None:
    assert len(read_sweep(RECIPES / f"{name}.toml").cells) == cells


def test_no_recipe_of_a_sweep_is_left_untested() -> None:
    assert len(list(RECIPES.glob("sweep-*.toml"))) == 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("epochs = 1", r"needs a table \[sweep\]"),
        ("[sweep]", r"needs a table \[sweep\]"),
        ("sweep = 3", "sweep must be a table"),
        ("[sweep]\nmargins = [1]", "did you mean 'margin'?"),
        ("epoch = 1\n[sweep]\nmargin = [1]", "did you mean 'epochs'?"),
        ("[sweep]\nmargin = 0.1", "margin in .* must be a list"),
        ("[sweep]\nmargin = []", "margin in .* must be a list"),
        ("[sweep]\nmargin = [0.1, 3]", "margin must be"),
        ("[sweep]\nbatch_size = [8, 'many']", "batch_size is a whole number"),
        ("[sweep]\nbatch_size.small = [8]", "batch_size is a whole number"),
        ("[sweep]\nloss_settings.ofset = [0.5]", "did you mean 'offset'"),
        ("[sweep]\nseed = [1, 2]", "seed selects the held-out concepts"),
        ("[sweep]\nheld_out = [1, 2]", "held_out selects the held-out concepts"),
        ("held_out = 0\n[sweep]\nmargin = [0.1]", "held_out must be at least 1"),
        (
            "[sweep]\n" + "".join(f"{n} = {list(range(1, 100))}\n" for n in ("epochs", "chunk", "keep")),
            "at most 10,000 cells, got 970,299",
        ),
    ],
)
def test_an_invalid_sweep_is_rejected(text: str, said: str, recipe: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        sweep_of(recipe, text)


def test_invalid_toml_is_rejected(recipe: Path) -> None:
    with pytest.raises(FormatError, match="not valid TOML"):
        sweep_of(recipe, "[sweep")


# What comes of it


class Watch:
    """Notes what a sweep tells, and stops it where asked."""

    def __init__(self, stop_at: tuple[int, int] | None = None) -> None:
        self.cells: list[int] = []
        self.steps: list[tuple[int, int]] = []
        self._stop_at = stop_at

    def on_cell(self, number: int, _total: int, _varied: Mapping[str, Any]) -> None:
        self.cells.append(number)

    def on_step(self, done: int, _total: int, _figures: Mapping[str, float]) -> None:
        self.steps.append((self.cells[-1], done))
        if self.steps[-1] == self._stop_at:
            raise KeyboardInterrupt


def run(
    pairs: Pairs, base: Path, target: Path, sweep: Sweep, watch: Watch | None = None
) -> tuple[list[SweepResult], Watch]:
    watch = watch or Watch()
    results = run_sweep(
        pairs, str(base), target, sweep, device=CPU, on_cell=watch.on_cell, on_step=watch.on_step
    )
    return results, watch


@pytest.fixture(scope="module")
def two(tiny_pairs: Pairs, tiny_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep of two cells."""
    folder = tmp_path_factory.mktemp("sweep")
    run(tiny_pairs, tiny_base, folder / "two", sweep_of(folder / "recipe.toml", TWO))
    return folder / "two"


def table(folder: Path) -> list[dict[str, str]]:
    with open(folder / "results.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_the_table_has_one_row_per_cell_best_first(two: Path) -> None:
    rows = table(two)
    assert {row["learning_rate"] for row in rows} == {"0.001", "0.0001"}
    assert float(rows[0]["retrieval"]) >= float(rows[1]["retrieval"])
    for row in rows:
        assert float(row["best_retrieval"]) >= float(row["retrieval"])
        # The same concepts are held out, so before training all cells are equal.
        assert row["retrieval_before"] == rows[0]["retrieval_before"]
        assert float(row["final_loss"]) > 0
        assert float(row["seconds"]) > 0
        assert row["problem"] == ""
        assert (two / "cells" / row["cell"] / "model.safetensors").is_file()
    read = (two / "results.md").read_text()
    assert read.startswith("| learning_rate | retrieval | best_retrieval | retrieval_before | final_loss |")
    assert [line.split(" | ")[0] for line in read.splitlines()[2:4]] == [
        f"| {row['learning_rate']}" for row in rows
    ]
    assert {path.name for path in two.iterdir()} == {"cells", "results.csv", "results.md"}


def test_a_cell_is_the_model_that_training_alone_would_make(
    two: Path, recipe: Path, tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path
) -> None:
    # The second cell, so that nothing of the first may have leaked into it.
    cell = sweep_of(recipe, TWO).cells[1]
    name = next(row["cell"] for row in table(two) if row["learning_rate"] == "0.0001")
    train(tiny_pairs, str(tiny_base), tmp_path / "alone", cell, device=CPU)
    assert_same_model(two / "cells" / name, tmp_path / "alone")


def test_a_finished_sweep_trains_nothing_again_and_a_new_value_only_itself(
    two: Path, recipe: Path, tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(two, tmp_path / "two"))
    (folder / "results.csv").unlink()
    again, watch = run(tiny_pairs, tiny_base, folder, sweep_of(recipe, TWO))
    assert watch.cells == []
    assert (folder / "results.csv").read_text() == (two / "results.csv").read_text()

    more, watch = run(tiny_pairs, tiny_base, folder, sweep_of(recipe, TWO.replace("1e-3", "1e-3, 1e-5")))
    assert watch.cells == [2]
    assert len(more) == len(again) + 1


def test_an_interrupted_sweep_resumes_within_its_cell(
    two: Path, recipe: Path, tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path
) -> None:
    sweep = sweep_of(recipe, TWO)
    with pytest.raises(KeyboardInterrupt):
        run(tiny_pairs, tiny_base, tmp_path / "two", sweep, Watch(stop_at=(2, 3)))
    # What is done is in the table already.
    assert [row["learning_rate"] for row in table(tmp_path / "two")] == ["0.001"]

    _, watch = run(tiny_pairs, tiny_base, tmp_path / "two", sweep)

    assert watch.steps[0] == (2, 3)
    for row in table(two):
        assert_same_model(tmp_path / "two" / "cells" / row["cell"], two / "cells" / row["cell"])


def test_a_failing_cell_is_in_the_table_and_the_others_are_trained(
    recipe: Path, tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path
) -> None:
    sweep = sweep_of(
        recipe,
        f"{SHORT}[[sweep]]\nlearning_rate = [1e30]\n[[sweep]]\nbatch_size = [10000, 16]\n",
    )
    results, _ = run(tiny_pairs, tiny_base, tmp_path / "three", sweep)

    assert results[0].varied["batch_size"] == 16
    assert [bool(result.problem) for result in results] == [False, True, True]
    problems = " ".join(row["problem"] for row in table(tmp_path / "three"))
    assert "the loss is nan" in problems
    assert "batch size 10000 exceeds" in problems


def test_other_pairs_bases_and_settings_are_other_cells(two: Path, tiny_pairs: Pairs, recipe: Path) -> None:
    cell = sweep_of(recipe, TWO).cells[0]
    other_pairs = replace(tiny_pairs, manifest=replace(tiny_pairs.manifest, fingerprint="other"))
    names = {
        _name(tiny_pairs, "base", cell),
        _name(tiny_pairs, "other", cell),
        _name(other_pairs, "base", cell),
        _name(tiny_pairs, "base", TrainSettings(**{**asdict(cell), "warmup": 0.1})),
    }
    assert len(names) == 4
    assert _name(tiny_pairs, "base", replace(cell)) in names


def test_a_folder_that_is_not_a_sweep_is_not_changed(
    recipe: Path, tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "results.csv").write_text("precious")
    with pytest.raises(ArtifactError, match="is not a sweep"):
        run(tiny_pairs, tiny_base, tmp_path / "mine", sweep_of(recipe, TWO))
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["results.csv"]


def test_a_damaged_cell_is_an_error(
    two: Path, recipe: Path, tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(two, tmp_path / "two"))
    (folder / "cells" / table(folder)[0]["cell"] / "model.safetensors").write_bytes(b"")
    with pytest.raises(ArtifactError, match="is damaged"):
        run(tiny_pairs, tiny_base, folder, sweep_of(recipe, TWO))


# The figures


def test_figures_sum_up_a_run() -> None:
    steps = [{"step": step, "loss": 1 / step, "names_per_second": 100.0} for step in range(1, 21)]
    measured = [{"step": 0, "retrieval": 0.2}, *steps]
    measured[10]["retrieval"], measured[20]["retrieval"] = 0.9, 0.7

    figures = summarise_metrics(measured, batch_size=50)

    assert figures["retrieval_before"] == 0.2
    assert figures["retrieval"] == 0.7
    assert figures["best_retrieval"] == 0.9
    assert figures["final_loss"] == pytest.approx((1 / 19 + 1 / 20) / 2)
    assert figures["seconds"] == pytest.approx(20)


def test_seconds_are_correct_if_not_every_step_is_logged() -> None:
    told = [{"step": 10, "names_per_second": 100.0}, {"step": 20, "names_per_second": 50.0}]
    assert summarise_metrics(told, batch_size=50)["seconds"] == pytest.approx(10 + 20)


def test_cells_without_a_measurement_come_last() -> None:
    failed, weak, strong = (
        SweepResult("a", {}),
        SweepResult("b", {}, {"retrieval": 0.0}),
        SweepResult("c", {}, {"retrieval": 1}),
    )
    assert best_first([failed, weak, strong]) == [strong, weak, failed]


def test_the_table_leaves_out_empty_columns_and_escapes_bars() -> None:
    rows = [SweepResult("a", {"loss_settings.scale": None, "loss": "x|y"}, {"retrieval": 0.5}).row()]
    assert markdown_table(rows) == "| loss | retrieval | cell |\n| --- | --- | --- |\n| x\\|y | 50.0% | a |\n"
