"""A sweep: the same training with other settings each time, and one table of what came of it.

A cell of a sweep is an ordinary model folder, named by a digest of all that it depends on. So a sweep has no
state of its own: a cell that is there is done, one that was stopped goes on from its checkpoint, and a recipe
may get more values later. Models are kept, because a benchmark may choose another cell than our measure does.

All cells are measured on the same held-out concepts; hence what decides on these cannot be swept.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch

from sapbert.artifacts import load_manifest
from sapbert.errors import ArtifactError, ConfigError, TrainingError
from sapbert.pairs.artifact import Pairs
from sapbert.paper.results_table import SweepResult, best_first, summarise_metrics, write_results
from sapbert.settings_file import combine_settings, known_values, read_toml
from sapbert.training.alignment.losses import make_loss
from sapbert.training.alignment.mining import MiningSettings
from sapbert.training.alignment.trainer import KIND, train
from sapbert.training.distributed import joined, world
from sapbert.training.loop import METRICS, OnStep
from sapbert.training.metrics import read_metrics
from sapbert.training.settings import TrainSettings

CELLS = "cells"
_MOST_CELLS = 10_000
_SHARED = ("held_out", "seed")
"""What decides which concepts are held out."""
OnCell = Callable[[int, int, Mapping[str, Any]], None]
"""Told the number of the cell that begins, how many there are, and the settings that make it differ."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a recipe with a `[sweep]` asks for."""

    cells: tuple[TrainSettings, ...]
    """All different, in the order of the recipe."""
    varied: tuple[str, ...]
    """Settings that were listed, in the order of the recipe; those of a loss as `loss_settings.scale`."""

    def of(self, cell: TrainSettings) -> dict[str, Any]:
        """What makes a cell differ from others; None where its loss has no such setting or its default."""
        return {name: _value(cell, name) for name in self.varied}


def read_sweep(path: Path) -> Sweep:
    """Read a recipe whose `[sweep]` table lists values of some settings: every combination is a cell.

    Several tables `[[sweep]]` are a grid each, and the sweep is all of them. Every cell is checked here, so
    that a mistake in the last one is told before the first is trained.
    """
    recipe = read_toml(path)
    tables = recipe.pop("sweep", [])
    recipe = known_values(path, recipe, TrainSettings)
    grids = [_grid(path, table) for table in (tables if isinstance(tables, list) else [tables])]
    if not any(grids):
        raise ConfigError(f"{path}: a sweep needs a table [sweep] that lists values of some settings")
    number = sum(math.prod(map(len, grid.values())) for grid in grids)
    if number > _MOST_CELLS:
        raise ConfigError(f"{path}: a sweep has at most {_MOST_CELLS:,} cells, and here are {number:,}")
    cells: dict[str, TrainSettings] = {}
    for combination in (combination for grid in grids for combination in _combinations(grid)):
        settings = combine_settings(recipe, combination, TrainSettings)
        _check(settings)
        cells.setdefault(_digest(asdict(settings)), settings)
    return Sweep(tuple(cells.values()), tuple(dict.fromkeys(name for grid in grids for name in grid)))


def run_sweep(
    pairs: Pairs,
    base: str,
    target: Path,
    sweep: Sweep,
    *,
    device: torch.device,
    overwrite: bool = False,
    on_cell: OnCell,
    on_step: OnStep,
) -> list[SweepResult]:
    """Train every cell that is not done and write the table anew after each; returns its rows, best first.

    A cell that cannot be trained, or no longer, is told in the table, and the others go on.
    """
    if target.exists() and any(target.iterdir()) and not (target / CELLS).is_dir():
        raise ArtifactError(f"{target} exists and is no sweep; choose another name or remove it")
    folders = {target / CELLS / _name(pairs, base, settings): settings for settings in sweep.cells}
    found = {
        folder: _result(sweep, settings, folder)
        for folder, settings in folders.items()
        if folder.exists() and not overwrite
    }
    with joined(device):
        first = world()[0] == 0
        for number, (folder, settings) in enumerate(folders.items(), 1):
            if folder not in found:
                if first:
                    on_cell(number, len(folders), sweep.of(settings))
                try:
                    train(
                        pairs,
                        base,
                        folder,
                        settings,
                        device=device,
                        resume=not overwrite,
                        overwrite=overwrite,
                        on_step=on_step,
                    )
                    found[folder] = _result(sweep, settings, folder)
                except (ConfigError, TrainingError) as error:
                    found[folder] = SweepResult(folder.name, sweep.of(settings), problem=str(error))
            if first:
                write_results(target, found.values())
    return best_first(found.values())


def _grid(path: Path, table: object) -> dict[str, list[Any]]:
    """Return the values of each setting that a table lists."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{path}: sweep is a table of settings, got {table!r}")
    grid: dict[str, list[Any]] = {}
    for key, values in known_values(path, table, TrainSettings).items():
        if key in _SHARED:
            raise ConfigError(
                f"{path}: {key} decides which concepts are held out, so it is the same for all cells"
            )
        if isinstance(values, Mapping):
            grid |= {f"{key}.{name}": listed for name, listed in values.items()}
        else:
            grid[key] = values
    for key, values in grid.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"{path}: {key} in [sweep] is a list of values, got {values!r}")
    return grid


def _combinations(grid: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """Yield every choice of one value for each setting, shaped like a recipe."""
    for values in product(*grid.values()):
        chosen: dict[str, Any] = {}
        for name, value in zip(grid, values, strict=True):
            key, _, nested = name.partition(".")
            if nested:
                chosen.setdefault(key, {})[nested] = value
            else:
                chosen[key] = value
        yield chosen


def _check(settings: TrainSettings) -> None:
    """Refuse what a run would refuse when it begins, and a run without a measure."""
    make_loss(settings.loss, settings.loss_settings)
    MiningSettings(margin=settings.margin, triplets=settings.triplets)
    if not settings.held_out:
        raise ConfigError("a sweep compares its cells by held-out concepts: held_out is at least 1")


def _value(settings: TrainSettings, name: str) -> Any:
    key, _, nested = name.partition(".")
    return settings.loss_settings.get(nested) if nested else getattr(settings, key)


def _name(pairs: Pairs, base: str, settings: TrainSettings) -> str:
    return _digest({"base": base, "pairs": pairs.manifest.fingerprint, **asdict(settings)})


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(_plain(content), sort_keys=True).encode()).hexdigest()[:12]


def _plain(value: Any) -> Any:
    """Spell equal settings alike: a recipe may say 1 or 1.0."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    return float(value) if isinstance(value, int) else value


def _result(sweep: Sweep, settings: TrainSettings, folder: Path) -> SweepResult:
    load_manifest(folder, kind=KIND, verify=False)
    figures = summarise_metrics(read_metrics(folder / METRICS), batch_size=settings.batch_size)
    return SweepResult(folder.name, sweep.of(settings), figures)
