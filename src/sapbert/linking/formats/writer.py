"""`LinkWriter`: how a resumable job writes its links.

A writer has no state except the files in the folder of the job. The position, up to which the files are
valid, is part of the state of the job.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sapbert.errors import ArtifactError
from sapbert.linking.formats.linked_mention import LinkedMention
from sapbert.linking.formats.text import TextFormat

_FILE = "rows"

Batch = list[LinkedMention]


class LinkWriter(Protocol):
    """Writes links to a folder, then to a file."""

    def write(self, folder: Path, position: int, batches: Sequence[Batch]) -> int:
        """Write batches after `position`, replacing what is there; sync; return the new position."""
        ...

    def finish(self, folder: Path, position: int, target: Path) -> None:
        """Move what was written up to `position` to `target`."""
        ...


@dataclass(frozen=True, slots=True)
class TextWriter:
    """Writes one text file; the position is its length in bytes."""

    format: TextFormat

    def write(self, folder: Path, position: int, batches: Sequence[Batch]) -> int:
        """Append the text of some batches."""
        texts = [self.format.rows(batch) for batch in batches]
        if position == 0:
            texts.insert(0, self.format.header())
        with open(folder / _FILE, "r+b" if position else "wb") as file:
            if file.seek(0, os.SEEK_END) < position:
                raise ArtifactError(f"{folder / _FILE} was truncated; give --overwrite to start over")
            file.truncate(position)
            file.seek(position)
            file.writelines(text.encode(errors="replace") for text in texts)
            file.flush()
            os.fsync(file.fileno())
            return file.tell()

    def finish(self, folder: Path, position: int, target: Path) -> None:
        """Move the file to `target`."""
        del position
        (folder / _FILE).replace(target)
