"""Kernels run on a GPU or, if Triton is installed without one, in Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch import Tensor

from sapbert.gpu import layers
from sapbert.gpu.layers import (
    SEEDS,
    Embed,
    EmbeddingWeights,
    Layer,
    LayerConfig,
    LayerWeights,
    plain_attention,
    plain_embed,
    plain_layer,
)
from sapbert.gpu.verify import LayerSizes, check_embed, check_layer

WIDTH, HEADS, DIM, WIDE = 16, 2, 32, 80
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCE = 2e-5 if DEVICE == "cpu" else 5e-3
"""The matrix units of a GPU round their inputs."""
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
NAMES = torch.tensor(
    [[0] * 5 + [1] * 8 + [-1] * 3, [2] * 16, [3] + [4] * 15], dtype=torch.int32, device=DEVICE
).flatten()
PICKS = torch.tensor([0, 5, 16, 32, 33], dtype=torch.int32, device=DEVICE)


def layer_config(dropout: float = 0.0) -> LayerConfig:
    return LayerConfig(HEADS, WIDTH, 1e-12, dropout, dropout)


def numbers(*size: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=size)).float().to(DEVICE)


def weights() -> LayerWeights:
    sizes = [(3 * DIM, DIM), (DIM, DIM), (DIM,), (WIDE, DIM), (DIM, WIDE), (DIM,)]
    return LayerWeights(
        *((numbers(*size, seed=n).requires_grad_(), numbers(size[0], seed=n + 9).requires_grad_())
          for n, size in enumerate(sizes, 1))
    )  # fmt: skip


def one_by_one(qkv: Tensor) -> Tensor:
    """Compute attention for one name and one head at a time, slowly but obviously correct."""
    out = torch.zeros(len(qkv), DIM, device=DEVICE)
    size = DIM // HEADS
    for name in NAMES.unique().tolist():
        places = (name == NAMES).nonzero()[:, 0]
        # Padding has the same number in all rows, but rows do not attend to each other.
        for row in places.div(WIDTH, rounding_mode="floor").unique().tolist():
            here = places[places.div(WIDTH, rounding_mode="floor") == row]
            for head in range(HEADS):
                query, key, value = (
                    qkv[here, part * DIM + head * size : part * DIM + (head + 1) * size] for part in range(3)
                )
                weights_of_name = torch.softmax(query @ key.T / size**0.5, dim=1)
                out[here, head * size : (head + 1) * size] = weights_of_name @ value
    return out


def test_a_token_attends_only_to_its_own_name() -> None:
    qkv = numbers(len(NAMES), 3 * DIM)
    torch.testing.assert_close(
        plain_attention(qkv, NAMES, layer_config()), one_by_one(qkv), atol=1e-5, rtol=1e-5
    )


@pytest.mark.skipif(
    INTERPRETED or not find_spec("triton"), reason="Triton is installed only with torch for GPUs"
)
def test_the_kernel_tests_pass_in_the_triton_interpreter() -> None:
    """Run in another process, since Triton reads the environment variable on import."""
    pytest_here = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        __file__,
        "-k",
        "test_kernels",
    ]
    done = subprocess.run(
        pytest_here, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.fixture
def fused() -> Layer:
    if DEVICE == "cpu" and not INTERPRETED:
        pytest.skip("there is no GPU")
    from sapbert.gpu.kernels.layer import fused_layer

    return fused_layer


def both(
    fused: Layer, picks: Tensor | None, seeds: Tensor | None, dropout: float = 0.0
) -> list[tuple[Tensor, tuple[Tensor, ...]]]:
    """Return outputs of kernels and PyTorch, with the gradients of all inputs."""
    given, hidden = weights(), numbers(len(NAMES), DIM).requires_grad_()
    every = [hidden, *(tensor for pair in given for tensor in pair)]
    found = [
        layer(hidden, NAMES, picks, seeds, given, layer_config(dropout)) for layer in (fused, plain_layer)
    ]
    return [(out, torch.autograd.grad((out * numbers(*out.shape, seed=5)).sum(), every)) for out in found]


def assert_equal_results(found: list[tuple[Tensor, tuple[Tensor, ...]]]) -> None:
    torch.testing.assert_close(found[0][0], found[1][0], atol=TOLERANCE, rtol=TOLERANCE)
    for ours, expected in zip(found[0][1], found[1][1], strict=True):
        assert (ours - expected).norm() < TOLERANCE * expected.norm()


@pytest.mark.parametrize("picks", [None, PICKS])
def test_kernels_give_the_vectors_and_gradients_of_pytorch(fused: Layer, picks: Tensor | None) -> None:
    assert_equal_results(both(fused, picks, None))


@pytest.mark.parametrize("picks", [None, PICKS])
def test_kernels_give_the_same_vectors_without_gradient(fused: Layer, picks: Tensor | None) -> None:
    hidden = numbers(len(NAMES), DIM)
    with torch.inference_mode():
        every = plain_layer, fused
        found = [layer(hidden.clone(), NAMES, picks, None, weights(), layer_config()) for layer in every]
    # The two GELU formulas differ by this much.
    assert torch.cosine_similarity(found[0], found[1]).min() > 1 - 1e-5


def test_kernels_of_layers_pass_their_check(fused: Layer) -> None:
    """In float32 without a GPU: the interpreter multiplies the bits of bfloat16 numbers."""
    dtype = torch.float32 if DEVICE == "cpu" else torch.bfloat16
    check_layer(fused, torch.device(DEVICE), LayerSizes(HEADS, DIM, WIDE, WIDTH), dtype=dtype)


def dropout_factors(seed: int, size: torch.Size, dropout: float) -> Tensor:
    """Return the dropout factors, by the hash of each index, computed without overflow."""
    mixed = (torch.arange(size.numel()) * 0x9E3779B1 % 2**32) ^ seed
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        mixed = mixed ^ (mixed >> shift)
        # In halves, as the product of two 32-bit numbers can exceed 63 bits.
        mixed = (((mixed >> 16) * factor % 2**16 << 16) + (mixed & 0xFFFF) * factor) % 2**32
    return (mixed >= int(dropout * 2**32)).float().view(size).to(DEVICE) / (1 - dropout)


@pytest.mark.parametrize("picks", [None, PICKS])
def test_kernels_drop_the_same_forward_and_backward(
    fused: Layer, picks: Tensor | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = [2_000_000_011, 7, 1_234_567]
    masks: list[Tensor] = []

    def drop(tensor: Tensor, dropout: float) -> Tensor:
        masks.append(dropout_factors(seeds[len(masks)], tensor.shape, dropout))
        return tensor * masks[-1]

    monkeypatch.setattr(layers, "dropout", drop)
    assert_equal_results(both(fused, picks, torch.tensor(seeds, device=DEVICE), 0.3))
    assert len(masks) == SEEDS
    shares = [(mask == 0).float().mean().item() for mask in masks]
    assert shares == pytest.approx([0.3] * SEEDS, abs=0.05 if picks is None else 0.15)


def test_kernels_drop_the_same_without_gradient(fused: Layer) -> None:
    """A batch in chunks is encoded first without and then with gradient."""
    seeds = torch.tensor([2_000_000_011, 7, 1_234_567], device=DEVICE)
    hidden = numbers(len(NAMES), DIM)
    expected = fused(hidden, NAMES, None, seeds, weights(), layer_config(0.3))
    with torch.no_grad():
        torch.testing.assert_close(fused(hidden, NAMES, None, seeds, weights(), layer_config(0.3)), expected)


def test_kernels_sum_the_gradients_of_many_tokens(fused: Layer, monkeypatch: pytest.MonkeyPatch) -> None:
    """More tokens than one program handles, and not a multiple of that."""
    monkeypatch.setattr(sys.modules[__name__], "NAMES", NAMES.repeat(7))
    assert_equal_results(both(fused, torch.arange(77, dtype=torch.int32, device=DEVICE), None))


@pytest.fixture
def fused_embed() -> Embed:
    if DEVICE == "cpu" and not INTERPRETED:
        pytest.skip("there is no GPU")
    from sapbert.gpu.kernels.embedding import fused_embed

    return fused_embed


@pytest.mark.parametrize(("first", "padding"), [(0, 0), (2, 1), (0, -1)])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_kernels_embed_as_pytorch_does(
    fused_embed: Embed, first: int, padding: int, dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BERT, RoBERTa, and a model without padding, for more tokens than one program handles."""
    seed = torch.tensor([2_000_000_011], device=DEVICE)
    monkeypatch.setattr(
        layers, "dropout", lambda tensor, share: tensor * dropout_factors(2_000_000_011, tensor.shape, share)
    )
    rng = np.random.default_rng(0)
    ids, positions = (torch.from_numpy(rng.integers(7, size=77, dtype=np.int32)).to(DEVICE) for _ in range(2))
    leaves = [
        numbers(*size, seed=n).requires_grad_()
        for n, size in enumerate([(7, DIM), (9, DIM), (2, DIM), (DIM,), (DIM,)])
    ]
    tables = EmbeddingWeights((leaves[0], leaves[1], leaves[2], leaves[3], leaves[4]), first, padding)
    found = [
        embed(ids, positions, seed if dropout else None, tables, layer_config(dropout), torch.float32)
        for embed in (fused_embed, plain_embed)
    ]
    assert_equal_results(
        [(out, torch.autograd.grad((out * numbers(77, DIM)).sum(), leaves)) for out in found]
    )


def test_kernels_of_embeddings_pass_their_check(fused_embed: Embed) -> None:
    dtype = torch.float32 if DEVICE == "cpu" else torch.bfloat16
    check_embed(fused_embed, torch.device(DEVICE), LayerSizes(HEADS, DIM, WIDE, WIDTH), dtype=dtype)
