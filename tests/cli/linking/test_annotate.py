from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sapbert.annotation import job
from sapbert.annotation.annotator import Annotator
from sapbert.annotation.settings import AnnotateSettings
from tests.annotation.conftest import MakeAnnotator, annotator_of
from tests.cli.conftest import Sapbert, left_in, refused

__all__ = ["annotator_of"]


@pytest.fixture(autouse=True)
def index(annotator_of: MakeAnnotator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `Annotator.open` return an annotator in memory."""

    def open_annotator(path: str, settings: AnnotateSettings, *, threads: int | None) -> Annotator:
        made = annotator_of()
        return Annotator(made.linker, made.lexicon, settings)

    monkeypatch.setattr(Annotator, "open", open_annotator)


def test_texts_are_annotated_to_csv(sapbert: Sapbert) -> None:
    done = sapbert("annotate", "No fever.", "Breast cancer", "--no-nested")

    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert [(row["document_id"], row["start"], row["concept_id"]) for row in rows] == [
        ("1", "3", "mesh:D3"),
        ("2", "0", "mesh:D1"),
    ]


def test_standard_input_is_one_text(sapbert: Sapbert, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = SimpleNamespace(buffer=io.BytesIO(b"chills\nfever"), isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", stdin)

    [line] = sapbert("annotate", "--json").out.splitlines()
    assert json.loads(line)["annotations"][0]["start"] == 7


def test_an_interrupted_job_is_resumed(
    sapbert: Sapbert, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"fever {number}" for number in range(40)]
    table, out = tmp_path / "notes.csv", tmp_path / "found.jsonl"
    table.write_text("text\n" + "\n".join(texts))
    monkeypatch.setattr(job, "BATCH", 2)
    whole = tmp_path / "whole.jsonl"
    assert sapbert("annotate", "--file", table, "-o", whole).code == 0
    annotate, calls = Annotator.annotate, iter([*[False] * 10, True])

    def interrupted(self: Annotator, batch: list[str]) -> object:
        if next(calls, False):
            raise KeyboardInterrupt
        return annotate(self, batch)

    monkeypatch.setattr(Annotator, "annotate", interrupted)
    assert "add --resume" in refused(sapbert("annotate", "--file", table, "-o", out))
    assert "--resume" in refused(sapbert("annotate", "--file", table, "-o", out))
    assert sapbert("annotate", "--file", table, "-o", out, "--resume").code == 0
    assert out.read_bytes() == whole.read_bytes()
    assert len(out.read_text().splitlines()) == 40
    assert left_in(tmp_path) == {"notes.csv", "found.jsonl", "whole.jsonl"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["x", "--file", "a.csv"], "give texts or --file"),
        (["x", "-o", "a.docx"], "not written as .docx"),
        (["x", "--resume"], "need --out"),
        (["x", "-o", "a.csv", "--format", "table"], "for the terminal"),
        (["x", "--json", "--format", "csv"], "not both"),
    ],
)
def test_wrong_usage_is_explained(sapbert: Sapbert, arguments: list[str], message: str) -> None:
    done = sapbert("annotate", *arguments)
    assert done.code == 2
    assert message in " ".join(done.err.split())
