"""Checkpoints: all that a run needs to go on as if it had never stopped.

Each is an artifact of its own (`step-000100`), so it is there whole or not at all, and checked when it is
opened. The newest few are kept; an older one is removed only after a newer one is safely on disk, so a
full disk or a damaged file never costs more than the steps since the last good one.

A GPU does not wait for the disk: what it holds is copied, and written while the next steps are taken.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from sapbert.artifacts import create, load_manifest
from sapbert.errors import ArtifactError, ConfigError
from sapbert.resumable import changed_values

KIND = "checkpoint"
_STATE = "state.pt"
log = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of one run, in one folder. Leaving its block waits until all are on disk."""

    def __init__(self, folder: Path, *, keep: int, beside: bool = False) -> None:
        """Write while training goes on where `beside` says so, which takes memory for a second state."""
        self.folder = folder
        self._keep = keep
        self._disk = ThreadPoolExecutor(1) if beside else None
        self._writing: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._disk is None:
            return
        self._disk.shutdown()
        # By now the model is written, or something else has stopped the run: that is what counts.
        if self._writing is not None and (stopped := self._writing.exception()) is not None:
            log.warning("the last checkpoint was not written: %s", stopped)

    def save(self, step: int, state: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        """Write the state after `step` steps, then remove all but the newest few."""
        self._wait()
        if self._disk is None:
            self._write(step, state, settings)
        else:
            self._writing = self._disk.submit(self._write, step, _copied(state), settings)

    def _wait(self) -> None:
        """Wait for what is being written, and raise what stopped it."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def _write(self, step: int, state: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        with create(self.folder / f"step-{step:08}", overwrite=True) as draft:
            torch.save(dict(state), draft.path / _STATE)
            draft.seal(KIND, settings=settings, inputs={}, counts={"steps": step})
        for old in self._all()[: -self._keep]:
            shutil.rmtree(old, ignore_errors=True)

    def newest(self, settings: Mapping[str, Any]) -> tuple[int, dict[str, Any]] | None:
        """Load the newest checkpoint that is whole; None where there is none.

        A damaged one is passed over with a warning. One made with other settings is refused: what follows
        would be neither the one run nor the other.
        """
        for path in reversed(self._all()):
            try:
                manifest = load_manifest(path, kind=KIND)
            except ArtifactError as error:
                log.warning("%s; going back to the one before", error)
                continue
            _refuse_other_settings(path, manifest.settings, settings)
            state = torch.load(path / _STATE, map_location="cpu", weights_only=True)
            return manifest.counts["steps"], state
        return None

    def _all(self) -> list[Path]:
        return sorted(self.folder.glob("step-*"))


def _copied(state: Any) -> Any:
    """The same with every tensor in memory of its own, not a GPU's."""
    if isinstance(state, torch.Tensor):
        return state.detach().to("cpu", copy=True)
    if isinstance(state, Mapping):
        return {name: _copied(value) for name, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(map(_copied, state))
    return state


def _refuse_other_settings(path: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    if changed := changed_values(old, new):
        raise ConfigError(f"{path} was made with other settings: {changed}")
