"""The parts of `gpu.py` that encode names, and that encode and search a large dictionary.

The search is exact over vectors in half precision, with products accumulated in full precision. For some
mentions, the results are compared with a search in full precision.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from baselines.padded_gpu import encode_names
from gpu_bench import Bench, Figures, Variant
from sapbert.arrays import Texts
from sapbert.encoder.transformer import TransformerEncoder, set_truncation, tokenize
from sapbert.gpu.bert import RowTensors
from sapbert.gpu.rows import Rows
from sapbert.gpu.stream import ROWS, RowStream, processes_for
from sapbert.tokens.pooling import Pooling
from synthetic_names import texts

WINDOW = 16_384
NEAREST = 10
GROUP = 64
CHUNK = 262_144
"""Names scored at a time."""
_LEAST = 6
"""Seconds needed to start another measurement."""
CHECKED = 256
"""Mentions that are also searched in full precision."""


def windows(names: Texts) -> Iterator[list[str]]:
    for start in range(0, len(names), WINDOW):
        yield names.span(start, min(start + WINDOW, len(names)))


def stream_of(bench: Bench, model: PreTrainedModel, rows: int, processes: int) -> RowStream:
    set_truncation(bench.tokenizer, 25)
    backend = bench.tokenizer.backend_tokenizer
    encode = Variant().encode(bench, model)
    return RowStream(encode, backend, Pooling.CLS, pad_id=0, rows=rows, processes=processes)


def encode(bench: Bench) -> Iterator[Figures]:
    """Names per second, on the device alone and from text to vectors; and cosines with full precision."""
    model = bench.model()
    model.train(mode=False)
    names = texts(bench.inventor, bench.size.names)
    few = names.span(0, bench.size.slow_names)
    figures: dict[str, Any] = {"names": len(names)}
    reference: list[Tensor] = []

    def slow() -> None:
        reference[:] = encode_names(model, tokenize(bench.tokenizer, few, max_length=25))

    slow()
    figures["reference_names_per_second"] = len(few) / bench.seconds(slow)
    bench.say(f"reference: {figures['reference_names_per_second']:,.0f} names/s")
    yield figures
    for rows in bench.size.rows_at_once:
        figures[f"{rows} rows"] = _on_device(bench, model, rows, names, torch.cat(reference), few)
        bench.say(f"{rows} rows: {figures[f'{rows} rows']}")
        yield figures
    figures |= _end_to_end(bench, model, names)
    yield figures
    encoder = TransformerEncoder(
        model, bench.tokenizer, pooling=Pooling.CLS, max_length=25, dtype=torch.bfloat16
    )
    strings = names.span(0, len(names))
    figures["TransformerEncoder.encode"] = len(names) / bench.seconds(lambda: encoder.encode(strings))
    bench.say(f"TransformerEncoder.encode: {figures['TransformerEncoder.encode']:,.0f} names/s")
    yield figures
    figures |= _packing_rate(bench, model, names)
    yield figures


def _packing_rate(bench: Bench, model: PreTrainedModel, names: Texts) -> Figures:
    """Names per second that are tokenised and packed into rows, by number of processes."""
    figures, most = {}, processes_for(len(names)) or 1
    for processes in (0, most // 2 or 1, most):
        if bench.left < _LEAST:
            break
        prepared = stream_of(bench, model, ROWS, processes).prepared(windows(names))
        # Do not time the start of the processes.
        next(prepared)
        count, start = 2 * processes or 16, perf_counter()
        packed = len(list(islice(prepared, count)))
        key = f"tokenised_and_packed_per_second_{processes}_processes"
        figures[key] = packed * WINDOW / (perf_counter() - start)
        bench.say(f"{key}: {figures[key]:,.0f}")
        prepared.close()
    return figures


def _on_device(
    bench: Bench, model: PreTrainedModel, rows: int, names: Texts, reference: Tensor, few: list[str]
) -> Figures:
    """Throughput and accuracy of encoding names that are already tokenised and packed."""
    stream = stream_of(bench, model, rows, 0)
    with torch.inference_mode():
        cosines = (torch.cat(list(stream.on_device([few]))) * reference).sum(1)
        return {
            "device_names_per_second": _device_rate(bench, stream, names, rows),
            "least_cosine": cosines.min().item(),
            "mean_cosine": cosines.mean().item(),
        }


def _end_to_end(bench: Bench, model: PreTrainedModel, names: Texts) -> Figures:
    """Throughput from text to vectors in memory, including the start of the processes."""
    processes, start = processes_for(len(names)), perf_counter()
    with torch.inference_mode():
        vectors = stream_of(bench, model, ROWS, processes)(windows(names))
        next(vectors)
        first = perf_counter() - start
        took = first + bench.seconds(lambda: deque(vectors, maxlen=0))
    figures = {
        "end_to_end_names_per_second": len(names) / took,
        "seconds_to_the_first_window": first,
        "processes": processes,
    }
    bench.say(f"{figures}")
    return figures


def _device_rate(bench: Bench, stream: RowStream, names: Texts, rows: int) -> float:
    """Names per second that the device encodes if all are in its memory."""
    tokens = tokenize(bench.tokenizer, names.span(0, min(len(names), 8 * WINDOW)), max_length=25)
    packed = Rows.of(tokens, Pooling.CLS, pad_id=0, width=stream.encode.width)
    parts = [RowTensors.of(part, bench.device) for _, part in packed.cut(rows)]

    def work() -> None:
        for part in parts:
            functional.normalize(stream.encode(part))

    work()  # Allocate memory before timing.
    took = bench.seconds(work)
    return sum(len(part.picks) for part in parts) / took


def search(bench: Bench) -> Iterator[Figures]:
    """Encode a dictionary to device memory, and find the nearest names of all mentions."""
    size, half = bench.size, torch.float16 if bench.device.type == "cuda" else torch.float32
    model = bench.model()
    model.train(mode=False)
    start = perf_counter()
    names, mentions = texts(bench.inventor, size.dictionary), texts(bench.inventor, size.mentions)
    bench.say(f"{len(names):,} names made in {perf_counter() - start:.1f} s")
    figures: dict[str, Any] = {"names": len(names), "mentions": len(mentions)}
    vectors = torch.empty(len(names), model.config.hidden_size, dtype=half, device=bench.device)
    stream = stream_of(bench, model, ROWS, processes_for(len(names)))

    def embed() -> None:
        done = 0
        for number, window in enumerate(stream.on_device(windows(names))):
            vectors[done : done + len(window)] = window
            done += len(window)
            if number % 32 == 0:
                bench.say(f"{done:,} names embedded")

    with torch.inference_mode():
        figures["seconds_to_embed"] = bench.seconds(embed)
        yield figures
        mention_vectors = torch.cat(list(stream.on_device(windows(mentions))))
        nearest_rows: list[Tensor] = []
        figures["seconds_to_search"] = bench.seconds(
            lambda: nearest_rows.extend(
                nearest(block, vectors) for block in mention_vectors.split(size.block)
            )
        )
        figures["seconds"] = figures["seconds_to_embed"] + figures["seconds_to_search"]
        bench.say(f"{figures}")
        yield figures
        figures |= _checked(mention_vectors[:CHECKED], vectors, torch.cat(nearest_rows)[:CHECKED])
        bench.say(f"{figures}")
        yield figures


def nearest(mentions: Tensor, vectors: Tensor) -> Tensor:
    """The rows of the nearest names of each mention, best first.  # (mentions, 10)"""
    half = mentions.to(vectors.dtype)
    best = torch.full((len(mentions), NEAREST), -torch.inf, device=vectors.device)
    rows = torch.zeros((len(mentions), NEAREST), dtype=torch.int64, device=vectors.device)
    for start in range(0, len(vectors), CHUNK):
        scores, columns = top(products(half, vectors[start : start + CHUNK]))
        best, order = torch.cat([best, scores], 1).topk(NEAREST, 1)
        rows = torch.cat([rows, columns + start], 1).gather(1, order)
    return rows


def products(left: Tensor, right: Tensor) -> Tensor:
    """Multiply in half precision and accumulate in full precision."""
    if left.dtype == torch.float32:
        return left @ right.T
    return torch.mm(left, right.T, out_dtype=torch.float32)


def top(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The best scores per row, found in the groups with the highest maxima."""
    spare = -scores.shape[1] % GROUP
    if spare:
        scores = functional.pad(scores, (0, spare), value=-torch.inf)
    padded = scores.unflatten(1, (-1, GROUP))
    kept = min(NEAREST, padded.shape[1])
    groups = padded.amax(2).topk(kept, 1).indices  # (mentions, kept)
    inside = padded.gather(1, groups[:, :, None].expand(-1, -1, GROUP)).flatten(1)
    best, order = inside.topk(NEAREST, 1)
    return best, groups.gather(1, order // GROUP) * GROUP + order % GROUP


def _checked(mentions: Tensor, vectors: Tensor, nearest_rows: Tensor) -> Figures:
    """Compare the results with a search in full precision."""
    scores = [
        (mentions @ vectors[start : start + CHUNK].float().T).topk(NEAREST, 1).values
        for start in range(0, len(vectors), CHUNK)
    ]
    best = torch.cat(scores, 1).topk(NEAREST, 1)
    # Compare scores, because names with equal vectors are found in any order.
    reached = torch.einsum("md,mkd->mk", mentions, vectors[nearest_rows].float())
    worst = (best.values - reached).abs().max().item()
    return {"checked_mentions": len(mentions), "largest_difference_of_scores": worst}
