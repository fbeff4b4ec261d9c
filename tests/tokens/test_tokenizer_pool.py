from __future__ import annotations

import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from sapbert.encoder.transformer import TransformerEncoder, set_truncation
from sapbert.errors import SapbertError
from sapbert.gpu import stream
from sapbert.gpu.bert import RowEncoder
from sapbert.gpu.layers import PLAIN
from sapbert.tokens.pooling import Pooling
from sapbert.tokens.tokenizer import tokenize_names
from sapbert.tokens.tokenizer_pool import TokenizerPool
from tests.encoder.tiny import WORDS, tiny_bert


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> TransformerEncoder:
    folder = tiny_bert(tmp_path_factory.mktemp("bert"))
    opened = TransformerEncoder.open(folder, max_length=6, device="cpu")
    set_truncation(opened.tokenizer, 6)
    return opened


def test_worker_processes_tokenize_like_one_process(encoder: TransformerEncoder) -> None:
    backend = encoder.tokenizer.backend_tokenizer
    windows = [[f"{left} {right}" for right in WORDS[:9]] for left in ("heart", "fever \ud800", "é\n", "")]
    with TokenizerPool(backend, 2) as processes, ThreadPoolExecutor(4) as threads:
        found = list(threads.map(processes.tokenize, windows))
    for window, tokens in zip(windows, found, strict=True):
        expected = tokenize_names(backend, window)
        assert tokens.ids.tolist() == expected.ids.tolist()
        assert tokens.special.tolist() == expected.special.tolist()
        assert tokens.offsets.tolist() == expected.offsets.tolist()


def test_a_killed_worker_is_reported_in_one_line(encoder: TransformerEncoder) -> None:
    with TokenizerPool(encoder.tokenizer.backend_tokenizer, 1) as processes:
        only = processes._free.get()
        os.kill(only._process.pid, signal.SIGKILL)
        only._process.wait()
        processes._free.put(only)
        with pytest.raises(SapbertError, match="a tokenizer process ended unexpectedly"):
            processes.tokenize(["fever"])


def test_a_stream_with_processes_gives_the_vectors_of_the_encoder(encoder: TransformerEncoder) -> None:
    encode = RowEncoder(encoder.model, Pooling.CLS, width=16, dtype=torch.float32, kernels=PLAIN)
    backend = encoder.tokenizer.backend_tokenizer
    windows = [list(WORDS[start : start + 5]) for start in range(0, 20, 5)]
    with torch.inference_mode():
        found = list(stream.RowStream(encode, backend, Pooling.CLS, pad_id=0, processes=1)(windows))
    np.testing.assert_allclose(np.concatenate(found), encoder.encode(WORDS[:20]), atol=1e-5)


def test_few_names_or_cores_need_no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: set(range(16)), raising=False)
    assert stream.processes_for(1_000_000) == 12
    assert stream.processes_for(1_000) == 0
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {3, 5}, raising=False)
    assert stream.processes_for(1_000_000) == 0


def test_no_process_is_left_behind(encoder: TransformerEncoder) -> None:
    with TokenizerPool(encoder.tokenizer.backend_tokenizer, 1) as processes:
        only = processes._free.get()
        processes._free.put(only)
    assert only._process.returncode is not None


def test_a_file_in_the_working_folder_replaces_no_package(
    encoder: TransformerEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tokenizers.py").write_text("raise SystemExit('imported from the working folder')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [os.path.abspath(path) for path in sys.path if path])
    with TokenizerPool(encoder.tokenizer.backend_tokenizer, 1) as processes:
        assert len(processes.tokenize(["heart"]).lengths) == 1
