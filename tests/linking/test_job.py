from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sapbert.errors import ArtifactError, ConfigError, SapbertError
from sapbert.linking import job
from sapbert.linking.candidate import Candidate
from sapbert.linking.formats.linked_mention import LinkedMention
from sapbert.linking.formats.parquet import ParquetWriter
from sapbert.linking.formats.text import CsvFormat, JsonlFormat
from sapbert.linking.formats.writer import BatchWriter, TextWriter
from sapbert.linking.input.mentions import MentionRow, MentionStream, mentions_from_list
from sapbert.linking.job import link_to_file
from tests.conftest import SyncedFiles

TEXTS = [f"mention {number}" for number in range(23)]
JOB = {"index": "f00d", "k": 2}
WRITERS: dict[str, BatchWriter[LinkedMention]] = {
    "links.csv": TextWriter(CsvFormat(("mention",))),
    "links.jsonl": TextWriter(JsonlFormat()),
    "links.parquet": ParquetWriter(("mention",), None),
}


class KillError(Exception):
    """Stands for the end of the process."""


class Links:
    """Links each mention to itself; raises `error` after `stop_after` batches."""

    def __init__(self, stop_after: int | None = None, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.linked: list[str] = []
        self._left = stop_after
        self._error = error

    def __call__(self, rows: Sequence[MentionRow]) -> list[list[Candidate]]:
        if self._left == 0:
            raise self._error
        self._left = None if self._left is None else self._left - 1
        texts = [row.mention for row in rows]
        self.linked.extend(texts)
        return [
            [Candidate(f"x:{rank}", text, text, 1 / rank, None, "dense") for rank in (1, 2)] for text in texts
        ]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "BATCH", 3)
    monkeypatch.setattr(job, "BATCHES_PER_COMMIT", 2)


@pytest.mark.parametrize("name", WRITERS)
def test_rows_and_state_are_synced(tmp_path: Path, name: str, synced: SyncedFiles) -> None:
    with pytest.raises(KeyboardInterrupt):
        link_to_file(mentions_from_list(TEXTS), Links(stop_after=4), WRITERS[name], tmp_path / name, JOB)

    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size]
    assert len(written) >= 2
    assert [path.name for path in written if path not in synced] == []


def uninterrupted(writer: BatchWriter[LinkedMention], target: Path) -> bytes | pl.DataFrame:
    """Return what an uninterrupted job writes."""
    link_to_file(mentions_from_list(TEXTS), Links(), writer, target, JOB)
    return content(target)


def content(path: Path) -> bytes | pl.DataFrame:
    return pl.read_parquet(path) if path.suffix == ".parquet" else path.read_bytes()


def same(left: bytes | pl.DataFrame, right: bytes | pl.DataFrame) -> bool:
    if isinstance(left, pl.DataFrame):
        return isinstance(right, pl.DataFrame) and left.equals(right)
    return not isinstance(right, pl.DataFrame) and left == right


@pytest.mark.parametrize("name", WRITERS)
def test_all_mentions_are_linked_and_only_the_target_remains(tmp_path: Path, name: str) -> None:
    reported: list[int] = []
    done = link_to_file(
        mentions_from_list(TEXTS),
        Links(),
        WRITERS[name],
        tmp_path / "new" / name,
        JOB,
        on_linked=reported.append,
    )

    assert done == 23
    assert reported == [3, 6, 9, 12, 15, 18, 21, 23]
    assert [path.name for path in (tmp_path / "new").iterdir()] == [name]
    found = content(tmp_path / "new" / name)
    rows = found.height if isinstance(found, pl.DataFrame) else found.count(b"\n") - name.endswith(".csv")
    assert rows == 46


@pytest.mark.parametrize("name", WRITERS)
def test_an_empty_input_writes_an_empty_table(tmp_path: Path, name: str) -> None:
    assert link_to_file(mentions_from_list([]), Links(), WRITERS[name], tmp_path / name, JOB) == 0
    found = content(tmp_path / name)
    if isinstance(found, pl.DataFrame):
        assert (found.height, found.columns[:2]) == (0, ["mention", "rank"])
    else:
        assert found.count(b"\n") == name.endswith(".csv")


@settings(max_examples=25)
@given(name=st.sampled_from(sorted(WRITERS)), stops=st.lists(st.integers(0, 6), max_size=4))
def test_a_resumed_job_gives_the_same_result_and_links_no_mention_twice(
    tmp_path_factory: pytest.TempPathFactory, name: str, stops: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("job")
    expected = uninterrupted(WRITERS[name], folder / f"whole-{name}")
    linked: list[str] = []
    for stop in [*stops, None]:
        links = Links(stop)
        try:
            link_to_file(mentions_from_list(TEXTS), links, WRITERS[name], folder / name, JOB, resume=True)
            linked += links.linked
            break
        except KeyboardInterrupt:
            linked += links.linked
            assert not (folder / name).exists()

    assert same(content(folder / name), expected)
    assert linked == TEXTS
    assert not (folder / f"{name}.run").exists()


@pytest.mark.parametrize("name", WRITERS)
def test_links_written_after_the_last_state_are_discarded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As after SIGKILL: links of a batch are on disk, completely or partly, but not in the state."""
    expected = uninterrupted(WRITERS[name], tmp_path / f"whole-{name}")
    saved = job._save_state
    states: list[int] = []

    def die_at_the_second(folder: Path, state: job.JobState) -> None:
        states.append(state.mentions)
        if len(states) > 1:
            raise KillError
        saved(folder, state)

    monkeypatch.setattr(job, "_save_state", die_at_the_second)
    with pytest.raises(KillError):
        link_to_file(mentions_from_list(TEXTS), Links(), WRITERS[name], tmp_path / name, JOB)
    monkeypatch.setattr(job, "_save_state", saved)
    if not name.endswith(".parquet"):
        with open(tmp_path / f"{name}.run" / "rows", "ab") as file:
            file.write(b'{"torn')

    links = Links()
    link_to_file(mentions_from_list(TEXTS), links, WRITERS[name], tmp_path / name, JOB, resume=True)

    assert states == [6, 12, 12]
    assert links.linked == TEXTS[6:]
    assert same(content(tmp_path / name), expected)


def test_the_job_of_a_killed_process_can_be_resumed(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from tests.linking.test_job import *\n"
        "job.BATCH, job.BATCHES_PER_COMMIT = 3, 2\n"
        "def link(rows):\n"
        "    if 'mention 15' in [row.mention for row in rows]: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return Links()(rows)\n"
        "link_to_file(mentions_from_list(TEXTS), link, WRITERS['links.jsonl'], Path(sys.argv[1]), JOB)\n"
    )
    target = tmp_path / "links.jsonl"
    command = [sys.executable, "-c", script, str(target)]
    killed = subprocess.run(command, cwd=Path(__file__).parents[2], check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr

    links = Links()
    link_to_file(mentions_from_list(TEXTS), links, WRITERS["links.jsonl"], target, JOB, resume=True)

    assert links.linked == TEXTS[12:]
    assert target.read_bytes() == uninterrupted(WRITERS["links.jsonl"], tmp_path / "whole.jsonl")


def test_links_before_an_unreadable_row_are_kept(tmp_path: Path) -> None:
    def rows() -> Iterator[MentionRow]:
        for text in TEXTS[:10]:
            yield MentionRow(text, {"mention": text})
        raise SapbertError("row 11 is bad")

    with pytest.raises(SapbertError, match="row 11"):
        link_to_file(MentionStream(rows()), Links(), WRITERS["links.csv"], tmp_path / "links.csv", JOB)
    links = Links()
    link_to_file(
        mentions_from_list(TEXTS), links, WRITERS["links.csv"], tmp_path / "links.csv", JOB, resume=True
    )
    assert links.linked == TEXTS[9:]


def test_a_job_can_be_resumed_after_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "links.csv"
    expected = uninterrupted(WRITERS["links.csv"], tmp_path / "whole.csv")
    synced = os.fsync
    calls: list[int] = []

    def full_after_the_first(handle: int) -> None:
        calls.append(handle)
        if len(calls) > 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        synced(handle)

    monkeypatch.setattr(os, "fsync", full_after_the_first)
    with pytest.raises(SapbertError, match=r"run: No space left on device; .* --resume continues the job"):
        link_to_file(mentions_from_list(TEXTS), Links(), WRITERS["links.csv"], target, JOB)
    monkeypatch.setattr(os, "fsync", synced)
    links = Links()
    link_to_file(mentions_from_list(TEXTS), links, WRITERS["links.csv"], target, JOB, resume=True)

    assert links.linked == TEXTS[6:]
    assert target.read_bytes() == expected


@pytest.mark.parametrize("name", WRITERS)
def test_the_file_size_limit_is_reported_by_every_writer(tmp_path: Path, name: str) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, hard))
    try:
        with pytest.raises(SapbertError, match=rf"{name}.run: File too large$"):
            link_to_file(mentions_from_list(TEXTS), Links(), WRITERS[name], tmp_path / name, JOB)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert list(tmp_path.iterdir()) == []


# Errors


def interrupt(target: Path, after: int = 3) -> None:
    with pytest.raises(KeyboardInterrupt):
        link_to_file(mentions_from_list(TEXTS), Links(after), WRITERS["links.csv"], target, JOB)


def test_a_job_is_not_resumed_with_another_input(tmp_path: Path) -> None:
    target = tmp_path / "links.csv"
    interrupt(target)
    for other in (["other", *TEXTS[1:]], TEXTS[:4]):
        with pytest.raises(ConfigError, match="the first 9 mentions of the input have changed"):
            link_to_file(
                mentions_from_list(other),
                Links(),
                WRITERS["links.csv"],
                tmp_path / "links.csv",
                JOB,
                resume=True,
            )


def test_a_job_is_not_resumed_with_other_settings(tmp_path: Path) -> None:
    interrupt(tmp_path / "links.csv")
    with pytest.raises(ConfigError, match=r"other settings: k was 2, now 3"):
        link_to_file(
            mentions_from_list(TEXTS),
            Links(),
            WRITERS["links.csv"],
            tmp_path / "links.csv",
            {**JOB, "k": 3},
            resume=True,
        )


def test_an_interrupted_job_needs_resume_or_overwrite(tmp_path: Path) -> None:
    target = tmp_path / "links.csv"
    interrupt(target)
    with pytest.raises(ArtifactError, match=r"links.csv.run contains an interrupted job; give --resume"):
        link_to_file(mentions_from_list(TEXTS), Links(), WRITERS["links.csv"], target, JOB)

    links = Links()
    link_to_file(mentions_from_list(TEXTS), links, WRITERS["links.csv"], target, JOB, overwrite=True)
    assert links.linked == TEXTS


def test_overwrite_replaces_a_file_when_the_new_one_is_complete(
    tmp_path: Path,
) -> None:
    target = tmp_path / "links.csv"
    target.write_text("old")
    with pytest.raises(ArtifactError, match="exists; choose another name or give --overwrite"):
        link_to_file(mentions_from_list(TEXTS), Links(), WRITERS["links.csv"], target, JOB)
    with pytest.raises(KeyboardInterrupt):
        link_to_file(mentions_from_list(TEXTS), Links(2), WRITERS["links.csv"], target, JOB, overwrite=True)
    assert target.read_text() == "old"


def test_a_job_interrupted_before_the_first_batch_leaves_no_files(tmp_path: Path) -> None:
    interrupt(tmp_path / "links.csv", after=0)
    assert list(tmp_path.iterdir()) == []


def test_two_jobs_cannot_write_the_same_target(tmp_path: Path) -> None:
    target = tmp_path / "links.csv"

    def link_and_start_another(rows: Sequence[MentionRow]) -> list[list[Candidate]]:
        link_to_file(mentions_from_list(TEXTS), Links(), WRITERS["links.csv"], target, JOB, overwrite=True)
        return [[] for _ in rows]

    with pytest.raises(ArtifactError, match="is being written by another process"):
        link_to_file(mentions_from_list(TEXTS), link_and_start_another, WRITERS["links.csv"], target, JOB)


@pytest.mark.parametrize("damage", ["{", "[]", '{"mentions": 3}'])
def test_a_damaged_state_is_refused(tmp_path: Path, damage: str) -> None:
    interrupt(tmp_path / "links.csv")
    (tmp_path / "links.csv.run" / "state.json").write_text(damage)
    with pytest.raises(ArtifactError, match=r"state\.json is damaged"):
        link_to_file(
            mentions_from_list(TEXTS), Links(), WRITERS["links.csv"], tmp_path / "links.csv", JOB, resume=True
        )


@pytest.mark.parametrize("name", WRITERS)
@given(place=st.floats(0, 1, exclude_max=True))
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_flipped_byte_never_changes_the_links(
    tmp_path_factory: pytest.TempPathFactory, name: str, place: float
) -> None:
    folder = tmp_path_factory.mktemp("job")
    with pytest.raises(KeyboardInterrupt):
        link_to_file(mentions_from_list(TEXTS), Links(3), WRITERS[name], folder / name, JOB)
    files = sorted(file for file in (folder / f"{name}.run").iterdir())
    sizes = [file.stat().st_size for file in files]
    at = int(place * sum(sizes))
    damaged = next(number for number in range(len(files)) if at < sum(sizes[: number + 1]))
    content_before = bytearray(files[damaged].read_bytes())
    content_before[at - sum(sizes[:damaged])] ^= 1
    files[damaged].write_bytes(content_before)

    with pytest.raises((ArtifactError, ConfigError)):
        link_to_file(mentions_from_list(TEXTS), Links(), WRITERS[name], folder / name, JOB, resume=True)


def test_links_are_written_by_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a slow linker batches become small, and what is finished is written before much time passes."""
    clock = [0.0]
    monkeypatch.setattr(job, "monotonic", lambda: clock[0])
    monkeypatch.setattr(job, "BATCH", 16)
    monkeypatch.setattr(job, "FIRST_BATCH", 2)
    monkeypatch.setattr(job, "BATCHES_PER_COMMIT", 1000)
    sizes: list[int] = []
    written: list[tuple[float, int]] = []
    save = job._save_state

    def link(rows: Sequence[MentionRow]) -> list[list[Candidate]]:
        sizes.append(len(rows))
        clock[0] += len(rows) * (0.01 if len(sizes) < 3 else 4)
        return Links()(rows)

    def note(folder: Path, state: job.JobState) -> None:
        written.append((clock[0], state.mentions))
        save(folder, state)

    monkeypatch.setattr(job, "_save_state", note)
    link_to_file(mentions_from_list(TEXTS * 3), link, WRITERS["links.csv"], tmp_path / "links.csv", JOB)

    assert sizes[:5] == [2, 8, 16, 1, 1]
    pauses = [after - before for (before, _), (after, _) in pairwise(written)]
    assert max(pauses) <= 24


def test_many_candidates_are_linked_in_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "MAX_CANDIDATES", 4)
    monkeypatch.setattr(job, "BATCHES_PER_COMMIT", 1000)
    commits: list[int] = []
    save = job._save_state

    def note(folder: Path, state: job.JobState) -> None:
        commits.append(state.mentions)
        save(folder, state)

    monkeypatch.setattr(job, "_save_state", note)
    done: list[int] = []
    link_to_file(
        mentions_from_list(TEXTS[:7]),
        Links(),
        WRITERS["links.csv"],
        tmp_path / "links.csv",
        JOB,
        on_linked=done.append,
    )

    assert done == [2, 4, 6, 7]
    assert commits == [2, 4, 6, 7]


def test_truncated_links_are_refused(tmp_path: Path) -> None:
    interrupt(tmp_path / "links.csv")
    (tmp_path / "links.csv.run" / "rows").write_text("short")
    with pytest.raises(ArtifactError, match="links do not match their checksum; give --overwrite"):
        link_to_file(
            mentions_from_list(TEXTS), Links(), WRITERS["links.csv"], tmp_path / "links.csv", JOB, resume=True
        )


# Parquet


def test_parquet_output_keeps_the_types_of_a_parquet_input(tmp_path: Path) -> None:
    row = {"n": 1, "x": [1.5], "mention": "a"}
    typed = ParquetWriter(tuple(row), {"n": pl.Int16, "x": pl.List(pl.Float32), "mention": pl.String})
    for name, writer in (("typed.parquet", typed), ("text.parquet", ParquetWriter(tuple(row), None))):
        link_to_file(MentionStream(iter([MentionRow("a", row)])), Links(), writer, tmp_path / name, JOB)

    assert pl.read_parquet_schema(tmp_path / "typed.parquet") | {} == {
        "n": pl.Int16, "x": pl.List(pl.Float32), "mention": pl.String, "rank": pl.Int32,
        "concept_id": pl.String, "preferred_name": pl.String, "matched_name": pl.String,
        "name_kind": pl.String, "score": pl.Float64, "confidence": pl.Float64, "matched_by": pl.String,
        "rerank_score": pl.Float64,
    }  # fmt: skip
    first = pl.read_parquet(tmp_path / "text.parquet").row(0, named=True)
    assert (first["n"], json.loads(first["x"]), first["concept_id"]) == ("1", [1.5], "x:1")
