from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from sapbert.linking.linker import Linker
from sapbert.protocols import Reranker
from tests.cli.conftest import Sapbert, left_in, refused
from tests.index.conftest import NgramEncoder
from tests.linking.conftest import FACTS, ROWS, bench_of


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A path for which `Linker.open` returns a linker in memory."""
    made = bench_of(tmp_path / "bench", ROWS, FACTS, NgramEncoder(256))

    def open_linker(
        path: str,
        *,
        threads: int | None,
        sparse_weight: float | None,
        calibration: Path | None,
        reranker: Reranker | None,
    ) -> Linker:
        assert (path, threads) in ((str(tmp_path / "index"), None), (str(tmp_path / "index"), 1))
        assert (sparse_weight, calibration) == (None, None)
        made.linker.reranker = reranker
        return made.linker

    monkeypatch.setattr(Linker, "open", open_linker)
    return tmp_path / "index"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "table.csv").write_text("id,diagnosis\n7,Heart attack\n8,\n9,hart atack\n")
    return tmp_path / "table.csv"


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def feed(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    stdin = SimpleNamespace(buffer=io.BytesIO(content), isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", stdin)


def test_mentions_given_as_arguments_are_linked_to_csv(sapbert: Sapbert, index: Path) -> None:
    done = sapbert("link", "--index", index, "heart attack", "cold", "-k", 2, "--threads", 1)

    assert (done.code, done.err) == (0, "")
    found = rows(done.out)
    assert [(row["mention"], row["rank"], row["concept_id"], row["matched_by"]) for row in found[:1]] == [
        ("heart attack", "1", "mesh:D1", "exact")
    ]
    assert [row["concept_id"] for row in found[2:]] == ["hp:1", "mesh:D2"]


def test_mentions_come_from_standard_input(
    sapbert: Sapbert, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed(monkeypatch, b"COLD\n\nhart atack\n")
    done = sapbert("link", "--index", index, "--json", "-k", 1)

    found = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 0
    assert [(row["mention"], row["concept_id"]) for row in found] == [
        ("COLD", "hp:1"), ("", "NIL"), ("hart atack", "mesh:D1")
    ]  # fmt: skip


def test_a_column_of_a_table_is_linked_and_all_others_are_copied(
    sapbert: Sapbert, index: Path, table: Path
) -> None:
    done = sapbert("link", "--index", index, "--file", table, "--column", "diagnosis", "-k", 1)

    assert done.code == 0
    assert [(row["id"], row["diagnosis"], row["concept_id"]) for row in rows(done.out)] == [
        ("7", "Heart attack", "mesh:D1"), ("8", "", "NIL"), ("9", "hart atack", "mesh:D1")
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["links.csv", "links.jsonl", "links.parquet", "links.sssom.tsv"])
def test_the_file_name_determines_the_format(
    sapbert: Sapbert, index: Path, table: Path, tmp_path: Path, name: str
) -> None:
    out = tmp_path / "out" / name
    done = sapbert("link", "--index", index, "--file", table, "--column", "diagnosis", "-k", 1, "-o", out)

    assert (done.code, done.out, done.err) == (0, "", f"3 mentions -> {out}\n")
    assert left_in(out.parent) == {name}
    if name == "links.parquet":
        assert pl.read_parquet(out)["concept_id"].to_list() == ["mesh:D1", "NIL", "mesh:D1"]
    elif name == "links.sssom.tsv":
        text = out.read_text()
        assert '#   "hp": "https://bioregistry.io/hp:"\n#   "mesh":' in text
        assert text.count("rdfs literal") == 2
    else:
        assert out.read_text().count("mesh:D1") == 2


def test_a_terminal_gets_a_table(sapbert: Sapbert, index: Path) -> None:
    done = sapbert(
        "link", "--index", index, "heart [b]attack", "zzz", "--format", "table", "--threshold", 0.5
    )

    assert done.code == 0
    assert done.out.split()[:2] == ["mention", "concept_id"]
    assert "confidence" not in done.out
    assert "heart [b]attack" in done.out
    assert "mesh:D1" in done.out
    assert "NIL" in done.out


def test_filters_and_threshold_reach_the_linker(sapbert: Sapbert, index: Path) -> None:
    for options, expected in (
        (("--types", "T184", "--types", "T033"), {"hp:1", "hp:2"}),
        (("--sources", "NCI"), {"mesh:D1"}),
        (("--prefix", "HP"), {"hp:1", "hp:2"}),
        (("--threshold", 1.0), {"NIL"}),
    ):
        done = sapbert("link", "--index", index, "hart atack", *options)
        assert {row["concept_id"] for row in rows(done.out)} == expected
    assert rows(sapbert("link", "--index", index, "cold", "--no-exact").out)[0]["matched_by"] == "dense"


def test_labelled_mentions_match_exactly(sapbert: Sapbert, index: Path, tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("mention\tconcept_ids\nWidowmaker\tD1\nother\tD77\n")
    labelled = ("--mentions", tmp_path / "train.tsv")

    refusal = refused(sapbert("link", "--index", index, "widowmaker", *labelled))
    done = sapbert("link", "--index", index, "widowmaker", *labelled, "--mentions-prefix", "mesh", "-k", 1)

    assert "no mention has a concept of" in refusal
    assert "--mentions-prefix" in refusal
    assert done.err == f"1 of 2 labelled mentions have a concept of {index}\n"
    assert [(row["concept_id"], row["matched_by"]) for row in rows(done.out)] == [("mesh:D1", "exact")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--column", "diagnose"), "did you mean 'diagnosis'?"),
        (("--column", "diagnosis", "--types", "T999"), "T999"),
        (("--column", "diagnosis", "--format", "usagi"), "prefixes hp, mesh"),
    ],
)
def test_impossible_options_are_refused_in_one_line(
    sapbert: Sapbert, index: Path, table: Path, options: tuple[str, ...], message: str
) -> None:
    assert message in refused(sapbert("link", "--index", index, "--file", table, *options))


@pytest.mark.parametrize(
    "options",
    [
        ("a", "--file", "x.csv"),
        ("a", "--resume"),
        ("a", "--overwrite"),
        ("a", "--format", "parquet"),
        ("a", "--format", "csv", "--json"),
        ("a", "-o", "x.tsv"),
        ("a", "-o", "x.csv", "--format", "table"),
        ("a", "-k", "0"),
        ("a", "--threshold", "7"),
    ],
)
def test_wrong_usage_exits_2(sapbert: Sapbert, index: Path, options: tuple[str, ...]) -> None:
    done = sapbert("link", "--index", index, *options)
    assert (done.code, done.out) == (2, "")


def test_an_unknown_suffix_of_the_output_names_the_known_ones(sapbert: Sapbert) -> None:
    error = " ".join(sapbert("link", "cold", "-o", "x.tsv").err.split())

    assert "x.tsv: links are not written as .tsv; use .csv, .jsonl, .parquet, .sssom.tsv or" in error


def test_an_interrupted_job_reports_how_to_resume_and_resumes(
    sapbert: Sapbert, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sapbert.linking import job

    monkeypatch.setattr(job, "BATCH", 2)
    (tmp_path / "m.txt").write_text("cold\nheart attack\nchest pain\n")
    out = tmp_path / "out" / "links.csv"
    command = ("link", "--index", index, "--file", tmp_path / "m.txt", "-o", out, "-k", 1)
    link = Linker.link

    def interrupted(self: Linker, mentions: list[str], **options: Any) -> Any:
        if "chest pain" in mentions:
            raise KeyboardInterrupt
        return link(self, mentions, **options)

    monkeypatch.setattr(Linker, "link", interrupted)
    stopped = sapbert(*command)
    monkeypatch.setattr(Linker, "link", link)
    again = sapbert(*command)
    resumed = sapbert(*command, "--resume")

    assert f"stopped; the finished part is kept in {out}.run; add --resume to continue" in refused(stopped)
    assert "give --resume to continue it or --overwrite to start over" in refused(again)
    assert (resumed.code, resumed.err) == (0, f"3 mentions -> {out}\n")
    assert [row["concept_id"] for row in rows(out.read_text())] == ["hp:1", "mesh:D1", "hp:2"]


def test_a_job_interrupted_before_its_first_link_leaves_nothing(
    sapbert: Sapbert, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Linker, mentions: list[str], **options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Linker, "link", interrupted)

    stopped = sapbert("link", "--index", index, "cold", "-o", tmp_path / "links.csv")

    assert stopped == (130, "", "interrupted; no partial output was left behind\n")
    assert not (tmp_path / "links.csv.run").exists()


@pytest.mark.parametrize("name", ["links.csv", "links.jsonl", "links.parquet"])
def test_resuming_a_finished_job_reports_it_and_changes_nothing(
    sapbert: Sapbert, index: Path, table: Path, tmp_path: Path, name: str
) -> None:
    out = tmp_path / "out" / name
    command = ("link", "--index", index, "--file", table, "--column", "diagnosis", "-o", out)
    assert sapbert(*command).code == 0
    before = (out.read_bytes(), out.stat().st_mtime_ns)

    again = sapbert(*command, "--resume")

    assert again == (0, "", f"{out} is already finished (3 mentions); give --overwrite to link again\n")
    assert (out.read_bytes(), out.stat().st_mtime_ns) == before
    assert left_in(out.parent) == {name}


@pytest.mark.parametrize(
    "other", ["id,diagnosis\n7,Heart attack\n8,\n", "id,diagnosis\n7,cold\n8,\n9,hart atack\n"]
)
def test_a_finished_job_of_other_mentions_is_not_resumed(
    sapbert: Sapbert, index: Path, table: Path, tmp_path: Path, other: str
) -> None:
    out = tmp_path / "links.csv"
    command = ("link", "--index", index, "--file", table, "--column", "diagnosis", "-o", out)
    assert sapbert(*command).code == 0
    table.write_text(other)

    refusal = refused(sapbert(*command, "--resume"))

    assert "links.csv exists and no interrupted job belongs to it" in refusal


def test_one_mention_is_reported_in_the_singular(sapbert: Sapbert, index: Path, tmp_path: Path) -> None:
    done = sapbert("link", "--index", index, "cold", "-o", tmp_path / "links.csv")
    assert done.err == f"1 mention -> {tmp_path / 'links.csv'}\n"


def test_linking_loads_no_torch() -> None:
    script = (
        "import sys; from sapbert import NIL, Candidate, Linker\n"
        "from sapbert.linking import job\n"
        "from sapbert.linking.formats import sssom, text, usagi, writer\n"
        "print(*sorted({'torch', 'transformers', 'polars', 'pandas', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_the_header_of_a_list_is_reported(sapbert: Sapbert, index: Path, tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("chest pain\ncold\n")
    done = sapbert("link", "--index", index, "--file", tmp_path / "list.csv", "-k", 1)

    assert len(rows(done.out)) == 1
    assert "list.csv: the first line is the name of the column, 'chest pain'; if it is a mention" in done.err
