from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from sapbert.artifacts import load_manifest
from sapbert.encoder.transformer import TransformerEncoder
from sapbert.pairs.artifact import Pairs
from sapbert.training.alignment import trainer
from sapbert.training.settings import TrainSettings
from tests.cli.conftest import Done, Sapbert, refused
from tests.training.conftest import one_thread as one_thread
from tests.training.conftest import tiny_base as tiny_base
from tests.training.conftest import tiny_pairs as tiny_pairs

Train = Callable[..., Done]
RECIPES = Path(__file__).parents[3] / "recipes"
SHORT = ("--batch-size", 8, "--epochs", 0.05, "--held-out", 5)


@pytest.fixture
def train(sapbert: Sapbert, tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path) -> Train:
    """Run `sapbert train` on the tiny pairs and encoder: `train("--epochs", 2)`."""

    def run(*options: object) -> Done:
        return sapbert("train", tiny_pairs.path, "--base", tiny_base, "-o", tmp_path / "model", *options)

    return run


@pytest.fixture
def settings_of(train: Train, monkeypatch: pytest.MonkeyPatch) -> Callable[..., TrainSettings]:
    """Return the settings that a command line would train with, without training."""
    caught: list[TrainSettings] = []

    def catch(_pairs: Pairs, _base: str, _target: Path, settings: TrainSettings, **_: Any) -> None:
        caught.append(settings)

    def run(*options: object) -> TrainSettings:
        done = train(*options)
        assert done.code == 0, done.err
        return caught.pop()

    monkeypatch.setattr(trainer, "train", catch)
    return run


def test_training_writes_a_model_and_reports_its_path(train: Train, tmp_path: Path) -> None:
    done = train(*SHORT)

    assert (done.code, done.out) == (0, "")
    assert f"model -> {tmp_path / 'model'}" in done.err
    assert load_manifest(tmp_path / "model", kind="model").settings["batch_size"] == 8


def test_metrics_are_written_for_tensorboard_on_request(train: Train, tmp_path: Path) -> None:
    done = train(*SHORT, "--tensorboard", tmp_path / "board")
    assert done.code == 0, done.err
    assert [path.name.startswith("events.out") for path in (tmp_path / "board").iterdir()] == [True]


def test_an_adapter_recipe_trains_adapters_that_can_be_shown(
    train: Train, sapbert: Sapbert, tmp_path: Path
) -> None:
    done = train("--recipe", RECIPES / "paper-adapter-16.toml", "--precision", "fp32", *SHORT)
    shown = sapbert("show", tmp_path / "model" / "adapter")

    assert done.code == 0, done.err
    assert sapbert("show", tmp_path / "model").code == 0
    assert "reduction  16" in shown.out
    assert TransformerEncoder.open(tmp_path / "model", device="cpu").dimension == 32


def test_help_lists_every_setting_with_default_and_group(sapbert: Sapbert) -> None:
    shown = sapbert("train", "--help").out
    text = " ".join(shown.split())

    for field in fields(TrainSettings):
        option = f"--{field.name.replace('_', '-')}".removesuffix("s")
        assert f"{option} " in text or f"{option}s " in text, option
    assert "Pairs per step, over all processes. [default: 256]" in text
    assert "--loss <ms|circle|nca|lifted|infonce|triplet|cosine>" in text
    groups = [line for line in shown.splitlines() if line and not line.startswith(" ")][1:]
    assert groups == [
        "Arguments:", "Options:", "Objective:", "Loop:", "Evaluation:", "Adapters:", "Checkpoints:"
    ]  # fmt: skip


def test_without_options_settings_are_the_defaults(settings_of: Callable[..., TrainSettings]) -> None:
    assert settings_of() == TrainSettings()


def test_every_kind_of_option_reaches_the_settings(settings_of: Callable[..., TrainSettings]) -> None:
    made = settings_of("--loss", "nca", "--chunk", 7, "--clip", 0.5, "--seed", 4, "--loss-setting", "scale=5")
    expected = TrainSettings(loss="nca", chunk=7, clip=0.5, seed=4, loss_settings={"scale": 5.0})
    assert made == expected


def test_only_typed_options_override_the_recipe(
    settings_of: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        "batch_size = 64\nepochs = 3\n[loss_settings]\npositive_scale = 2\nnegative_scale = 50\n"
    )
    # 256 is also the default, but it is typed.
    made = settings_of("--recipe", recipe, "--batch-size", 256, "--loss-setting", "negative_scale=40")

    assert (made.batch_size, made.epochs) == (256, 3)
    assert made.loss_settings == {"positive_scale": 2, "negative_scale": 40}


def test_an_unknown_setting_of_a_recipe_or_loss_gets_a_suggestion(train: Train, tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text("batchsize = 64\n")
    assert "did you mean 'batch_size'?" in refused(train("--recipe", tmp_path / "recipe.toml"))
    assert "did you mean 'offset'?" in refused(train("--loss-setting", "ofset=1"))
    assert not (tmp_path / "model").exists()


def test_an_option_of_an_adapter_that_is_not_trained_is_refused(train: Train, tmp_path: Path) -> None:
    assert "--rank has no effect without --adapter lora" in refused(train("--rank", 4))
    assert "without --adapter pfeiffer" in refused(train("--adapter", "lora", "--reduction", 1))


@pytest.mark.parametrize(
    "wrong",
    [
        ("--loss", "hinge"),
        ("--batch-size", "many"),
        ("--loss-setting", "scale"),
        ("--loss-setting", "scale=large"),
    ],
)
def test_an_option_that_cannot_be_read_is_wrong_usage(train: Train, wrong: tuple[str, str]) -> None:
    done = train(*wrong)
    assert done.code == 2
    assert wrong[0] in done.err
