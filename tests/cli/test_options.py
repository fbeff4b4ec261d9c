"""How settings dataclasses become command-line options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.testing import CliRunner, Result

from sapbert.cli.options import ExplicitOptions, GroupedCommand, with_options
from sapbert.options import Option


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Settings that several classes share."""

    seed: int = 33
    """Random seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example(Shared):
    """One field per kind of option."""

    size: Annotated[int | None, Option(min=1, default="all")] = None
    """Number of names."""
    level: Literal["low", "high"] = "low"
    """How much."""
    sources: Annotated[tuple[str, ...], Option(metavar="SAB")] = ("MSH",)
    """Source to keep."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Weight of a source."""
    strict: bool = False
    """Stop at errors."""
    fold: bool = True
    """Ignore case."""
    learned: Annotated[float, Option(hidden=True)] = 0.0
    """Set by code."""


received: list[Any] = []


@with_options({"size": "Names", "seed": "Random numbers"})
def everything(settings: Example) -> None:
    """Take all settings."""
    received.append(settings)


@with_options()
def typed(explicit: ExplicitOptions[Example]) -> None:
    """Take what the user typed."""
    received.append(explicit.values)


@with_options(without=("seed",))
def fewer(settings: Example) -> None:
    """Take all settings but one."""
    received.append(settings)


def run(command: Any, *arguments: str) -> Result:
    app = typer.Typer(rich_markup_mode=None)
    app.command(cls=GroupedCommand)(command)
    received.clear()
    return CliRunner().invoke(app, arguments)


def test_without_options_a_command_receives_the_defaults() -> None:
    assert run(everything).exit_code == 0
    assert received == [Example()]


def test_every_kind_of_option_reaches_its_field() -> None:
    words = "--size 3 --level high --source A --source B --weight A=2 --weight B=0.5 --strict --no-fold"

    assert run(everything, *words.split(), "--seed", "4").exit_code == 0
    assert received == [
        Example(
            size=3,
            level="high",
            sources=("A", "B"),
            weights={"A": 2.0, "B": 0.5},
            strict=True,
            fold=False,
            seed=4,
        )
    ]


@pytest.mark.parametrize(
    "wrong", ["--size 0", "--level middle", "--weight A", "--no-strict", "--learned 1", "--sources A"]
)
def test_values_out_of_range_and_unknown_options_are_wrong_usage(wrong: str) -> None:
    assert run(everything, *wrong.split()).exit_code == 2
    assert received == []


def test_explicit_options_contain_only_typed_values_even_if_they_equal_the_default() -> None:
    assert run(typed, "--seed", "33", "--weight", "A=1").exit_code == 0
    assert received == [{"seed": 33, "weights": {"A": 1.0}}]


def test_excluded_fields_are_no_options() -> None:
    assert run(fewer, "--seed", "1").exit_code == 2
    assert run(fewer).exit_code == 0


def test_help_shows_docstrings_defaults_and_groups() -> None:
    text = " ".join(run(everything, "--help").output.split())

    assert "Names: --size <int> Number of names. [default: all; x>=1]" in text
    assert "--source SAB Source to keep. Repeatable. [default: MSH]" in text
    assert "--weight NAME=NUMBER Weight of a source. Repeatable." in text
    assert "--fold / --no-fold Ignore case. [default: fold]" in text
    assert text.endswith("Random numbers: --seed <int> Random seed. [default: 33]")
    assert "learned" not in text
