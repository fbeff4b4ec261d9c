"""Steps for CUDA graphs run the same code on a CPU, where no graph can be captured."""

from __future__ import annotations

import logging
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from sapbert.encoder.forward import Layout, choose_layout
from sapbert.encoder.loading import load_encoder
from sapbert.encoder.transformer import TransformerEncoder
from sapbert.gpu.bert import RowEncoder
from sapbert.gpu.cuda_graph import CudaGraphStep
from sapbert.gpu.layers import PLAIN
from sapbert.pairs.artifact import Pairs
from sapbert.tokens.pooling import Pooling
from sapbert.training.alignment import step_selection
from sapbert.training.alignment.batches import PairBatch
from sapbert.training.alignment.losses import make_loss
from sapbert.training.alignment.mining import MiningSettings
from sapbert.training.alignment.step import AlignmentStep
from sapbert.training.alignment.step_selection import PrepareStep, can_capture, select_step
from sapbert.training.alignment.trainer import train
from sapbert.training.metrics import read_metrics
from sapbert.training.objective import StepReport
from sapbert.training.settings import LossName
from tests.training.alignment.test_batches import make_batches
from tests.training.alignment.test_trainer import CPU, assert_same_model, settings


def identity(loss: Tensor) -> Tensor:
    return loss


def open_plain(
    base: Path, loss: LossName = "ms", matryoshka_dim: int | None = None
) -> tuple[TransformerEncoder, AlignmentStep]:
    encoder = TransformerEncoder.open(base, max_length=25, device="cpu")
    forward = encoder.training_forward(None)
    return encoder, AlignmentStep(forward, make_loss(loss), MiningSettings(), CPU, None, matryoshka_dim)


def graph_step(
    encoder: TransformerEncoder, plain: AlignmentStep, optimizer: torch.optim.Optimizer | None = None
) -> CudaGraphStep[StepReport]:
    encode = RowEncoder(encoder.model, encoder.pooling, width=32, dtype=torch.float32, kernels=PLAIN)
    return CudaGraphStep(
        encode,
        plain.loss_and_report,
        pooling=encoder.pooling,
        pad_id=0,
        compiled=False,
        optimizer=optimizer,
        rows_multiple=4,
    )


def gradients(
    prepare: PrepareStep, encoder: TransformerEncoder, batch: PairBatch
) -> tuple[float, int, dict[str, Tensor]]:
    encoder.model.zero_grad(set_to_none=True)
    report = prepare(batch).backward(identity)
    found = {name: p.grad.clone() for name, p in encoder.model.named_parameters() if p.grad is not None}
    return report.loss.item(), int(report.positives + report.negatives), found


@pytest.mark.parametrize("loss", ["ms", "infonce", "nca", "lifted", "cosine"])
def test_a_graph_step_has_the_loss_and_gradient_of_a_plain_step(
    loss: LossName, tiny_pairs: Pairs, tiny_base: Path
) -> None:
    encoder, plain = open_plain(tiny_base, loss, matryoshka_dim=8)
    prepare = step_selection._GraphSteps(graph_step(encoder, plain))
    for batch in make_batches(tiny_pairs, tiny_base, batch_size=16).after(0, 3):
        expected, found = gradients(plain.prepare, encoder, batch), gradients(prepare, encoder, batch)
        assert found[0] == pytest.approx(expected[0], rel=1e-4)
        assert found[1] == expected[1]
        assert found[2].keys() == expected[2].keys()
        whole = torch.cat([gradient.flatten() for gradient in expected[2].values()]).norm()
        for name, gradient in found[2].items():
            assert (gradient - expected[2][name]).norm() < 1e-4 * whole, name
        with torch.no_grad():
            for parameter in encoder.model.parameters():
                parameter.mul_(1.05)


def test_there_is_one_graph_per_shape(tiny_pairs: Pairs, tiny_base: Path) -> None:
    encoder, plain = open_plain(tiny_base)
    graphs = graph_step(encoder, plain)
    prepare = step_selection._GraphSteps(graphs)
    for size in (4, 16, 4, 12, 16, 30):
        batch = next(make_batches(tiny_pairs, tiny_base, batch_size=size).after(0, 1))
        expected, found = gradients(plain.prepare, encoder, batch), gradients(prepare, encoder, batch)
        assert found[0] == pytest.approx(expected[0], abs=1e-4)
    assert sorted(graphs.graphs) == [(4, 8), (8, 24), (8, 32), (12, 60)]


def test_capturing_a_graph_changes_neither_weights_nor_random_state(
    tiny_pairs: Pairs, tiny_base: Path
) -> None:
    encoder, plain = open_plain(tiny_base)
    prepare = step_selection._GraphSteps(graph_step(encoder, plain))
    before, random = [p.clone() for p in encoder.model.parameters()], torch.get_rng_state()
    prepare.capture(next(make_batches(tiny_pairs, tiny_base, batch_size=8).after(0, 1)))
    assert all(map(torch.equal, encoder.model.parameters(), before))
    assert torch.equal(torch.get_rng_state(), random)
    assert all(parameter.grad is None for parameter in encoder.model.parameters())


def test_a_step_updates_the_parameters_once(tiny_pairs: Pairs, tiny_base: Path) -> None:
    """Without a fused optimizer `update` is `optimizer.step()`, for plain steps and for graphs."""
    batch = next(make_batches(tiny_pairs, tiny_base, batch_size=8).after(0, 1))
    updated = []
    for graph in (False, True):
        encoder, plain = open_plain(tiny_base)
        optimizer = torch.optim.AdamW(encoder.model.parameters(), lr=1e-2)
        step = (step_selection._GraphSteps(graph_step(encoder, plain)) if graph else plain.prepare)(batch)
        step.backward(identity)
        step.update(optimizer)
        updated.append(torch.cat([p.detach().flatten() for p in encoder.model.parameters()]))
        assert {int(state["step"]) for state in optimizer.state.values()} == {1}
    assert torch.cosine_similarity(updated[0], updated[1], dim=0) > 0.999


def test_only_bfloat16_on_one_gpu_is_captured(tiny_pairs: Pairs, tiny_base: Path) -> None:
    encoder, plain = open_plain(tiny_base)
    assert not can_capture(plain)
    plain.encode.layout = Layout.ROWS

    assert can_capture(plain)
    assert not can_capture(replace(plain, chunk=8))
    assert not can_capture(replace(plain, loss=make_loss("circle")))
    optimizer = torch.optim.AdamW(encoder.model.parameters())
    chunked, example = replace(plain, chunk=8), next(make_batches(tiny_pairs, tiny_base).after(0, 1))
    selected = select_step(chunked, encoder, optimizer, settings(), example=example, steps=10)
    assert selected == chunked.prepare


@pytest.mark.parametrize("change", ["nothing", "precision", "device", "frozen", "long"])
def test_only_a_fully_trained_model_in_bfloat16_on_a_gpu_is_computed_in_rows(
    change: str, tiny_base: Path
) -> None:
    model, _ = load_encoder(tiny_base)
    if change == "frozen":
        next(model.parameters()).requires_grad = False
    on_gpu = SimpleNamespace(
        config=model.config,
        device=CPU if change == "device" else torch.device("cuda"),
        parameters=model.parameters,
        named_parameters=model.named_parameters,
    )
    layout = choose_layout(
        on_gpu,  # type: ignore[arg-type]
        pooling=Pooling.CLS,
        max_length=65 if change == "long" else 25,
        dtype=torch.float16 if change == "precision" else torch.bfloat16,
        gradient=True,
    )
    assert layout == (Layout.ROWS if change == "nothing" else Layout.PACKED)


@pytest.fixture
def graphs_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a run on a CPU use the steps of a GPU."""
    monkeypatch.setattr(step_selection, "can_capture", lambda *_: True)


@pytest.mark.usefixtures("graphs_on_cpu")
def test_an_interrupted_run_with_graphs_resumes_exactly(
    tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path
) -> None:
    half = settings(precision="bf16")

    def stop(done: int, _total: int, _figures: Mapping[str, float]) -> None:
        if done == 5:
            signal.raise_signal(signal.SIGINT)

    train(tiny_pairs, str(tiny_base), tmp_path / "whole", half, device=CPU)
    with pytest.raises(KeyboardInterrupt):
        train(tiny_pairs, str(tiny_base), tmp_path / "cut", half, device=CPU, on_step=stop)
    train(tiny_pairs, str(tiny_base), tmp_path / "cut", half, device=CPU, resume=True)

    assert_same_model(tmp_path / "cut", tmp_path / "whole")
    assert len(TransformerEncoder.open(tmp_path / "whole", device="cpu").encode(["fever"])) == 1


@pytest.mark.usefixtures("graphs_on_cpu")
def test_a_run_whose_trial_capture_fails_warns_and_trains_in_plain_pytorch(
    tiny_pairs: Pairs,
    tiny_base: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(CudaGraphStep, "_make_graph", fail)
    few = settings(epochs=0.1, held_out=0)
    with caplog.at_level(logging.WARNING):
        train(tiny_pairs, str(tiny_base), tmp_path / "model", few, device=CPU)
    monkeypatch.undo()
    train(tiny_pairs, str(tiny_base), tmp_path / "plain", few, device=CPU)

    warning = caplog.records[-1].getMessage()
    assert warning == "CUDA graph capture failed (no compiler); falling back to PyTorch"
    assert_same_model(tmp_path / "model", tmp_path / "plain")
    assert read_metrics(tmp_path / "model" / "metrics.jsonl")
