"""The figures of a run as TensorBoard reads them, beside the metrics that are always written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sapbert.errors import needing

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

    from sapbert.training.loop import OnStep


@contextmanager
def tensorboard(folder: Path) -> Iterator[OnStep]:
    """Give out a callback for `trainer.train` that writes what it is told below `folder`."""
    with needing("tensorboard"):
        from torch.utils.tensorboard import SummaryWriter
    writer: SummaryWriter | None = None
    with ExitStack() as stack:

        def write(done: int, _total: int, figures: Mapping[str, float]) -> None:
            nonlocal writer
            if writer is None:
                # Opened by the first figures: of several processes only one is told any. A resumed run
                # repeats steps, and what was written of them before is to be forgotten.
                writer = stack.enter_context(SummaryWriter(str(folder), purge_step=done))
            for name, value in figures.items():
                writer.add_scalar(name, value, done)

        yield write
