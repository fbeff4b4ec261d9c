"""What is captured on a GPU is computed by the same code on a CPU, where nothing can be captured."""

from __future__ import annotations

import logging
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sapbert.encoder.loading import load_encoder
from sapbert.encoder.transformer import TransformerEncoder
from sapbert.gpu.bert import RowEncoder
from sapbert.gpu.layers import PLAIN
from sapbert.gpu.rows import Rows
from sapbert.pairs.artifact import Pairs
from sapbert.tokens.batching import TokenRows
from sapbert.tokens.pooling import Pooling
from sapbert.training.alignment import step_selection as ways
from sapbert.training.alignment.batches import Batch
from sapbert.training.alignment.cuda_graph import CapturedStep
from sapbert.training.alignment.losses import LossName, make_loss
from sapbert.training.alignment.mining import MiningSettings
from sapbert.training.alignment.packed_batch import Sheet
from sapbert.training.alignment.step import Encode, Step
from sapbert.training.alignment.step_selection import TakeStep, fastest
from sapbert.training.alignment.trainer import train
from sapbert.training.metrics import read_metrics
from tests.training.alignment.test_batches import make_batches
from tests.training.alignment.test_trainer import CPU, assert_same_model, settings


def identity(objective: Tensor) -> Tensor:
    return objective


def both(base: Path, loss: LossName = "ms", leading: int | None = None) -> tuple[TransformerEncoder, Step]:
    encoder = TransformerEncoder.open(base, max_length=25, device="cpu")
    plain = Step(Encode.of(encoder, None), make_loss(loss), MiningSettings(), CPU, None, leading)
    return encoder, plain


def in_rows(encoder: TransformerEncoder, plain: Step, rows_apart: int = 4) -> CapturedStep:
    encode = RowEncoder(encoder.model, encoder.pooling, width=32, dtype=torch.float32, kernels=PLAIN)
    return CapturedStep(
        encode, plain, pooling=encoder.pooling, pad_id=0, compiled=False, rows_apart=rows_apart
    )


def gradients(
    take: TakeStep, encoder: TransformerEncoder, batch: Batch
) -> tuple[float, int, dict[str, Tensor]]:
    encoder.model.zero_grad(set_to_none=True)
    report = take.prepare(batch)(identity)
    found = {name: p.grad.clone() for name, p in encoder.model.named_parameters() if p.grad is not None}
    return report.loss.item(), int(report.positives + report.negatives), found


@pytest.mark.parametrize("loss", ["ms", "infonce", "nca", "lifted", "cosine"])
def test_a_step_in_rows_has_the_loss_and_the_gradient_of_a_plain_one(
    loss: LossName, tiny_pairs: Pairs, tiny_base: Path
) -> None:
    encoder, plain = both(tiny_base, loss, leading=8)
    taken = in_rows(encoder, plain)
    for batch in make_batches(tiny_pairs, tiny_base, batch_size=16).after(0, 3):
        expected, found = gradients(plain, encoder, batch), gradients(taken, encoder, batch)
        assert found[0] == pytest.approx(expected[0], rel=1e-4)
        assert found[1] == expected[1]
        assert found[2].keys() == expected[2].keys()
        whole = torch.cat([gradient.flatten() for gradient in expected[2].values()]).norm()
        for name, gradient in found[2].items():
            assert (gradient - expected[2][name]).norm() < 1e-4 * whole, name
        with torch.no_grad():
            for parameter in encoder.model.parameters():
                parameter.mul_(1.05)


def test_each_shape_is_prepared_once_and_none_is_refused(tiny_pairs: Pairs, tiny_base: Path) -> None:
    encoder, plain = both(tiny_base)
    taken = in_rows(encoder, plain)
    for size in (4, 16, 4, 12, 16, 30):
        batch = next(make_batches(tiny_pairs, tiny_base, batch_size=size).after(0, 1))
        expected, found = gradients(plain, encoder, batch), gradients(taken, encoder, batch)
        assert found[0] == pytest.approx(expected[0], abs=1e-4)
    assert sorted(taken.prepared) == [(4, 8), (8, 24), (8, 32), (12, 60)]


@given(rows=st.integers(1, 90), pairs=st.integers(1, 40))
def test_what_is_sent_at_once_is_read_as_it_was_and_begins_where_a_gpu_reads(rows: int, pairs: int) -> None:
    """Kernels that are made for numbers at multiples of 16 bytes fail where they are not."""
    rng, tokens, names = np.random.default_rng(rows), 64 * rows, 2 * pairs
    laid = Rows(rng.integers(0, 2**31, 4 * tokens + names, np.int32), tokens, 64)
    labels, share = rng.integers(0, 99, names, np.int32), rng.random((names, names)) < 0.5
    batch = Batch(TokenRows.of([], []), labels, share)
    sheet = Sheet.of(laid, batch, CPU)
    found, found_labels, found_share = sheet.parts(sheet.packed)

    for name, part in found._asdict().items():
        np.testing.assert_array_equal(part.view(torch.int32), getattr(laid, name).view(np.int32))
    np.testing.assert_array_equal(found_labels, labels)
    np.testing.assert_array_equal(found_share, share)
    for part in (*found, found_labels, found_share):
        assert (part.data_ptr() - sheet.packed.data_ptr()) % 128 == 0


def test_only_bfloat16_on_one_gpu_is_captured(tiny_base: Path) -> None:
    encoder, plain = both(tiny_base)
    half = settings(precision="bf16")
    assert fastest(plain, encoder, half, steps=10) is plain
    plain.encode.lays = True

    assert ways._can_capture(plain)
    chunked, listed = replace(plain, chunk=8), replace(plain, loss=make_loss("circle"))
    assert fastest(chunked, encoder, half, steps=10) is chunked
    assert fastest(listed, encoder, half, steps=10) is listed


@pytest.mark.parametrize("change", ["nothing", "precision", "device", "frozen", "long"])
def test_only_bfloat16_on_a_gpu_that_trains_all_of_short_names_is_laid(change: str, tiny_base: Path) -> None:
    model, _ = load_encoder(tiny_base)
    if change == "frozen":
        next(model.parameters()).requires_grad = False
    on_gpu = SimpleNamespace(
        config=model.config,
        device=CPU if change == "device" else torch.device("cuda"),
        parameters=model.parameters,
        named_parameters=model.named_parameters,
    )
    encode = Encode(
        on_gpu,  # type: ignore[arg-type]
        pad_id=0,
        pooling=Pooling.CLS,
        max_length=65 if change == "long" else 25,
        dtype=torch.float16 if change == "precision" else torch.bfloat16,
    )
    assert encode.lays == (change == "nothing")


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a run on a CPU compute what a GPU would capture."""
    monkeypatch.setattr(ways, "_can_capture", lambda *_: True)


@pytest.mark.usefixtures("on_cpu")
def test_a_captured_run_that_is_stopped_goes_on_as_if_it_had_not(
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


@pytest.mark.usefixtures("on_cpu")
def test_a_run_that_cannot_capture_says_so_and_goes_the_plain_way(
    tiny_pairs: Pairs,
    tiny_base: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(CapturedStep, "_make", fail)
    few = settings(epochs=0.1, held_out=0)
    with caplog.at_level(logging.WARNING):
        train(tiny_pairs, str(tiny_base), tmp_path / "model", few, device=CPU)
    monkeypatch.undo()
    train(tiny_pairs, str(tiny_base), tmp_path / "plain", few, device=CPU)

    told = caplog.records[-1].getMessage()
    assert told == "steps cannot be captured or compiled here (no compiler); trying without"
    assert_same_model(tmp_path / "model", tmp_path / "plain")
    assert read_metrics(tmp_path / "model" / "metrics.jsonl")
