"""The part of `gpu.py` that times each of our kernels, with their settings and with others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any
from unittest.mock import patch

import torch

from gpu_bench import Bench, Figures
from sapbert.gpu.layers import EmbeddingWeights, LayerConfig

TOKENS, DIM, WIDE, HEADS, WIDTH, WORDS = 4864, 768, 3072, 12, 64, 30_522
REPEATS = 20


def kernels(bench: Bench) -> Iterator[Figures]:
    """Microseconds per kernel at the size of the paper's batch, measured in a CUDA graph of repetitions."""
    figures: Figures = {}
    if bench.device.type != "cuda":
        yield figures
        return
    from sapbert.gpu.kernels import elementwise as layer_kernels

    for name, (work, settings) in _works().items():
        if bench.left < 0:
            return
        for values in product(*settings.values()):
            chosen = dict(zip(settings, values, strict=True))
            with patch.multiple(layer_kernels, **chosen) if chosen else patch.dict({}):
                figures[f"{name} {chosen or ''}"] = _microseconds(work)
        bench.say(str({key: round(took, 1) for key, took in figures.items() if key.startswith(name)}))
        yield figures


def _microseconds(work: Callable[[], object]) -> float:
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(REPEATS):
            work()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1000 / REPEATS


def _works() -> dict[str, tuple[Callable[[], object], dict[str, Any]]]:
    from sapbert.gpu.kernels.attention import attend, attend_gradient
    from sapbert.gpu.kernels.elementwise import add_norm, add_norm_gradient, gelu, gelu_gradient
    from sapbert.gpu.kernels.embedding import fused_embed

    def random(*size: int) -> torch.Tensor:
        return torch.randn(size, device="cuda", dtype=torch.bfloat16)

    hidden, residual, wide, other, qkv = (random(TOKENS, n) for n in (DIM, DIM, WIDE, WIDE, 3 * DIM))
    one, many, three = random(DIM), random(WIDE), random(3 * DIM)
    full = torch.ones(DIM, device="cuda")
    sums, seed = torch.zeros(WIDE, device="cuda"), torch.zeros(1, dtype=torch.int64, device="cuda")
    names = (torch.arange(TOKENS, device="cuda") // 9).int()
    normed = add_norm(hidden, one, residual, (one, one), seed, epsilon=1e-12, dropout=0.1)
    rows: Any = {"heads": HEADS, "width": WIDTH, "dropout": 0.1}
    norming: Any = {"epsilon": 1e-12, "dropout": 0.1}
    ids, places = (torch.randint(n, (TOKENS,), device="cuda", dtype=torch.int32) for n in (WORDS, 25))
    word, place, kind = (torch.randn(n, DIM, device="cuda") for n in (WORDS, 512, 2))
    tables = EmbeddingWeights((word, place, kind, full, full), 0, 0)
    shape = LayerConfig(HEADS, WIDTH, 1e-12, 0.1, 0.1)
    return {
        "embed": (lambda: fused_embed(ids, places, seed, tables, shape, torch.bfloat16), {}),
        "add_norm": (
            lambda: add_norm(hidden, one, residual, (one, one), seed, **norming),
            {"_ROWS": [1, 2, 4], "_WARPS": [1, 4]},
        ),
        "add_norm_gradient": (
            lambda: add_norm_gradient(hidden, normed, one, seed, sums, dropout=0.1),
            {"_SUMMED_ROWS": [1, 2, 4], "_SUMMED_TILES": [3, 6], "_SUMMED_WARPS": [2, 4]},
        ),
        "gelu": (lambda: gelu(wide, many), {"_TOKENS": [4, 8], "_COLUMNS": [512, 1024]}),
        "gelu_gradient": (
            lambda: gelu_gradient(other, wide, many, sums),
            {"_BACK_TOKENS": [2, 4], "_BACK_COLUMNS": [512, 1024], "_TILES": [4, 8]},
        ),
        "attend": (lambda: attend(qkv, three, names, seed, **rows), {}),
        "attend_gradient": (lambda: attend_gradient(hidden, qkv, three, names, seed, sums, **rows), {}),
    }
