"""Hyperparameter sweeps: train with every combination of some settings and compare the results in one table.

The paper's sweeps are recipes of this module, but it works with any pairs and base model (`sapbert sweep`).

A cell of a sweep is an ordinary model folder, named by a digest of everything it depends on. So a sweep has
no other state: a cell that exists is done, an interrupted cell continues from its checkpoint, and values can
be added to a recipe later. Models are kept, because another cell may be best on a benchmark.

All cells are measured on the same held-out concepts, so settings that select these cannot be swept.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
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
from sapbert.training.distributed import process_group, world
from sapbert.training.loop import METRICS, OnStep
from sapbert.training.metrics import read_metrics
from sapbert.training.settings import TrainSettings

CELLS = "cells"
_MAX_CELLS = 10_000
_SHARED = ("held_out", "seed")
"""Settings that select the held-out concepts."""
OnCell = Callable[[int, int, Mapping[str, Any]], None]
"""Called when a cell starts, with its number, the number of cells, and the values of the varied settings."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """The cells of a recipe with a `[sweep]` table."""

    cells: tuple[TrainSettings, ...]
    """Distinct settings, in the order of the recipe."""
    varied: tuple[str, ...]
    """Names of the varied settings, in the order of the recipe; those of a loss as `loss_settings.scale`."""

    def varied_values(self, cell: TrainSettings) -> dict[str, Any]:
        """Return the values of the varied settings; None if the loss of the cell does not set one."""
        return {name: _value(cell, name) for name in self.varied}


def read_sweep(path: Path) -> Sweep:
    """Read a recipe whose `[sweep]` table lists values of some settings; every combination is a cell.

    With several tables `[[sweep]]`, each is a grid, and the sweep is their union. All cells are validated
    here, so that a mistake in the last one is reported before the first is trained.
    """
    recipe = read_toml(path)
    tables = recipe.pop("sweep", [])
    recipe = known_values(path, recipe, TrainSettings)
    grids = [_grid(path, table) for table in (tables if isinstance(tables, list) else [tables])]
    if not any(grids):
        raise ConfigError(f"{path}: a sweep needs a table [sweep] that lists values of some settings")
    number = sum(math.prod(map(len, grid.values())) for grid in grids)
    if number > _MAX_CELLS:
        raise ConfigError(f"{path}: a sweep can have at most {_MAX_CELLS:,} cells, got {number:,}")
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
    """Train every missing cell, rewrite the table after each, and return the results, best first.

    Finished cells are reused and interrupted ones resumed, unless `overwrite` trains all of them again. If
    training a cell fails, the table contains the error and the sweep continues with the other cells.
    """
    if target.exists() and any(target.iterdir()) and not (target / CELLS).is_dir():
        raise ArtifactError(f"{target} exists and is not a sweep; choose another folder or remove it")
    folders = {target / CELLS / _name(pairs, base, settings): settings for settings in sweep.cells}
    results = {
        folder: _result(sweep, settings, folder)
        for folder, settings in folders.items()
        if folder.exists() and not overwrite
    }
    train_cell = partial(train, pairs, base, resume=not overwrite, overwrite=overwrite)
    with process_group(device):
        is_main = world()[0] == 0
        for number, (folder, settings) in enumerate(folders.items(), 1):
            if folder not in results:
                varied = sweep.varied_values(settings)
                if is_main:
                    on_cell(number, len(folders), varied)
                try:
                    train_cell(folder, settings, device=device, on_step=on_step)
                    results[folder] = _result(sweep, settings, folder)
                except (ConfigError, TrainingError) as error:
                    results[folder] = SweepResult(folder.name, varied, problem=str(error))
            if is_main:
                write_results(target, results.values())
    return best_first(results.values())


def _grid(path: Path, table: object) -> dict[str, list[Any]]:
    """Return the values of each setting that a table lists."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{path}: sweep must be a table of settings, got {table!r}")
    grid: dict[str, list[Any]] = {}
    for key, values in known_values(path, table, TrainSettings).items():
        if key in _SHARED:
            raise ConfigError(
                f"{path}: {key} selects the held-out concepts, so it must be the same for all cells"
            )
        if isinstance(values, Mapping):
            grid |= {f"{key}.{name}": listed for name, listed in values.items()}
        else:
            grid[key] = values
    for key, values in grid.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"{path}: {key} in [sweep] must be a list of values, got {values!r}")
    return grid


def _combinations(grid: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """Yield every combination of values, in the form of a recipe."""
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
    """Check what `train` checks at its start, and that there are held-out concepts."""
    make_loss(settings.loss, settings.loss_settings)
    MiningSettings(margin=settings.margin, triplets=settings.triplets)
    if not settings.held_out:
        raise ConfigError("a sweep compares cells on held-out concepts: held_out must be at least 1")


def _value(settings: TrainSettings, name: str) -> Any:
    key, _, nested = name.partition(".")
    return settings.loss_settings.get(nested) if nested else getattr(settings, key)


def _name(pairs: Pairs, base: str, settings: TrainSettings) -> str:
    return _digest({"base": base, "pairs": pairs.manifest.fingerprint, **asdict(settings)})


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(_plain(content), sort_keys=True).encode()).hexdigest()[:12]


def _plain(value: Any) -> Any:
    """Convert integers to floats, because a recipe may say 1 or 1.0."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    return float(value) if isinstance(value, int) else value


def _result(sweep: Sweep, settings: TrainSettings, folder: Path) -> SweepResult:
    load_manifest(folder, kind=KIND, verify=False)
    metrics = summarise_metrics(read_metrics(folder / METRICS), batch_size=settings.batch_size)
    return SweepResult(folder.name, sweep.varied_values(settings), metrics)
