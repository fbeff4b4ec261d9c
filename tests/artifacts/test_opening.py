from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapbert import artifacts
from sapbert.artifacts import FORMAT, MANIFEST, create, load_manifest
from sapbert.errors import ArtifactError
from tests.artifacts.conftest import FILES, FULL, change_manifest, failing, fill


def flipped(whole: bytes, position: int) -> bytes:
    return whole[:position] + bytes([whole[position] ^ (1 << position % 8)]) + whole[position + 1 :]


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_in_any_byte_of_a_file_is_detected(artifact: Path, name: str) -> None:
    whole = (artifact / name).read_bytes()
    for position in range(len(whole)):
        (artifact / name).write_bytes(flipped(whole, position))
        with pytest.raises(ArtifactError, match=f"damaged: {name} does not match its checksum"):
            load_manifest(artifact)
        assert load_manifest(artifact, verify=False).kind == "invented"


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_size_is_detected_without_reading_it(
    artifact: Path, name: str, verify: bool
) -> None:
    whole = (artifact / name).read_bytes()
    for damaged in (whole[:-1], b"", whole + b"\0"):
        (artifact / name).write_bytes(damaged)
        problem = f"damaged: {name} has {len(damaged)} bytes instead of {len(whole)}"
        with pytest.raises(ArtifactError, match=problem):
            load_manifest(artifact, verify=verify)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_detected(artifact: Path, name: str, verify: bool) -> None:
    (artifact / name).unlink()
    with pytest.raises(ArtifactError, match=f"damaged: {name} is missing"):
        load_manifest(artifact, verify=verify)
    (artifact / name).mkdir()
    with pytest.raises(ArtifactError, match=f"damaged: {name} is missing"):
        load_manifest(artifact, verify=verify)


def test_a_truncated_manifest_is_refused(artifact: Path) -> None:
    whole = (artifact / MANIFEST).read_bytes()
    for length in range(len(whole) - 1):
        (artifact / MANIFEST).write_bytes(whole[:length])
        with pytest.raises(ArtifactError, match=r"manifest\.json is damaged: "):
            load_manifest(artifact)


def test_a_flipped_bit_in_any_byte_of_the_manifest_is_detected(artifact: Path) -> None:
    whole = (artifact / MANIFEST).read_bytes()
    for position in range(len(whole)):
        (artifact / MANIFEST).write_bytes(flipped(whole, position))
        with pytest.raises(ArtifactError, match=str(artifact)):
            load_manifest(artifact, verify=False)


@pytest.mark.parametrize("garbage", [{"unknown": 1}, {"kind": "other"}, {"files": {}}, {"checksum": None}])
def test_a_manifest_with_a_changed_or_unknown_entry_is_refused(
    artifact: Path, garbage: dict[str, object]
) -> None:
    change_manifest(artifact, **garbage)
    with pytest.raises(ArtifactError, match=r"manifest\.json is damaged: it does not match its own checksum"):
        load_manifest(artifact)


def test_a_manifest_followed_by_garbage_is_refused(artifact: Path) -> None:
    with open(artifact / MANIFEST, "a") as file:
        file.write("{}")
    with pytest.raises(ArtifactError, match=r"manifest\.json is damaged: Extra data: line"):
        load_manifest(artifact)


def test_a_manifest_without_an_entry_says_which(artifact: Path) -> None:
    (artifact / MANIFEST).write_text("{}")
    with pytest.raises(ArtifactError, match=r"manifest\.json is damaged: no 'format'; make the artifact"):
        load_manifest(artifact)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
near_manifests = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("format", "files", "kind", "checksum"), json_values)
)


@given(json_values | near_manifests)
def test_a_manifest_of_any_other_content_is_refused(content: object) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / MANIFEST).write_text(json.dumps(content))
        with pytest.raises(ArtifactError, match=folder):
            load_manifest(Path(folder))


def test_another_kind_is_refused_with_both_named(artifact: Path) -> None:
    with pytest.raises(
        ArtifactError, match="is an invented, not a folder of pairs; make one with `sapbert pairs`"
    ):
        load_manifest(artifact, kind="pairs")
    assert load_manifest(artifact).kind == "invented"


def test_a_newer_format_asks_for_an_upgrade(artifact: Path) -> None:
    (artifact / MANIFEST).write_text(json.dumps({"format": FORMAT + 1, "sapbert": "99.0", "new": "idea"}))
    with pytest.raises(ArtifactError, match=rf"sapbert 99\.0 in format {FORMAT + 1}; .* upgrade it"):
        load_manifest(artifact)


def test_without_xxhash_sha256_detects_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "_ALGORITHMS", {"sha256": hashlib.sha256})
    with create(tmp_path / "bare") as draft:
        fill(draft.path, "new")
        draft.seal("invented", settings={}, inputs={}, counts={})
    monkeypatch.undo()

    assert load_manifest(tmp_path / "bare").files[FILES[0]].digest.startswith("sha256:")
    (tmp_path / "bare" / FILES[0]).write_bytes(flipped((tmp_path / "bare" / FILES[0]).read_bytes(), 0))
    with pytest.raises(ArtifactError, match=f"{FILES[0]} does not match its checksum"):
        load_manifest(tmp_path / "bare")


def test_without_xxhash_an_artifact_that_has_its_digests_opens(
    artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_manifest(artifact).files[FILES[0]].digest.startswith("xxh3:")
    monkeypatch.setattr(artifacts, "_ALGORITHMS", {"sha256": hashlib.sha256})
    assert load_manifest(artifact).kind == "invented"
    (artifact / FILES[0]).write_bytes(b"")
    with pytest.raises(ArtifactError, match="has 0 bytes instead of"):
        load_manifest(artifact)


def test_an_artifact_of_an_older_format_must_be_made_again(artifact: Path) -> None:
    change_manifest(artifact, format=FORMAT - 1)
    with pytest.raises(ArtifactError, match="written by an older sapbert; make it again"):
        load_manifest(artifact)


def write_while_the_disk_fails(target: Path) -> None:
    with create(target) as draft:
        fill(draft.path, "new")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", failing(FULL))
            draft.sync_in_background(draft.path / FILES[0])
            with suppress(OSError):
                draft.wait_for_syncs()
        draft.seal("invented", settings={}, inputs={}, counts={})


def test_a_failed_background_sync_is_an_error(tmp_path: Path) -> None:
    """A system tells of such an error once, so that asking again at the end would miss it."""
    with pytest.raises(OSError) as caught:
        write_while_the_disk_fails(tmp_path / "artifact")
    assert caught.value is FULL
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="nowhere: no such file or directory; expected a folder"):
        load_manifest(tmp_path / "nowhere")
    with pytest.raises(ArtifactError, match=r"is not a folder written by sapbert \(no manifest\.json\)$"):
        load_manifest(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match=r"by `sapbert index` \(no manifest\.json\)$"):
        load_manifest(tmp_path / "file", kind="index")
    with pytest.raises(ArtifactError, match=r"; read a table with `sapbert read table`$"):
        load_manifest(tmp_path / "file", kind="vocabulary")
