"""Link all mentions of an input to a file, in a job that can be resumed after an interrupt.

The job works in a folder next to the target, `OUT.run`; the target appears when it is complete. Links are
written and synced, then `state.json` is replaced, with the number of mentions written. What was written after
the last state (before a kill or a full disk) is discarded when the job resumes, so no line is lost, repeated
or incomplete.

The state contains a digest of all rows linked so far. A resumed job reads these rows again and compares the
digest, so that it cannot continue with another input.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from sapbert.errors import ArtifactError, ConfigError, FormatError, SapbertError
from sapbert.linking.candidate import Candidate
from sapbert.linking.formats.linked_mention import RANK, LinkedMention
from sapbert.linking.formats.writer import Batch, LinkWriter
from sapbert.linking.input.mentions import MentionRow, MentionStream
from sapbert.linking.linker import BATCH
from sapbert.resumable import changed_values, locked_run, refuse_interrupted, run_folder

Link = Callable[[Sequence[MentionRow]], Sequence[Sequence[Candidate]]]
OnLinked = Callable[[int], None]
"""Called with the number of mentions linked so far."""
BATCHES_PER_COMMIT = 8
_STATE = "state.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """Progress of a job, as stored in `state.json`."""

    job: Mapping[str, Any]
    """Settings of the job."""
    mentions: int = 0
    """Number of mentions whose links are on disk."""
    digest: str = ""
    """Digest of their rows."""
    position: int = 0
    """Position of the writer after their links."""


def link_batches(mentions: Iterator[MentionRow], link: Link, *, before: int = 0) -> Iterator[Batch]:
    """Link mentions in batches; `before` is the number of mentions already linked."""
    while rows := list(islice(mentions, BATCH)):
        linked = link(rows)
        yield [
            LinkedMention(number, row.mention, row.row, candidates)
            for number, (row, candidates) in enumerate(zip(rows, linked, strict=True), before + 1)
        ]
        before += len(rows)


def link_to_file(
    mentions: MentionStream,
    link: Link,
    writer: LinkWriter,
    target: Path,
    job: Mapping[str, Any],
    *,
    resume: bool = False,
    overwrite: bool = False,
    on_linked: OnLinked = lambda _done: None,
) -> int:
    """Link all mentions, write them to `target` and return their number.

    `job` contains the settings as JSON values; a job can only be resumed with equal settings.
    """
    with _run_folder(target, resume=resume, overwrite=overwrite) as folder:
        run = _Run(folder, writer, _load_state(folder, job))
        rows = run.skip_done(mentions.rows)
        try:
            for batch in link_batches(rows, link, before=run.status.state.mentions):
                run.add(batch)
                on_linked(batch[-1].number)
        except BaseException:
            if run.status.pending:
                # The first error matters more than a failure to write the remaining links.
                with suppress(SapbertError):
                    run.commit()
            raise
        run.commit()
        with _os_errors_explained(folder, run.status.state):
            writer.finish(folder, run.status.state.position, target)
        return run.status.state.mentions


def is_interrupted(target: Path) -> bool:
    """Return whether there is an interrupted job for `target`."""
    return (run_folder(target) / _STATE).exists()


def count_finished(links: Path, mentions: MentionStream) -> int | None:
    """Count the mentions in the table `links`; None if they are not exactly `mentions`.

    SSSOM and Usagi files do not contain the input, so the result is None.
    """
    from sapbert.linking.input.tables import mention_text, read_mention_table
    from sapbert.vocab.input_files import InputReader

    expected = (mention_text(row.row.get(mentions.column)) for row in mentions.rows)
    count = 0
    try:
        rows = read_mention_table(links, mentions.column, InputReader()).rows
        finished = (row.mention for row in rows if str(row.row.get(RANK)) == "1")
        for one, other in zip_longest(expected, finished):
            if one != other:
                return None
            count += 1
    except FormatError:
        return None
    return count


class _Status(NamedTuple):
    """What is written and what is pending; replaced in one step, so that an interrupt cannot split it."""

    state: JobState
    digest: hashlib.blake2b
    """Digest of the rows written."""
    pending: list[Batch]


class _Run:
    """Collects batches and commits them to the writer."""

    def __init__(self, folder: Path, writer: LinkWriter, state: JobState) -> None:
        self.status = _Status(state, hashlib.blake2b(digest_size=16), [])
        self._folder = folder
        self._writer = writer

    def skip_done(self, rows: Iterator[MentionRow]) -> Iterator[MentionRow]:
        """Skip the rows that are already linked, after checking that they are the same."""
        state, digest, _ = self.status
        for row in islice(rows, state.mentions):
            digest.update(_bytes(row.row))
        if state.mentions and digest.hexdigest() != state.digest:
            raise ConfigError(
                f"{self._folder}: the first {state.mentions:,} mentions of the input have changed since they "
                "were linked; give the same input, or --overwrite to start over"
            )
        return rows

    def add(self, batch: Batch) -> None:
        """Add a batch; several are committed together."""
        self.status.pending.append(batch)
        if len(self.status.pending) >= BATCHES_PER_COMMIT:
            self.commit()

    def commit(self) -> None:
        """Write the pending batches. After an interrupt it can be called again, with the same result."""
        old, digest, batches = self.status
        digest = digest.copy()
        for linked in chain.from_iterable(batches):
            digest.update(_bytes(linked.row))
        number = batches[-1][-1].number if batches else old.mentions
        with _os_errors_explained(self._folder, old):
            position = self._writer.write(self._folder, old.position, batches)
            new = JobState(job=old.job, mentions=number, digest=digest.hexdigest(), position=position)
            _save_state(self._folder, new)
        self.status = _Status(new, digest, [])


@contextmanager
def _os_errors_explained(folder: Path, state: JobState) -> Iterator[None]:
    """Turn an `OSError`, such as a full disk, into an error that names `--resume` if anything was linked."""
    try:
        yield
    except OSError as error:
        problem = error.strerror or str(error)
        kept = "; finished links are kept, --resume continues the job" if state.mentions else ""
        raise SapbertError(f"{folder}: {problem}{kept}") from error


def _bytes(row: Mapping[str, Any]) -> bytes:
    return f"{dict(row)!r}\n".encode(errors="backslashreplace")


@contextmanager
def _run_folder(target: Path, *, resume: bool, overwrite: bool) -> Iterator[Path]:
    """Create or reuse the folder of a job, and remove it when the job is complete."""
    if target.is_dir():
        raise ArtifactError(f"{target} is a folder; choose another name")
    if target.exists() and not overwrite:
        raise ArtifactError(f"{target} exists; choose another name or give --overwrite")
    folder = run_folder(target)
    with locked_run(target):
        if is_interrupted(target):
            refuse_interrupted(folder, resume=resume, overwrite=overwrite)
        folder.mkdir(exist_ok=True)
        if not resume:
            (folder / _STATE).unlink(missing_ok=True)
        try:
            yield folder
        except BaseException:
            if not (folder / _STATE).exists():
                shutil.rmtree(folder)
            raise
        shutil.rmtree(folder)


def _load_state(folder: Path, job: Mapping[str, Any]) -> JobState:
    settings = json.loads(json.dumps(job))
    try:
        state = JobState(**json.loads((folder / _STATE).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return JobState(job=settings)
    except (ValueError, TypeError) as error:
        raise ArtifactError(f"{folder / _STATE} is damaged; give --overwrite to start over") from error
    if changed := changed_values(state.job, settings):
        raise ConfigError(f"{folder} contains a job with other settings: {changed}")
    return state


def _save_state(folder: Path, state: JobState) -> None:
    new = folder / f"{_STATE}.new"
    with open(new, "w", encoding="utf-8") as file:
        json.dump(asdict(state), file, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())
    new.replace(folder / _STATE)
