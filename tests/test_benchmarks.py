"""Smoke tests of the benchmark scripts."""

from __future__ import annotations

import ast
import hashlib
import importlib
import json
import subprocess
import sys
from pathlib import Path

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
