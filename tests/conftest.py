"""What several tests need: real data and a browser where they are at hand, and how to make a vocabulary."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import hypothesis
import pytest
from filelock import FileLock

from sapbert.vocab.input_files import InputReader
from sapbert.vocab.settings import OnError
from sapbert.vocab.vocabulary import Vocabulary
from sapbert.vocab.writer import VocabularyWriter, write_vocabulary

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Set before huggingface_hub and torch are imported. Several test processes share the cores, so each uses one
# thread for matrix products.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")

GOLDEN = Path(__file__).parent / "golden"

# No deadline: the duration of a test depends on what else the machine does. For a longer search run
# HYPOTHESIS_PROFILE=thorough make test.
hypothesis.settings.register_profile("quick", deadline=None, max_examples=40)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=500)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


class Read(Protocol):
    """Runs a reader into a new artifact and opens it."""

    def __call__(
        self, reader: Callable[[VocabularyWriter, InputReader], None], *, on_error: OnError = "stop"
    ) -> Vocabulary: ...


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real vocabularies and benchmarks beside the checkout."""
    path = Path(__file__).parents[2] / "shared" / "data"
    if not path.is_dir():
        pytest.skip(f"real data is not at {path.name}/ beside the checkout")
    return path


# Not for the whole run: while it is open no other test of this process can start an event loop.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium; tests that need it are skipped if it or playwright is not installed."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("chromium is not installed (Debian's package will do)")
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


class SyncedFiles:
    """Files and folders that were written to disk by `os.fsync`."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}

    def record(self, handle: int) -> None:
        """Note an open file."""
        status = os.fstat(handle)
        self._sizes[status.st_ino] = status.st_size

    def __contains__(self, path: Path) -> bool:
        """Return whether a folder, or all of a file, was synced; it may have been renamed since."""
        status = path.stat()
        size = self._sizes.get(status.st_ino)
        return size == status.st_size or (path.is_dir() and size is not None)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> SyncedFiles:
    """Record all calls of `os.fsync`."""
    files = SyncedFiles()
    monkeypatch.setattr(os, "fsync", files.record)
    return files


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that `make` fills; one test process makes it, and the others wait for it."""
    base = factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = root / name
    with FileLock(root / f"{name}.lock"):
        if not folder.exists():
            draft = factory.mktemp(name)
            make(draft)
            draft.rename(folder)
    return folder


class Exported(NamedTuple):
    """A model folder and its export."""

    model: Path
    encoder: Path


@pytest.fixture(scope="session")
def tiny_export(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A tiny exported encoder, which takes seconds to make; read-only."""
    from sapbert.encoder.onnx_export.export import export_model
    from tests.encoder.tiny import tiny_bert

    def make(folder: Path) -> None:
        export_model(tiny_bert(folder / "model"), folder / "encoder")

    folder = made_once(tmp_path_factory, "exported", make)
    return Exported(folder / "model", folder / "encoder")


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Run a reader into a new artifact and open it: `read(lambda w, i: read_obo(path, w, i, settings))`."""

    def run(
        reader: Callable[[VocabularyWriter, InputReader], None], *, on_error: OnError = "stop"
    ) -> Vocabulary:
        out = tmp_path / f"vocabulary{len(list(tmp_path.glob('vocabulary*')))}"
        inputs = InputReader(on_error=on_error)
        with write_vocabulary(out, {}, inputs) as writer:
            reader(writer, inputs)
        return Vocabulary.open(out)

    return run
