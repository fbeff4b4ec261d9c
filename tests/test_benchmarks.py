"""Smoke tests of the benchmark scripts."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "benchmarks").rglob("*.py"))
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
