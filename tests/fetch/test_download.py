from __future__ import annotations

import base64
import errno
import hashlib
import shutil
import socket
from pathlib import Path
from typing import Any, Self

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sapbert.errors import SapbertError
from sapbert.fetch import download as module
from sapbert.fetch.download import FAILURES, Fetched, download
from tests.conftest import SyncedFiles
from tests.fetch.conftest import CONTENT, Server


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "vocabularies" / "hp.obo"


def fetch(server: Server, target: Path) -> Fetched:
    return download(server.address, target, pause=lambda _seconds: None)


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def partial(target: Path) -> Path:
    return target.with_name(f".{target.name}.partial")


def ranges(server: Server) -> list[str | None]:
    return [request.get("Range") for request in server.requests]


def test_a_file_is_downloaded_and_described(server: Server, target: Path) -> None:
    sizes: list[tuple[int, int]] = []
    progress: list[tuple[str, int, int]] = []

    found = download(
        server.address,
        target,
        on_size=lambda size, here: sizes.append((size, here)),
        progress=lambda name, done, total: progress.append((name, done, total)),
    )

    assert target.read_bytes() == CONTENT
    assert found == Fetched(target, len(CONTENT), hashlib.sha256(CONTENT).hexdigest(), True, False)
    assert visible(target.parent) == ["hp.obo"]
    assert sizes == [(len(CONTENT), 0)]
    assert progress[-1] == ("hp.obo", len(CONTENT), len(CONTENT))


def test_a_downloaded_file_is_synced(server: Server, target: Path, synced: SyncedFiles) -> None:
    fetch(server, target)

    assert target in synced


def test_a_broken_connection_is_resumed(server: Server, target: Path) -> None:
    server.cuts = [300_000, 100_000]

    fetch(server, target)

    assert target.read_bytes() == CONTENT
    assert ranges(server) == [None, "bytes=300000-", "bytes=400000-"]
    assert {request.get("If-Range") for request in server.requests} == {None, server.etag}


def test_only_consecutive_failures_without_data_count(server: Server, target: Path) -> None:
    dead = [0] * (FAILURES - 2)
    server.cuts = [50_000, *dead, 50_000, *dead]
    pauses: list[float] = []

    download(server.address, target, pause=pauses.append)

    assert target.read_bytes() == CONTENT
    assert pauses == [2.0**number for number in range(1, FAILURES)] * 2


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cuts=st.lists(st.integers(1, 400_000), max_size=FAILURES - 1),
    behaviour=st.tuples(st.booleans(), st.booleans()),
)
def test_the_file_is_complete_for_any_interruptions_and_server_features(
    server: Server, target: Path, cuts: list[int], behaviour: tuple[bool, bool]
) -> None:
    server.cuts = list(cuts)
    server.ranges, server.validators = behaviour
    shutil.rmtree(target.parent, ignore_errors=True)

    fetch(server, target)

    assert target.read_bytes() == CONTENT
    assert not partial(target).exists()


def test_the_download_of_a_killed_process_is_resumed(server: Server, target: Path) -> None:
    server.cuts = [700_000]

    def killed(_seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(server.address, target, pause=killed)
    assert not target.exists()
    sizes: list[tuple[int, int]] = []

    download(server.address, target, on_size=lambda size, here: sizes.append((size, here)))

    assert target.read_bytes() == CONTENT
    assert sizes == [(len(CONTENT), 700_000)]


def test_a_kill_at_the_last_moment_costs_nothing(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_verify", killed)
    with pytest.raises(KeyboardInterrupt):
        fetch(server, target)
    monkeypatch.undo()

    fetch(server, target)

    assert target.read_bytes() == CONTENT
    assert ranges(server) == [None, f"bytes={len(CONTENT)}-"]


def test_a_server_without_ranges_sends_all_again(server: Server, target: Path) -> None:
    server.ranges = False
    server.cuts = [500_000]

    fetch(server, target)

    assert target.read_bytes() == CONTENT


def test_without_a_version_the_download_restarts(server: Server, target: Path) -> None:
    server.validators = False
    server.cuts = [500_000]

    fetch(server, target)

    assert target.read_bytes() == CONTENT
    assert ranges(server) == [None, None]


@pytest.mark.parametrize("if_range", [True, False])
def test_a_file_that_changed_meanwhile_is_downloaded_from_the_start(
    server: Server, target: Path, if_range: bool
) -> None:
    server.if_range = if_range
    server.cuts = [500_000]

    def change(_seconds: float) -> None:
        server.content = b"new " * 200_000

    download(server.address, target, pause=change)

    assert target.read_bytes() == b"new " * 200_000


def test_a_file_that_became_shorter_is_downloaded_from_the_start(server: Server, target: Path) -> None:
    server.if_range = False
    server.cuts = [500_000]

    def change(_seconds: float) -> None:
        server.content = b"short"

    download(server.address, target, pause=change)

    assert target.read_bytes() == b"short"


def test_a_file_of_unknown_size_is_downloaded(server: Server, target: Path) -> None:
    server.length = False

    fetch(server, target)

    assert target.read_bytes() == CONTENT


def test_a_weak_etag_does_not_allow_resuming(server: Server, target: Path) -> None:
    server.validators = False
    server.headers = {"ETag": 'W/"like that"'}
    server.cuts = [500_000]

    fetch(server, target)

    assert ranges(server) == [None, None]
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize(
    "headers",
    [
        {"Repr-Digest": f"sha-256=:{base64.b64encode(hashlib.sha256(CONTENT).digest()).decode()}:"},
        {"x-goog-hash": f"crc32c=AAAAAA==,md5={base64.b64encode(hashlib.md5(CONTENT).digest()).decode()}"},
    ],
)
def test_a_published_checksum_is_compared(server: Server, target: Path, headers: dict[str, str]) -> None:
    server.headers = headers
    server.cuts = [500_000]

    assert fetch(server, target).checked


@pytest.mark.parametrize(
    "headers",
    [
        {"Repr-Digest": f"sha-256=:{base64.b64encode(hashlib.sha256(b'other').digest()).decode()}:"},
        {"x-goog-hash": f"md5={base64.b64encode(hashlib.md5(b'other').digest()).decode()}"},
    ],
)
def test_a_wrong_checksum_deletes_the_download_and_keeps_the_old_file(
    server: Server, target: Path, headers: dict[str, str]
) -> None:
    target.parent.mkdir()
    target.write_bytes(b"older")
    server.headers = headers

    with pytest.raises(
        SapbertError, match=r"its (sha256|md5) is [0-9a-f]+, but the server published [0-9a-f]+"
    ) as error:
        fetch(server, target)

    assert "\n" not in str(error.value)
    assert target.read_bytes() == b"older"
    assert not partial(target).exists()


def test_an_existing_file_is_downloaded_again_only_if_it_changed(server: Server, target: Path) -> None:
    assert fetch(server, target).new

    assert not fetch(server, target).new
    server.content = b"changed"
    assert fetch(server, target).new

    assert target.read_bytes() == b"changed"
    assert [request.get("If-None-Match") is None for request in server.requests] == [True, False, False]


def test_a_file_from_another_address_is_replaced(server: Server, target: Path) -> None:
    server.cuts = [500_000]

    def killed(_seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(server.address, target, pause=killed)

    download(server.address + "?v=2", target)

    assert ranges(server) == [None, None]


@pytest.mark.parametrize("code", [403, 404, 410])
def test_a_missing_file_is_an_error_without_retries(server: Server, target: Path, code: int) -> None:
    server.codes = [code]

    with pytest.raises(SapbertError, match=rf"hp\.obo: the server responded {code} .*; has the file moved\?"):
        fetch(server, target)

    assert len(server.requests) == 1
    assert visible(target.parent) == []


def test_a_busy_server_is_retried_with_growing_pauses(server: Server, target: Path) -> None:
    server.codes = [503, 500]
    pauses: list[float] = []

    download(server.address, target, pause=pauses.append)

    assert target.read_bytes() == CONTENT
    assert pauses == [2, 4]


def test_after_repeated_failures_the_partial_download_is_kept(server: Server, target: Path) -> None:
    server.cuts = [500_000]
    server.codes = []

    def down(_seconds: float) -> None:
        server.codes = [503]

    with pytest.raises(SapbertError, match=rf"\({FAILURES} attempts failed\); 500,000 bytes are kept"):
        download(server.address, target, pause=down)

    fetch(server, target)
    assert target.read_bytes() == CONTENT
    assert ranges(server)[-1] == "bytes=500000-"


def test_an_unreachable_server_is_an_error_that_names_the_older_copy(target: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    target.parent.mkdir()
    target.write_bytes(b"older")

    with pytest.raises(SapbertError, match=r"refused \(4 attempts failed\); an older copy is at .*hp\.obo"):
        download(f"http://127.0.0.1:{port}/hp.obo", target, pause=lambda _seconds: None)


def test_a_full_disk_is_explained_and_the_download_can_be_resumed(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        """A file that takes a piece and no more."""

        def __init__(self, path: Path) -> None:
            self._file = open(path, "ab")
            self._room = 1

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()

        def write(self, piece: bytes) -> None:
            if not self._room:
                raise OSError(errno.ENOSPC, "No space left on device")
            self._room -= 1
            self._file.write(piece)

    def opened(path: Path, mode: str = "r") -> Any:
        return Full(path) if mode == "ab" else open(path, mode)

    monkeypatch.setattr(module, "open", opened, raising=False)
    with pytest.raises(SapbertError, match="No space left on device; make room"):
        fetch(server, target)
    monkeypatch.undo()

    fetch(server, target)

    assert target.read_bytes() == CONTENT
    assert ranges(server) == [None, "bytes=262144-"]


def test_only_http_addresses_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")

    with pytest.raises(SapbertError, match="only http and https"):
        download(f"file://{tmp_path / 'secret'}", tmp_path / "copy")


def test_two_processes_do_not_write_one_file(server: Server, target: Path) -> None:
    target.parent.mkdir()
    with module._locked(target), pytest.raises(SapbertError, match="being downloaded by another process"):
        fetch(server, target)


@pytest.mark.parametrize("damage", ["", "{", "[1]", '{"address": 3}'])
def test_a_damaged_version_record_only_causes_a_new_download(
    server: Server, target: Path, damage: str
) -> None:
    server.cuts = [500_000]

    def killed(_seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(server.address, target, pause=killed)
    target.with_name(".hp.obo.partial.json").write_text(damage)

    fetch(server, target)

    assert target.read_bytes() == CONTENT
