"""What several tests need: real data where it is at hand, and a short way from names to a vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import hypothesis
import pytest

from sapbert.vocab.intake import Intake, OnError
from sapbert.vocab.vocabulary import Vocabulary
from sapbert.vocab.writer import VocabularyWriter, write_vocabulary

GOLDEN = Path(__file__).parent / "golden"

# How long a test takes depends on what else the machine does.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


class Read(Protocol):
    """Runs a reader into a new artifact and opens it."""

    def __call__(
        self, reader: Callable[[VocabularyWriter, Intake], None], *, on_error: OnError = "stop"
    ) -> Vocabulary: ...


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real vocabularies and benchmarks that lies beside the checkout."""
    path = Path(__file__).parents[2] / "shared" / "data"
    if not path.is_dir():
        pytest.skip(f"real data is not at {path.name}/ beside the checkout")
    return path


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Run a reader into a new artifact and open it: `read(lambda w, i: read_obo(path, w, i, settings))`."""

    def run(reader: Callable[[VocabularyWriter, Intake], None], *, on_error: OnError = "stop") -> Vocabulary:
        out = tmp_path / f"vocabulary{len(list(tmp_path.glob('vocabulary*')))}"
        intake = Intake(on_error=on_error)
        with write_vocabulary(out, {}, intake) as writer:
            reader(writer, intake)
        return Vocabulary.open(out)

    return run
