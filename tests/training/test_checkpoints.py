from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch

from sapbert.training.checkpoints import Checkpoints

SETTINGS = {"batch_size": 8}


def state(value: float) -> dict[str, Any]:
    weight = torch.full((3,), value)
    return {"model": {"weight": weight}, "optimizer": {"state": {0: {"mean": weight.clone()}}, "groups": [1]}}


def weight_of(checkpoints: Checkpoints) -> float:
    found = checkpoints.newest(SETTINGS)
    assert found is not None
    return float(found[1]["model"]["weight"][0])


@pytest.mark.parametrize("in_background", [False, True])
def test_the_newest_checkpoints_are_kept_and_restored(tmp_path: Path, in_background: bool) -> None:
    with Checkpoints(tmp_path, keep=2, in_background=in_background) as checkpoints:
        assert checkpoints.newest(SETTINGS) is None
        for step in (1, 2, 3):
            checkpoints.save(step, state(step), SETTINGS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000002", "step-00000003"]
    step, found = Checkpoints(tmp_path, keep=2).newest(SETTINGS) or (0, {})
    assert step == 3
    assert found["model"]["weight"].tolist() == [3.0, 3.0, 3.0]
    assert found["optimizer"]["state"][0]["mean"].tolist() == [3.0, 3.0, 3.0]
    assert found["optimizer"]["groups"] == [1]


def test_changes_during_a_background_write_are_not_in_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = Event()
    save = torch.save

    def late(*arguments: Any) -> None:
        assert changed.wait(timeout=60)
        save(*arguments)

    monkeypatch.setattr(torch, "save", late)
    trained = state(1.0)
    with Checkpoints(tmp_path, keep=2, in_background=True) as checkpoints:
        checkpoints.save(1, trained, SETTINGS)
        trained["model"]["weight"] += 1
        changed.set()
    assert weight_of(Checkpoints(tmp_path, keep=2)) == 1.0


def no_space(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_full_disk_is_reported_at_the_next_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Checkpoints(tmp_path, keep=2, in_background=True) as checkpoints:
        checkpoints.save(1, state(1), SETTINGS)

    monkeypatch.setattr(torch, "save", no_space)
    with Checkpoints(tmp_path, keep=2, in_background=True) as checkpoints:
        checkpoints.save(2, state(2), SETTINGS)
        with pytest.raises(OSError, match="No space"):
            checkpoints.save(3, state(3), SETTINGS)
    assert weight_of(Checkpoints(tmp_path, keep=2)) == 1.0


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_failed_last_checkpoint_is_logged_and_hides_no_other_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, interrupted: bool
) -> None:
    def run() -> None:
        with Checkpoints(tmp_path, keep=2, in_background=True) as checkpoints:
            checkpoints.save(1, state(1), SETTINGS)
            if interrupted:
                raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", no_space)
    with pytest.raises(KeyboardInterrupt) if interrupted else nullcontext():
        run()
    assert "the last checkpoint could not be written" in caplog.text
    assert "No space left" in caplog.text


def test_a_checkpoint_being_written_is_completed_when_training_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Event()
    save = torch.save

    def late(*arguments: Any) -> None:
        assert failing.wait(timeout=60)
        save(*arguments)

    def fail() -> None:
        with Checkpoints(tmp_path, keep=2, in_background=True) as checkpoints:
            checkpoints.save(1, state(1), SETTINGS)
            failing.set()
            raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", late)
    with pytest.raises(KeyboardInterrupt):
        fail()
    assert weight_of(Checkpoints(tmp_path, keep=2)) == 1.0
