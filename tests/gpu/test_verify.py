"""Wrong kernels are never used. The check that runs on a GPU gets broken functions here, on a CPU."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from sapbert.gpu import verify
from sapbert.gpu.layers import (
    PLAIN,
    Embed,
    EmbeddingWeights,
    Kernels,
    Layer,
    LayerConfig,
    LayerWeights,
    plain_embed,
    plain_layer,
)
from sapbert.gpu.verify import (
    LayerSizes,
    check_close,
    check_embed,
    check_layer,
    kernels_for_sizes,
    verified_or_fallback,
)

CPU, SIZES = torch.device("cpu"), LayerSizes(heads=2, dim=32, intermediate=64, width=32)
Arguments = tuple[Tensor, Tensor, Tensor | None, Tensor | None, LayerWeights, LayerConfig]


def changed(change: Callable[[Arguments], Arguments]) -> Layer:
    """Return a plain layer whose arguments are changed."""

    def layer(*arguments: object) -> Tensor:
        return plain_layer(*change(arguments))  # type: ignore[arg-type]

    return layer  # type: ignore[return-value]


def without_a_bias(arguments: Arguments) -> Arguments:
    weights = arguments[4]
    return (*arguments[:4], weights._replace(up=(weights.up[0], weights.up[1] * 0)), arguments[5])


def across_names(arguments: Arguments) -> Arguments:
    return (arguments[0], arguments[1] * 0, *arguments[2:])


def without_a_gradient(arguments: Arguments) -> Arguments:
    weights = arguments[4]
    return (
        *arguments[:4],
        weights._replace(down=(weights.down[0], weights.down[1].detach() + 0 * weights.down[1])),
        arguments[5],
    )


def wrong_with_dropout(arguments: Arguments) -> Arguments:
    return arguments if arguments[3] is None else across_names(arguments)


def wrong_in_inference(arguments: Arguments) -> Arguments:
    return arguments if torch.is_grad_enabled() else across_names(arguments)


def gives_nan(arguments: Arguments) -> Arguments:
    return (arguments[0] * torch.nan, *arguments[1:])


def draws_nothing(arguments: Arguments) -> Arguments:
    return (*arguments[:5], replace(arguments[5], hidden_dropout=0.0, attention_dropout=0.0))


def test_a_layer_with_bfloat16_rounding_passes_the_check() -> None:
    for sizes in (SIZES, LayerSizes(4, 128, 512, 64)):
        check_layer(plain_layer, CPU, sizes)


@pytest.mark.parametrize(
    "change",
    [
        without_a_bias,
        across_names,
        without_a_gradient,
        wrong_with_dropout,
        wrong_in_inference,
        gives_nan,
    ],
)
def test_a_wrong_layer_fails_the_check(change: Callable[[Arguments], Arguments]) -> None:
    with pytest.raises(ArithmeticError, match=r"exceeds 0\.03"):
        check_layer(changed(change), CPU, SIZES)


Lookup = tuple[Tensor, Tensor, Tensor | None, EmbeddingWeights, LayerConfig, torch.dtype]


def embeds(change: Callable[[Lookup], Lookup]) -> Embed:
    """Return plain embeddings whose arguments are changed."""

    def embed(*arguments: object) -> Tensor:
        return plain_embed(*change(arguments))  # type: ignore[arg-type]

    return embed  # type: ignore[return-value]


def with_tables(change: Callable[[EmbeddingWeights], EmbeddingWeights]) -> Embed:
    return embeds(lambda given: (*given[:3], change(given[3]), *given[4:]))


def without_gradient(tensor: Tensor) -> Tensor:
    """Return the same values without a gradient."""
    return tensor.detach() + 0 * tensor


without_dropout = embeds(lambda given: (*given[:4], replace(given[4], hidden_dropout=0.0), given[5]))


def test_embeddings_with_bfloat16_rounding_pass_the_check() -> None:
    for sizes in (SIZES, LayerSizes(4, 128, 512, 64)):
        check_embed(plain_embed, CPU, sizes)


@pytest.mark.parametrize(
    "change",
    [
        lambda tables: tables._replace(first_position=0),
        lambda tables: tables._replace(padding=-1),
        lambda tables: tables._replace(weights=(without_gradient(tables.weights[0]), *tables.weights[1:])),
        lambda tables: tables._replace(weights=(*tables.weights[:4], tables.weights[4] * 0)),
    ],
)
def test_wrong_embeddings_fail_the_check(change: Callable[[EmbeddingWeights], EmbeddingWeights]) -> None:
    with pytest.raises(ArithmeticError, match=r"exceeds 0\.03"):
        check_embed(with_tables(change), CPU, SIZES)


def test_an_error_above_the_tolerance_is_refused() -> None:
    expected = torch.tensor([3.0, 4.0])
    check_close([expected + torch.tensor([0.0, 0.049])], [expected], tolerance=0.01)
    with pytest.raises(ArithmeticError, match=r"relative error 0\.02 exceeds 0\.01"):
        check_close([expected, expected + torch.tensor([0.1, 0.0])], [expected, expected], tolerance=0.01)


def with_kernels(layer: Layer, embed: Embed, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    for module, made in (
        ("layer", {"fused_layer": layer}),
        ("embedding", {"fused_embed": embed}),
    ):
        monkeypatch.setitem(sys.modules, f"sapbert.gpu.kernels.{module}", SimpleNamespace(**made))
    return verified_or_fallback("Triton kernels", partial(verify._triton_kernels, CPU, SIZES), PLAIN)


@pytest.mark.parametrize(
    ("layer", "embed"),
    [
        (changed(across_names), plain_embed),
        (plain_layer, with_tables(lambda tables: tables._replace(first_position=0))),
    ],
)
def test_wrong_kernels_are_replaced_by_pytorch_with_a_warning(
    layer: Layer, embed: Embed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert with_kernels(layer, embed, monkeypatch) is PLAIN
    (record,) = caplog.records
    assert record.getMessage().startswith("Triton kernels unavailable (relative error ")
    assert record.getMessage().endswith("; falling back to PyTorch")


def test_correct_kernels_are_used_also_in_inference_mode_and_leave_the_generator_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An encoder selects kernels in inference mode, and a run must draw the same numbers with or without
    it."""
    right, before = changed(draws_nothing), torch.get_rng_state()
    with torch.inference_mode():
        assert with_kernels(right, without_dropout, monkeypatch) == (without_dropout, right)
    assert not caplog.records
    assert torch.equal(torch.get_rng_state(), before)


def test_a_cpu_and_unsupported_head_sizes_use_pytorch() -> None:
    assert kernels_for_sizes(CPU, SIZES) is PLAIN
    assert kernels_for_sizes(torch.device("cuda"), SIZES._replace(heads=1, dim=20)) is PLAIN


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_missing_kernels_are_replaced_by_pytorch_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kernels_for_sizes.cache_clear()
    for _ in range(2):
        assert kernels_for_sizes(torch.device("cuda"), SIZES) is PLAIN
    (record,) = caplog.records
    assert record.getMessage().startswith("Triton kernels unavailable (")
