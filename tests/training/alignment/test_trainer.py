from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from sapbert.encoder.transformer import TransformerEncoder
from sapbert.errors import ArtifactError, ConfigError, TrainingError
from sapbert.pairs.artifact import Pairs
from sapbert.protocols import Encoder
from sapbert.training.alignment.trainer import train
from sapbert.training.held_out import retrieval_accuracy
from sapbert.training.metrics import read_metrics
from sapbert.training.settings import TrainSettings

CPU = torch.device("cpu")
SHORT = {"batch_size": 8, "held_out": 5, "evaluate_every": 4, "checkpoint_every": 3, "learning_rate": 1e-3}


def settings(**changes: object) -> TrainSettings:
    return TrainSettings(**{**SHORT, "epochs": 0.6, **changes})  # type: ignore[arg-type]


def weights(model: Path) -> dict[str, torch.Tensor]:
    return load_file(model / "model.safetensors")


def assert_same_model(left: Path, right: Path) -> None:
    expected = weights(right)
    for name, tensor in weights(left).items():
        assert torch.equal(tensor, expected[name]), name


@pytest.fixture(scope="session")
def uninterrupted(tiny_pairs: Pairs, tiny_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = tmp_path_factory.mktemp("whole") / "model"
    train(tiny_pairs, str(tiny_base), model, settings(), device=CPU)
    return model


def test_training_pulls_the_names_of_a_concept_together(
    tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path
) -> None:
    fast = settings(epochs=8, learning_rate=3e-3, evaluate_every=50, checkpoint_every=1000)
    train(tiny_pairs, str(tiny_base), tmp_path / "model", fast, device=CPU)
    metrics = read_metrics(tmp_path / "model" / "metrics.jsonl")
    losses = [row["loss"] for row in metrics if "loss" in row]
    everything = np.arange(len(tiny_pairs))
    before, after = (
        retrieval_accuracy(tiny_pairs, everything, TransformerEncoder.open(model, device="cpu"))
        for model in (tiny_base, tmp_path / "model")
    )
    assert after > before + 0.1
    assert sum(losses[-10:]) < sum(losses[:10])
    assert [row["step"] for row in metrics if "retrieval" in row][:2] == [0, 50]


def test_the_model_folder_is_complete_and_opens_as_trained(uninterrupted: Path) -> None:
    encoder = TransformerEncoder.open(uninterrupted, device="cpu")
    manifest = json.loads((uninterrupted / "manifest.json").read_text())

    assert encoder.pooling == "cls"
    assert encoder.max_length == 25
    assert manifest["fingerprint"] == encoder.fingerprint
    assert "| 0 | 0." in (uninterrupted / "README.md").read_text()
    assert not uninterrupted.with_name("model.run").exists()


def test_the_same_settings_give_the_same_model(
    tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path, uninterrupted: Path
) -> None:
    train(tiny_pairs, str(tiny_base), tmp_path / "again", settings(), device=CPU)
    assert_same_model(tmp_path / "again", uninterrupted)


def test_interpolated_weights_lie_between_base_and_trained_model(
    tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path, uninterrupted: Path
) -> None:
    train(
        tiny_pairs, str(tiny_base), tmp_path / "interpolated", settings(weight_interpolation=0.25), device=CPU
    )
    untrained, trained = weights(tiny_base), weights(uninterrupted)
    for name, value in weights(tmp_path / "interpolated").items():
        torch.testing.assert_close(value, 0.75 * untrained[name] + 0.25 * trained[name])
    measured = [
        row
        for row in read_metrics(tmp_path / "interpolated" / "metrics.jsonl")
        if "interpolated_retrieval" in row
    ]
    everything = [row["step"] for row in read_metrics(uninterrupted / "metrics.jsonl")]
    assert [row["step"] for row in measured] == [everything[-1]]


@pytest.mark.parametrize(
    "wrong",
    [
        {"weight_interpolation": 0.0},
        {"weight_interpolation": 1.5},
        {"weight_interpolation": 0.5, "adapter": "lora"},
        {"matryoshka_dim": 0},
    ],
)
def test_invalid_interpolation_and_dimensions_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"weight_interpolation|matryoshka_dim"):
        settings(**wrong)


def test_matryoshka_dimensions_are_fewer_than_all(tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be less than the"):
        train(tiny_pairs, str(tiny_base), tmp_path / "model", settings(matryoshka_dim=10_000), device=CPU)


# As on a bare GPU machine, where neither is installed.
_RUN = """
import json, os, signal, sys
sys.modules["polars"] = sys.modules["typer"] = None
from pathlib import Path
import torch
from sapbert.pairs.artifact import Pairs
from sapbert.training.settings import TrainSettings
from sapbert.training.alignment.trainer import train

torch.set_num_threads(1)
pairs, base, out, settings, killed_at = sys.argv[1:]

def kill(done, total, figures):
    if done == int(killed_at):
        os.kill(os.getpid(), signal.SIGKILL)

settings = TrainSettings(**json.loads(settings))
train(Pairs.open(pairs), base, Path(out), settings, device=torch.device("cpu"), on_step=kill)
"""


def arguments(pairs: Pairs, base: Path, model: Path, *, killed_at: int) -> list[str]:
    return [*map(str, (pairs.path, base, model)), json.dumps(asdict(settings())), str(killed_at)]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_resumes_bit_for_bit(
    number: signal.Signals, tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path, uninterrupted: Path
) -> None:
    def interrupt(done: int, _total: int, _figures: Mapping[str, float]) -> None:
        if done == 5:
            signal.raise_signal(number)

    model = tmp_path / "model"
    if number == signal.SIGKILL:
        command = [sys.executable, "-c", _RUN, *arguments(tiny_pairs, tiny_base, model, killed_at=5)]
        killed = subprocess.run(command, capture_output=True, text=True, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    else:
        with pytest.raises(KeyboardInterrupt):
            train(tiny_pairs, str(tiny_base), model, settings(), device=CPU, on_step=interrupt)
    assert not model.exists()
    saved = sorted(path.name for path in (tmp_path / "model.run").glob("step-*"))
    # Ctrl-C and SIGTERM save the current step; a kill leaves the last checkpoint.
    assert saved[-1] == ("step-00000003" if number == signal.SIGKILL else "step-00000005")
    resumed: list[int] = []

    def note(done: int, _total: int, _figures: Mapping[str, float]) -> None:
        resumed.append(done)

    train(tiny_pairs, str(tiny_base), model, settings(), device=CPU, resume=True, on_step=note)

    assert resumed[0] == (4 if number == signal.SIGKILL else 6)
    assert_same_model(model, uninterrupted)
    steps = [row["step"] for row in read_metrics(model / "metrics.jsonl")]
    assert steps == list(range(steps[-1] + 1))


def stop_after(step: int) -> object:
    def stop(done: int, _total: int, _figures: Mapping[str, float]) -> None:
        if done == step:
            raise RuntimeError("stopped")

    return stop


@pytest.fixture
def stopped(tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path) -> Path:
    """Return the target of a run interrupted after seven steps, with checkpoints of steps three and six."""
    with pytest.raises(RuntimeError, match="stopped"):
        train(
            tiny_pairs,
            str(tiny_base),
            tmp_path / "model",
            settings(),
            device=CPU,
            on_step=stop_after(7),  # type: ignore[arg-type]  # an OnStep
        )
    return tmp_path / "model"


def test_a_damaged_checkpoint_is_skipped_for_the_one_before(
    stopped: Path, tiny_pairs: Pairs, tiny_base: Path, uninterrupted: Path, caplog: pytest.LogCaptureFixture
) -> None:
    newest = stopped.with_name("model.run") / "step-00000006" / "state.pt"
    newest.write_bytes(newest.read_bytes()[:-10])
    train(tiny_pairs, str(tiny_base), stopped, settings(), device=CPU, resume=True)

    assert "step-00000006 is damaged" in caplog.text
    assert_same_model(stopped, uninterrupted)


def test_resuming_with_other_settings_names_the_differences(
    stopped: Path, tiny_pairs: Pairs, tiny_base: Path
) -> None:
    with pytest.raises(ConfigError, match=r"learning_rate was 0\.001, now 0\.002"):
        train(tiny_pairs, str(tiny_base), stopped, settings(learning_rate=2e-3), device=CPU, resume=True)


def test_an_interrupted_run_is_not_overwritten_by_a_new_one(
    stopped: Path, tiny_pairs: Pairs, tiny_base: Path
) -> None:
    with pytest.raises(ArtifactError, match="--resume"):
        train(tiny_pairs, str(tiny_base), stopped, settings(), device=CPU)
    assert stopped.with_name("model.run").exists()


def test_a_full_disk_keeps_the_last_good_checkpoint(
    stopped: Path, tiny_pairs: Pairs, tiny_base: Path, uninterrupted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", no_space)
        with pytest.raises(OSError, match="No space"):
            train(tiny_pairs, str(tiny_base), stopped, settings(), device=CPU, resume=True)
    train(tiny_pairs, str(tiny_base), stopped, settings(), device=CPU, resume=True)
    assert_same_model(stopped, uninterrupted)


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_checkpoint(
    tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path
) -> None:
    wild = settings(learning_rate=1e30, checkpoint_every=1, held_out=0)
    with pytest.raises(TrainingError, match="at step 2"):
        train(tiny_pairs, str(tiny_base), tmp_path / "model", wild, device=CPU)
    assert (tmp_path / "model.run" / "step-00000001").exists()


def test_an_unknown_loss_parameter_is_refused_before_anything_changes(
    stopped: Path, tiny_pairs: Pairs, tiny_base: Path
) -> None:
    wrong = settings(loss_settings={"negativ_scale": 50})
    with pytest.raises(ConfigError, match="did you mean 'negative_scale'"):
        train(tiny_pairs, str(tiny_base), stopped, wrong, device=CPU, overwrite=True)
    assert stopped.with_name("model.run").exists()


def test_the_settings_of_a_loss_change_the_loss(tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path) -> None:
    first = {}
    for scale in (60.0, 6.0):
        changed = settings(loss_settings={"negative_scale": scale}, epochs=0.01, held_out=0)
        train(tiny_pairs, str(tiny_base), tmp_path / f"{scale}", changed, device=CPU)
        first[scale] = read_metrics(tmp_path / f"{scale}" / "metrics.jsonl")[1]["loss"]
    assert first[60.0] != first[6.0]


def test_an_existing_model_is_not_replaced_without_overwrite(
    uninterrupted: Path, tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(uninterrupted, model)
    with pytest.raises(ArtifactError, match="--overwrite"):
        train(tiny_pairs, str(tiny_base), model, settings(), device=CPU)
    assert_same_model(model, uninterrupted)


def test_a_target_that_is_not_an_artifact_is_refused_before_the_first_step(
    tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(ArtifactError, match="mine exists and is not an artifact"):
        train(tiny_pairs, str(tiny_base), tmp_path / "mine", settings(), device=CPU, overwrite=True)
    assert not (tmp_path / "mine.run").exists()


def test_warm_up_and_decay_shape_the_learning_rate(
    tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path
) -> None:
    shaped = settings(warmup=0.5, schedule="linear", held_out=0)
    train(tiny_pairs, str(tiny_base), tmp_path / "model", shaped, device=CPU)
    rates = [
        row["learning_rate"] for row in read_metrics(tmp_path / "model" / "metrics.jsonl") if "loss" in row
    ]
    peak = rates.index(max(rates))

    assert rates[: peak + 1] == sorted(rates[: peak + 1])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert max(rates) <= 1e-3
    assert rates[-1] < max(rates) / 2


def test_a_custom_evaluation_replaces_the_default_metrics(
    tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path
) -> None:
    def evaluate(encoder: Encoder) -> dict[str, float]:
        left, right = encoder.encode(["heart attack", "cold"])
        return {"nearness": float(left @ right), "seen": 1.0}

    few_steps = settings(evaluate_every=2, epochs=0.2)
    train(tiny_pairs, str(tiny_base), tmp_path / "model", few_steps, device=CPU, evaluate=evaluate)

    rows = read_metrics(tmp_path / "model" / "metrics.jsonl")
    last = rows[-1]["step"]
    assert [row["step"] for row in rows if "nearness" in row] == sorted({*range(0, last, 2), last})
    assert not any("retrieval" in row for row in rows)
    assert "| steps | nearness | seen |" in (tmp_path / "model" / "README.md").read_text()


def test_dropout_is_applied_also_after_an_evaluation_that_turned_it_off(
    tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path
) -> None:
    def evaluate(encoder: Encoder) -> dict[str, float]:
        assert isinstance(encoder, TransformerEncoder)
        encoder.model.train(mode=False)
        return {"seen": 1.0}

    few_steps = settings(evaluate_every=2, epochs=0.2)
    train(tiny_pairs, str(tiny_base), tmp_path / "turned-off", few_steps, device=CPU, evaluate=evaluate)
    train(tiny_pairs, str(tiny_base), tmp_path / "model", few_steps, device=CPU)

    assert_same_model(tmp_path / "turned-off", tmp_path / "model")


def test_processes_started_by_torchrun_train_one_model_without_polars(
    tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path, uninterrupted: Path
) -> None:
    (tmp_path / "run.py").write_text(_RUN)
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    trained = arguments(tiny_pairs, tiny_base, tmp_path / "model", killed_at=-1)
    done = subprocess.run(
        [*launch, str(tmp_path / "run.py"), *trained],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    metrics = read_metrics(tmp_path / "model" / "metrics.jsonl")
    expected = read_metrics(uninterrupted / "metrics.jsonl")
    assert [row["step"] for row in metrics] == [row["step"] for row in expected]
    # Dropout differs, the objective is the same.
    assert metrics[1]["loss"] == pytest.approx(expected[1]["loss"], rel=0.2)
    assert metrics[0]["retrieval"] == expected[0]["retrieval"]


def test_a_damaged_line_of_metrics_does_not_stop_a_resumed_run(
    stopped: Path, tiny_pairs: Pairs, tiny_base: Path, uninterrupted: Path
) -> None:
    file = stopped.with_name("model.run") / "metrics.jsonl"
    file.write_text(file.read_text().replace('{"step": 5', '{"step": 5{"st'))
    train(tiny_pairs, str(tiny_base), stopped, settings(), device=CPU, resume=True)
    assert_same_model(stopped, uninterrupted)
