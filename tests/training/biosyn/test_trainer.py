from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from sapbert.encoder.model_folder import stored_sparse_weight
from sapbert.encoder.transformer import TransformerEncoder
from sapbert.errors import ArtifactError, ConfigError
from sapbert.protocols import Encoder
from sapbert.training.biosyn import trainer as biosyn
from sapbert.training.biosyn.candidates import Candidates, CandidateSearch
from sapbert.training.biosyn.dataset import BiosynDataset
from sapbert.training.biosyn.dataset_writer import write_biosyn_dataset
from sapbert.training.biosyn.trainer import marginal_loss, train_biosyn
from sapbert.training.metrics import read_metrics
from sapbert.training.settings import BiosynSettings
from tests.encoder.tiny import WORDS
from tests.index.conftest import Row, write

CPU = torch.device("cpu")
WHOLE = [word for word in WORDS if not word.startswith("#")]


def settings(**changes: object) -> BiosynSettings:
    short = {"batch_size": 4, "candidates": 4, "epochs": 2, "learning_rate": 1e-3, "checkpoint_every": 3}
    return BiosynSettings(**{**short, **changes})  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> BiosynDataset:
    """Twelve concepts with two names each, and fourteen mentions that share a word with a name."""
    folder = tmp_path_factory.mktemp("labelled")
    rows: list[Row] = []
    mentions = ["mention\tconcept_ids"]
    for number in range(12):
        rows += [(f"x:{number}", f"{WHOLE[number]} {WHOLE[number + 5]}"), (f"x:{number}", WHOLE[number + 12])]
        mentions.append(f"{WHOLE[number + 5]} of {WHOLE[number + 12]}\tx:{number}")
    mentions += [f"fever of the {WHOLE[3]}\tx:0", f"fever of the {WHOLE[3]}\tx:1|x:7"]
    (folder / "train.tsv").write_text("\n".join(mentions) + "\n")
    return write_biosyn_dataset(write(folder / "vocabulary", rows), folder / "train.tsv", folder / "labelled")


@pytest.fixture(scope="session")
def uninterrupted(labelled: BiosynDataset, tiny_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = tmp_path_factory.mktemp("whole") / "model"
    train_biosyn(labelled, str(tiny_base), model, settings(), device=CPU)
    return model


def figures(model: Path) -> list[dict[str, float]]:
    """Return all metrics except the speed."""
    rows = read_metrics(model / "metrics.jsonl")
    return [{name: value for name, value in row.items() if name != "names_per_second"} for row in rows]


def test_the_loss_is_the_negative_log_probability_of_right_candidates() -> None:
    scores = torch.tensor([[math.log(5), math.log(3), math.log(2)]])
    right = torch.tensor([[True, False, True]])
    assert marginal_loss(scores, right).item() == pytest.approx(-math.log(0.7))


@given(
    st.lists(
        st.lists(st.tuples(st.floats(-40, 40), st.booleans()), min_size=3, max_size=3), min_size=1, max_size=4
    )
)
def test_the_loss_is_that_of_a_loop_over_candidates(mentions: list[list[tuple[float, bool]]]) -> None:
    named = [[(score, right or place == 0) for place, (score, right) in enumerate(own)] for own in mentions]
    losses = []
    for own in named:
        powers = [math.exp(score) for score, _ in own]
        good = sum(power for power, (_, right) in zip(powers, own, strict=True) if right)
        losses.append(-math.log(good / sum(powers)))
    scores = torch.tensor([[score for score, _ in own] for own in named], dtype=torch.float64)
    right = torch.tensor([[right for _, right in own] for own in named])

    assert marginal_loss(scores, right).item() == pytest.approx(sum(losses) / len(losses), abs=1e-6)


def test_a_missing_candidate_changes_nothing_and_gets_no_gradient() -> None:
    scores = torch.tensor([[1.0, 2.0, -torch.inf]], requires_grad=True)
    loss = marginal_loss(scores, torch.tensor([[True, False, False]]))
    loss.backward()

    assert loss.item() == pytest.approx(math.log(1 + math.e))
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
    assert scores.grad[0, 2] == 0


def optimizer(run: biosyn._Biosyn) -> torch.optim.Optimizer:
    return torch.optim.AdamW(run.module.parameters())


def test_the_gradient_of_the_sparse_weight_equals_a_finite_difference(
    labelled: BiosynDataset, tiny_base: Path, tmp_path: Path
) -> None:
    run = biosyn._Biosyn(labelled, str(tiny_base), settings(sparse_weight=0.7), CPU, tmp_path / "run")
    run.module.eval()
    [step, *_] = run.steps(0, optimizer(run))
    step.backward(lambda loss: loss)
    assert run.module.sparse_weight.grad is not None
    gradient = run.module.sparse_weight.grad.item()
    losses = []
    for weight in (0.699, 0.701):
        run.module.sparse_weight.data.fill_(weight)
        losses.append(step.backward(lambda loss: loss).loss.item())

    assert gradient == pytest.approx((losses[1] - losses[0]) / 0.002, rel=0.02)


def test_the_sparse_weight_is_never_negative(
    labelled: BiosynDataset, tiny_base: Path, tmp_path: Path
) -> None:
    run = biosyn._Biosyn(labelled, str(tiny_base), settings(), CPU, tmp_path / "run")
    run.module.sparse_weight.data.fill_(-0.5)
    assert run.sparse_weight == 0
    [step, *_] = run.steps(0, optimizer(run))
    step.backward(lambda loss: loss)

    assert run.module.sparse_weight.item() == 0


def test_training_starts_from_the_sparse_weight_of_the_base(
    labelled: BiosynDataset, uninterrupted: Path, tmp_path: Path
) -> None:
    run = biosyn._Biosyn(labelled, str(uninterrupted), settings(), CPU, tmp_path / "run")
    assert run.sparse_weight == stored_sparse_weight(uninterrupted)


def test_a_batch_without_a_right_candidate_has_no_gradient(
    labelled: BiosynDataset, tiny_base: Path, tmp_path: Path
) -> None:
    run = biosyn._Biosyn(labelled, str(tiny_base), settings(), CPU, tmp_path / "run")
    run.measure(0)
    assert run._candidates is not None
    run._candidates.right[:] = False
    [step, *_] = run.steps(0, optimizer(run))
    report = step.backward(lambda loss: loss)

    assert (report.loss.item(), report.positives.item()) == (0, 0)
    assert all(parameter.grad is None for parameter in run.encoder.model.parameters())


def test_training_puts_right_names_first(labelled: BiosynDataset, tiny_base: Path, tmp_path: Path) -> None:
    train_biosyn(
        labelled, str(tiny_base), tmp_path / "model", settings(epochs=12, learning_rate=3e-3), device=CPU
    )
    told = [row for row in read_metrics(tmp_path / "model" / "metrics.jsonl") if "first" in row]

    assert len(told) == 13
    assert told[-1]["first"] > told[0]["first"] + 0.2


def test_the_model_folder_has_the_learned_sparse_weight(uninterrupted: Path) -> None:
    encoder = TransformerEncoder.open(uninterrupted, device="cpu")
    manifest = json.loads((uninterrupted / "manifest.json").read_text())
    [*_, last] = read_metrics(uninterrupted / "metrics.jsonl")

    assert encoder.sparse_weight == stored_sparse_weight(uninterrupted) == last["sparse_weight"] > 0
    assert manifest["details"]["sparse_weight"] == encoder.sparse_weight
    assert not uninterrupted.with_name("model.run").exists()
    card = (uninterrupted / "README.md").read_text()
    assert "BioSyn" in card
    assert "14 mentions and 24 names of 12 concepts" in card


def test_an_invalid_sparse_weight_is_refused(uninterrupted: Path, tmp_path: Path) -> None:
    (tmp_path / "sapbert.json").write_text('{"sparse_weight": -1}')
    with pytest.raises(ArtifactError, match="sparse_weight is -1"):
        stored_sparse_weight(tmp_path)


def test_frozen_names_have_the_vectors_of_the_base_and_no_gradient(
    labelled: BiosynDataset, tiny_base: Path, tmp_path: Path
) -> None:
    """Compared with a loop over mentions, after the encoder has changed."""
    run = biosyn._Biosyn(labelled, str(tiny_base), settings(names="frozen"), CPU, tmp_path / "run")
    run.module.eval()
    [step, *_] = run.steps(0, optimizer(run))
    with torch.no_grad():
        run.encoder.model.get_parameter("embeddings.word_embeddings.weight").mul_(1.5)
    report, base = step.backward(lambda loss: loss), TransformerEncoder.open(tiny_base, device="cpu")
    found = {name: parameter.grad for name, parameter in run.encoder.model.named_parameters()}

    candidates, batch = step.backward.args  # type: ignore[attr-defined]
    losses = []
    for mention in batch:
        if candidates.right[mention].any():
            names = labelled.name_table.folded.take(candidates.rows[mention])
            own = run._vectors(labelled.mentions.take([mention]))[0]
            scores = run.settings.scale * torch.from_numpy(base.encode(names)) @ own
            losses.append(marginal_loss(scores[None], torch.from_numpy(candidates.right[mention])[None]))
    expected = torch.stack(losses).mean()
    run.module.zero_grad()
    expected.backward()

    assert report.loss.item() == pytest.approx(expected.item(), rel=1e-4)
    for name, parameter in run.encoder.model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("stop_at", "names"), [(2, "trained"), (4, "trained"), (6, "trained"), (4, "frozen")]
)
def test_a_resumed_run_gives_the_same_model_bit_for_bit(
    labelled: BiosynDataset, tiny_base: Path, tmp_path: Path, uninterrupted: Path, stop_at: int, names: str
) -> None:
    def stop(done: int, _total: int, _figures: Mapping[str, float]) -> None:
        if done == stop_at:
            signal.raise_signal(signal.SIGINT)

    model, whole, chosen = tmp_path / "model", uninterrupted, settings(names=names)
    if names == "frozen":
        whole = tmp_path / "whole"
        train_biosyn(labelled, str(tiny_base), whole, chosen, device=CPU)
    with pytest.raises(KeyboardInterrupt):
        train_biosyn(labelled, str(tiny_base), model, chosen, device=CPU, on_step=stop)
    assert not model.exists()
    train_biosyn(labelled, str(tiny_base), model, chosen, device=CPU, resume=True)

    expected = load_file(whole / "model.safetensors")
    for name, tensor in load_file(model / "model.safetensors").items():
        assert torch.equal(tensor, expected[name]), name
    assert stored_sparse_weight(model) == stored_sparse_weight(whole)
    assert figures(model) == figures(whole)


def test_a_resumed_run_encodes_frozen_names_before_its_first_step(
    labelled: BiosynDataset, tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise encoding would count as time of the step, and could change its random numbers."""
    frozen = settings(names="frozen")
    first, again = (biosyn._Biosyn(labelled, str(tiny_base), frozen, CPU, tmp_path / name) for name in "ab")
    first.measure(0)
    again.restore(first.state())
    encoded: list[Path] = []
    indexed = CandidateSearch._index

    def watched(self: CandidateSearch, encoder: Encoder) -> object:
        encoded.append(self._folder)
        return indexed(self, encoder)

    monkeypatch.setattr(CandidateSearch, "_index", watched)
    step = next(again.steps(1, optimizer(again)))
    assert encoded == [tmp_path / "b"]
    step.backward(lambda loss: loss)
    assert len(encoded) == 1


def test_the_dense_share_grows_evenly(
    labelled: BiosynDataset, tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares: list[float] = []
    search = CandidateSearch.search

    def watch(self: CandidateSearch, encoder: Encoder, dense_share: float) -> Candidates:
        shares.append(dense_share)
        return search(self, encoder, dense_share)

    monkeypatch.setattr(CandidateSearch, "search", watch)
    grows = settings(epochs=3, dense_share=0.2, last_dense_share=1.0)
    train_biosyn(labelled, str(tiny_base), tmp_path / "model", grows, device=CPU)

    assert shares == pytest.approx([0.2, 0.6, 1.0, 1.0])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"dense_share": 1.5}, "dense_share must be a fraction"),
        ({"candidates": 1}, "candidates must be at least 2"),
        ({"scale": 0.0}, "scale must be above 0"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"pooling": "max"}, "pooling is one of cls, mean"),
        ({"sparse_weight": -0.1}, "sparse_weight must be at least 0"),
        ({"epochs": 1.5}, "epochs is a whole number"),
    ],
)
def test_invalid_settings_are_refused(changes: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        settings(**changes)


def test_training_needs_neither_polars_nor_faiss(
    labelled: BiosynDataset, tiny_base: Path, tmp_path: Path
) -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['polars', 'faiss', 'typer']))\n"
        "from pathlib import Path; import torch\n"
        "from sapbert.training.biosyn.trainer import train_biosyn\n"
        "from sapbert.training.biosyn.dataset import BiosynDataset\n"
        "from sapbert.training.settings import BiosynSettings\n"
        "labelled, base, out = sys.argv[1:]\n"
        "short = BiosynSettings(epochs=1, candidates=2)\n"
        "train_biosyn(BiosynDataset.open(Path(labelled)), base, Path(out), short, "
        "device=torch.device('cpu'))\n"
    )
    arguments = [labelled.path, tiny_base, tmp_path / "model"]
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "model" / "model.safetensors").is_file()
