"""Kill commands, damage artifacts and mutate inputs at random, and count what goes wrong.

    python scripts/torture.py WORK --kills 100 --damages 1000 --inputs 20000

Every trial is drawn from the seed and its number, and its outcome is appended to `WORK/trials.jsonl`; the
same command continues an interrupted campaign. Violations are:

- kills (SIGKILL at a random time): the output can be opened but differs, a rerun fails or gives another
  result, or files are left over after the rerun;
- damages (a flipped bit, zeros, truncation, deletion): another result, or an error that is not ours;
- inputs (mutated files of `tests/golden`): an error that is not ours.

Ends with status 1 if there is any. Needs no network and no GPU.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

from sapbert.artifacts import load_manifest
from sapbert.errors import SapbertError

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"
FETCH = (
    "import sys; from pathlib import Path; from sapbert.fetch.download import download; "
    "download(sys.argv[1], Path(sys.argv[2]))"
)
INPUTS = (
    ("umls", "umls"), ("rxnorm", "rxnorm"), ("snomed", "snomed"), ("mesh", "mesh"), ("omop", "omop"),
    ("obo", "obo/ifo.obo"), ("obo", "obo/ifo.owl"), ("obo", "obo/ifo.json"), ("table", "table"),
)  # fmt: skip


class Command(NamedTuple):
    """A command to kill."""

    arguments: list[str]
    output: str
    again: list[str]
    """Arguments to add when the command is repeated."""


class Campaign:
    """Runs trials and records their outcomes."""

    def __init__(self, work: Path, seed: int) -> None:
        work.mkdir(parents=True, exist_ok=True)
        self.work, self.seed = work, seed
        self._log = work / "trials.jsonl"
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        self.outcomes = {row["trial"]: row["outcome"] for row in map(json.loads, lines)}

    def trial(self, part: str, number: int, run: Callable[[random.Random, Path], str]) -> None:
        """Run a trial unless its outcome is known."""
        name = f"{part} {number}"
        if name in self.outcomes:
            return
        place = self.work / "trial"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        self.outcomes[name] = run(random.Random(f"{self.seed} {name}"), place)
        with open(self._log, "a") as file:
            file.write(json.dumps({"trial": name, "outcome": self.outcomes[name]}) + "\n")

    def report(self) -> dict[str, Any]:
        """Count outcomes by part, and list the violations."""
        counts: dict[str, Counter[str]] = {}
        for trial, outcome in self.outcomes.items():
            counts.setdefault(trial.rpartition(" ")[0], Counter())[outcome.partition(":")[0]] += 1
        violations = {t: o for t, o in self.outcomes.items() if o.startswith("VIOLATION")}
        return {
            "seed": self.seed,
            "outcomes": {part: dict(c) for part, c in counts.items()},
            "violations": violations,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("work", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=2, help="Per command.")
    parser.add_argument("--damages", type=int, default=100, help="Over all kinds of artifacts.")
    parser.add_argument("--inputs", type=int, default=300, help="Over all readers.")
    parser.add_argument("--out", type=Path, help="JSON report to write.")
    arguments = parser.parse_args()
    campaign = Campaign(arguments.work.resolve(), arguments.seed)
    made = _prepare(campaign.work / "made")
    with _served(made) as address:
        for part, command in _commands(made, address).items():
            _kill_trials(campaign, part, command, arguments.kills)
    users = list(_users(made).items())
    for number in range(arguments.damages):
        kind, (artifact, use) = users[number % len(users)]
        campaign.trial(f"damage {kind}", number, partial(_damage, artifact, use))
    for number in range(arguments.inputs):
        kind, source = INPUTS[number % len(INPUTS)]
        campaign.trial(f"input {source}", number, partial(_mutate, kind, GOLDEN / source))
    report = campaign.report()
    print(json.dumps(report, indent=2))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(report, indent=2) + "\n")
    sys.exit(1 if report["violations"] else 0)


def _prepare(made: Path) -> Path:
    """Make the artifacts that the trials use."""
    made.mkdir(exist_ok=True)
    rows = [f"x:{n // 3}\tinvented {['fever', 'cough', 'ache'][n % 3]} {n // 3}" for n in range(600)]
    (made / "names.tsv").write_text("id\tname\n" + "\n".join(rows) + "\n")
    (made / "mentions.txt").write_text("".join(f"invnted cough {n}\n" for n in range(100)))
    (made / "large.bin").write_bytes(random.Random(0).randbytes(1 << 24))
    for command in (
        "read table names.tsv -o vocabulary",
        "read obo OBO -o ontology",
        "pairs vocabulary -o pairs",
        "index vocabulary --model default -o index",
    ):
        words = command.replace("OBO", str(GOLDEN / "obo" / "ifo.obo")).split()
        if not (made / words[-1]).exists():
            subprocess.run(
                [sys.executable, "-m", "sapbert", *words], cwd=made, check=True, capture_output=True
            )
    return made


def _commands(made: Path, address: str) -> dict[str, Command]:
    sapbert = [sys.executable, "-m", "sapbert"]
    again = ["--overwrite"]
    return {
        "read": Command([*sapbert, "read", "table", f"{made}/names.tsv", "-o", "out"], "out", again),
        "merge": Command(
            [*sapbert, "merge", f"{made}/vocabulary", f"{made}/ontology", "-o", "out"], "out", again
        ),
        "pairs": Command([*sapbert, "pairs", f"{made}/vocabulary", "-o", "out"], "out", again),
        "index": Command(
            [*sapbert, "index", f"{made}/vocabulary", "--model", "default", "-o", "out"], "out", again
        ),
        "link": Command(
            [*sapbert, "link", "--index", f"{made}/index", "--file", f"{made}/mentions.txt", "-o", "out.csv"],
            "out.csv",
            again,
        ),
        "fetch": Command([sys.executable, "-c", FETCH, f"{address}/large.bin", "out.bin"], "out.bin", []),
    }


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_arguments: object) -> None:
            """Print nothing."""

        def copyfile(self, source: Any, outputfile: Any) -> None:
            with suppress(ConnectionError):  # the client was killed
                super().copyfile(source, outputfile)

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def _kill_trials(campaign: Campaign, part: str, command: Command, trials: int) -> None:
    if all(f"kill {part} {number}" in campaign.outcomes for number in range(trials)):
        return
    whole = campaign.work / "whole"
    shutil.rmtree(whole, ignore_errors=True)
    whole.mkdir()
    start = time.monotonic()
    subprocess.run(command.arguments, cwd=whole, check=True, capture_output=True)
    seconds, expected = time.monotonic() - start, _content(whole / command.output)
    for number in range(trials):
        campaign.trial(f"kill {part}", number, partial(_kill, command, seconds, expected))


def _kill(command: Command, seconds: float, expected: str, choice: random.Random, place: Path) -> str:
    process = subprocess.Popen(
        command.arguments, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    with suppress(subprocess.TimeoutExpired):
        process.wait(choice.uniform(0.1, 1.0) * seconds)
    process.kill()
    killed = process.wait() < 0
    output = place / command.output
    with suppress(FileNotFoundError):
        if _content(output) != expected:
            return "VIOLATION: the output of a killed command differs"
    rerun = subprocess.run(
        [*command.arguments, *command.again], cwd=place, capture_output=True, text=True, check=False
    )
    if rerun.returncode or _content(output) != expected:
        return f"VIOLATION: rerun: {rerun.stderr[-300:]}"
    # An empty folder of a writer killed at its first step is removed after a minute.
    left = [p.name for p in place.iterdir() if p != output and not p.name.endswith(".json") and _size(p)]
    return f"VIOLATION: left over: {left}" if left else "killed" if killed else "finished"


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in (path, *path.rglob("*")) if file.is_file())


def _content(path: Path) -> str:
    """Return a digest of a file, or the fingerprint of an artifact after all files were verified."""
    if path.is_dir():
        return load_manifest(path).fingerprint
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _users(made: Path) -> dict[str, tuple[Path, Callable[[Path], object]]]:
    """Return for each kind an artifact and a function that opens it and returns what it contains."""
    from sapbert.linking.linker import Linker
    from sapbert.pairs.artifact import Pairs
    from sapbert.vocab.vocabulary import Vocabulary

    def link(path: Path) -> object:
        return Linker.open(path, threads=1).link(["invented cough", "fver 7"], k=3)

    def vocabulary(path: Path) -> object:
        return Vocabulary.open(path).names.collect().rows()

    def pairs(path: Path) -> object:
        opened = Pairs.open(path)
        return opened.pairs.tolist(), opened.names.span(0, len(opened.names))

    return {
        "index": (made / "index", link),
        "vocabulary": (made / "vocabulary", vocabulary),
        "pairs": (made / "pairs", pairs),
    }


def _damage(artifact: Path, use: Callable[[Path], object], choice: random.Random, place: Path) -> str:
    copy = place / "artifact"
    shutil.copytree(artifact, copy)
    expected = use(copy)
    file = choice.choice(sorted(path for path in copy.rglob("*") if path.is_file() and path.stat().st_size))
    content = bytearray(file.read_bytes())
    at = choice.randrange(len(content))
    damage = choice.choice(("flip", "zeros", "truncate", "delete"))
    if damage == "flip":
        content[at] ^= 1 << choice.randrange(8)
    elif damage == "zeros":
        content[at : at + 64] = bytes(len(content[at : at + 64]))
    elif damage == "truncate":
        del content[at:]
    file.write_bytes(content)
    if damage == "delete":
        file.unlink()
    where = f"{damage} {file.relative_to(copy)}"
    try:
        return "harmless" if use(copy) == expected else f"VIOLATION: wrong result: {where}"
    except SapbertError:
        return "refused"
    except Exception as error:  # noqa: BLE001  # any other error is what this looks for
        return f"VIOLATION: {type(error).__name__}: {error}: {where}"


def _mutate(kind: str, source: Path, choice: random.Random, place: Path) -> str:
    from sapbert.vocab.readers.registry import read_vocabulary

    copy = place / source.name
    if source.is_dir():
        shutil.copytree(source, copy)
    else:
        shutil.copy(source, copy)
    files = [copy] if copy.is_file() else sorted(path for path in copy.rglob("*") if path.is_file())
    file = choice.choice(files)
    content = bytearray(file.read_bytes())
    for _ in range(choice.randint(1, 8)):
        at = choice.randrange(len(content) + 1)
        end = min(len(content), at + choice.randint(0, 40))
        content[at:end] = choice.choice(
            (b"", b"\xff\xfe", b"\x00", b"\n", b"\t", b'"', b"<", b"\\u0000", bytes(content[at:end]) * 2)
        )
    file.write_bytes(content)
    try:
        read_vocabulary(
            kind, file if kind == "table" else copy, place / "out", on_error=choice.choice(("stop", "skip"))
        )
    except SapbertError:
        return "refused"
    except Exception as error:  # noqa: BLE001  # any other error is what this looks for
        return f"VIOLATION: {type(error).__name__}: {error}: {file.name}"
    return "read"


if __name__ == "__main__":
    main()
