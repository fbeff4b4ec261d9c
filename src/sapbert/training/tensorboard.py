"""Write the metrics of a run for TensorBoard, in addition to `metrics.jsonl`."""

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
    """Return a callback for `on_step` of training that writes metrics to `folder`."""
    with needing("tensorboard"):
        from torch.utils.tensorboard import SummaryWriter
    writer: SummaryWriter | None = None
    with ExitStack() as stack:

        def write(done: int, _total: int, figures: Mapping[str, float]) -> None:
            nonlocal writer
            if writer is None:
                # Opened with the first metrics, as only one of several processes gets any. A resumed run
                # repeats steps; `purge_step` discards what was written for them before.
                writer = stack.enter_context(SummaryWriter(str(folder), purge_step=done))
            for name, value in figures.items():
                writer.add_scalar(name, value, done)

        yield write
