"""Record what the command line does, and compare two recordings: before and after a refactoring.

    python scripts/compare_behaviour.py record before.json.gz --source ../before/src --data shared/data --old
    python scripts/compare_behaviour.py record after.json.gz --source src --data shared/data
    python scripts/compare_behaviour.py compare before.json.gz after.json.gz

No module of sapbert is imported, because modules may move: every command runs in its own process. Data,
exit codes and the number of lines of an error are compared. The wording of messages, times, versions and
paths are not, and floats may differ by 1e-6. Intended renames are declared in the two tables below.

A recording contains complete rows instead of digests, so that differences can be shown. Without `--data` only
the small files in `tests/golden` and `examples` are used.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl

RENAMED_COLUMNS = {
    "how": "matched_by",
    # Column titles of the table on a terminal.
    "concept": "concept_id",
    "preferred name": "preferred_name",
    "matched name": "matched_name",
    "rerank score": "rerank_score",
}
"""Old → new name of a column or JSON key, on every surface; `compare` applies it to the first recording."""
RENAMED_OPTIONS: dict[str, str] = {}
"""Old → new, such as {"link --prefix": "link --prefixes"}. Commands in `compare_behaviour.txt` use the new
names; `record --old` replaces them by the old ones."""

ROOT = Path(__file__).parents[1]
COMMANDS = Path(__file__).with_suffix(".txt")
WORKERS = 2
"""Commands that run at the same time; most use one core."""
TOLERANCE = 1e-6
SHOWN = 5
"""Differences printed per command; further ones are only counted."""
VOLATILE = {"created", "sapbert", "checksum", "version", "path", "seconds"}
REQUESTS: tuple[tuple[str, Any], ...] = (
    ("/v1/link", {"mentions": ["heart attack", "HCQ", "", "high blood sugar"], "k": 3}),
    ("/v1/link", {"mentions": ["cold"], "types": ["C"], "threshold": 0.8, "exact": False}),
    ("/v1/link", {"mentions": ["cold"], "k": True}),
    ("/v1/link", {"mention": "cold"}),
    ("/v1/map", {"mention": "heart attack", "names": 10}),
    ("/v1/concepts/mesh:D009203", None),
    ("/v1/concepts/mesh:nope", None),
    ("/v1/search?prefix=heart%20att", None),
    ("/v1/version", None),
    ("/v1/nope", None),
    ("/v1/health", None),
    ("/reconcile", None),
    ("/reconcile?queries=%7B%22q0%22%3A%7B%22query%22%3A%22heart+attack%22%7D%7D", None),
)
PYTHON = "import sapbert; print(sapbert.link('heart attack')); print(sapbert.link('HCQ', k=1))"


class Program:
    """The command line of one source tree, run in one folder."""

    def __init__(self, source: Path, folder: Path, *, old: bool) -> None:
        self.folder = folder
        self._old = {new: before for before, new in RENAMED_OPTIONS.items()} if old else {}
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SAPBERT_")},
            "PYTHONPATH": str(source.resolve()),
            "SAPBERT_HOME": str(folder / "home"),
            "HF_HUB_OFFLINE": "1",
            "COLUMNS": "200",
        }

    def spelled(self, arguments: list[str]) -> list[str]:
        """Return the arguments, with the old names of options for an old source tree."""
        verb = verb_of(arguments)
        return [self._old.get(f"{verb} {word}", word).split()[-1] if word[:1] == "-" else word
                for word in arguments]  # fmt: skip

    def run(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run Python with the source tree."""
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=self._environment, input=stdin, capture_output=True, check=False
        )

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a command that does not end by itself."""
        command = [sys.executable, "-m", "sapbert", *arguments]
        quiet = subprocess.DEVNULL
        return subprocess.Popen(
            command, cwd=self.folder, env=self._environment, stdout=quiet, stderr=quiet, stdin=quiet
        )

    def record(self, command: str, places: Mapping[str, str]) -> dict[str, Any]:
        """Run one line of the list of commands; return everything that is compared."""
        command, _, stdin = command.partition(" < ")
        arguments = [word.format_map(places) for word in shlex.split(command)]
        text = (self.folder / stdin.format_map(places)).read_bytes() if stdin else b""
        done = self.run("-m", "sapbert", *self.spelled(arguments), stdin=text)
        found = outcome(done) | printed(arguments, done.stdout.decode(errors="replace"))
        if "-o" in arguments:
            found["written"] = content(self.folder / arguments[arguments.index("-o") + 1])
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    verbs = parser.add_subparsers(required=True, dest="verb")
    record = verbs.add_parser("record")
    record.add_argument("out", type=Path, help="recording to write: .json.gz")
    record.add_argument("--source", type=Path, required=True, help="folder that contains `sapbert`")
    record.add_argument("--data", type=Path, help="real vocabularies and benchmarks")
    record.add_argument("--old", action="store_true", help="the source tree uses the old names of options")
    compare = verbs.add_parser("compare")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    compare.add_argument("--no-renames", action="store_true", help="for two recordings of one source")
    options = parser.parse_args()
    if options.verb == "compare":
        if options.no_renames:
            RENAMED_COLUMNS.clear()
            RENAMED_OPTIONS.clear()
        sys.exit(print_differences(read_recording(options.before), read_recording(options.after)))
    if not (options.source / "sapbert").is_dir():
        sys.exit(f"{options.source} contains no folder `sapbert`")
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        program = Program(options.source, Path(folder), old=options.old)
        recording = record_all(program, options.data and options.data.resolve())
    with gzip.open(options.out, "wt", encoding="utf-8") as file:
        json.dump(recording, file, ensure_ascii=False)
    print(f"{len(recording)} commands and requests in {time.perf_counter() - start:.0f} s -> {options.out}")


# Recording


def record_all(program: Program, data: Path | None) -> dict[str, Any]:
    # In the folder of this script. Imported here, because tests load this module from elsewhere to compare.
    from behaviour_inputs import prepare

    prepare(program.folder, data)
    places = {"golden": str(ROOT / "tests/golden"), "examples": str(ROOT / "examples"), "data": str(data)}
    recording: dict[str, Any] = {}
    with ThreadPoolExecutor(WORKERS) as pool:
        for title, commands in stages(COMMANDS.read_text(encoding="utf-8")):
            if data is None and "real" in title:
                continue
            print(f"{title}: {len(commands)}", flush=True)
            found = pool.map(lambda command: program.record(command, places), commands)
            recording |= dict(zip(commands, found, strict=True))
    python = program.run("-c", PYTHON)
    recording["python"] = outcome(python) | {"lines": python.stdout.decode().splitlines()}
    return recording | dict(service_answers(program))


def stages(text: str) -> list[tuple[str, list[str]]]:
    """Split the list of commands at its `# title` lines; commands of a stage are independent."""
    found: list[tuple[str, list[str]]] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("# "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def verb_of(arguments: list[str]) -> str:
    """Return the command: one word, or two such as `read obo`."""
    words = arguments[: 2 if arguments[:1] == ["read"] else 1]
    return " ".join(word for word in words if not word.startswith("-"))


def outcome(done: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    """Exit code, number of lines of an error message, and whether there is a traceback."""
    lines = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
    traceback = any(line.startswith("Traceback") for line in lines)
    return {
        "exit": done.returncode,
        "error lines": len(lines) if done.returncode else 0,
        "traceback": traceback,
    }


def printed(arguments: list[str], text: str) -> dict[str, Any]:
    """The data in standard output, without wording: JSON, links, figures, names of options."""
    if "--help" in arguments:
        names = set(re.findall(r"(?:^ {2}|/ |, )(--[a-z][a-z-]*)", text, re.MULTILINE))
        return {"options": sorted(f"{verb_of(arguments)} {name}" for name in names)}
    if not text:
        return {}
    kind = arguments[arguments.index("--format") + 1] if "--format" in arguments else ""
    if kind == "table":
        return {"printed": aligned_table(text)}
    if kind == "sssom":
        return {"printed": sssom_table(text)}
    if "--json" in arguments or kind == "jsonl":
        return {"printed": [without_volatile(json.loads(line)) for line in text.splitlines()]}
    if arguments[:1] == ["link"]:
        return {"printed": table(csv.DictReader(text.splitlines(keepends=True)))}
    if arguments[:1] in (["compare"], ["errors"], ["evaluate"]):
        return {"numbers": re.findall(r"(?<![\w.])\d[\d,]*(?:\.\d+)?", text)}
    return {}


def content(path: Path) -> Any:
    """What a command wrote: the identity of an artifact, or the rows of a file."""
    if path.is_dir():
        return artifact(path)
    if not path.is_file():
        return None
    if path.suffix == ".parquet":
        return table(pl.read_parquet(path).iter_rows(named=True))
    if path.suffix in (".txt", ".html"):
        # Pages consist of wording; text in the format of the reference code must be identical.
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.suffix == ".txt" else "a page"
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return without_volatile(json.loads(text))
    if path.suffix == ".jsonl":
        return table(map(json.loads, text.splitlines()))
    if path.name.endswith(".sssom.tsv"):
        return sssom_table(text)
    return table(csv.DictReader(text.splitlines(keepends=True)))


def artifact(path: Path) -> dict[str, Any]:
    manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    found = identity(manifest)
    if manifest["kind"] == "evaluation":
        # The fingerprint depends on files whose columns may be renamed.
        del found["fingerprint"]
        found |= {name: content(path / name) for name in manifest["files"]}
    return found


def identity(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What identifies an artifact. Only the values of counts, because their names are wording."""
    return {
        "kind": manifest["kind"],
        "fingerprint": manifest["fingerprint"],
        "counts": list(manifest["counts"].values()),
        "files": sorted(manifest["files"]),
    }


def table(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    found = [dict(row) for row in rows]
    return {"columns": list(found[0]) if found else [], "rows": json.loads(json.dumps(found, default=str))}


def sssom_table(text: str) -> dict[str, Any]:
    lines = text.splitlines(keepends=True)
    head = [line.strip() for line in lines if line.startswith("#") and "_version" not in line]
    body = csv.DictReader((line for line in lines if not line.startswith("#")), delimiter="\t")
    return {"head": head, **table(body)}


def aligned_table(text: str) -> dict[str, Any]:
    """Parse a table with aligned columns."""
    header, *lines = text.splitlines() or [""]
    titles = list(re.finditer(r"\S+(?: \S+)*", header))
    ends = [title.start() for title in titles[1:]] + [None]
    cells = [(title.group(), title.start(), end) for title, end in zip(titles, ends, strict=False)]
    return table({name: line[start:end].strip() for name, start, end in cells} for line in lines)


def without_volatile(value: Any) -> Any:
    """Remove the parts of a JSON value that differ between runs."""
    if isinstance(value, dict) and {"kind", "fingerprint", "counts", "files"} <= value.keys():
        return identity(value)
    if isinstance(value, dict):
        return {name: without_volatile(part) for name, part in value.items() if name not in VOLATILE}
    return [without_volatile(part) for part in value] if isinstance(value, list) else value


def service_answers(program: Program) -> Iterator[tuple[str, Any]]:
    """Start the service, send requests, and stop it. Of an error only the status is compared."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = program.start("serve", "--port", str(port))
    try:
        for _ in range(300):
            with suppress(urllib.error.URLError):
                if send_request(port, "/v1/ready")["status"] == 200:
                    break
            time.sleep(0.2)
        for path, body in REQUESTS:
            yield f"serve {path} {json.dumps(body)}", send_request(port, path, body)
    finally:
        process.terminate()
        stopped = process.wait(30)
    yield "serve", {"exit": stopped}


def send_request(port: int, path: str, body: Any = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    message = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers)
    try:
        with urllib.request.urlopen(message, timeout=60) as answer:  # noqa: S310  # our own service
            text = answer.read().decode().replace(f":{port}", "")
            return {"status": answer.status, "answer": without_volatile(json.loads(text))}
    except urllib.error.HTTPError as error:
        return {"status": error.code}


# Comparing


def read_recording(path: Path) -> dict[str, Any]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


def print_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> int:
    """Print what differs, by command; return the exit code."""
    differing = 0
    for name in dict.fromkeys([*before, *after]):
        if name not in before or name not in after:
            found = [f"only in the {'first' if name in before else 'second'} recording"]
        else:
            found = list(differences(renamed(before[name]), after[name]))
        differing += bool(found)
        for line in [name, *found[:SHOWN]] if found else []:
            print(line if line is name else f"    {line}")
        if len(found) > SHOWN:
            print(f"    and {len(found) - SHOWN:,} more")
    print(f"{differing} of {len(before.keys() | after.keys())} commands and requests differ")
    return int(differing > 0)


def renamed(value: Any) -> Any:
    """Give columns, JSON keys and options of the first recording the names they have in the second."""
    if isinstance(value, dict):
        new = {RENAMED_COLUMNS.get(name, name): renamed(part) for name, part in value.items()}
        if "columns" in new and "rows" in new:
            new["columns"] = [RENAMED_COLUMNS.get(name, name) for name in new["columns"]]
        if "options" in new:
            new["options"] = sorted(RENAMED_OPTIONS.get(name, name) for name in new["options"])
        return new
    return [renamed(part) for part in value] if isinstance(value, list) else value


def differences(before: Any, after: Any, where: str = "") -> Iterator[str]:
    """Yield a line for each value that differs."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys([*before, *after]):
            missing = [side for side, values in (("before", before), ("after", after)) if name not in values]
            if missing:
                yield f"{where}/{name}: missing {missing[0]}"
            else:
                yield from differences(before[name], after[name], f"{where}/{name}")
    elif isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            yield f"{where}: {len(before)} -> {len(after)} items"
        for number, (old, new) in enumerate(zip(before, after, strict=False), 1):
            yield from differences(old, new, f"{where}/{number}")
    elif not is_same(before, after):
        yield f"{where}: {before!r} -> {after!r}"


def is_same(before: Any, after: Any) -> bool:
    """Compare two values; numbers, also as text, may differ by the tolerance."""
    if before == after:
        return True
    try:
        return abs(float(before) - float(after)) <= TOLERANCE
    except (TypeError, ValueError):
        return False


if __name__ == "__main__":
    main()
