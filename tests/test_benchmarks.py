"""Smoke tests of the benchmark scripts."""

from __future__ import annotations

import ast
import hashlib
import importlib
import json
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import polars as pl
import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "benchmarks").rglob("*.py"))
EVERYDAY = ROOT / "benchmarks" / "everyday"
EVERYDAY_KINDS = {"abbreviation", "brand", "form", "language", "lay", "misspelling", "procedure", "shorthand"}
MISSING = ("polars", "typer", "faiss", "xxhash", "pytorch_metric_learning", "scipy")
"""Packages that a GPU machine may lack."""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_name_that_a_benchmark_imports_from_the_package_exists(script: Path) -> None:
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        source = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        # The kernels need Triton.
        if isinstance(node, ast.ImportFrom) and source.startswith("sapbert") and "kernels" not in source:
            module = importlib.import_module(source)
            for name in node.names:
                if not hasattr(module, name.name):
                    importlib.import_module(f"{source}.{name.name}")


def test_the_gpu_benchmark_runs_without_a_gpu_and_on_a_bare_machine(tmp_path: Path) -> None:
    code = (
        "import runpy, sys\n"
        f"sys.modules.update(dict.fromkeys({MISSING!r}))\n"
        f"sys.path.insert(0, {str(ROOT / 'benchmarks')!r})\n"
        f"sys.argv = ['gpu.py', '--smoke', '--out', {str(tmp_path)!r}]\n"
        f"runpy.run_path({str(ROOT / 'benchmarks' / 'gpu.py')!r}, run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

    found = {file.stem: json.loads(file.read_text())["figures"] for file in tmp_path.glob("gpu_*.json")}
    parts = (
        "ceilings",
        "same",
        "step",
        "variants",
        "profile",
        "kernels",
        "resume",
        "encode",
        "search",
        "epoch",
    )
    assert sorted(found) == sorted(f"gpu_{part}" for part in parts)
    for batch in found["gpu_same"]["batches"]:
        assert abs(batch["ours"]["loss"] - batch["fp32"]["loss"]) < 1e-5
        assert batch["ours"]["cosine"] > 0.999
    assert found["gpu_resume"]["largest_difference_resumed"] == 0
    assert found["gpu_search"]["largest_difference_of_scores"] < 1e-5
    assert "stopped_after_steps" not in found["gpu_epoch"]
    assert (tmp_path / "log.txt").read_text().rstrip().endswith("done")


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The module that writes results, to a temporary folder, as if a file had been changed."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = importlib.import_module("results")
    monkeypatch.setattr(module, "FOLDER", tmp_path / "results")
    monkeypatch.setattr(module, "changed_files", lambda _: ["src/sapbert/api.py"])
    monkeypatch.delenv(module.ALLOW_CHANGES, raising=False)
    monkeypatch.setattr(sys, "argv", ["/x/benchmarks/made.py", "--rounds", "3", "--data=/x/y", "../z"])
    tmp_path.joinpath("results").mkdir()
    return module


def test_results_of_changed_code_are_printed_and_not_written(
    results: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=r"made\.json was not written: src/sapbert/api\.py .* are changed"):
        results.write_results("made", {"seconds": 5}, folder=results.FOLDER)

    assert json.loads(capsys.readouterr().out)["figures"] == {"seconds": 5}
    assert list(results.FOLDER.iterdir()) == []


def test_results_of_changed_code_are_written_on_request_or_elsewhere(
    results: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results.write_results("made", {"seconds": 5}, folder=tmp_path)
    monkeypatch.setenv(results.ALLOW_CHANGES, "1")
    results.write_results("made", {"seconds": 5}, folder=results.FOLDER)

    for folder in (tmp_path, results.FOLDER):
        written = json.loads((folder / "made.json").read_text())
        assert written["changed_files"] == 1
        assert written["command"] == ["made.py", "--rounds", "3", "--data=y", "../z"]


def test_only_changed_tracked_files_outside_the_results_count(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    changed_files = runpy.run_path(str(ROOT / "benchmarks" / "results.py"))["changed_files"]
    for name in ("code.py", "benchmarks/results/made.json", "benchmarks/made.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("old")
    git("init")
    git("add", ".")
    git("commit", "-m", "all")
    (tmp_path / "benchmarks" / "results" / "made.json").write_text("new")
    (tmp_path / "untracked.py").write_text("new")
    assert changed_files(tmp_path / "benchmarks") == []

    (tmp_path / "code.py").write_text("new")
    assert changed_files(tmp_path / "benchmarks") == ["code.py"]


@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [
        ("processor\t: 0\nmodel name\t: Xeon\n\nprocessor\t: 1\nmodel name\t: other\n", "Xeon"),
        ("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n", "Neoverse-V2"),
        (
            "processor\t: 0\nCPU implementer\t: 0x61\nCPU part\t: 0x022\n",
            "ARM implementer 0x61 part 0x022",
        ),
        ("", "unknown"),
    ],
)
def test_processors_of_intel_and_arm_are_named(cpuinfo: str, name: str) -> None:
    assert runpy.run_path(str(ROOT / "benchmarks" / "results.py"))["cpu_name"](cpuinfo) == name


@pytest.mark.parametrize("split", ["dev", "test"])
def test_everyday_mentions_are_in_the_split_of_their_hash(split: str) -> None:
    header, *lines = (EVERYDAY / f"{split}.tsv").read_text(encoding="utf-8").splitlines()
    rows = [dict(zip(header.split("\t"), line.split("\t"), strict=True)) for line in lines]
    assert len(rows) > 500
    assert {row["kind"] for row in rows} == EVERYDAY_KINDS
    assert len({(row["mention"], row["lang"]) for row in rows}) == len(rows)
    for row in rows:
        first_byte = hashlib.sha256(row["mention"].lower().encode()).digest()[0]
        assert split == ("test" if first_byte % 2 else "dev"), row
        assert all(identifier.startswith("mesh:") for identifier in row["concept_ids"].split("|")), row


@pytest.mark.shared_data
def test_concepts_of_everyday_mentions_have_the_names_of_mesh(shared_data: Path) -> None:
    files = [
        shared_data / "vocabularies" / f"mesh_{part}.tsv.gz" for part in ("descriptors", "supplementary")
    ]
    columns = ["concept_id", "name", "is_preferred"]
    mesh = pl.concat(
        pl.read_csv(file, separator="\t", quote_char=None, infer_schema=False, columns=columns)
        for file in files
    ).filter(pl.col("is_preferred") == "1")
    names = dict(zip(mesh["concept_id"].str.strip_prefix("MESH:"), mesh["name"], strict=True))
    for split in ("dev", "test"):
        table = pl.read_csv(EVERYDAY / f"{split}.tsv", separator="\t", quote_char=None)
        for identifiers, expected in table.select("concept_ids", "names").iter_rows():
            found = [names[identifier.removeprefix("mesh:")] for identifier in identifiers.split("|")]
            assert found == expected.split("|")
