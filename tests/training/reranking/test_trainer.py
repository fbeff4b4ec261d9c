from __future__ import annotations

import math
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from sapbert.artifacts import load_manifest
from sapbert.encoder.cross_encoder import ENCODER, CrossEncoder, read_head
from sapbert.encoder.transformer import TransformerEncoder
from sapbert.errors import ArtifactError, ConfigError, SapbertError
from sapbert.protocols import RerankRequest
from sapbert.training.metrics import read_metrics
from sapbert.training.reranking import trainer as reranker
from sapbert.training.reranking.dataset import RerankerDataset, RerankExample
from sapbert.training.reranking.trainer import train_reranker
from tests.encoder.tiny import FAMILIES, WIDTH
from tests.linking.rerankers import CPU, labelled, settings, train


def run_of(base: Path, **changes: object) -> reranker._Reranking:
    return reranker._Reranking(labelled(), str(base), settings(**changes), CPU)


@pytest.fixture(scope="session")
def uninterrupted(tiny_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tiny_base, tmp_path_factory.mktemp("whole") / "model")


def test_the_loss_is_that_of_a_loop_over_mentions_and_candidates(tiny_base: Path) -> None:
    run = run_of(tiny_base, batch_size=7)
    run.module.eval()
    torch.manual_seed(0)
    run.module.direction.data.normal_()
    batch = run._training[:7]
    losses = []
    for own in batch:
        powers = []
        for text, score in zip(run.head.texts(own.request), own.request.scores, strict=True):
            [vector] = run.encoder.encode([text])
            powers.append(math.exp(float(vector @ np.array(run.head.direction)) + 20 * score))
        good = sum(power for power, right in zip(powers, own.is_right, strict=True) if right)
        losses.append(-math.log(good / sum(powers)))

    report = run._step(batch, lambda loss: loss)

    assert len({len(own.is_right) for own in batch}) > 1
    assert report.loss.item() == pytest.approx(sum(losses) / len(losses), rel=1e-4)
    assert report.positives.item() == len(batch)
    assert report.negatives.item() == sum(len(own.is_right) - 1 for own in batch)


def test_an_untrained_reranker_keeps_the_order_of_the_search(tiny_base: Path) -> None:
    run = run_of(tiny_base)
    examples = [own.request for own in run.dataset.examples]
    for request, scores in zip(examples, CrossEncoder(run.encoder, run.head).rerank(examples), strict=True):
        np.testing.assert_allclose(scores, 20 * np.array(request.scores), rtol=1e-5)


def test_training_puts_right_candidates_first(tiny_base: Path, tmp_path: Path) -> None:
    model = train(tiny_base, tmp_path / "model", epochs=15, learning_rate=3e-3)
    told = [row for row in read_metrics(model / "metrics.jsonl") if "held_out_first" in row]
    losses = [row["loss"] for row in read_metrics(model / "metrics.jsonl") if "loss" in row]

    assert len(told) == 16
    assert told[0] == {"step": 0, "held_out_found": 1.0, "held_out_first": 0.0}
    assert told[-1]["held_out_first"] > 0
    assert losses[-1] < losses[0] / 3


def test_the_folder_is_a_reranker_with_a_manifest_and_a_card(uninterrupted: Path) -> None:
    manifest, head = load_manifest(uninterrupted, kind="reranker"), read_head(uninterrupted)
    card = (uninterrupted / "README.md").read_text()

    assert manifest.counts == {"steps": 8, "mentions": 16, "held-out mentions": 4}
    assert manifest.inputs["index"] == {"fingerprint": "f00d"}
    assert len(head.direction) == WIDTH
    assert any(head.direction)
    assert (head.separator, head.context) == ("[SEP]", True)
    assert manifest.details == {"score_weight": head.score_weight}
    assert "16 mentions with their candidates" in card
    assert "| 0 | 0.000 | 1.000 |" in card
    assert not uninterrupted.with_name("model.run").exists()


@pytest.mark.parametrize("stop_at", [2, 4, 7])
def test_a_resumed_run_gives_the_same_model_bit_for_bit(
    tiny_base: Path, tmp_path: Path, uninterrupted: Path, stop_at: int
) -> None:
    def stop(done: int, _total: int, _figures: Mapping[str, float]) -> None:
        if done == stop_at:
            signal.raise_signal(signal.SIGINT)

    model = tmp_path / "model"
    with pytest.raises(KeyboardInterrupt):
        train_reranker(labelled(), str(tiny_base), model, settings(), device=CPU, on_step=stop)
    assert not model.exists()
    train_reranker(labelled(), str(tiny_base), model, settings(), device=CPU, resume=True)

    expected = load_file(uninterrupted / ENCODER / "model.safetensors")
    for name, tensor in load_file(model / ENCODER / "model.safetensors").items():
        assert torch.equal(tensor, expected[name]), name
    assert read_head(model) == read_head(uninterrupted)
    assert load_manifest(model).fingerprint == load_manifest(uninterrupted).fingerprint


def test_a_killed_run_is_resumed_without_polars_and_faiss(
    tiny_base: Path, tmp_path: Path, uninterrupted: Path
) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "sys.modules.update(dict.fromkeys(['polars', 'faiss', 'typer', 'onnxruntime']))\n"
        "import torch; torch.set_num_threads(1)\n"
        "from tests.linking.rerankers import *\n"
        "def kill(done, total, figures):\n"
        "    if done == 5: os.kill(os.getpid(), signal.SIGKILL)\n"
        "train_reranker(labelled(), sys.argv[1], Path(sys.argv[2]), settings(), device=CPU, on_step=kill)\n"
    )
    model = tmp_path / "model"
    command = [sys.executable, "-c", code, str(tiny_base), str(model)]
    killed = subprocess.run(command, cwd=Path(__file__).parents[3], check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not model.exists()

    steps: list[int] = []
    train_reranker(
        labelled(),
        str(tiny_base),
        model,
        settings(),
        device=CPU,
        resume=True,
        on_step=lambda done, _total, _figures: steps.append(done),
    )

    assert steps[0] == 4
    assert read_head(model) == read_head(uninterrupted)


def test_a_run_is_not_resumed_with_other_examples(tiny_base: Path, tmp_path: Path) -> None:
    def stop(done: int, _total: int, _figures: Mapping[str, float]) -> None:
        if done == 2:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train_reranker(labelled(), str(tiny_base), tmp_path / "model", settings(), device=CPU, on_step=stop)
    other = labelled()
    changed = replace(other, examples=other.examples[:-1])
    with pytest.raises((ArtifactError, ConfigError)):
        train_reranker(changed, str(tiny_base), tmp_path / "model", settings(), device=CPU, resume=True)


def test_mentions_without_a_right_candidate_are_not_trained_on(tiny_base: Path, tmp_path: Path) -> None:
    whole = labelled()
    wrong = [replace(own, is_right=(False,) * len(own.is_right)) for own in whole.examples]
    with pytest.raises(SapbertError, match="no training mention has a right candidate"):
        train_reranker(replace(whole, examples=wrong), str(tiny_base), tmp_path / "m", settings(), device=CPU)
    half = replace(whole, examples=[*whole.examples[:10], *wrong[10:]])
    run = reranker._Reranking(half, str(tiny_base), settings(held_out=0), CPU)

    assert run.counts == {"mentions": 10, "held-out mentions": 0}
    assert run.measure(0) == {}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_tokenizer_reads_the_separator_as_one_token(family: str, tmp_path: Path) -> None:
    base = FAMILIES[family](tmp_path / family)
    encoder = TransformerEncoder.open(base, device="cpu")
    assert reranker._separator(encoder, str(base)) == encoder.tokenizer.sep_token


def test_a_tokenizer_without_a_separator_is_refused(tiny_base: Path) -> None:
    encoder = TransformerEncoder.open(tiny_base, device="cpu")
    encoder.tokenizer.sep_token = None
    with pytest.raises(ArtifactError, match="has no separator token"):
        reranker._separator(encoder, "base")


# Examples


@given(
    st.lists(st.tuples(st.sampled_from("abcdefghij"), st.sampled_from(["", "x", "y"])), max_size=30),
    st.integers(0, 20),
    st.integers(0, 5),
)
def test_no_mention_is_in_training_and_held_out(
    rows: list[tuple[str, str]], held_out: int, seed: int
) -> None:
    examples = [RerankExample(RerankRequest(text, ("n",), (1.0,), around), (True,)) for text, around in rows]
    whole = RerankerDataset(examples=examples, context=True, inputs={})
    learned, measured = whole.split(held_out, seed)
    texts = {text for text, _ in rows}

    assert sorted(map(repr, learned + measured)) == sorted(map(repr, examples))
    apart = {own.request.mention for own in measured}
    assert apart.isdisjoint(own.request.mention for own in learned)
    assert len(apart) == min(held_out, len(texts) // 5)


def test_the_fingerprint_depends_on_every_field_of_an_example() -> None:
    def fingerprint(own: RerankExample) -> str:
        return RerankerDataset(examples=[own], context=True, inputs={}).fingerprint

    plain = RerankExample(RerankRequest("a", ("b", "c"), (1.0, 0.5), "d"), (True, False))
    others = [
        replace(plain, is_right=(False, True)),
        replace(plain, request=replace(plain.request, mention="e")),
        replace(plain, request=replace(plain.request, scores=(1.0, 0.25))),
        replace(plain, request=replace(plain.request, context="")),
    ]
    assert fingerprint(plain) == fingerprint(replace(plain))
    assert len({fingerprint(own) for own in [plain, *others]}) == 5


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"candidates": 1}, "candidates must be at least 2"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"held_out": -1}, "held_out must be at least 0"),
        ({"epochs": 0.5}, "epochs is a whole number"),
    ],
)
def test_invalid_settings_are_refused(changes: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        settings(**changes)
