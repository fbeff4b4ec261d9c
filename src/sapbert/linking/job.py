"""Link all mentions of an input to a file, in a job that can be resumed after an interrupt.

Annotating texts is such a job too; its items are documents instead of mentions.

The job works in a folder next to the target, `OUT.run`; the target appears when it is complete. Links are
written and synced, then `state.json` is replaced, with the number of mentions written. What was written after
the last state (before a kill or a full disk) is discarded when the job resumes, so no line is lost, repeated
or incomplete. Links are written at least every half minute; batches of a slow linker are small.

The state contains a digest of all rows linked so far and of all links written. A resumed job reads both again
and compares the digests, so that it continues neither with another input nor after damaged links.
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
from time import monotonic
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from sapbert.errors import ArtifactError, ConfigError, FormatError, SapbertError
from sapbert.linking.candidate import Candidate
from sapbert.linking.formats.linked_mention import RANK, LinkedMention
from sapbert.linking.formats.writer import BatchWriter
from sapbert.linking.input.mentions import MentionRow, MentionStream
from sapbert.linking.linker import BATCH
from sapbert.resumable import changed_values, locked_run, refuse_interrupted, run_folder

Link = Callable[[Sequence[MentionRow]], Sequence[Sequence[Candidate]]]
OnLinked = Callable[[int], None]
"""Called with the number of mentions linked so far."""
Batch = list[LinkedMention]
BATCHES_PER_COMMIT = 8
SECONDS_PER_COMMIT = 20.0
SECONDS_PER_BATCH = 5.0
FIRST_BATCH = 32
"""Mentions in the first batch of a job, before the speed is known."""
MAX_CANDIDATES = 1 << 18
"""Candidates in memory, about 100 MB."""
_STATE = "state.json"


class InputItem(Protocol):
    """A mention or a document to be processed."""

    @property
    def row(self) -> Mapping[str, Any]:
        """Its input row, by which a resumed job recognizes it."""
        ...


class OutputItem(InputItem, Protocol):
    """A processed mention or document."""

    @property
    def number(self) -> int:
        """Number of its row in the input, from 1."""
        ...

    @property
    def result_count(self) -> int:
        """Number of its candidates or annotations."""
        ...


Input = TypeVar("Input", bound=InputItem)
Output = TypeVar("Output", bound=OutputItem)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """Progress of a job, as stored in `state.json`."""

    job: Mapping[str, Any]
    """Settings of the job."""
    mentions: int = 0
    """Number of mentions whose links are on disk."""
    digest: str = ""
    """Digest of their rows."""
    commits: Sequence[tuple[int, str]] = ()
    """Position of the writer after each commit, and the digest of the links written in it."""

    @property
    def position(self) -> int:
        """Position of the writer after all links."""
        return self.commits[-1][0] if self.commits else 0


def link_batches(
    mentions: Iterator[MentionRow], link: Link, *, k: int, before: int = 0, first: int = BATCH
) -> Iterator[Batch]:
    """Link mentions in batches; `before` is the number of mentions already linked.

    The `first` batch may be small; the others take some seconds and have a limited number of candidates.
    """
    most = max(1, min(BATCH, MAX_CANDIDATES // k))
    size = min(first, most)
    while rows := list(islice(mentions, size)):
        start = monotonic()
        linked = link(rows)
        seconds = monotonic() - start
        yield [
            LinkedMention(number, row.mention, row.row, candidates)
            for number, (row, candidates) in enumerate(zip(rows, linked, strict=True), before + 1)
        ]
        before += len(rows)
        fitting = size * SECONDS_PER_BATCH / max(seconds, 1e-6)
        size = max(1, int(min(most, 4 * size, fitting)))


def link_to_file(
    mentions: MentionStream,
    link: Link,
    writer: BatchWriter[LinkedMention],
    target: Path,
    job: Mapping[str, Any],
    *,
    resume: bool = False,
    overwrite: bool = False,
    on_linked: OnLinked = lambda _done: None,
) -> int:
    """Link all mentions, write them to `target` and return their number.

    `job` contains the settings as JSON values, among them `k`; a job can only be resumed with equal settings.
    """
    return run_job(
        mentions.rows,
        lambda rows, before: link_batches(rows, link, k=job["k"], before=before, first=FIRST_BATCH),
        writer,
        target,
        job,
        resume=resume,
        overwrite=overwrite,
        on_done=on_linked,
    )


def run_job(
    rows: Iterator[Input],
    batches: Callable[[Iterator[Input], int], Iterator[list[Output]]],
    writer: BatchWriter[Output],
    target: Path,
    job: Mapping[str, Any],
    *,
    resume: bool = False,
    overwrite: bool = False,
    on_done: OnLinked = lambda _done: None,
) -> int:
    """Process all rows with `batches`, write them to `target` and return their number.

    `batches` takes the remaining rows and the number of rows before them.
    """
    with _run_folder(target, resume=resume, overwrite=overwrite) as folder:
        run = _Run(folder, writer, _load_state(folder, job))
        remaining = run.skip_done(rows)
        try:
            for batch in batches(remaining, run.status.state.mentions):
                run.add(batch)
                on_done(batch[-1].number)
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


class _Status(NamedTuple, Generic[Output]):
    """What is written and what is pending; replaced in one step, so that an interrupt cannot split it."""

    state: JobState
    digest: hashlib.blake2b
    """Digest of the rows written."""
    pending: list[list[Output]]


class _Run(Generic[Output]):
    """Collects batches and commits them to the writer."""

    def __init__(self, folder: Path, writer: BatchWriter[Output], state: JobState) -> None:
        self.status: _Status[Output] = _Status(state, hashlib.blake2b(digest_size=16), [])
        self._folder = folder
        self._writer = writer
        self._last_commit = monotonic()
        self._check_links()

    def _check_links(self) -> None:
        """Compare the links written by an interrupted job with their digests."""
        start = 0
        for stop, digest in self.status.state.commits:
            with _os_errors_explained(self._folder, JobState(job={})):
                if self._writer.digest(self._folder, start, stop) != digest:
                    raise ArtifactError(
                        f"{self._folder} is damaged: links do not match their checksum; "
                        "give --overwrite to start over"
                    )
            start = stop

    def skip_done(self, rows: Iterator[Input]) -> Iterator[Input]:
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

    def add(self, batch: list[Output]) -> None:
        """Add a batch; several are committed together."""
        pending = self.status.pending
        pending.append(batch)
        candidates = sum(item.result_count for batch in pending for item in batch)
        if (
            len(pending) >= BATCHES_PER_COMMIT
            or candidates >= MAX_CANDIDATES
            or monotonic() - self._last_commit >= SECONDS_PER_COMMIT
        ):
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
            written = self._writer.digest(self._folder, old.position, position)
            new = JobState(
                job=old.job,
                mentions=number,
                digest=digest.hexdigest(),
                commits=[*old.commits, (position, written)],
            )
            _save_state(self._folder, new)
        self.status = _Status(new, digest, [])
        self._last_commit = monotonic()


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
        content = json.loads((folder / _STATE).read_text(encoding="utf-8"))
        if content.pop("checksum") != _checksum(content):
            raise ValueError("it does not match its own checksum")
        state = JobState(**content)
    except FileNotFoundError:
        return JobState(job=settings)
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        raise ArtifactError(f"{folder / _STATE} is damaged; give --overwrite to start over") from error
    if changed := changed_values(state.job, settings):
        raise ConfigError(f"{folder} contains a job with other settings: {changed}")
    return state


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(content).encode(), digest_size=16).hexdigest()


def _save_state(folder: Path, state: JobState) -> None:
    content = asdict(state)
    new = folder / f"{_STATE}.new"
    with open(new, "w", encoding="utf-8") as file:
        json.dump({**content, "checksum": _checksum(content)}, file, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())
    new.replace(folder / _STATE)
