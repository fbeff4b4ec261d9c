"""No kernel of ours is used that is wrong; what is tried on a GPU is broken here on a CPU."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from sapbert.gpu import verify as kernels
from sapbert.gpu.layers import (
    PLAIN,
    Embed,
    Kernels,
    Layer,
    Shape,
    Tables,
    Weights,
    plain_embed,
    plain_layer,
)
from sapbert.gpu.verify import Sizes, hold, kernels_for, proven, try_embed, try_layer

CPU, SIZES = torch.device("cpu"), Sizes(heads=2, dim=32, wide=64, width=32)
Arguments = tuple[Tensor, Tensor, Tensor | None, Tensor | None, Weights, Shape]


def changed(change: Callable[[Arguments], Arguments]) -> Layer:
    """A layer that computes the plain way, but not what it is asked for."""

    def layer(*arguments: object) -> Tensor:
        return plain_layer(*change(arguments))  # type: ignore[arg-type]

    return layer  # type: ignore[return-value]


def forgets_a_bias(arguments: Arguments) -> Arguments:
    weights = arguments[4]
    return (*arguments[:4], weights._replace(up=(weights.up[0], weights.up[1] * 0)), arguments[5])


def mixes_names(arguments: Arguments) -> Arguments:
    return (arguments[0], arguments[1] * 0, *arguments[2:])


def forgets_a_gradient(arguments: Arguments) -> Arguments:
    weights = arguments[4]
    return (
        *arguments[:4],
        weights._replace(down=(weights.down[0], weights.down[1].detach() + 0 * weights.down[1])),
        arguments[5],
    )


def is_wrong_where_it_drops(arguments: Arguments) -> Arguments:
    return arguments if arguments[3] is None else mixes_names(arguments)


def is_wrong_where_it_infers(arguments: Arguments) -> Arguments:
    return arguments if torch.is_grad_enabled() else mixes_names(arguments)


def is_no_number(arguments: Arguments) -> Arguments:
    return (arguments[0] * torch.nan, *arguments[1:])


def leaves_generators_alone(arguments: Arguments) -> Arguments:
    return (*arguments[:5], replace(arguments[5], hidden_dropout=0.0, attention_dropout=0.0))


def test_a_layer_that_rounds_as_bfloat16_does_passes_its_trial() -> None:
    for sizes in (SIZES, Sizes(4, 128, 512, 64)):
        try_layer(plain_layer, CPU, sizes)


@pytest.mark.parametrize(
    "change",
    [
        forgets_a_bias,
        mixes_names,
        forgets_a_gradient,
        is_wrong_where_it_drops,
        is_wrong_where_it_infers,
        is_no_number,
    ],
)
def test_a_layer_that_is_wrong_is_refused(change: Callable[[Arguments], Arguments]) -> None:
    with pytest.raises(ArithmeticError, match=r"off, where rounding is 0\.03"):
        try_layer(changed(change), CPU, SIZES)


Lookup = tuple[Tensor, Tensor, Tensor | None, Tables, Shape, torch.dtype]


def embeds(change: Callable[[Lookup], Lookup]) -> Embed:
    """Embeds the plain way, but not what it is asked for."""

    def embed(*arguments: object) -> Tensor:
        return plain_embed(*change(arguments))  # type: ignore[arg-type]

    return embed  # type: ignore[return-value]


def with_tables(change: Callable[[Tables], Tables]) -> Embed:
    return embeds(lambda given: (*given[:3], change(given[3]), *given[4:]))


def cut_off(tensor: Tensor) -> Tensor:
    """The same, with no gradient."""
    return tensor.detach() + 0 * tensor


without_dropout = embeds(lambda given: (*given[:4], replace(given[4], hidden_dropout=0.0), given[5]))


def test_embeddings_that_round_as_bfloat16_does_pass_their_trial() -> None:
    for sizes in (SIZES, Sizes(4, 128, 512, 64)):
        try_embed(plain_embed, CPU, sizes)


@pytest.mark.parametrize(
    "change",
    [
        lambda tables: tables._replace(first=0),
        lambda tables: tables._replace(padding=-1),
        lambda tables: tables._replace(weights=(cut_off(tables.weights[0]), *tables.weights[1:])),
        lambda tables: tables._replace(weights=(*tables.weights[:4], tables.weights[4] * 0)),
    ],
)
def test_embeddings_that_are_wrong_are_refused(change: Callable[[Tables], Tables]) -> None:
    with pytest.raises(ArithmeticError, match=r"off, where rounding is 0\.03"):
        try_embed(with_tables(change), CPU, SIZES)


def test_what_is_off_by_less_than_rounding_is_held_and_what_is_more_is_not() -> None:
    expected = torch.tensor([3.0, 4.0])
    hold([expected + torch.tensor([0.0, 0.049])], [expected], tolerance=0.01)
    with pytest.raises(ArithmeticError, match=r"they are 0\.02 off"):
        hold([expected, expected + torch.tensor([0.1, 0.0])], [expected, expected], tolerance=0.01)


def with_kernels(layer: Layer, embed: Embed, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    for module, made in (
        ("layer", {"fused_layer": layer}),
        ("embedding", {"fused_embed": embed}),
    ):
        monkeypatch.setitem(sys.modules, f"sapbert.gpu.kernels.{module}", SimpleNamespace(**made))
    return proven("layers", partial(kernels._fused, CPU, SIZES), PLAIN)


@pytest.mark.parametrize(
    ("layer", "embed"),
    [
        (changed(mixes_names), plain_embed),
        (plain_layer, with_tables(lambda tables: tables._replace(first=0))),
    ],
)
def test_where_kernels_are_wrong_layers_are_plain_and_that_is_said(
    layer: Layer, embed: Embed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert with_kernels(layer, embed, monkeypatch) is PLAIN
    (record,) = caplog.records
    assert record.getMessage().startswith("layers have no kernels here (they are ")
    assert record.getMessage().endswith("; going the plain way")


def test_kernels_that_are_right_are_taken_also_by_those_who_infer_and_draw_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An encoder asks while it infers, and a run goes on from the random numbers it would have had."""
    right, before = changed(leaves_generators_alone), torch.get_rng_state()
    with torch.inference_mode():
        assert with_kernels(right, without_dropout, monkeypatch) == (without_dropout, right)
    assert not caplog.records
    assert torch.equal(torch.get_rng_state(), before)


def test_a_cpu_goes_the_plain_way_and_so_do_heads_that_no_kernel_takes() -> None:
    assert kernels_for(CPU, SIZES) is PLAIN
    assert kernels_for(torch.device("cuda"), SIZES._replace(heads=1, dim=20)) is PLAIN


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_where_kernels_do_not_work_layers_are_plain_and_that_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kernels_for.cache_clear()
    for _ in range(2):
        assert kernels_for(torch.device("cuda"), SIZES) is PLAIN
    assert [record.getMessage()[:27] for record in caplog.records] == ["layers have no kernels here"]
