"""Settings read from TOML files: unknown keys, former names, precedence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest

from sapbert.errors import ConfigError
from sapbert.settings_file import check_types, combine_settings, read_settings_file


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleSettings:
    """Every type of field that a settings file can set."""

    dimensions: int = 8
    ratio: float | None = None
    frozen: bool = False
    title: str = ""
    weights: Mapping[str, float] = field(default_factory=dict)
    renamed_settings: ClassVar[Mapping[str, str]] = {"leading": "dimensions"}

    def __post_init__(self) -> None:
        check_types(self)


def test_an_unknown_key_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("dimension = 3\n")

    with pytest.raises(
        ConfigError, match=r"settings.toml: unknown setting 'dimension'; did you mean 'dimensions'\?"
    ):
        read_settings_file(path, ExampleSettings)


def test_a_former_name_still_works_and_causes_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("leading = 3\n")

    assert read_settings_file(path, ExampleSettings) == {"dimensions": 3}
    assert "the setting 'leading' is now called 'dimensions'" in caplog.text


def test_options_take_precedence_over_the_file_and_the_file_over_defaults() -> None:
    made = combine_settings(
        {"dimensions": 3, "title": "a", "weights": {"x": 1.0, "y": 1.0}},
        {"dimensions": 4, "title": None, "weights": {"y": 2.0}},
        ExampleSettings,
    )
    assert made == ExampleSettings(dimensions=4, title="a", weights={"x": 1.0, "y": 2.0})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("dimensions", True, "dimensions is a whole number; got True"),
        ("dimensions", 1.5, "dimensions is a whole number; got 1.5"),
        ("ratio", "0.5", "ratio is a number; got '0.5'"),
        ("frozen", 1, "frozen is true or false; got 1"),
        ("title", 1, "title is text; got 1"),
        ("weights", {"x": "y"}, "weights is a table of numbers; got {'x': 'y'}"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(name: str, value: object, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        combine_settings({name: value}, {}, ExampleSettings)
    assert str(error.value) == message


def test_an_integer_is_accepted_as_a_float_and_a_boolean_as_itself() -> None:
    assert ExampleSettings(ratio=1, frozen=True).ratio == 1
