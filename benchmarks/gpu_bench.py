"""Shared by the parts of `gpu.py`: sizes, model, names, timing, and variants of a step."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from transformers import BertConfig, BertModel, PreTrainedModel, PreTrainedTokenizerFast

from sapbert.encoder.forward import TrainingForward
from sapbert.gpu.bert import RowEncoder
from sapbert.gpu.cuda_graph import CudaGraphStep
from sapbert.gpu.layers import PLAIN, Kernels
from sapbert.gpu.rows import WIDTH
from sapbert.gpu.verify import select_kernels
from sapbert.pairs.artifact import Pairs
from sapbert.tokens.pooling import Pooling
from sapbert.training.alignment.batches import Batches
from sapbert.training.alignment.losses import make_loss
from sapbert.training.alignment.mining import MiningSettings
from sapbert.training.alignment.step import AlignmentStep
from sapbert.training.objective import StepReport
from synthetic_names import Inventor, write_pairs

MAX_LENGTH, SEED = 25, 0
SPREAD = 0.04
"""Standard deviation of random weights, as in trained models, so that vectors differ and rounding matters."""
Figures = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """Sizes of the measurements."""

    shape: Mapping[str, int]
    """Differences from the configuration of BERT-base."""
    vocabulary: int = 30_522
    batch: int = 256
    pairs: int = 11_792_953
    """As in the paper."""
    few_pairs: int = 400_000
    steps: int = 200
    """Steps per turn."""
    turns: int = 3
    slow_steps: int = 12
    """Steps per turn of the reference."""
    repeats: int = 20
    """Repetitions of single operations."""
    names: int = 2_000_000
    """Names to encode."""
    rows_at_once: tuple[int, ...] = (512, 528, 1024)
    slow_names: int = 10_000
    """Names to encode by the reference."""
    dictionary: int = 14_800_000
    mentions: int = 70_000
    block: int = 8_192
    """Mentions searched at a time."""
    checkpoint_every: int = 10_000


SMOKE = Size(
    {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64},
    vocabulary=400, batch=8, pairs=200, few_pairs=400, steps=2, turns=2, slow_steps=1, repeats=1, names=300,
    rows_at_once=(8,), slow_names=60, dictionary=1_000, mentions=40, block=16, checkpoint_every=10,
)  # fmt: skip


class Bench:
    """The model, names, pairs, timing and log of all parts."""

    def __init__(self, size: Size, out: Path, device: torch.device, seconds: float) -> None:
        self.size, self.out, self.device = size, out, device
        self._start, self._seconds = time.perf_counter(), seconds
        self.inventor = Inventor(size.vocabulary, seed=SEED)
        self.scratch = Path(tempfile.mkdtemp(prefix="sapbert-gpu-"))

    def say(self, text: str) -> None:
        """Print a line and append it to the log."""
        line = f"{time.perf_counter() - self._start:7.1f} s  {text}"
        print(line, flush=True)
        with open(self.out / "log.txt", "a", encoding="utf-8") as log:
            log.write(line + "\n")

    @property
    def left(self) -> float:
        """Seconds until nothing more is started."""
        return self._seconds - (time.perf_counter() - self._start)

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerFast:
        """Tokenizer of the synthetic vocabulary."""
        special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
        return PreTrainedTokenizerFast(tokenizer_object=self.inventor.tokenizer(), **special)

    @cached_property
    def few_pairs(self) -> Pairs:
        """Pairs for all parts except `epoch`."""
        return write_pairs(self.inventor, self.size.few_pairs, self.scratch / "few")

    def model(self) -> PreTrainedModel:
        """Return a BERT with random weights, always the same."""
        torch.manual_seed(SEED)
        config = BertConfig(vocab_size=self.size.vocabulary, initializer_range=SPREAD, **self.size.shape)
        with self.device:
            return BertModel(config, add_pooling_layer=False)

    @cached_property
    def kernels(self) -> Kernels:
        """The fastest kernels that work on this device."""
        return select_kernels(self.model(), width=WIDTH)

    def batches(self, pairs: Pairs) -> Batches:
        """Return batches in the order of `sapbert train`."""
        rows = np.arange(len(pairs))
        return Batches(
            pairs, rows, self.tokenizer, batch_size=self.size.batch, max_length=MAX_LENGTH, seed=SEED
        )

    def wait(self) -> None:
        """Wait until the device is idle."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def seconds(self, work: Callable[[], object]) -> float:
        """Return the wall-clock time of `work`, until the device is idle."""
        self.wait()
        start = time.perf_counter()
        work()
        self.wait()
        return time.perf_counter() - start

    def median_ms(self, work: Callable[[], object]) -> float:
        """Return the median time of `work` in milliseconds."""
        return median(self.seconds(work) for _ in range(self.size.repeats)) * 1000


@dataclass(frozen=True)
class Variant:
    """One variant of our training step."""

    width: int = WIDTH
    kernels: bool = True
    """Whether to use our kernels, if they work on this device."""
    compiled: bool = True
    """Whether mining and loss are compiled by torch."""
    updating: bool = True
    """Whether the optimizer step is in the CUDA graph."""
    rows_multiple: int = 2

    def encode(self, bench: Bench, model: PreTrainedModel) -> RowEncoder:
        """Return the encoder of this variant."""
        on_gpu = bench.device.type == "cuda"
        return RowEncoder(
            model,
            Pooling.CLS,
            width=self.width,
            dtype=torch.bfloat16 if on_gpu else torch.float32,
            kernels=select_kernels(model, width=self.width) if self.kernels else PLAIN,
        )

    def step(
        self, bench: Bench, model: PreTrainedModel, optimizer: torch.optim.Optimizer | None = None
    ) -> CudaGraphStep[StepReport]:
        """Return the step; on a GPU with `updating`, it includes the step of `optimizer`."""
        forward = TrainingForward(model, pad_id=0, pooling=Pooling.CLS, max_length=MAX_LENGTH, dtype=None)
        plain = AlignmentStep(forward, make_loss("ms"), MiningSettings(), bench.device, None)
        return CudaGraphStep(
            self.encode(bench, model),
            plain.loss_and_report,
            pooling=Pooling.CLS,
            pad_id=0,
            compiled=self.compiled and bench.device.type == "cuda",
            optimizer=optimizer if self.updating and bench.device.type == "cuda" else None,
            rows_multiple=self.rows_multiple,
        )
