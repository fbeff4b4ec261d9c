from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from sapbert.errors import ConfigError, FormatError
from sapbert.settings_file import combine_settings, read_settings_file
from sapbert.training.alignment import losses
from sapbert.training.settings import (
    BiosynSettings,
    FlashSettings,
    LossName,
    TrainSettings,
    with_current_names,
)

FOLDER = Path(__file__).parents[2] / "recipes"
OTHERS = {path for kind in ("sweep", "biosyn", "reranker", "flash") for path in FOLDER.glob(f"{kind}*.toml")}
RECIPES = sorted(set(FOLDER.glob("*.toml")) - OTHERS)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_each_recipe_loads_and_changes_something(path: Path) -> None:
    recipe = read_settings_file(path, TrainSettings)
    assert recipe
    assert combine_settings(recipe, {}, TrainSettings) == TrainSettings(**recipe)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("flash*.toml")), ids=lambda path: path.stem)
def test_each_flash_recipe_loads_and_changes_something(path: Path) -> None:
    recipe = read_settings_file(path, FlashSettings)
    assert recipe
    assert combine_settings(recipe, {}, FlashSettings) == FlashSettings(**recipe)


def test_there_are_recipes_for_every_loss() -> None:
    losses_of_recipes = {
        combine_settings(read_settings_file(path, TrainSettings), {}, TrainSettings).loss for path in RECIPES
    }
    assert losses_of_recipes == set(get_args(LossName))


def test_options_override_the_recipe_and_the_recipe_overrides_defaults() -> None:
    made = combine_settings({"batch_size": 64, "epochs": 2}, {"batch_size": 32, "seed": None}, TrainSettings)
    assert (made.batch_size, made.epochs, made.seed) == (32, 2, TrainSettings().seed)


def test_an_unknown_key_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text("learning_rat = 1\n")
    with pytest.raises(ConfigError, match="did you mean 'learning_rate'"):
        read_settings_file(tmp_path / "r.toml", TrainSettings)


def test_loss_settings_of_options_and_recipe_are_combined() -> None:
    recipe = {"loss_settings": {"positive_scale": 2, "negative_scale": 50}}
    made = combine_settings(recipe, {"loss_settings": {"negative_scale": 40.0}}, TrainSettings)
    assert made.loss_settings == {"positive_scale": 2, "negative_scale": 40.0}
    assert recipe["loss_settings"]["negative_scale"] == 50


def test_former_names_in_recipes_work_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "r.toml"
    path.write_text("leading = 8\nblend = 0.5\n")
    recipe = read_settings_file(path, TrainSettings)
    assert recipe == {"matryoshka_dim": 8, "weight_interpolation": 0.5}
    assert "the setting 'leading' is now called 'matryoshka_dim'" in caplog.text
    path.write_text('names = "stay"\n')
    assert read_settings_file(path, BiosynSettings) == {"names": "frozen"}
    assert "the value 'stay' of 'names' is now called 'frozen'" in caplog.text


def test_stored_settings_of_earlier_versions_equal_current_ones() -> None:
    assert with_current_names({"blend": 0.5, "names": "stay", "seed": 3, "loss_settings": {}}) == {
        "weight_interpolation": 0.5,
        "names": "frozen",
        "seed": 3,
        "loss_settings": {},
    }


TABLE_9 = {
    "loss-circle": losses.Circle(margin=0.25, scale=256),
    "loss-cosine": losses.CosineEmbedding(),
    "loss-infonce": losses.InfoNCE(temperature=0.07),
    "loss-lifted": losses.LiftedStructure(margin=0.5),
    "loss-ms-table9": losses.MultiSimilarity.of_table_9(),
    "loss-nca": losses.NeighbourhoodComponents(scale=20),
    "loss-triplet": losses.TripletMargin(margin=0.2),
}


def test_each_loss_recipe_has_the_settings_of_table_9() -> None:
    made = {
        path.stem: combine_settings(read_settings_file(path, TrainSettings), {}, TrainSettings)
        for path in RECIPES
        if "loss-" in path.stem
    }
    assert {name: losses.make_loss(one.loss, one.loss_settings) for name, one in made.items()} == TABLE_9


@pytest.mark.parametrize("content", [b"= 3", b"\xff"])
def test_a_file_that_is_not_toml_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_bytes(content)
    with pytest.raises(FormatError, match="not valid TOML"):
        read_settings_file(tmp_path / "r.toml", TrainSettings)


def test_a_missing_recipe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cannot be read"):
        read_settings_file(tmp_path / "none.toml", TrainSettings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", 1),
        ("epochs", 0),
        ("learning_rate", -1.0),
        ("warmup", 1.0),
        ("loss", "hinge"),
        ("pooling", "max"),
        ("precision", "fp8"),
        ("schedule", "cosine"),
        ("triplets", "some"),
        ("keep", 0),
        ("keep", 2.5),
        ("keep", True),
        ("chunk", 0),
        ("clip", 0.0),
        ("seed", "33"),
        ("seed", -1),
        ("held_out", -1),
        ("epochs", float("inf")),
        ("margin", float("nan")),
        ("weight_decay", "none"),
        ("loss_settings", 3),
        ("loss_settings", {"margin": "wide"}),
    ],
)
def test_an_invalid_value_is_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name if name != "batch_size" else "batch"):
        combine_settings({name: value}, {}, TrainSettings)
