"""`sapbert biosyn`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from sapbert.cli.options import ExplicitOptions, with_options
from sapbert.cli.output import forbid_overwriting_input
from sapbert.cli.parameters import Base, Prefix, Recipe, TrainingMentions, VocabularyPath
from sapbert.cli.training.run import TrainingOutput, monitored, recipe_settings
from sapbert.errors import needing
from sapbert.training.settings import BiosynSettings

_GROUPS = {
    "pooling": "Objective",
    "batch_size": "Loop",
    "max_length": "Loop",
    "checkpoint_every": "Checkpoints",
}


@with_options(_GROUPS)
def biosyn(
    vocabulary: VocabularyPath,
    mentions: TrainingMentions,
    base: Base,
    output: TrainingOutput,
    explicit: ExplicitOptions[BiosynSettings],
    prefix: Prefix = None,
    recipe: Recipe = None,
) -> None:
    """Fine-tune an encoder on labelled mentions (BioSyn).

    Training ranks the correct names of a mention first among the names nearest by vector and by character
    n-grams, which are searched again before each epoch. It also learns the weight of the n-gram score, which
    `index`, `link` and `evaluate` use with the model. Ctrl-C finishes the step and saves a checkpoint;
    --resume continues from it.
    """
    settings = recipe_settings(recipe, explicit, BiosynSettings)
    with needing("train"):
        from sapbert.training.biosyn.trainer import train_biosyn
        from sapbert.training.distributed import local_device
    from sapbert.training.biosyn.dataset_writer import write_biosyn_dataset
    from sapbert.vocab.vocabulary import Vocabulary

    forbid_overwriting_input(output.out, vocabulary, mentions, base)
    opened, device = Vocabulary.open(vocabulary), local_device()
    with TemporaryDirectory(prefix="sapbert-", ignore_cleanup_errors=True) as folder:
        dataset = write_biosyn_dataset(opened, mentions, Path(folder) / "labelled", prefix=prefix)
        with monitored(output) as on_step:
            train_biosyn(
                dataset,
                base,
                output.out,
                settings,
                device=device,
                resume=output.resume,
                overwrite=output.overwrite,
                on_step=on_step,
            )
