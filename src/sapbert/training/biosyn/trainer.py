"""BioSyn: train an encoder and the weight λ of the n-gram score together, on labelled mentions.

Each mention has candidate names (`candidates`), searched again with the current encoder before each epoch.
The score of a candidate is the cosine of its vector plus λ times the cosine of its n-grams. The loss is the
negative log of the total probability that a softmax over the candidates gives to the right names
(`marginal_loss`): any synonym is right, and the encoder decides which (Sung et al., ACL 2020).

The original uses dot products. Vectors are unit vectors everywhere in this package, so scores are multiplied
by a scale before the softmax. That does not change their order, and λ is the weight that `index` and `link`
use. As in the original, a mention without a right candidate is skipped.

With frozen names, only mentions are trained, towards the base's vectors of names. The trained encoder is then
used for names too. That improved unseen mentions where training mentions are already names of the vocabulary;
training both made them worse.
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
from sapbert.training.loop import OnStep, ignore_step, run_training
from sapbert.training.mention_order import MentionOrder
from sapbert.training.model_card import input_list, model_card
from sapbert.training.objective import LEARNING_RATE_FACTOR, Scale, StepReport, TrainingStep, adamw
from sapbert.training.settings import BiosynSettings

_METHOD = "BioSyn (Sung et al., ACL 2020)"
_WEIGHT_RATE = 0.01
"""Learning rate of λ, as in the original: larger than the encoder's, since it is a single number."""
_FIGURES = (
    "`found` is the share of training mentions with a right name among the candidates, `first` the share "
    "whose best candidate is right; `sparse_weight` is the weight of the n-gram score relative to the dense "
    "score."
)


def train_biosyn(
    dataset: BiosynDataset,
    base: str,
    target: Path,
    settings: BiosynSettings,
    *,
    device: torch.device,
    resume: bool = False,
    overwrite: bool = False,
    on_step: OnStep = ignore_step,
) -> None:
    """Train the encoder `base` on labelled mentions and write the model folder, with λ, to `target`.

    With `resume`, continue from the newest valid checkpoint of an interrupted run for `target`.
    """
    run_training(
        lambda: _Biosyn(dataset, base, settings, device, run_folder(target) / "candidates"),
        target,
        settings,
        device=device,
        resume=resume,
        overwrite=overwrite,
        on_step=on_step,
        kind=KIND,
    )


def marginal_loss(scores: Tensor, right: Tensor) -> Tensor:
    """Return -log of the total softmax probability of the right candidates, as the mean over mentions.

    Each mention must have a right candidate; a score of -inf marks a missing candidate.  # (mentions, k) both
    """
    right_scores = scores.masked_fill(~right, -torch.inf).logsumexp(dim=1)
    return (scores.logsumexp(dim=1) - right_scores).mean()


class _TrainedModule(nn.Module):
    """All trained parameters."""

    def __init__(self, encoder: nn.Module, weight: float, device: torch.device) -> None:
        super().__init__()
        self.encoder = encoder
        self.sparse_weight = nn.Parameter(torch.tensor(weight, device=device))


class _Biosyn:
    """Ranks right names first among the candidates; implements `objective.Objective`."""

    def __init__(
        self,
        dataset: BiosynDataset,
        base: str,
        settings: BiosynSettings,
        device: torch.device,
        folder: Path,
    ) -> None:
        require_scipy()
        self.dataset, self.settings, self._device = dataset, settings, device
        self.encoder = open_base_encoder(base, settings, device)
        self.origin = {"base": base, "base_fingerprint": self.encoder.fingerprint}
        self._encode = self.encoder.training_forward(DTYPES[settings.precision])
        weight = self.encoder.sparse_weight if settings.sparse_weight is None else settings.sparse_weight
        self.module = _TrainedModule(self.encoder.model, weight, device)
        open_frozen = partial(open_base_encoder, base, settings, device) if self._frozen_names else None
        self._search = CandidateSearch(dataset, folder, settings.candidates, open_frozen)
        self._epoch = -1
        self._candidates: Candidates | None = None
        self._order = MentionOrder(len(dataset), settings)

    @property
    def _frozen_names(self) -> bool:
        return self.settings.names == "frozen"

    @property
    def total(self) -> int:
        """Number of steps of the whole run."""
        return self._order.total

    @property
    def names_per_step(self) -> int:
        """Maximum number of encoded texts: each mention and, unless names are frozen, its candidates."""
        candidates = 0 if self._frozen_names else self.settings.candidates
        return self.settings.batch_size * (1 + candidates)

    @property
    def evaluate_every(self) -> int:
        """Number of steps of an epoch."""
        return self._order.steps_per_epoch

    @property
    def described(self) -> Mapping[str, Any]:
        """The dataset, the base and the settings."""
        return {"labelled": self.dataset.manifest.fingerprint, **self.origin, **asdict(self.settings)}

    @property
    def sparse_weight(self) -> float:
        """The current value of λ."""
        return max(self.module.sparse_weight.item(), 0.0)

    def optimizer(self) -> torch.optim.Optimizer:
        """Return AdamW for the encoder, and for λ without weight decay."""
        rate = _WEIGHT_RATE / self.settings.learning_rate
        groups = [
            {"params": trainable_parameters(self.encoder.model), LEARNING_RATE_FACTOR: 1},
            {"params": [self.module.sparse_weight], LEARNING_RATE_FACTOR: rate, "weight_decay": 0.0},
        ]
        return adamw(groups, self.settings)

    def steps(self, done: int, _optimizer: torch.optim.Optimizer) -> Iterator[TrainingStep]:
        """Yield the remaining steps."""
        self._search.encode_frozen_names()
        for epoch, batch in self._order.batches(done):
            yield TrainingStep(partial(self._step, self._candidates_of(epoch), batch))

    def measure(self, done: int) -> Mapping[str, float]:
        """Search the candidates of the next epoch and return their recall and accuracy."""
        candidates, weight = self._candidates_of(done // self._order.steps_per_epoch), self.sparse_weight
        return {"found": candidates.recall(), "first": candidates.accuracy(weight), "sparse_weight": weight}

    def finish(self) -> Mapping[str, float]:
        """Change nothing."""
        return {}

    def state(self) -> dict[str, Any]:
        """The candidates of this epoch, which a later encoder would not find again."""
        if self._candidates is None:
            return {}
        tensors = {name: torch.from_numpy(array) for name, array in self._candidates._asdict().items()}
        return {"epoch": self._epoch, **tensors}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the candidates of the epoch."""
        if state:
            self._epoch = state["epoch"]
            self._candidates = Candidates(*(state[name].numpy() for name in Candidates._fields))

    def write(self, draft: Draft, metrics: Sequence[Mapping[str, Any]]) -> None:
        """Write the model folder, with λ."""
        manifest, base, weight = self.dataset.manifest, self.origin["base"], self.sparse_weight
        mentions, names, concepts = (manifest.counts[key] for key in ("mentions", "names", "concepts"))
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

    def _candidates_of(self, epoch: int) -> Candidates:
        if self._candidates is None or self._epoch != epoch:
            settings = self.settings
            # The measurement after the last epoch uses the share of the last epoch.
            passed = min(epoch, settings.epochs - 1) / max(settings.epochs - 1, 1)
            share = settings.dense_share + passed * (settings.last_dense_share - settings.dense_share)
            self._candidates, self._epoch = self._search.search(self.encoder, share), epoch
        return self._candidates

    def _step(self, candidates: Candidates, batch: NDArray[np.int64], scale: Scale) -> StepReport:
        """Compute the loss of a batch of mentions and add its gradient to the parameters."""
        weight = self.module.sparse_weight
        with torch.no_grad():
            weight.clamp_(min=0)
        answerable = batch[candidates.right[batch].any(axis=1)]
        rows, right = candidates.rows[answerable], candidates.right[answerable]
        if len(answerable):
            sparse, exists = (
                to_device(array, self._device) for array in (candidates.sparse[answerable], rows >= 0)
            )
            scores = self.settings.scale * (self._cosines(answerable, rows) + weight * sparse)
            loss = marginal_loss(scores.masked_fill(~exists, -torch.inf), to_device(right, self._device))
        else:
            loss = 0 * weight
        scale(loss).backward()
        counts = torch.tensor([right.sum(), (rows >= 0).sum() - right.sum()])
        return StepReport(loss.detach(), *counts.to(self._device))

    def _cosines(self, mentions: NDArray[np.int64], rows: NDArray[np.int64]) -> Tensor:
        """Return cosines of mentions and candidates; arbitrary for a row of -1.  # (mentions, k)"""
        names, place = np.unique(np.maximum(rows, 0), return_inverse=True)
        texts = self.dataset.mentions.take(mentions)
        if self._frozen_names:
            mention_vectors = self._vectors(texts)
            name_vectors = to_device(self._search.frozen_vectors(names), self._device)
        else:
            vectors = self._vectors(texts + self.dataset.name_table.folded.take(names))
            mention_vectors, name_vectors = vectors[: len(mentions)], vectors[len(mentions) :]
        candidates = name_vectors[to_device(place.reshape(-1), self._device)].view(*rows.shape, -1)
        return (candidates * mention_vectors[:, None]).sum(dim=2)

    def _vectors(self, texts: list[str]) -> Tensor:
        return self._encode(tokenize(self.encoder.tokenizer, texts, max_length=self.encoder.max_length))
