"""A step of the optimizer in a graph; needs Triton, whose interpreter takes the place of a GPU here."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from sapbert.encoder.transformer import TransformerEncoder
from sapbert.gpu.bert import RowEncoder
from sapbert.gpu.layers import Kernels
from sapbert.pairs.artifact import Pairs
from sapbert.training.alignment.cuda_graph import CapturedStep
from sapbert.training.alignment.step import StepReport
from tests.training.alignment.test_batches import make_batches
from tests.training.alignment.test_cuda_graph import both, identity, in_rows

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
needs_triton = pytest.mark.skipif(not INTERPRETED, reason="is run by the test above, in a process of its own")


@pytest.mark.skipif(INTERPRETED or not find_spec("triton"), reason="Triton comes with torch for a GPU")
def test_what_is_said_of_updates_holds_in_an_interpreter() -> None:
    """In a process of its own, since Triton looks for the variable when it is loaded."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(
        command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def in_kernels(encoder: TransformerEncoder, plain: object, dtype: torch.dtype) -> CapturedStep:
    from sapbert.gpu.kernels.embedding import fused_embed
    from sapbert.gpu.kernels.layer import fused_layer

    encode = RowEncoder(
        encoder.model, encoder.pooling, width=32, dtype=dtype, kernels=Kernels(fused_embed, fused_layer)
    )
    return CapturedStep(encode, plain, pooling=encoder.pooling, pad_id=0, compiled=False)  # type: ignore[arg-type]


@pytest.mark.skipif(bool(find_spec("triton")), reason="there is Triton")
def test_without_triton_steps_are_left_to_the_optimizer_and_that_is_said(
    tiny_base: Path, caplog: pytest.LogCaptureFixture
) -> None:
    encoder, plain = both(tiny_base)
    taken = in_rows(encoder, plain)
    taken.trained_by(adamw(encoder))
    assert not taken.updates
    assert caplog.records[-1].getMessage().startswith("optimizers have no kernels here (No module named")


def adamw(encoder: TransformerEncoder) -> torch.optim.AdamW:
    return torch.optim.AdamW(encoder.model.parameters(), lr=1e-2, weight_decay=0.1, fused=True)


@needs_triton
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_updates_are_those_of_torch(
    dtype: torch.dtype, tiny_base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, state and count, from the first step and from a state that was saved, at changing rates."""
    monkeypatch.setattr("sapbert.gpu.kernels.adamw.BLOCK", 64)
    from sapbert.gpu.fused_adamw import Update

    (ours, plain), (theirs, _) = both(tiny_base), both(tiny_base)
    encode, found, expected = in_kernels(ours, plain, dtype)._encode, adamw(ours), adamw(theirs)
    update = Update(found, encode)
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
            # Nothing is left to do for ours.
            optimizer.step()
        tables = update.tables()
        update.fill(tables, gradients)
        update.begin()
        update.take_absent(tables, present)
        for layer in reversed(range(encode.layers)):
            update.take_layer(tables, layer)
        update.take_rest(tables)
        if number == 1:
            found.load_state_dict(found.state_dict())
            update = Update(found, encode)
    for own, twin in twins.items():
        torch.testing.assert_close(own, twin, rtol=1e-5, atol=1e-6)
        for part in ("step", "exp_avg", "exp_avg_sq"):
            torch.testing.assert_close(
                found.state[own][part], expected.state[twin][part], rtol=1e-5, atol=1e-6
            )


@needs_triton
@pytest.mark.parametrize("broken", ["decay", "copies", "everything", "absent", "present"])
def test_updates_that_are_wrong_are_left_to_the_optimizer(
    broken: str,
    tiny_pairs: Pairs,
    tiny_base: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from sapbert.gpu.kernels import adamw as adamw_kernel

    right = adamw_kernel.step

    def wrong(table, present, rates, betas, epsilon, decay, *, half, copies, which="all"):  # type: ignore[no-untyped-def]
        if broken not in ("everything", which):
            decay, copies = 0.0 if broken == "decay" else decay, copies and broken != "copies"
            right(table, present, rates, betas, epsilon, decay, half=half, copies=copies, which=which)

    monkeypatch.setattr(adamw_kernel, "step", wrong)
    encoder, plain = both(tiny_base)
    taken = in_rows(encoder, plain)
    taken.trained_by(adamw(encoder))
    assert not taken.updates
    assert caplog.records[-1].getMessage().startswith("optimizers have no kernels here (they are ")
    taken.prepare(next(make_batches(tiny_pairs, tiny_base, batch_size=8).after(0, 1)))(identity)
    assert all(parameter.grad is not None for parameter in encoder.model.parameters())


@needs_triton
def test_only_adamw_over_all_parameters_alike_is_taken(tiny_base: Path) -> None:
    encoder, plain = both(tiny_base)
    taken = in_rows(encoder, plain)
    first, *others = encoder.model.parameters()
    apart: list[dict[str, Any]] = [{"params": [first]}, {"params": others, "weight_decay": 0.0}]
    for optimizer in (torch.optim.SGD(encoder.model.parameters()), torch.optim.AdamW(apart)):
        taken.trained_by(optimizer)
        assert not taken.updates
    taken.trained_by(adamw(encoder))
    assert taken.updates


@needs_triton
def test_what_a_graph_reads_lives_as_long_as_it(tiny_base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph knows addresses alone: what is freed there is read as if it were still a table."""
    from sapbert.gpu.fused_adamw import Tables, Update

    encoder, plain = both(tiny_base)
    taken = in_kernels(encoder, plain, torch.bfloat16)
    taken.trained_by(adamw(encoder))
    made: list[weakref.ref[torch.Tensor]] = []
    tables = Update.tables

    def watched(update: Update) -> Tables:
        found = tables(update)
        made.extend(map(weakref.ref, found))
        return found

    monkeypatch.setattr(Update, "tables", watched)
    # Computed, and taken for captured.
    monkeypatch.setattr(CapturedStep, "_captured", lambda _self, warm, _whole: (None, warm()))
    taken._plain = replace(plain, device=torch.device("cuda"))
    gradients, report = [torch.zeros_like(leaf) for leaf in taken._encode.leaves], StepReport(*torch.ones(3))
    assert taken._update is not None
    run = taken._with_update(lambda: (gradients, report), taken._update, torch.zeros(1))
    gc.collect()

    assert [table() is None for table in made] == [False] * 3
    del run
    gc.collect()
    assert [table() is None for table in made] == [True] * 3


@needs_triton
def test_updates_leave_copies_of_the_weights_and_no_gradients(tiny_pairs: Pairs, tiny_base: Path) -> None:
    encoder, plain = both(tiny_base)
    taken = in_kernels(encoder, plain, torch.bfloat16)
    taken.trained_by(adamw(encoder))
    before = [parameter.detach().clone() for parameter in encoder.model.parameters()]
    taken.prepare(next(make_batches(tiny_pairs, tiny_base, batch_size=8).after(0, 1)))(identity)

    encode = taken._encode
    for own, _, copy in encode.trained(encode.leaves):
        assert own.grad is None
        # The interpreter cuts numbers off where a GPU rounds them.
        assert copy is None or torch.allclose(copy.float(), own, rtol=2**-7)
    kept = [
        name
        for (name, own), old in zip(encoder.model.named_parameters(), before, strict=True)
        if torch.equal(own, old)
    ]
    # No loss depends on a key's bias, so it stays what it is: here nothing, of which nothing decays.
    assert all(name.endswith("key.bias") for name in kept)
