from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sapbert import __version__
from sapbert.artifacts import load_manifest
from sapbert.pairs.artifact import Pairs
from tests.cli.conftest import EXAMPLE, META, SNOMED, Done, Sapbert, left_in, one_json, refused
from tests.conftest import GOLDEN

KINDS: list[tuple[str, Path, list[str]]] = [
    ("umls", META, ["--language", "en", "--language", "es", "--source", "MSH", "--source", "SCTSPA"]),
    ("umls", META / "MRCONSO.RRF", ["--language", "all", "--keep-suppressed", "--no-tradenames"]),
    ("rxnorm", GOLDEN / "rxnorm", ["--source", "RXNORM", "--keep-suppressed", "--no-tradenames"]),
    ("obo", GOLDEN / "obo" / "ifo.obo", ["--scope", "exact", "--scope", "broad"]),
    ("obo", GOLDEN / "obo" / "ifo.json", []),
    ("obo", GOLDEN / "obo" / "ifo.owl", []),
    ("snomed", SNOMED, ["--language", "en"]),
    ("mesh", GOLDEN / "mesh", ["--level", "concept", "--keep-permuted"]),
    ("omop", GOLDEN / "omop", ["--keep-invalid"]),
    ("table", EXAMPLE, []),
    ("table", GOLDEN / "table" / "raw.txt", ["--format", "biosyn", "--source", "house", "--language", "en"]),
]


# Every command and kind


@pytest.mark.parametrize(("kind", "path", "options"), KINDS)
def test_every_kind_of_vocabulary_is_read_shown_and_paired(
    sapbert: Sapbert, tmp_path: Path, kind: str, path: Path, options: list[str]
) -> None:
    read = sapbert("read", kind, path, *options, "-o", tmp_path / "out" / "vocabulary")
    shown = sapbert("show", tmp_path / "out" / "vocabulary")
    paired = sapbert("pairs", tmp_path / "out" / "vocabulary", "-o", tmp_path / "out" / "pairs")

    assert (read.code, read.out) == (0, "")
    assert read.err.startswith(f"vocabulary -> {tmp_path / 'out' / 'vocabulary'}\n")
    assert (shown.code, shown.err) == (0, "")
    assert "kind" in shown.out
    assert kind in shown.out
    assert (paired.code, paired.out) == (0, "")
    assert left_in(tmp_path / "out") == {"vocabulary", "pairs"}


def test_the_options_of_a_kind_reach_its_reader(sapbert: Sapbert, tmp_path: Path) -> None:
    kind, path, options = KINDS[0]

    manifest = one_json(sapbert("read", kind, path, *options, "-o", tmp_path / "out", "--json"))

    assert manifest["settings"] == {
        "kind": "umls",
        "languages": ["en", "es"],
        "sources": ["MSH", "SCTSPA"],
        "keep_suppressed": False,
        "tradenames": True,
    }


def test_every_option_of_a_kind_has_the_default_of_its_reader(sapbert: Sapbert, tmp_path: Path) -> None:
    from dataclasses import asdict

    from sapbert.vocab.readers.settings import (
        MeshSettings,
        OboSettings,
        OmopSettings,
        RrfSettings,
        SnomedSettings,
        TableSettings,
    )

    for kind, path, settings in (
        ("umls", META, RrfSettings()),
        ("rxnorm", GOLDEN / "rxnorm", RrfSettings()),
        ("obo", GOLDEN / "obo" / "ifo.obo", OboSettings()),
        ("snomed", SNOMED, SnomedSettings()),
        ("mesh", GOLDEN / "mesh", MeshSettings()),
        ("omop", GOLDEN / "omop", OmopSettings()),
        ("table", EXAMPLE, TableSettings()),
    ):
        found = one_json(sapbert("read", kind, path, "-o", tmp_path / kind, "--json"))["settings"]
        expected = json.loads(json.dumps(asdict(settings)))
        assert found == {"kind": kind, **expected}


def test_vocabularies_are_merged_and_found_by_all_their_identifiers(
    sapbert: Sapbert, vocabulary: Path, tmp_path: Path
) -> None:
    sapbert("read", "rxnorm", GOLDEN / "rxnorm", "-o", tmp_path / "rxnorm")
    (tmp_path / "xrefs.tsv").write_text("concept_id\txref\numls:C9000002\trxnorm:9002\n")

    merged = sapbert(
        "merge", vocabulary, tmp_path / "rxnorm", "--xrefs", tmp_path / "xrefs.tsv", "-o", tmp_path / "merged"
    )

    assert (merged.code, merged.out) == (0, "")
    assert "joined concepts with 2 members: 1" in merged.err
    [concept] = one_json(sapbert("show", tmp_path / "merged", "RXCUI:9002", "--json"))
    assert concept["concept_id"] == "umls:C9000002"
    assert {"Bravolinum", "ANTIBRAVOL"} < {name["text"] for name in concept["names"]}


def test_merging_without_cross_references_reports_that_nothing_was_joined(
    sapbert: Sapbert, vocabulary: Path, tmp_path: Path
) -> None:
    merged = sapbert("merge", vocabulary, "-o", tmp_path / "merged")
    assert merged.code == 0
    assert "no concepts were joined" in merged.err


def test_pairs_convert_to_text_and_back(sapbert: Sapbert, pairs: Path, tmp_path: Path) -> None:
    written = sapbert("pairs", pairs, "-o", tmp_path / "pairs.txt")
    again = sapbert("pairs", tmp_path / "pairs.txt", "-o", tmp_path / "again")

    number = len(Pairs.open(pairs))
    assert (written.code, written.out) == (0, "")
    assert written.err == f"{number} pairs -> {tmp_path / 'pairs.txt'}\n"
    assert (again.code, again.out) == (0, "")
    assert (
        len((tmp_path / "pairs.txt").read_text().splitlines())
        == number
        == len(Pairs.open(tmp_path / "again"))
    )


def test_pairs_that_the_text_format_cannot_hold_are_reported(sapbert: Sapbert, tmp_path: Path) -> None:
    (tmp_path / "names.tsv").write_text("id\tname\nx:1\ta||b\nx:1\tc\nx:1\td\n")
    sapbert("read", "table", tmp_path / "names.tsv", "-o", tmp_path / "vocabulary")
    sapbert("pairs", tmp_path / "vocabulary", "-o", tmp_path / "pairs")

    written = sapbert("pairs", tmp_path / "pairs", "-o", tmp_path / "pairs.txt")

    assert written.code == 0
    assert "2 pairs omitted: a name contains ||" in written.err


def test_bare_identifiers_in_a_text_need_a_prefix(sapbert: Sapbert, tmp_path: Path) -> None:
    (tmp_path / "pairs.txt").write_text("C1||a||b\n")

    assert "(give --prefix)" in refused(sapbert("pairs", tmp_path / "pairs.txt", "-o", tmp_path / "p"))
    assert sapbert("pairs", tmp_path / "pairs.txt", "-o", tmp_path / "p", "--prefix", "umls").code == 0


def test_mentions_are_paired(sapbert: Sapbert, vocabulary: Path, tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("mention\tconcept_ids\nglimmers\tC9000101\nwhat\tC1\n")

    done = sapbert(
        "pairs",
        vocabulary,
        "--mentions",
        tmp_path / "train.tsv",
        "--prefix",
        "umls",
        "-o",
        tmp_path / "p",
        "--json",
    )

    assert one_json(done)["counts"]["pairs"] == 3
    assert one_json(done)["counts"]["mentions without a known concept"] == 1


def test_limit_seed_languages_and_weights_reach_the_settings(sapbert: Sapbert, tmp_path: Path) -> None:
    sapbert("read", "umls", META, "--language", "all", "-o", tmp_path / "v")

    def draw(*options: object) -> Any:
        return one_json(
            sapbert("pairs", tmp_path / "v", "-o", tmp_path / "p", "--overwrite", "--json", *options)
        )

    few, other = draw("--limit", 1), draw("--limit", 1, "--seed", 4)
    across = draw("--languages", "across", "--weight", "MSH=2", "--weight", "SCTSPA=0.5")
    assert few["counts"]["pairs"] < draw()["counts"]["pairs"]
    assert few["fingerprint"] != other["fingerprint"]
    assert across["settings"] == {
        "limit": 50, "seed": 33, "languages": "across", "weights": {"MSH": 2.0, "SCTSPA": 0.5}
    }  # fmt: skip


# sapbert show


def test_a_vocabulary_is_shown_with_counts_settings_inputs_and_types(
    sapbert: Sapbert, vocabulary: Path
) -> None:
    shown = sapbert("show", vocabulary)

    assert shown.code == 0
    manifest = load_manifest(vocabulary)
    lines = [" ".join(line.split()) for line in shown.out.splitlines()]
    assert lines[0] == f"{vocabulary}: vocabulary {manifest.fingerprint}"
    for line in (
        "concepts 6",
        "suppressed rows dropped 4",
        "tradenames True",
        "keep_suppressed False",
        "en 24",
    ):
        assert line in lines
    assert "Disease or Syndrome (T047) 1" in lines
    assert any(line.startswith("input MRCONSO.RRF: bytes 2274, xxh3 ") for line in lines)


def test_pairs_are_shown_with_examples(sapbert: Sapbert, pairs: Path) -> None:
    shown = sapbert("show", pairs)

    assert shown.code == 0
    assert shown.out.startswith(f"{pairs}: pairs ")
    examples = shown.out[shown.out.index("examples") :].splitlines()[1:]
    assert len(examples) == 5
    assert examples[0].startswith("  umls:C9000001  ")
    assert all(" = " in example for example in examples)


@pytest.mark.parametrize(
    "what", ["umls:C9000001", "UMLS:C9000001", "cui:C9000101", "glimmer FEVER", "  Shimmering  fever "]
)
def test_a_concept_is_found_by_its_id_an_alias_or_a_name_in_any_case(
    sapbert: Sapbert, vocabulary: Path, what: str
) -> None:
    shown = sapbert("show", vocabulary, what)

    assert (shown.code, shown.err) == (0, "")
    assert shown.out.splitlines() == [
        "umls:C9000001  Glimmer fever",
        "  type Disease or Syndrome (T047)",
        "  type Sign or Symptom (T184)",
        "  Glimmer fever  (en, MTH, preferred)",
        "  Fever, glimmering  (en, SNOMEDCT_US, exact)",
        "  Glimmer Fever  (en, MSH, exact)",
        "  Shimmering fever  (en, SNOMEDCT_US, exact)",
        "  also umls:C9000101 umls:C9000102",
    ]


def test_every_concept_of_an_ambiguous_name_is_shown(sapbert: Sapbert, vocabulary: Path) -> None:
    found = one_json(sapbert("show", vocabulary, "NOLEXA", "--json"))

    assert [concept["concept_id"] for concept in found] == ["umls:C9000002", "umls:C9000004"]


# Output for programs


def test_json_is_the_manifest_and_all_of_standard_output(
    sapbert: Sapbert, vocabulary: Path, pairs: Path, tmp_path: Path
) -> None:
    made = {
        "read": ("read", "umls", META, "-o", tmp_path / "read"),
        "merge": ("merge", vocabulary, "-o", tmp_path / "merge"),
        "draw": ("pairs", vocabulary, "-o", tmp_path / "draw"),
    }
    for target, command in made.items():
        manifest = one_json(sapbert(*command, "--json"))
        assert manifest["fingerprint"] == load_manifest(tmp_path / target).fingerprint

    assert one_json(sapbert("show", pairs, "--json"))["kind"] == "pairs"
    text = one_json(sapbert("pairs", pairs, "-o", tmp_path / "pairs.txt", "--json"))
    assert text == {"pairs": len(Pairs.open(pairs)), "pairs left out": 0}
    assert (
        one_json(sapbert("pairs", tmp_path / "pairs.txt", "-o", tmp_path / "t", "--json"))["kind"] == "pairs"
    )


def test_the_version_is_printed(sapbert: Sapbert) -> None:
    assert sapbert("--version") == Done(0, f"sapbert {__version__}\n", "")


def test_help_describes_every_command_in_a_complete_sentence(sapbert: Sapbert) -> None:
    lines = sapbert("--help").out.partition("Commands:\n")[2].splitlines()
    assert lines
    assert [line for line in lines if line and (not line.endswith(".") or line.endswith("..."))] == []


# Inputs are not overwritten


@pytest.mark.parametrize(
    "call",
    [
        "merge other IT -o IT",
        "merge other --xrefs IT -o IT",
        "pairs IT -o IT",
        "train IT --base base -o IT",
        "train pairs --base IT -o IT",
        "biosyn IT --mentions train.tsv --base base -o IT",
        "biosyn vocabulary --mentions IT --base base -o IT",
        "biosyn vocabulary --mentions train.tsv --base IT -o IT",
        "reranker IT --mentions train.tsv --base base -o IT",
        "reranker index --mentions IT --base base -o IT",
        "reranker index --mentions train.tsv --base IT -o IT",
        "export IT -o IT",
        "index IT --model default -o IT",
        "index vocabulary --model IT -o IT",
        "link --file IT --format csv -o IT",
        "calibrate index IT -o IT",
    ],
)
def test_an_output_never_replaces_an_input(sapbert: Sapbert, tmp_path: Path, call: str) -> None:
    read = tmp_path / "read"
    read.write_text("x")
    (tmp_path / "also").symlink_to(read)
    words = [{"IT": str(read)}.get(word, word) for word in call.split()]

    for out in (read, tmp_path / "also"):
        done = sapbert(*words[:-1], out, "--overwrite")
        assert refused(done) == f"sapbert: {out} is an input; choose another output path\n"
    assert read.read_text() == "x"
