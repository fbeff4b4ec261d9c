"""`BatchWriter`: how a resumable job writes its links, or other items.

A writer has no state except the files in the folder of the job. The position, up to which the files are
valid, is part of the state of the job.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from sapbert.linking.formats.text import TextFormat

_FILE = "rows"
_PIECE = 1 << 20

Item = TypeVar("Item", contravariant=True)
Written = TypeVar("Written")


class BatchWriter(Protocol[Item]):
    """Writes batches of items to a folder, then to a file."""

    def write(self, folder: Path, position: int, batches: Sequence[Sequence[Item]]) -> int:
        """Write batches after `position`, replacing what is there; sync; return the new position."""
        ...

    def digest(self, folder: Path, start: int, stop: int) -> str:
        """Return a digest of what one call of `write` wrote between two positions."""
        ...

    def finish(self, folder: Path, position: int, target: Path) -> None:
        """Move what was written up to `position` to `target`."""
        ...


@dataclass(frozen=True, slots=True)
class TextWriter(Generic[Written]):
    """Writes one text file; the position is its length in bytes."""

    format: TextFormat[Written]
    footer: str = ""
    """Text after the last row."""

    def write(self, folder: Path, position: int, batches: Sequence[Sequence[Written]]) -> int:
        """Append the text of some batches."""
        texts = [self.format.rows(batch) for batch in batches]
        if position == 0:
            texts.insert(0, self.format.header())
        with open(folder / _FILE, "r+b" if position else "wb") as file:
            file.truncate(position)
            file.seek(position)
            file.writelines(text.encode(errors="replace") for text in texts)
            file.flush()
            os.fsync(file.fileno())
            return file.tell()

    def digest(self, folder: Path, start: int, stop: int) -> str:
        """Return a digest of the bytes between two positions."""
        digest = hashlib.blake2b(digest_size=16)
        with open(folder / _FILE, "rb") as file:
            file.seek(start)
            while piece := file.read(min(stop - file.tell(), _PIECE)):
                digest.update(piece)
        return digest.hexdigest()

    def finish(self, folder: Path, position: int, target: Path) -> None:
        """Add the footer and move the file to `target`."""
        with open(folder / _FILE, "r+b") as file:
            file.truncate(position)
            file.seek(position)
            file.write(self.footer.encode())
        (folder / _FILE).replace(target)
