"""`sapbert train`."""

from __future__ import annotations

from collections.abc import Mapping

from sapbert.cli.options import ExplicitOptions, with_options
from sapbert.cli.output import forbid_overwriting_input
from sapbert.cli.parameters import Base, PairsPath, Recipe
from sapbert.cli.training.run import TrainingOutput, monitored, recipe_settings
from sapbert.errors import ConfigError, needing
from sapbert.training.settings import TrainSettings

_GROUPS = {
    "pooling": "Objective",
    "batch_size": "Loop",
    "held_out": "Evaluation",
    "adapter": "Adapters",
    "learning_rate": "Loop",
    "max_length": "Loop",
    "checkpoint_every": "Checkpoints",
}
_ADAPTER_OPTIONS = {"reduction": "pfeiffer", "rank": "lora", "alpha": "lora"}
"""Option → the adapter it configures."""


@with_options(_GROUPS)
def train(
    pairs: PairsPath,
    base: Base,
    output: TrainingOutput,
    explicit: ExplicitOptions[TrainSettings],
    recipe: Recipe = None,
) -> None:
    """Train an encoder by self-alignment (SapBERT).

    Training moves the vectors of a concept's names together. The defaults are those of the paper's
    pretraining, except precision (fp32; the paper used fp16). Ctrl-C finishes the step and saves a
    checkpoint; --resume continues from it. Under torchrun, several processes share each batch.
    """
    settings = recipe_settings(recipe, explicit, TrainSettings)
    _forbid_unused(explicit.values, settings)
    with needing("train"):
        from sapbert.training.alignment import trainer
        from sapbert.training.distributed import local_device
    from sapbert.pairs.artifact import Pairs

    forbid_overwriting_input(output.out, pairs, base)
    opened, device = Pairs.open(pairs), local_device()
    with monitored(output) as on_step:
        trainer.train(
            opened,
            base,
            output.out,
            settings,
            device=device,
            resume=output.resume,
            overwrite=output.overwrite,
            on_step=on_step,
        )


def _forbid_unused(options: Mapping[str, object], settings: TrainSettings) -> None:
    """Reject options of an adapter that is not trained: the user expects an adapter, not full training."""
    for option, adapter in _ADAPTER_OPTIONS.items():
        if option in options and settings.adapter != adapter:
            raise ConfigError(f"--{option} has no effect without --adapter {adapter}")
