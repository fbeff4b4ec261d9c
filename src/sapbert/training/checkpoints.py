"""Checkpoints: everything a run needs to continue as if it had never been interrupted.

Each checkpoint is an artifact (`step-000100`), so it exists completely or not at all, and is verified when
opened. The newest few are kept. An older one is removed only after a newer one is safely on disk, so a full
disk or a damaged file costs at most the steps since the last good checkpoint.

A GPU does not wait for the disk: the state is copied and written while the next steps run.
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
from sapbert.training.settings import with_current_names

KIND = "checkpoint"
_STATE = "state.pt"
log = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of one run, in one folder. Leaving its `with` block waits until all are on disk."""

    def __init__(self, folder: Path, *, keep: int, in_background: bool = False) -> None:
        """`in_background` writes while training continues, which needs memory for a second state."""
        self.folder = folder
        self._keep = keep
        self._disk = ThreadPoolExecutor(1) if in_background else None
        self._writing: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._disk is None:
            return
        self._disk.shutdown()
        # The model has been written by now, or another error is being raised; do not replace that.
        if self._writing is not None and (failure := self._writing.exception()) is not None:
            log.warning("the last checkpoint could not be written: %s", failure)

    def save(self, step: int, state: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        """Write the state after `step` steps, then remove all but the newest few."""
        self._wait()
        if self._disk is None:
            self._write(step, state, settings)
        else:
            self._writing = self._disk.submit(self._write, step, _copied_to_cpu(state), settings)

    def _wait(self) -> None:
        """Wait for the write in progress, and raise its error if it failed."""
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
        """Load the newest complete checkpoint; None if there is none.

        A damaged one is skipped with a warning. One with other settings is refused, as the result would
        belong to neither run.
        """
        for path in reversed(self._all()):
            try:
                manifest = load_manifest(path, kind=KIND)
            except ArtifactError as error:
                log.warning("%s; using the checkpoint before it", error)
                continue
            _refuse_other_settings(path, manifest.settings, settings)
            state = torch.load(path / _STATE, map_location="cpu", weights_only=True)
            return manifest.counts["steps"], state
        return None

    def _all(self) -> list[Path]:
        return sorted(self.folder.glob("step-*"))


def _copied_to_cpu(state: Any) -> Any:
    """Return the same state with every tensor copied to CPU memory."""
    if isinstance(state, torch.Tensor):
        return state.detach().to("cpu", copy=True)
    if isinstance(state, Mapping):
        return {name: _copied_to_cpu(value) for name, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(map(_copied_to_cpu, state))
    return state


def _refuse_other_settings(path: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    if changed := changed_values(with_current_names(old), new):
        raise ConfigError(f"{path} was written with other settings: {changed}")
