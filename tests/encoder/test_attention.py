"""The kernel runs on a GPU or, where Triton is installed without one, in Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor

from sapbert.encoder.attention import attend_plainly, attention_for

WIDTH, HEADS, DIM = 16, 2, 32
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCE = 1e-5 if DEVICE == "cpu" else 5e-3
"""The matrix units of a GPU round what they are given."""
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
NAMES = torch.tensor(
    [[0] * 5 + [1] * 8 + [-1] * 3, [2] * 16, [3] + [4] * 15], dtype=torch.int32, device=DEVICE
).flatten()


def numbers(*shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).normal(size=shape)).float().to(DEVICE)


def one_by_one(qkv: Tensor) -> Tensor:
    """The slow, obvious way: one name and one head at a time."""
    out = torch.zeros(len(qkv), DIM, device=DEVICE)
    size = DIM // HEADS
    for name in NAMES.unique().tolist():
        places = (name == NAMES).nonzero()[:, 0]
        # Padding of several rows has one number, and its rows do not see each other.
        for row in places.div(WIDTH, rounding_mode="floor").unique().tolist():
            here = places[places.div(WIDTH, rounding_mode="floor") == row]
            for head in range(HEADS):
                query, key, value = (
                    qkv[here, part * DIM + head * size : part * DIM + (head + 1) * size] for part in range(3)
                )
                chances = torch.softmax(query @ key.T / size**0.5, dim=1)
                out[here, head * size : (head + 1) * size] = chances @ value
    return out


def test_a_token_looks_at_its_own_name_alone() -> None:
    qkv = numbers(len(NAMES), 3 * DIM)
    found = attend_plainly(qkv, NAMES, HEADS, WIDTH, 0.0)
    torch.testing.assert_close(found, one_by_one(qkv), atol=1e-5, rtol=1e-5)


def test_a_cpu_attends_plainly_and_so_do_heads_that_no_kernel_takes() -> None:
    assert attention_for(torch.device("cpu"), head=64) is attend_plainly
    assert attention_for(torch.device("cuda"), head=20) is attend_plainly


@pytest.mark.skipif(DEVICE == "cuda", reason="there is a GPU")
def test_where_the_kernel_does_not_work_attention_is_plain_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    attention_for.cache_clear()
    for _ in range(2):
        assert attention_for(torch.device("cuda"), head=64) is attend_plainly
    assert [record.getMessage()[:29] for record in caplog.records] == ["attention has no kernel here "]


@pytest.mark.skipif(INTERPRETED or not find_spec("triton"), reason="Triton comes with torch for a GPU")
def test_what_is_said_of_the_kernel_holds_in_an_interpreter() -> None:
    """In a process of its own, since Triton looks for the variable when it is loaded."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        __file__,
        "-k",
        "test_the_kernel",
    ]
    done = subprocess.run(
        command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
    )
    assert "3 passed" in done.stdout, done.stdout


@pytest.fixture
def kernel() -> ModuleType:
    if DEVICE == "cpu" and not INTERPRETED:
        pytest.skip("there is no GPU")
    from sapbert.encoder import attention_kernel

    return attention_kernel


def test_the_kernel_gives_the_vectors_and_the_gradient_of_the_plain_way(kernel: ModuleType) -> None:
    qkv, weights = numbers(len(NAMES), 3 * DIM).requires_grad_(), numbers(len(NAMES), DIM)
    found, expected = (
        attend(qkv, NAMES, HEADS, WIDTH, 0.0) for attend in (kernel.attend_in_kernel, attend_plainly)
    )
    gradients = [torch.autograd.grad((out * weights).sum(), qkv)[0] for out in (found, expected)]
    torch.testing.assert_close(found, expected, atol=TOLERANCE, rtol=TOLERANCE)
    torch.testing.assert_close(*gradients, atol=TOLERANCE, rtol=TOLERANCE)


def kept(seed: int, dropout: float) -> Tensor:
    """The hash of each score, in numbers that do not overflow.  # (rows, heads, width, width)"""
    rows = len(NAMES) // WIDTH
    place = torch.arange(rows * HEADS * WIDTH * WIDTH, dtype=torch.int64)
    mixed = (place * 0x9E3779B1 % 2**32) ^ seed
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        mixed = mixed ^ (mixed >> shift)
        # In halves, as the product of two numbers of 32 bits can be too large for one of 63.
        mixed = (((mixed >> 16) * factor % 2**16 << 16) + (mixed & 0xFFFF) * factor) % 2**32
    mixed ^= mixed >> 16
    dropped = (mixed >> 8) < dropout * 2**24
    return (~dropped).float().view(rows, HEADS, WIDTH, WIDTH).to(DEVICE) / (1 - dropout)


def test_the_kernel_drops_the_same_scores_forward_and_backward(kernel: ModuleType) -> None:
    qkv, weights = numbers(len(NAMES), 3 * DIM).requires_grad_(), numbers(len(NAMES), DIM)
    seed, dropout = 2_000_000_011, 0.3
    mask = kept(seed, dropout)
    assert (mask == 0).float().mean().item() == pytest.approx(dropout, abs=0.05)

    query, key, value = qkv.view(-1, WIDTH, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
    name = NAMES.view(-1, 1, WIDTH)
    scores = (query @ key.transpose(2, 3)) * (DIM // HEADS) ** -0.5
    chances = scores.masked_fill((name.transpose(1, 2) != name)[:, None], -torch.inf).softmax(-1) * mask
    expected = (chances @ value).transpose(1, 2).reshape(len(qkv), -1)
    wanted = torch.autograd.grad((expected * weights).sum(), qkv)[0]

    place = torch.tensor([seed], device=DEVICE)
    found = kernel.forward(qkv.detach(), NAMES, place, HEADS, WIDTH, dropout)
    gradient = kernel.backward(weights, qkv.detach(), NAMES, place, HEADS, WIDTH, dropout)
    torch.testing.assert_close(found, expected.detach(), atol=TOLERANCE, rtol=TOLERANCE)
    torch.testing.assert_close(gradient, wanted, atol=TOLERANCE, rtol=TOLERANCE)


def test_the_kernel_drops_others_each_time(kernel: ModuleType) -> None:
    qkv = numbers(len(NAMES), 3 * DIM)
    first, second = (kernel.attend_in_kernel(qkv, NAMES, HEADS, WIDTH, 0.5) for _ in range(2))
    assert not torch.allclose(first, second, atol=1e-2)
