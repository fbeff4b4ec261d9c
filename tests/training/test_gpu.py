"""Training on a GPU; skipped without one."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from sapbert.pairs.artifact import Pairs
from sapbert.training.alignment.trainer import train
from sapbert.training.metrics import read_metrics
from sapbert.training.settings import Precision, TrainSettings

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")]
STOP = 5


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_an_interrupted_run_on_a_gpu_resumes_as_if_never_interrupted(
    tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path, precision: Precision
) -> None:
    check_resume(tiny_pairs, str(tiny_base), tmp_path, precision)


def check_resume(pairs: Pairs, base: str, folder: Path, precision: Precision) -> None:
    settings = TrainSettings(
        batch_size=8, epochs=20 * 8 / len(pairs), held_out=5, checkpoint_every=3, precision=precision
    )
    device = torch.device("cuda")

    def stop(done: int, _total: int, _figures: Mapping[str, float]) -> None:
        if done == STOP:
            signal.raise_signal(signal.SIGINT)

    train(pairs, base, folder / "whole", settings, device=device)
    with pytest.raises(KeyboardInterrupt):
        train(pairs, base, folder / "cut", settings, device=device, on_step=stop)
    train(pairs, base, folder / "cut", settings, device=device, resume=True)

    whole, cut = (read_metrics(folder / name / "metrics.jsonl") for name in ("whole", "cut"))
    assert [row["step"] for row in cut] == [row["step"] for row in whole]
    losses = [[row["loss"] for row in rows if "loss" in row] for rows in (whole, cut)]
    # A GPU sums in no fixed order, so not bit for bit.
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


def test_updates_in_the_graph_train_like_those_of_the_optimizer(
    tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path
) -> None:
    """Clipping needs all gradients first, so with `clip` the optimizer updates outside the graph."""
    losses = []
    for clip in (None, 1e9):
        settings = TrainSettings(
            batch_size=8,
            epochs=30 * 8 / len(tiny_pairs),
            held_out=0,
            precision="bf16",
            clip=clip,
            learning_rate=2e-3,
        )
        target = tmp_path / f"{clip}"
        train(tiny_pairs, str(tiny_base), target, settings, device=torch.device("cuda"))
        losses.append([row["loss"] for row in read_metrics(target / "metrics.jsonl") if "loss" in row])
    assert sum(losses[0][-5:]) < sum(losses[0][:5])
    # Rounding grows with the steps.
    assert losses[0][:10] == pytest.approx(losses[1][:10], rel=0.05)
    assert sum(losses[0][-5:]) == pytest.approx(sum(losses[1][-5:]), rel=0.2)
