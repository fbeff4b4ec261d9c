from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sapbert.pairs.artifact import Pairs
from sapbert.training.alignment import trainer
from tests.cli.conftest import Done, Sapbert, left_in, refused
from tests.training.conftest import one_thread as one_thread
from tests.training.conftest import tiny_base as tiny_base
from tests.training.conftest import tiny_pairs as tiny_pairs

SweepOf = Callable[..., Done]
SHORT = "batch_size = 8\nheld_out = 5\nepochs = 0.05\n"


@pytest.fixture
def sweep(sapbert: Sapbert, tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path) -> SweepOf:
    """Run `sapbert sweep` on the tiny pairs and encoder with a recipe: `sweep("[sweep]…")`."""

    def run(recipe: str, *options: object) -> Done:
        (tmp_path / "recipe.toml").write_text(recipe)
        where = ("--recipe", tmp_path / "recipe.toml", "-o", tmp_path / "sweep")
        return sapbert("sweep", tiny_pairs.path, "--base", tiny_base, *where, *options)

    return run


def test_the_table_is_printed_and_progress_is_reported(sweep: SweepOf, tmp_path: Path) -> None:
    done = sweep(f"{SHORT}[sweep]\nmargin = [0.1, 0.2]\n")

    assert done.code == 0
    assert done.out.startswith("| margin | retrieval |")
    assert done.out.count("\n") == 4
    assert (tmp_path / "sweep" / "results.md").read_text().startswith(done.out)
    lines = done.err.splitlines()
    assert "cell 1 of 2: margin 0.1" in lines
    assert "cell 2 of 2: margin 0.2" in lines
    assert lines[-1] == f"sweep -> {tmp_path / 'sweep' / 'results.md'}"


def test_failed_cells_make_the_command_fail_after_all_others(sweep: SweepOf, tmp_path: Path) -> None:
    done = sweep(f"{SHORT}[sweep]\nbatch_size = [100_000, 8]\n")

    assert done.code == 1
    assert done.err.splitlines()[-1].startswith("sapbert: 1 of 2 cells failed")
    assert "batch size 100000 exceeds" in done.out
    assert (tmp_path / "sweep" / "results.csv").exists()


def test_a_sweep_is_continued_only_with_resume(sweep: SweepOf, tmp_path: Path) -> None:
    recipe = f"{SHORT}[sweep]\nmargin = [0.1]\n"
    first = sweep(recipe)

    refusal = refused(sweep(recipe))
    resumed = sweep(recipe, "--resume")
    trained = sweep(recipe, "--overwrite")

    assert "give --resume to keep them and compute the missing ones, or --overwrite to start over" in refusal
    assert resumed.out == first.out
    assert "cell 1 of 1" not in resumed.err
    assert "cell 1 of 1" in trained.err


def test_a_recipe_that_cannot_work_is_refused_before_anything_is_trained(
    sweep: SweepOf, tmp_path: Path
) -> None:
    assert "did you mean 'margin'?" in refused(sweep("[sweep]\nmargins = [0.1]\n"))
    assert left_in(tmp_path) == {"recipe.toml"}


def test_a_missing_base_stops_the_sweep(sapbert: Sapbert, tiny_pairs: Pairs, tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(f"{SHORT}[sweep]\nmargin = [0.1, 0.2]\n")
    where = ("--recipe", tmp_path / "recipe.toml", "-o", tmp_path / "sweep")
    done = sapbert("sweep", tiny_pairs.path, "--base", tmp_path / "nowhere", *where)
    assert done.code == 1
    assert done.err.splitlines() == [
        "cell 1 of 2: margin 0.1",
        f"sapbert: {tmp_path / 'nowhere'}: no such folder",
    ]


def test_an_interrupt_reports_how_to_resume(sweep: SweepOf, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer, "load_encoder", interrupted)
    done = sweep(f"{SHORT}[sweep]\nmargin = [0.1, 0.2]\n")

    assert done.code == 1
    assert "stopped; finished models are kept in" in done.err
    assert "add --resume to continue" in done.err
