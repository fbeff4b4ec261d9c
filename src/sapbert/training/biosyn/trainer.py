"""BioSyn: an encoder and the weight of spelling, learned together from labelled mentions.

Every mention has some candidate names (`candidates`), sought anew with the encoder of now before each epoch.
A candidate's score is the cosine of its vector and λ times that of its spelling; the loss is how unlikely a
softmax over candidates makes those that name a right concept, all of them together (`marginal_loss`). So any
synonym may answer, and which one is left to the encoder (Sung et al., ACL 2020).

Unlike the original, which takes dot products, vectors here are unit vectors as everywhere in this package; so
scores are multiplied by a scale before the softmax. It changes no order, and λ is the weight that `index` and
`link` use. A mention without a right candidate teaches nothing and is passed over, as in the original.

Names may stay where the base puts them while mentions learn. What was learned is then used for names as well,
which is what made unseen mentions better and not worse where training mentions are names already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sapbert.artifacts import Draft, fingerprint_of
from sapbert.encoder.adapters import trainable_parameters
from sapbert.encoder.model_folder import save_model
from sapbert.encoder.transformer import tokenize
from sapbert.gpu.transfer import to_device
from sapbert.index.sparse import require_scipy
from sapbert.resumable import run_folder
from sapbert.training.alignment.trainer import KIND
from sapbert.training.base_encoder import DTYPES, open_base_encoder
from sapbert.training.biosyn.candidates import Candidates, CandidateSearch
from sapbert.training.biosyn.dataset import BiosynDataset
from sapbert.training.loop import Evaluate, OnStep, ignore_step, run_training
from sapbert.training.mention_order import Epochs
from sapbert.training.model_card import input_list, model_card
from sapbert.training.objective import LEARNING_RATE_FACTOR, Scale, StepReport, TrainingStep
from sapbert.training.settings import BiosynSettings

_METHOD = "BioSyn (Sung et al., ACL 2020)"
_WEIGHT_RATE = 0.01
"""Learning rate of λ, as in the original: it has far to go, and there is one of it."""
_FIGURES = (
    "Of the training mentions, `found` is the share with a right name among the candidates and `first` the "
    "share with a right one first; `sparse_weight` is what spelling counts beside vectors."
)


def train_biosyn(
    labelled: BiosynDataset,
    base: str,
    target: Path,
    settings: BiosynSettings,
    *,
    device: torch.device,
    resume: bool = False,
    overwrite: bool = False,
    evaluate: Evaluate | None = None,
    on_step: OnStep = ignore_step,
) -> None:
    """Train the encoder `base` on labelled mentions and write the model folder, with λ, to `target`.

    With `resume`, go on from the newest whole checkpoint of the run that was to write `target`. What
    `evaluate` measures before each epoch and at the end goes to the metrics and the model card.
    """
    run_training(
        lambda: _Biosyn(labelled, base, settings, device, run_folder(target) / "candidates", evaluate),
        target,
        settings,
        device=device,
        resume=resume,
        overwrite=overwrite,
        on_step=on_step,
    )


def marginal_loss(scores: Tensor, right: Tensor) -> Tensor:
    """Return -log of what a softmax gives to all right candidates together, the mean over mentions.

    Each mention has a right candidate; a score of -inf is none.  # (mentions, k) both
    """
    together = scores.masked_fill(~right, -torch.inf).logsumexp(dim=1)
    return (scores.logsumexp(dim=1) - together).mean()


class _Learned(nn.Module):
    """All that is trained."""

    def __init__(self, encoder: nn.Module, weight: float, device: torch.device) -> None:
        super().__init__()
        self.encoder = encoder
        self.sparse_weight = nn.Parameter(torch.tensor(weight, device=device))


class _Biosyn:
    """Right names come first among candidates; fits `objective.Objective`."""

    def __init__(
        self,
        labelled: BiosynDataset,
        base: str,
        settings: BiosynSettings,
        device: torch.device,
        folder: Path,
        evaluate: Evaluate | None,
    ) -> None:
        require_scipy()
        self.labelled, self.settings, self._device, self._evaluate = labelled, settings, device, evaluate
        self.encoder = open_base_encoder(base, settings, device)
        self.origin = {"base": base, "base_fingerprint": self.encoder.fingerprint}
        self._encode = self.encoder.training_forward(DTYPES[settings.precision])
        weight = self.encoder.sparse_weight if settings.sparse_weight is None else settings.sparse_weight
        self.module = _Learned(self.encoder.model, weight, device)
        staying = partial(open_base_encoder, base, settings, device) if settings.names == "frozen" else None
        self._search = CandidateSearch(labelled, folder, settings.candidates, staying)
        self._epoch = -1
        self._candidates: Candidates | None = None
        self._epochs = Epochs(len(labelled), settings)

    @property
    def total(self) -> int:
        """Steps of the whole run."""
        return self._epochs.total

    @property
    def names_per_step(self) -> int:
        """Each mention and, if they learn, its candidates, at most."""
        learning = self.settings.candidates if self.settings.names == "trained" else 0
        return self.settings.batch_size * (1 + learning)

    @property
    def evaluate_every(self) -> int:
        """An epoch."""
        return self._epochs.steps

    @property
    def described(self) -> Mapping[str, Any]:
        """The mentions and names, the base and the settings."""
        return {"labelled": self.labelled.manifest.fingerprint, **self.origin, **asdict(self.settings)}

    @property
    def sparse_weight(self) -> float:
        """λ as it is now."""
        return max(self.module.sparse_weight.item(), 0.0)

    def groups(self) -> list[dict[str, Any]]:
        """The encoder; and λ, which nothing pulls to zero."""
        rate = _WEIGHT_RATE / self.settings.learning_rate
        return [
            {"params": trainable_parameters(self.encoder.model), LEARNING_RATE_FACTOR: 1},
            {"params": [self.module.sparse_weight], LEARNING_RATE_FACTOR: rate, "weight_decay": 0.0},
        ]

    def steps(self, done: int, _optimizer: torch.optim.Optimizer) -> Iterator[TrainingStep]:
        """Yield the remaining steps."""
        self._search.settle()
        for epoch, batch in self._epochs.after(done):
            yield TrainingStep(partial(self._step, self._of_epoch(epoch), batch))

    def measure(self, done: int) -> Mapping[str, float]:
        """Seek the candidates of the coming epoch and say how good they are."""
        candidates, weight = self._of_epoch(done // self._epochs.steps), self.sparse_weight
        figures = {"found": candidates.found(), "first": candidates.first(weight), "sparse_weight": weight}
        return figures if self._evaluate is None else {**figures, **self._evaluate(self.encoder)}

    def finish(self) -> Mapping[str, float]:
        """Leave all as it is."""
        return {}

    def state(self) -> dict[str, Any]:
        """The candidates of this epoch, which no later encoder would find again."""
        if self._candidates is None:
            return {}
        tensors = {name: torch.from_numpy(array) for name, array in self._candidates._asdict().items()}
        return {"epoch": self._epoch, **tensors}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up the candidates of the epoch."""
        if state:
            self._epoch = state["epoch"]
            self._candidates = Candidates(*(state[name].numpy() for name in Candidates._fields))

    def write(self, draft: Draft, metrics: Sequence[Mapping[str, Any]]) -> None:
        """Write the model folder, with λ."""
        manifest, base, weight = self.labelled.manifest, self.origin["base"], self.sparse_weight
        mentions, names, concepts = (manifest.counts[what] for what in ("mentions", "names", "concepts"))
        data = (
            f"{mentions:,} mentions and {names:,} names of {concepts:,} concepts, "
            f"fingerprint `{manifest.fingerprint}`, from:\n\n{input_list(manifest.inputs)}\n\n{_FIGURES}"
        )
        save_model(
            draft.path,
            self.encoder.model,
            self.encoder.tokenizer,
            pooling=self.encoder.pooling,
            max_length=self.encoder.max_length,
            card=model_card(base, _METHOD, data, asdict(self.settings), metrics),
            sparse_weight=weight,
        )
        draft.seal(
            KIND,
            fingerprint=fingerprint_of({"encoder": self.encoder.fingerprint, "sparse_weight": repr(weight)}),
            settings=self.described,
            inputs={
                "labelled": {"fingerprint": manifest.fingerprint},
                "base": {"name": base, "fingerprint": self.origin["base_fingerprint"]},
            },
            counts={"steps": self.total},
            details={"sparse_weight": weight},
        )

    def _of_epoch(self, epoch: int) -> Candidates:
        if self._candidates is None or self._epoch != epoch:
            settings = self.settings
            # What is measured after the last epoch is measured as in the last.
            passed = min(epoch, settings.epochs - 1) / max(settings.epochs - 1, 1)
            share = settings.dense_share + passed * (settings.last_dense_share - settings.dense_share)
            self._candidates, self._epoch = self._search.seek(self.encoder, share), epoch
        return self._candidates

    def _step(self, candidates: Candidates, batch: NDArray[np.int64], scale: Scale) -> StepReport:
        """Add the gradient of some mentions to the parameters."""
        weight = self.module.sparse_weight
        with torch.no_grad():
            weight.clamp_(min=0)
        teaching = batch[candidates.right[batch].any(axis=1)]
        rows, right = candidates.rows[teaching], candidates.right[teaching]
        if len(teaching):
            sparse, there = (
                to_device(array, self._device) for array in (candidates.sparse[teaching], rows >= 0)
            )
            scores = self.settings.scale * (self._cosines(teaching, rows) + weight * sparse)
            loss = marginal_loss(scores.masked_fill(~there, -torch.inf), to_device(right, self._device))
        else:
            loss = 0 * weight
        scale(loss).backward()
        counts = torch.tensor([right.sum(), (rows >= 0).sum() - right.sum()])
        return StepReport(loss.detach(), *counts.to(self._device))

    def _cosines(self, mentions: NDArray[np.int64], rows: NDArray[np.int64]) -> Tensor:
        """Encode mentions, and names that learn, each once; for a row of -1 any cosine.  # (mentions, k)"""
        names, place = np.unique(np.maximum(rows, 0), return_inverse=True)
        texts = self.labelled.mentions.take(mentions)
        if self.settings.names == "frozen":
            own, named = self._vectors(texts), to_device(self._search.vectors(names), self._device)
        else:
            vectors = self._vectors(texts + self.labelled.name_table.folded.take(names))
            own, named = vectors[: len(mentions)], vectors[len(mentions) :]
        picked = named[to_device(place.reshape(-1), self._device)].view(*rows.shape, -1)
        return (picked * own[:, None]).sum(dim=2)

    def _vectors(self, texts: list[str]) -> Tensor:
        return self._encode(tokenize(self.encoder.tokenizer, texts, max_length=self.encoder.max_length))
