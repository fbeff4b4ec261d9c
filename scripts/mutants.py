"""Put known faults into a copy of the package, one at a time, and count how many the tests find.

    python scripts/mutants.py --sample 20 --seed 3

The faults are listed in `scripts/mutants.toml`, each with the tests that must find it. Ends with status 1 if
tests find a smaller share than `--floor`.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "sapbert"
LIST = Path(__file__).with_name("mutants.toml")
_FAILED = 1
"""Status of pytest if a test failed; errors of collection and usage have others."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault and the tests that must find it."""

    name: str
    file: str
    """Path below the package."""
    before: str
    after: str
    tests: Sequence[str]

    def apply(self, text: str) -> str:
        """Return the source with the fault."""
        if text.count(self.before) != 1:
            raise ValueError(
                f"{self.file} contains {self.before!r} {text.count(self.before)} times, not once"
            )
        return text.replace(self.before, self.after)


def read_mutants(path: Path = LIST) -> list[Mutant]:
    return [Mutant(**entry) for entry in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]]


def fails(tests: Sequence[str], folder: Path) -> bool:
    """Run tests with the copy of the package in `folder`; return whether one fails."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    # Bytecode of the unchanged file could be taken for that of the changed one.
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, _FAILED):
        raise RuntimeError(f"{' '.join(tests)} did not run\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode == _FAILED


def is_found(mutant: Mutant, folder: Path) -> bool:
    """Run the tests of a fault with it; the copy of the package is restored."""
    file = folder / "sapbert" / mutant.file
    text = file.read_text(encoding="utf-8")
    file.write_text(mutant.apply(text), encoding="utf-8")
    try:
        return fails(mutant.tests, folder)
    finally:
        file.write_text(text, encoding="utf-8")


def copy_package(folder: Path) -> None:
    """Copy the package to `folder`; the bundled files are linked."""
    shutil.copytree(SOURCE, folder / "sapbert", ignore=shutil.ignore_patterns("__pycache__", "defaults"))
    (folder / "sapbert" / "defaults").symlink_to(SOURCE / "defaults")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sample", type=int, help="number of faults, drawn at random; all by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--floor", type=float, default=0.85, help="smallest share that must be found")
    parser.add_argument("--only", default="", help="only faults whose name or file contains this text")
    options = parser.parse_args(arguments)
    mutants = [each for each in read_mutants() if options.only in f"{each.name} {each.file}"]
    if options.sample is not None:
        mutants = random.Random(options.seed).sample(mutants, min(options.sample, len(mutants)))
    found = 0
    with tempfile.TemporaryDirectory() as folder:
        copy_package(Path(folder))
        tests = list(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
        if tests and fails(tests, Path(folder)):
            sys.exit("the tests fail without any fault; mend that first")
        for mutant in mutants:
            caught = is_found(mutant, Path(folder))
            found += caught
            print(f"{'found ' if caught else 'MISSED'}  {mutant.name}", flush=True)
    share = found / len(mutants) if mutants else 1.0
    print(f"{found} of {len(mutants)} faults found ({share:.0%}); the floor is {options.floor:.0%}")
    return int(share < options.floor)


if __name__ == "__main__":
    sys.exit(main())
