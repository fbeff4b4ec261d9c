"""AdamW updates inside a CUDA graph; needs Triton, whose interpreter replaces a GPU here."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from sapbert.encoder.transformer import TransformerEncoder
from sapbert.gpu.bert import RowEncoder
from sapbert.gpu.cuda_graph import CudaGraphStep
from sapbert.gpu.layers import Kernels
from sapbert.pairs.artifact import Pairs
from sapbert.training.alignment.step import AlignmentStep
from sapbert.training.objective import StepReport
from tests.training.alignment.test_batches import make_batches
from tests.training.alignment.test_step_selection import graph_step, open_plain

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
needs_triton = pytest.mark.skipif(not INTERPRETED, reason="the test above runs it in another process")


@pytest.mark.skipif(
    INTERPRETED or not find_spec("triton"), reason="Triton is installed only with torch for GPUs"
)
def test_the_update_tests_pass_in_the_triton_interpreter() -> None:
    """Run in another process, since Triton reads the environment variable on import."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(
        command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def kernel_step(
    encoder: TransformerEncoder,
    plain: AlignmentStep,
    dtype: torch.dtype,
    optimizer: torch.optim.Optimizer | None = None,
) -> CudaGraphStep[StepReport]:
    from sapbert.gpu.kernels.embedding import fused_embed
    from sapbert.gpu.kernels.layer import fused_layer

    encode = RowEncoder(
        encoder.model, encoder.pooling, width=32, dtype=dtype, kernels=Kernels(fused_embed, fused_layer)
    )
    return CudaGraphStep(
        encode,
        plain.loss_and_report,
        pooling=encoder.pooling,
        pad_id=0,
        compiled=False,
        optimizer=optimizer,
    )


def take(step: CudaGraphStep[StepReport], pairs: Pairs, base: Path) -> None:
    """Take the first step over these pairs."""
    batch = next(make_batches(pairs, base, batch_size=8).after(0, 1))
    step.backward(step.pack(batch.tokens, batch.labels, batch.shared_concept))


@pytest.mark.skipif(bool(find_spec("triton")), reason="Triton is installed")
def test_without_triton_the_optimizer_updates_and_a_warning_says_so(
    tiny_base: Path, caplog: pytest.LogCaptureFixture
) -> None:
    encoder, plain = open_plain(tiny_base)
    step = graph_step(encoder, plain, adamw(encoder))
    assert not step.updates_parameters
    warning = caplog.records[-1].getMessage()
    assert warning.startswith("Triton AdamW kernel unavailable (No module named")
    assert warning.endswith("; falling back to torch.optim.AdamW")


def adamw(encoder: TransformerEncoder) -> torch.optim.AdamW:
    return torch.optim.AdamW(encoder.model.parameters(), lr=1e-2, weight_decay=0.1, fused=True)


@needs_triton
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_updates_equal_those_of_torch(
    dtype: torch.dtype, tiny_base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights and state, from the first step and from a restored state, at changing learning rates."""
    monkeypatch.setattr("sapbert.gpu.kernels.adamw.BLOCK", 64)
    from sapbert.gpu.fused_adamw import FusedAdamW

    (ours, plain), (theirs, _) = open_plain(tiny_base), open_plain(tiny_base)
    encode, found, expected = kernel_step(ours, plain, dtype)._encode, adamw(ours), adamw(theirs)
    fused = FusedAdamW(found, encode)
    twins = dict(zip(ours.model.parameters(), theirs.model.parameters(), strict=True))
    for number in range(4):
        gradients = [torch.randn_like(leaf, requires_grad=False) for leaf in encode.leaves]
        present = torch.randint(len(ours.tokenizer), (9,), dtype=torch.int32)
        for own, gradient, _ in encode.trained(gradients):
            if own is ours.model.get_input_embeddings().weight:
                absent = torch.ones(len(own), dtype=torch.bool).index_fill(0, present.long(), False)
                gradient[absent] = 0
            twins[own].grad = gradient.float()
        for optimizer in (found, expected):
            optimizer.param_groups[0]["lr"] = 1e-2 / (number + 1)
        expected.step()
        tables = fused.tables()
        fused.fill(tables, gradients)
        fused.begin()
        fused.update_absent_words(tables, present)
        for layer in reversed(range(encode.layers)):
            fused.update_layer(tables, layer)
        fused.update_rest(tables)
        if number == 1:
            found.load_state_dict(found.state_dict())
            fused = FusedAdamW(found, encode)
    for own, twin in twins.items():
        torch.testing.assert_close(own, twin, rtol=1e-5, atol=1e-6)
        for part in ("step", "exp_avg", "exp_avg_sq"):
            torch.testing.assert_close(
                found.state[own][part], expected.state[twin][part], rtol=1e-5, atol=1e-6
            )


@needs_triton
@pytest.mark.parametrize("broken", ["decay", "copies", "everything", "absent", "present"])
def test_if_the_kernel_is_wrong_the_optimizer_updates(
    broken: str,
    tiny_pairs: Pairs,
    tiny_base: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from sapbert.gpu.kernels import adamw as adamw_kernel

    right = adamw_kernel.update

    def wrong(table, present, rates, betas, epsilon, decay, *, half, copies, rows="all"):  # type: ignore[no-untyped-def]
        if broken not in ("everything", rows):
            decay, copies = 0.0 if broken == "decay" else decay, copies and broken != "copies"
            right(table, present, rates, betas, epsilon, decay, half=half, copies=copies, rows=rows)

    monkeypatch.setattr(adamw_kernel, "update", wrong)
    encoder, plain = open_plain(tiny_base)
    step = graph_step(encoder, plain, adamw(encoder))
    assert not step.updates_parameters
    warning = caplog.records[-1].getMessage()
    assert warning.startswith("Triton AdamW kernel unavailable (relative error ")
    take(step, tiny_pairs, tiny_base)
    assert all(parameter.grad is not None for parameter in encoder.model.parameters())


@needs_triton
def test_only_adamw_with_one_parameter_group_is_fused(tiny_base: Path) -> None:
    encoder, plain = open_plain(tiny_base)
    first, *others = encoder.model.parameters()
    groups: list[dict[str, Any]] = [{"params": [first]}, {"params": others, "weight_decay": 0.0}]
    for optimizer in (torch.optim.SGD(encoder.model.parameters()), torch.optim.AdamW(groups)):
        assert not graph_step(encoder, plain, optimizer).updates_parameters
    assert graph_step(encoder, plain, adamw(encoder)).updates_parameters


@needs_triton
def test_tables_live_as_long_as_the_graph_that_reads_them(
    tiny_base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph knows only addresses: it would read freed memory as if it were still a table."""
    from sapbert.gpu.fused_adamw import FusedAdamW, Tables

    encoder, plain = open_plain(tiny_base)
    step = kernel_step(encoder, plain, torch.bfloat16, adamw(encoder))
    made: list[weakref.ref[torch.Tensor]] = []
    tables = FusedAdamW.tables

    def watched(fused: FusedAdamW) -> Tables:
        allocated = tables(fused)
        made.extend(map(weakref.ref, allocated))
        return allocated

    monkeypatch.setattr(FusedAdamW, "tables", watched)
    # Compute instead of capturing.
    monkeypatch.setattr(CudaGraphStep, "_captured", lambda _self, warm_up, _whole: (None, warm_up()))
    step._device = torch.device("cuda")
    gradients, report = [torch.zeros_like(leaf) for leaf in step._encode.leaves], StepReport(*torch.ones(3))
    assert step._fused is not None
    run = step._with_update(lambda: (gradients, report), step._fused, torch.zeros(1))
    gc.collect()

    assert [table() is None for table in made] == [False] * 3
    del run
    gc.collect()
    assert [table() is None for table in made] == [True] * 3


@needs_triton
def test_a_fused_step_updates_weights_and_copies_and_leaves_nothing_to_update(
    tiny_pairs: Pairs, tiny_base: Path
) -> None:
    encoder, plain = open_plain(tiny_base)
    optimizer = adamw(encoder)
    step = kernel_step(encoder, plain, torch.bfloat16, optimizer)
    before = [parameter.detach().clone() for parameter in encoder.model.parameters()]
    take(step, tiny_pairs, tiny_base)
    after = [parameter.detach().clone() for parameter in encoder.model.parameters()]
    step.update(optimizer)

    assert all(map(torch.equal, encoder.model.parameters(), after))
    encode = step._encode
    for own, _, copy in encode.trained(encode.leaves):
        assert own.grad is None
        # The interpreter truncates numbers that a GPU rounds.
        assert copy is None or torch.allclose(copy.float(), own, rtol=2**-7)
    unchanged = [
        name
        for (name, own), old in zip(encoder.model.named_parameters(), before, strict=True)
        if torch.equal(own, old)
    ]
    # No loss depends on the bias of a key, which is zero here, so weight decay does not change it either.
    assert all(name.endswith("key.bias") for name in unchanged)
