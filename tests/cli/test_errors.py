from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sapbert.artifacts import load_manifest
from tests.cli.conftest import META, Sapbert, left_in, refused
from tests.conftest import GOLDEN


def test_an_option_without_effect_for_the_source_is_refused(
    sapbert: Sapbert, vocabulary: Path, pairs: Path, tmp_path: Path
) -> None:
    for arguments, option in (
        ((vocabulary, "--prefix", "mesh"), "--prefix"),
        ((pairs, "--limit", "3"), "--limit"),
        ((pairs, "--languages", "any"), "--languages"),
    ):
        done = sapbert("pairs", *arguments, "-o", tmp_path / "out")
        assert done.code == 1
        assert f"{option} has no effect here" in done.err
        assert not (tmp_path / "out").exists()


def test_a_missing_path_is_one_line(sapbert: Sapbert, tmp_path: Path) -> None:
    nowhere, out = tmp_path / "nowhere", tmp_path / "out"
    for kind in ("umls", "rxnorm", "obo", "snomed", "mesh", "omop", "table"):
        assert f"{nowhere}: no such file" in refused(sapbert("read", kind, nowhere, "-o", out))
    for command in (("show", nowhere), ("pairs", nowhere, "-o", out), ("merge", nowhere, "-o", out)):
        assert f"{nowhere}: no such file" in refused(sapbert(*command))
    assert left_in(tmp_path) == set()


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("umls", META / "MRSTY.RRF"),
        ("rxnorm", META),
        ("obo", META / "MRSTY.RRF"),
        ("snomed", META),
        ("mesh", GOLDEN / "obo" / "ifo.owl"),
        ("omop", META),
        ("table", META / "MRSTY.RRF"),
    ],
)
def test_the_wrong_kind_of_file_is_one_line_and_leaves_nothing(
    sapbert: Sapbert, tmp_path: Path, kind: str, path: Path
) -> None:
    refused(sapbert("read", kind, path, "-o", tmp_path / "out"))

    assert left_in(tmp_path) == set()


def test_an_existing_output_is_kept_without_overwrite(sapbert: Sapbert, vocabulary: Path) -> None:
    before = load_manifest(vocabulary)

    error = refused(sapbert("read", "umls", META, "--language", "es", "-o", vocabulary))

    assert error == f"sapbert: {vocabulary} exists; choose another name or give --overwrite\n"
    assert load_manifest(vocabulary) == before
    assert sapbert("read", "umls", META, "--language", "es", "-o", vocabulary, "--overwrite").code == 0
    assert load_manifest(vocabulary).fingerprint != before.fingerprint


def test_a_folder_that_is_no_artifact_is_never_replaced(sapbert: Sapbert, tmp_path: Path) -> None:
    precious = tmp_path / "photos"
    precious.mkdir()
    (precious / "cat.jpg").touch()

    assert "is not an artifact" in refused(sapbert("read", "umls", META, "-o", precious, "--overwrite"))
    assert left_in(precious) == {"cat.jpg"}


def test_a_damaged_artifact_is_refused_everywhere(sapbert: Sapbert, vocabulary: Path, tmp_path: Path) -> None:
    part = next((vocabulary / "names").iterdir())
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)

    for command in (
        ("show", vocabulary),
        ("show", vocabulary, "umls:C9000001"),
        ("pairs", vocabulary, "-o", tmp_path / "out"),
        ("merge", vocabulary, "-o", tmp_path / "out"),
    ):
        assert f"{vocabulary} is damaged: names/" in refused(sapbert(*command))
    assert left_in(tmp_path) == {"vocabulary"}


@pytest.mark.parametrize("what", ["umls:C0000000", "no such name", "", ":", "a:b:c"])
def test_an_unknown_concept_is_one_line(sapbert: Sapbert, vocabulary: Path, what: str) -> None:
    error = refused(sapbert("show", vocabulary, what))

    assert error.startswith(f"sapbert: {vocabulary}: no concept has the id or name {what!r}; names must")
    assert error.endswith("; for similar names use `sapbert link`\n")


def test_pairs_have_no_concepts_to_show(sapbert: Sapbert, pairs: Path) -> None:
    assert "is a folder of pairs, not a vocabulary; make one with `sapbert read`" in refused(
        sapbert("show", pairs, "umls:C9000001")
    )


def test_mentions_need_a_vocabulary(sapbert: Sapbert, pairs: Path, tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("mention\tconcept_ids\nglimmers\tumls:C9000001\n")
    (tmp_path / "pairs.txt").write_text("x:1||a||b\n")

    for source in (pairs, tmp_path / "pairs.txt"):
        done = sapbert("pairs", source, "--mentions", tmp_path / "train.tsv", "-o", tmp_path / "out")
        assert "--mentions needs a vocabulary" in refused(done)
    assert not (tmp_path / "out").exists()


def test_an_operating_system_error_is_one_line(sapbert: Sapbert, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    error = refused(sapbert("read", "umls", META, "-o", tmp_path / "file" / "out"))

    assert str(tmp_path / "file") in error


def test_bad_rows_stop_reading_or_are_skipped_and_reported(sapbert: Sapbert, tmp_path: Path) -> None:
    (tmp_path / "META").mkdir()
    damaged = Path(shutil.copy(META / "MRCONSO.RRF", tmp_path / "META"))
    with open(damaged, "a") as file:
        file.write("C9000009|ENG|cut off\n")

    error = refused(sapbert("read", "umls", damaged, "-o", tmp_path / "out"))
    skipped = sapbert("read", "umls", damaged, "--on-error", "skip", "-o", tmp_path / "out")

    assert error == "sapbert: MRCONSO.RRF:25: expected 18 columns, found 3 (is this MRCONSO.RRF?)\n"
    assert (skipped.code, skipped.out) == (0, "")
    assert skipped.err.startswith("skipped: MRCONSO.RRF:25: expected 18 columns, found 3")
    assert "bad rows skipped" in skipped.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["read", "nonsense"],
        ["read", "umls"],
        ["read", "umls", "somewhere"],
        ["read", "umls", "somewhere", "-o", "out", "--nonsense"],
        ["read", "umls", "somewhere", "-o", "out", "--on-error", "cry"],
        ["pairs", "somewhere", "-o", "out", "--limit", "0"],
        ["pairs", "somewhere", "-o", "out", "--seed", "-1"],
        ["pairs", "somewhere", "-o", "out", "--languages", "some"],
        ["merge", "-o", "out"],
        ["show"],
        ["sweep", "somewhere", "--base", "bert", "-o", "out"],
        ["plot", "nonsense"],
        ["plot", "similarities", "somewhere", "-o", "figure.png"],
    ],
)
def test_wrong_usage_exits_2(sapbert: Sapbert, arguments: list[str]) -> None:
    done = sapbert(*arguments)

    assert (done.code, done.out) == (2, "")
    assert "Usage: " in done.err


def test_every_command_has_help(sapbert: Sapbert) -> None:
    kinds = [["read", kind] for kind in ("umls", "rxnorm", "obo", "snomed", "mesh", "omop", "table")]
    for arguments in (
        [],
        ["read"],
        *kinds,
        ["merge"],
        ["pairs"],
        ["sweep"],
        ["show"],
        ["plot", "similarities"],
    ):
        done = sapbert(*arguments, "--help")
        assert (done.code, done.err) == (0, "")
        assert "Usage: " in done.out
