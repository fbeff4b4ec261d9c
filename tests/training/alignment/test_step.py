from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from sapbert.encoder.forward import Layout, TrainingForward
from sapbert.encoder.loading import load_encoder
from sapbert.encoder.transformer import TransformerEncoder, tokenize
from sapbert.gpu.random_state import seed_generators
from sapbert.pairs.artifact import Pairs
from sapbert.tokens.pooling import Pooling
from sapbert.training.alignment.batches import PairBatch
from sapbert.training.alignment.losses import make_loss
from sapbert.training.alignment.mining import MiningSettings, mine, pair_masks
from sapbert.training.alignment.step import AlignmentStep
from sapbert.training.objective import StepReport
from sapbert.training.settings import LossName
from tests.encoder.tiny import FAMILIES
from tests.training.alignment.test_batches import make_batches

CPU = torch.device("cpu")
LOSSES: tuple[LossName, ...] = get_args(LossName)


def forward_pass(model: PreTrainedModel, pad_id: int) -> TrainingForward:
    return TrainingForward(model, pad_id=pad_id, pooling=Pooling.CLS, max_length=25, dtype=None)


def gradients(
    base: Path,
    batch: PairBatch,
    *,
    loss: LossName = "ms",
    chunk: int | None = None,
    dropout: bool = False,
    matryoshka_dim: int | None = None,
    layout: Layout | None = None,
) -> tuple[StepReport, dict[str, Tensor]]:
    """Return the report and the gradients of one step of a newly loaded model."""
    model, tokenizer = load_encoder(base)
    model.train(dropout)
    torch.manual_seed(5)
    encode = forward_pass(model, tokenizer.pad_token_id)
    encode.layout = layout or encode.layout
    step = AlignmentStep(encode, make_loss(loss), MiningSettings(), CPU, chunk, matryoshka_dim)
    report = step.backward(batch, lambda loss: loss)
    return report, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def assert_close(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    assert left.keys() == right.keys()
    for name, gradient in left.items():
        torch.testing.assert_close(gradient, right[name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("chunk", [None, 5])
def test_rows_give_the_loss_and_gradient_of_packed_names_up_to_bfloat16_rounding(
    chunk: int | None, tiny_pairs: Pairs, tiny_base: Path
) -> None:
    batch = next(make_batches(tiny_pairs, tiny_base, batch_size=16).after(0, 1))
    (whole, expected), (rows, found) = (
        gradients(tiny_base, batch, layout=layout, chunk=chunk) for layout in (Layout.PACKED, Layout.ROWS)
    )
    assert rows.loss.item() == pytest.approx(whole.loss.item(), rel=0.02)
    assert found.keys() == expected.keys()
    left, right = (torch.cat([part.flatten() for part in parts.values()]) for parts in (found, expected))
    assert torch.cosine_similarity(left, right, dim=0) > 0.99


def test_dropout_of_rows_is_replayed_in_chunks(tiny_pairs: Pairs, tiny_base: Path) -> None:
    batch = next(make_batches(tiny_pairs, tiny_base, batch_size=16).after(0, 1))
    first, again = (
        gradients(tiny_base, batch, layout=Layout.ROWS, chunk=32, dropout=True)[1] for _ in range(2)
    )
    whole = gradients(tiny_base, batch, layout=Layout.ROWS, dropout=True)[1]
    assert_close(first, again)
    assert_close(first, whole)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_batch_in_chunks_gives_the_gradient_of_one_pass(
    loss: LossName, tiny_pairs: Pairs, tiny_base: Path
) -> None:
    batch = next(make_batches(tiny_pairs, tiny_base, batch_size=16).after(0, 1))
    whole, expected = gradients(tiny_base, batch, loss=loss)
    parts, found = gradients(tiny_base, batch, loss=loss, chunk=5)

    assert whole.loss.item() == pytest.approx(parts.loss.item(), abs=1e-6)
    assert (whole.positives, whole.negatives) == (parts.positives, parts.negatives)
    assert_close(found, expected)
    assert any(gradient.abs().max() > 1e-4 for gradient in expected.values())


def test_matryoshka_dimensions_are_trained_as_vectors_of_their_own(
    tiny_pairs: Pairs, tiny_base: Path
) -> None:
    batch = next(make_batches(tiny_pairs, tiny_base, batch_size=16).after(0, 1))
    encoder = TransformerEncoder.open(tiny_base, device="cpu")
    vectors = forward_pass(encoder.model, encoder.tokenizer.pad_token_id)(batch.tokens)
    masks = pair_masks(torch.from_numpy(batch.labels), torch.from_numpy(batch.shared_concept))

    def loss_of(some: Tensor) -> float:
        unit = some / some.norm(dim=1, keepdim=True)
        hard = mine(unit, unit, *masks, MiningSettings())
        return make_loss("infonce")(unit, unit, hard).item()

    both, _ = gradients(tiny_base, batch, loss="infonce", matryoshka_dim=4)
    assert both.loss.item() == pytest.approx((loss_of(vectors) + loss_of(vectors[:, :4])) / 2, abs=1e-6)
    in_chunks, found = gradients(tiny_base, batch, loss="infonce", matryoshka_dim=4, chunk=5)
    assert in_chunks.loss.item() == pytest.approx(both.loss.item(), abs=1e-6)
    assert_close(found, gradients(tiny_base, batch, loss="infonce", matryoshka_dim=4)[1])


def test_seeding_gives_the_random_numbers_of_torch_manual_seed() -> None:
    """So that runs of earlier versions can be resumed."""
    for device in ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]:
        torch.manual_seed(2**32 - 5)
        expected = torch.rand(4, device=device)
        seed_generators(2**32 - 5, torch.device(device))
        assert torch.equal(torch.rand(4, device=device), expected)


def test_dropout_is_replayed_in_the_second_pass(tiny_pairs: Pairs, tiny_base: Path) -> None:
    """One chunk of the whole batch draws the random numbers of one pass."""
    batch = next(make_batches(tiny_pairs, tiny_base, batch_size=16).after(0, 1))
    names = len(batch.tokens.lengths)
    whole, expected = gradients(tiny_base, batch, dropout=True)
    # Two passes over one chunk: the first without gradient, the second replaying its dropout.
    model, tokenizer = load_encoder(tiny_base)
    model.train()
    torch.manual_seed(5)
    encode = forward_pass(model, tokenizer.pad_token_id)
    step = AlignmentStep(encode, make_loss("ms"), MiningSettings(), CPU, None)
    report = step._backward_in_chunks(batch, lambda loss: loss, [(0, names)])

    assert report.loss.item() == pytest.approx(whole.loss.item(), abs=1e-6)
    assert_close({n: p.grad for n, p in model.named_parameters() if p.grad is not None}, expected)


@pytest.mark.parametrize("family", ["bert", "mpnet", "modernbert"])
@pytest.mark.parametrize("pooling", Pooling)
def test_training_and_encoding_agree_on_vectors(
    family: str, pooling: Pooling, tiny_pairs: Pairs, tmp_path: Path
) -> None:
    names = tiny_pairs.names.take(range(40))
    base = FAMILIES[family](tmp_path)
    encoder = TransformerEncoder.open(base, pooling=pooling, max_length=8, device="cpu")
    tokens = tokenize(encoder.tokenizer, names, max_length=8)
    pad_id = encoder.tokenizer.pad_token_id
    exact, half = (
        TrainingForward(encoder.model, pad_id=pad_id, pooling=pooling, max_length=8, dtype=dtype)
        for dtype in (None, torch.bfloat16)
    )
    expected = encoder.encode(names)
    with torch.no_grad():
        np.testing.assert_allclose(exact(tokens), expected, atol=1e-5)
        np.testing.assert_allclose(half(tokens), expected, atol=0.1)


_PROCESS = """
import sys
from pathlib import Path

import torch
from torch import distributed

from sapbert.pairs.artifact import Pairs
from sapbert.training.distributed import sum_gradients, world
from sapbert.training.alignment.losses import make_loss
from sapbert.training.alignment.mining import MiningSettings, mine, pair_masks
from sapbert.training.alignment.step import AlignmentStep
from sapbert.encoder.forward import TrainingForward
from sapbert.tokens.pooling import Pooling
from sapbert.encoder.loading import load_encoder
from tests.training.alignment.test_batches import make_batches

rank, meeting, pairs, base, out, *losses = int(sys.argv[1]), *sys.argv[2:]
torch.set_num_threads(1)
distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
batch = next(make_batches(Pairs.open(pairs), Path(base), batch_size=16, rank=rank, world=2).after(0, 1))
model, tokenizer = load_encoder(base)
pad_id = tokenizer.pad_token_id
encode = TrainingForward(model, pad_id=pad_id, pooling=Pooling.CLS, max_length=25, dtype=None)
found = {}
for loss in losses:
    model.zero_grad(set_to_none=True)
    step = AlignmentStep(encode, make_loss(loss), MiningSettings(), torch.device("cpu"), None)
    report = step.backward(batch, lambda loss: loss)
    sum_gradients(model.parameters())
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    found[loss] = {"loss": report.loss.item(), "gradients": gradients}
if rank == 1:
    torch.save(found, out)
distributed.destroy_process_group()
"""
_DISTRIBUTED_LOSSES: tuple[LossName, ...] = ("ms", "infonce")


@pytest.fixture(scope="module")
def of_two_processes(
    tiny_pairs: Pairs, tiny_base: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Return loss and gradients of the second of two processes, by loss."""
    folder = tmp_path_factory.mktemp("two")
    arguments = map(
        str, (folder / "meeting", tiny_pairs.path, tiny_base, folder / "out.pt", *_DISTRIBUTED_LOSSES)
    )
    command = [sys.executable, "-c", _PROCESS]
    shared, root = [*arguments], Path(__file__).parents[3]
    processes = [subprocess.Popen([*command, rank, *shared], cwd=root) for rank in ("0", "1")]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    found: dict[str, Any] = torch.load(folder / "out.pt", weights_only=True)
    return found


@pytest.mark.parametrize("loss", _DISTRIBUTED_LOSSES)
def test_two_processes_compute_the_loss_and_gradient_of_one(
    loss: LossName, tiny_pairs: Pairs, tiny_base: Path, of_two_processes: dict[str, Any]
) -> None:
    found = of_two_processes[loss]
    batch = next(make_batches(tiny_pairs, tiny_base, batch_size=16).after(0, 1))
    report, expected = gradients(tiny_base, batch, loss=loss)

    assert found["loss"] == pytest.approx(report.loss.item(), abs=1e-5)
    assert_close(found["gradients"], expected)
