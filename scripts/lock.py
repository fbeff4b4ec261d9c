"""Write the lock files: every package that make and the Docker image install, pinned, with hashes.

    python scripts/lock.py [--upgrade]

Needs uv. The files cover all platforms and Python versions, by markers. Versions already in a lock file are
kept unless `--upgrade` is given or pyproject.toml no longer allows them.

torch and its GPU packages are left out of the hashed files: its CPU and CUDA builds have the same version
but different files and dependencies. `requirements/torch.txt` pins its version alone.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "requirements"
HEADER = "# Written by scripts/lock.py; do not edit.\n"
GPU_PACKAGE = re.compile(r"^(cuda-|nvidia-|torch==|triton==)")
COMPILE = ("uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--generate-hashes")
LOCKS = {
    "run.txt": (),
    "serve.txt": ("--extra", "serve", "--extra", "hybrid"),
    "dev.txt": ("--all-extras", "--group", "dev", "--constraint", FOLDER / "torch.txt"),
}
"""By file: `make run`, the Docker image, `make test`."""


def main() -> None:
    upgrade = ["--upgrade"] if "--upgrade" in sys.argv[1:] else []
    for name, options in LOCKS.items():
        target = FOLDER / name
        command = [*COMPILE, "--no-header", "--no-annotate", *options, *upgrade]
        subprocess.run([*command, ROOT / "pyproject.toml", "--output-file", target], check=True, cwd=ROOT)
        target.write_text(HEADER + without_gpu_packages(target.read_text()))


def without_gpu_packages(lock: str) -> str:
    """Drop the entries of torch and of the packages that only its CUDA build needs."""
    entries = re.split(r"^(?=\S)", lock, flags=re.MULTILINE)
    return "".join(entry for entry in entries if not GPU_PACKAGE.match(entry) and not entry.startswith("#"))


if __name__ == "__main__":
    main()
