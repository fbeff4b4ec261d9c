"""Build the wheel, install it alone into a new environment, and link as a first user does.

    python scripts/check_wheel.py OUT

The environment gets the locked dependencies of `pip install sapbert` and nothing else, so a dependency that
only the tests install is missing here. The wheel must stay below 80 MB; a cold link is timed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

MAX_BYTES = 80e6
ROOT = Path(__file__).parents[1]
LINK = ["-m", "sapbert", "link", "heart attack", "HCQ", "high blood sugar", "-k", "1", "--format", "table"]
PYTHON = "import sapbert; print(sapbert.link('heart attack'))"
ABSENT = "import importlib.util as u; assert not any(map(u.find_spec, ('torch', 'transformers', 'scipy')))"


def main() -> None:
    out = Path(sys.argv[1]).resolve()
    shutil.rmtree(out / "wheel", ignore_errors=True)
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", out / "wheel", ROOT)
    [wheel] = (out / "wheel").glob("*.whl")
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")
    if wheel.stat().st_size > MAX_BYTES:
        sys.exit(f"the wheel is larger than {MAX_BYTES / 1e6:.0f} MB")
    venv.create(out / "wheel" / "venv", with_pip=True)
    python = out / "wheel" / "venv" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--no-deps"]
    run(*install, "--require-hashes", "--requirement", ROOT / "requirements" / "run.txt")
    run(*install, wheel)
    run(python, "-m", "pip", "check")
    run(python, "-c", ABSENT)
    for arguments in (LINK, ["-c", PYTHON]):
        start = time.perf_counter()
        run(python, *arguments)
        print(f"{time.perf_counter() - start:.1f} s")


def run(*command: object) -> None:
    # Not in the repository: its sources would be imported instead of the installed package.
    subprocess.run([str(part) for part in command], check=True, cwd=Path(sys.executable).anchor)


if __name__ == "__main__":
    main()
