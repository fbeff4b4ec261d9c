"""Link a whole input to a file, which is there when it is whole; what was done before an interrupt is kept.

Work is done in a folder beside the goal, `OUT.run`: links are written and synced, then `state.json` is
replaced, which says how many mentions they are of. What lies behind the last state, cut short by a kill or a
full disk, is dropped when the job goes on; so nothing is guessed, and no line is lost, doubled or torn.

The state holds a digest of all rows read so far. They are read again to be skipped, so a job does not go on
with another input. An outlet is stateless but for its folder: its position is part of the state.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from sapbert.artifacts import try_lock
from sapbert.errors import ArtifactError, ConfigError, SapbertError
from sapbert.linking.candidate import Candidate
from sapbert.linking.formats.rows import Linked, TextFormat
from sapbert.linking.linker import BATCH
from sapbert.linking.mention_source import MentionRow, Mentions
from sapbert.resumable import changed_values, refuse_interrupted, run_folder

Link = Callable[[Sequence[MentionRow]], Sequence[Sequence[Candidate]]]
OnLinked = Callable[[int], None]
"""Called with the number of mentions linked so far."""
BATCHES_A_COMMIT = 8
_STATE = "state.json"
_ROWS = "rows"
Batch = list[Linked]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """How far a job has come."""

    job: Mapping[str, Any]
    """What it was asked."""
    mentions: int = 0
    """Linked, and their links on disk."""
    digest: str = ""
    """Of their rows."""
    position: int = 0
    """Where in the outlet their links end."""


class Outlet(Protocol):
    """Writes links below a folder, after a position."""

    def write(self, folder: Path, position: int, batches: Sequence[Batch]) -> int:
        """Write after `position`, dropping what is there, so that it is on disk; return the new position."""
        ...

    def finish(self, folder: Path, position: int, target: Path) -> None:
        """Put what was written to its goal."""
        ...


@dataclass(frozen=True, slots=True)
class TextOutlet:
    """One file of text; the position is its length."""

    format: TextFormat

    def write(self, folder: Path, position: int, batches: Sequence[Batch]) -> int:
        """Append the text of some batches."""
        texts = [self.format.body(batch) for batch in batches]
        if position == 0:
            texts.insert(0, self.format.head())
        with open(folder / _ROWS, "r+b" if position else "wb") as file:
            if file.seek(0, os.SEEK_END) < position:
                raise ArtifactError(f"{folder / _ROWS} was cut; give --overwrite to begin again")
            file.truncate(position)
            file.seek(position)
            file.writelines(text.encode(errors="replace") for text in texts)
            file.flush()
            os.fsync(file.fileno())
            return file.tell()

    def finish(self, folder: Path, position: int, target: Path) -> None:
        """Move the file to its goal."""
        del position
        (folder / _ROWS).replace(target)


def link_batches(mentions: Iterator[MentionRow], link: Link, *, before: int = 0) -> Iterator[Batch]:
    """Link mentions batch by batch; `before` of them came earlier."""
    while rows := list(islice(mentions, BATCH)):
        answers = link(rows)
        yield [
            Linked(number, row.mention, row.row, answer)
            for number, (row, answer) in enumerate(zip(rows, answers, strict=True), before + 1)
        ]
        before += len(rows)


def link_to_file(
    mentions: Mentions,
    link: Link,
    outlet: Outlet,
    target: Path,
    job: Mapping[str, Any],
    *,
    resume: bool = False,
    overwrite: bool = False,
    on_linked: OnLinked = lambda _done: None,
) -> int:
    """Link all mentions to `target` and return how many they are.

    `job` says what is asked, in words of JSON; only a job asked the same may go on with another's work.
    """
    with _folder_beside(target, resume=resume, overwrite=overwrite) as folder:
        work = _Work(folder, outlet, _load_state(folder, job))
        rows = work.skip_done(mentions.rows)
        try:
            for batch in link_batches(rows, link, before=work.held.state.mentions):
                work.add(batch)
                on_linked(batch[-1].number)
        except BaseException:
            if work.held.pending:
                # What led here matters more than that a full disk cannot take the rest.
                with suppress(SapbertError):
                    work.commit()
            raise
        work.commit()
        with _explained(folder, work.held.state):
            outlet.finish(folder, work.held.state.position, target)
        return work.held.state.mentions


def is_interrupted(target: Path) -> bool:
    """Tell whether a job for `target` waits to go on."""
    return (run_folder(target) / _STATE).exists()


class _Held(NamedTuple):
    """What is done and what is pending: replaced in one step, so that an interrupt finds both or neither."""

    state: State
    digest: hashlib.blake2b
    """Of the rows done."""
    pending: list[Batch]


class _Work:
    """Batches on their way to the outlet."""

    def __init__(self, folder: Path, outlet: Outlet, state: State) -> None:
        self.held = _Held(state, hashlib.blake2b(digest_size=16), [])
        self._folder = folder
        self._outlet = outlet

    def skip_done(self, rows: Iterator[MentionRow]) -> Iterator[MentionRow]:
        """Pass over the rows that were linked, making sure that they are the same."""
        state, digest, _ = self.held
        for row in islice(rows, state.mentions):
            digest.update(_bytes(row.row))
        if state.mentions and digest.hexdigest() != state.digest:
            raise ConfigError(
                f"{self._folder}: the first {state.mentions:,} mentions are not those linked there; "
                "give the same input, or --overwrite to begin again"
            )
        return rows

    def add(self, batch: Batch) -> None:
        """Take a batch, to be written with others."""
        self.held.pending.append(batch)
        if len(self.held.pending) >= BATCHES_A_COMMIT:
            self.commit()

    def commit(self) -> None:
        """Write what is pending. Cut short, it may be called again and does the same again."""
        old, digest, batches = self.held
        digest = digest.copy()
        for linked in chain.from_iterable(batches):
            digest.update(_bytes(linked.row))
        number = batches[-1][-1].number if batches else old.mentions
        with _explained(self._folder, old):
            position = self._outlet.write(self._folder, old.position, batches)
            new = State(job=old.job, mentions=number, digest=digest.hexdigest(), position=position)
            _save_state(self._folder, new)
        self.held = _Held(new, digest, [])


@contextmanager
def _explained(folder: Path, state: State) -> Iterator[None]:
    """Say of a full disk or the like that the work before it, if there is any, is not lost."""
    try:
        yield
    except OSError as error:
        problem = error.strerror or str(error)
        kept = "; what was linked before is kept: --resume goes on" if state.mentions else ""
        raise SapbertError(f"{folder}: {problem}{kept}") from error


def _bytes(row: Mapping[str, Any]) -> bytes:
    return f"{dict(row)!r}\n".encode(errors="backslashreplace")


@contextmanager
def _folder_beside(target: Path, *, resume: bool, overwrite: bool) -> Iterator[Path]:
    """Make or take up the folder of a job, and remove it when the job is done."""
    if target.is_dir():
        raise ArtifactError(f"{target} is a folder; choose another name")
    if target.exists() and not overwrite:
        raise ArtifactError(f"{target} exists; choose another name or give --overwrite")
    folder = run_folder(target)
    if is_interrupted(target):
        refuse_interrupted(folder, resume=resume, overwrite=overwrite)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        if os.name == "posix" and not try_lock(lock):
            raise ArtifactError(f"{folder} is in use by another process; choose another name")
        if not resume:
            (folder / _STATE).unlink(missing_ok=True)
        try:
            yield folder
        except BaseException:
            if not (folder / _STATE).exists():
                shutil.rmtree(folder)
            raise
    shutil.rmtree(folder)


def _load_state(folder: Path, job: Mapping[str, Any]) -> State:
    wanted = json.loads(json.dumps(job))
    try:
        state = State(**json.loads((folder / _STATE).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return State(job=wanted)
    except (ValueError, TypeError) as error:
        raise ArtifactError(f"{folder / _STATE} is damaged; give --overwrite to begin again") from error
    if changed := changed_values(state.job, wanted):
        raise ConfigError(f"{folder} contains a job with other settings: {changed}")
    return state


def _save_state(folder: Path, state: State) -> None:
    new = folder / f"{_STATE}.new"
    with open(new, "w", encoding="utf-8") as file:
        json.dump(asdict(state), file, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())
    new.replace(folder / _STATE)
