"""Load test of the service: a steady rate of requests, very long requests, many lists, and overload.

    python benchmarks/serve.py [INDEX] [--seconds 60] [--rate 150] [--workers 1]

Mentions are names of the index with one letter changed, each sent once, so that every mention is encoded and
searched. Requests are sent at fixed times whether or not earlier ones were answered, and latency is measured
from the scheduled time, so that it includes queueing. Targets: at 150 requests per second, 99 % within 150 ms
and no errors; 10,000 mentions in one request in bounded memory; single mentions beside 40 lists are answered
within a second; under overload, excess requests are answered with 503 within a second, and later requests are
as fast as before.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results import write_results
from sapbert.artifacts import load_manifest
from sapbert.defaults import DEFAULT, resolve_default
from sapbert.index.folder import ENTRIES
from sapbert.index.name_table import NameTable

LONG = 10_000
LISTS, LIST_MENTIONS, SINGLES = 40, 640, 20
FLOOD_SECONDS, FLOOD_RATE, FLOOD_CONNECTIONS = 5, 2_000, 1_000
WARM = 200


@dataclass
class Response:
    """The response to one request, with its latency from the scheduled time."""

    seconds: float
    status: int
    body: bytes = b""


class Client:
    """HTTP client with a pool of open connections."""

    def __init__(self, port: int, connections: int) -> None:
        self._port = port
        self._free: asyncio.LifoQueue[tuple[asyncio.StreamReader, asyncio.StreamWriter] | None]
        self._free = asyncio.LifoQueue()
        for _ in range(connections):
            self._free.put_nowait(None)

    async def link(self, mentions: list[str], due: float, *, accept: str = "application/json") -> Response:
        """Link mentions; a connection that breaks is status 0."""
        connection = await self._free.get()
        if connection is not None and connection[0].at_eof():
            connection = None  # The service closed an idle connection.
        try:
            reader, writer = connection or await asyncio.open_connection("127.0.0.1", self._port)
            body = json.dumps({"mentions": mentions}).encode()
            head = (
                f"POST /v1/link HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                f"Accept: {accept}\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            writer.write(head.encode() + body)
            await writer.drain()
            status, content = await read_answer(reader)
            connection = (reader, writer)
        except (OSError, EOFError) as error:
            connection, status, content = None, 0, str(error).encode()
        self._free.put_nowait(connection)
        return Response(time.perf_counter() - due, status, content)


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    status = int(head.split(" ", 2)[1])
    if "transfer-encoding: chunked" not in head:
        return status, await reader.readexactly(int(head.split("content-length: ")[1].split("\r")[0]))
    size = 0
    while length := int(await reader.readline(), 16):
        size += len(await reader.readexactly(length + 2))
    await reader.readline()
    return status, b"%d" % size


async def steady(rate: float, seconds: float, send: Callable[[float], Awaitable[Response]]) -> list[Response]:
    start = time.perf_counter()
    tasks = []
    for number in range(int(rate * seconds)):
        due = start + number / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.ensure_future(send(due)))
    return await asyncio.gather(*tasks)


def misspelt(index: Path) -> Iterator[str]:
    """Yield names with one letter changed, each once."""
    name_table = NameTable.open(index / ENTRIES)
    random.seed(7)
    while True:
        name = list(name_table.texts[random.randrange(len(name_table))])
        name[random.randrange(len(name))] = random.choice("aeiourstln")
        yield "".join(name)


def summary(answers: list[Response]) -> dict[str, Any]:
    statuses = Counter(answer.status for answer in answers)
    good = sorted(answer.seconds for answer in answers if answer.status == 200)
    figures: dict[str, Any] = {"statuses": {str(status): count for status, count in sorted(statuses.items())}}
    if len(good) > 1:
        cuts = statistics.quantiles(good, n=100)
        figures |= {
            "p50_ms": round(1000 * cuts[49], 1),
            "p99_ms": round(1000 * cuts[98], 1),
            "max_ms": round(1000 * good[-1], 1),
        }
    return figures


class Server:
    """The service, in a process of its own."""

    def __init__(self, index: str, workers: int) -> None:
        command = [sys.executable, "-m", "sapbert", "serve", index, "--port", "0"]
        self._process = subprocess.Popen(
            [*command, "--workers", str(workers)], stderr=subprocess.PIPE, text=True
        )
        assert self._process.stderr is not None
        line = self._process.stderr.readline()
        self.port = int(line.split(" ")[0].rpartition(":")[2])
        # Read the log, or the service blocks when the pipe is full.
        self._reader = subprocess.Popen(["cat"], stdin=self._process.stderr, stdout=subprocess.DEVNULL)

    def _pids(self) -> list[int]:
        """Return the process, its fork server and the workers."""
        pids = [self._process.pid]
        for pid in pids:
            pids += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return pids

    def cpu_seconds(self) -> float:
        """Return the CPU time of all its processes."""
        ticks = 0
        for pid in self._pids():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def peak_mb(self) -> float:
        """Return the peak memory of the largest of its processes."""
        sizes = []
        for pid in self._pids():
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            sizes += [int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")]
        return round(max(sizes), 1)

    def stop(self) -> None:
        """Stop the service and wait until it has ended."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)
        self._reader.wait(10)


async def until_ready(client: Client) -> None:
    for _ in range(600):
        if (await client.link(["ready"], time.perf_counter())).status == 200:
            return
        await asyncio.sleep(0.1)
    raise SystemExit("the service did not start")


async def measure(server: Server, options: argparse.Namespace) -> dict[str, Any]:
    mentions = misspelt(resolve_default(options.index, "index"))
    client = Client(server.port, 200)
    await until_ready(client)

    async def one(due: float) -> Response:
        return await client.link([next(mentions)], due)

    await asyncio.gather(*(one(time.perf_counter()) for _ in range(WARM)))
    figures: dict[str, Any] = {}
    cpu = server.cpu_seconds()
    answers = await steady(options.rate, options.seconds, one)
    figures["steady"] = {
        "rate": options.rate,
        "seconds": options.seconds,
        **summary(answers),
        "cpu_ms_per_request": round(1000 * (server.cpu_seconds() - cpu) / len(answers), 2),
        "peak_mb": server.peak_mb(),
    }
    for name, accept in (("streamed", "application/x-ndjson"), ("in one response", "application/json")):
        start = time.perf_counter()
        answer = await client.link([next(mentions) for _ in range(LONG)], start, accept=accept)
        figures[f"{LONG} mentions, {name}"] = {
            "status": answer.status,
            "seconds": round(answer.seconds, 1),
            "peak_mb": server.peak_mb(),
        }
    figures[f"single mentions beside {LISTS} lists"] = await beside_lists(server, mentions, one)
    figures["flood"] = await flood(server, one)
    return figures


async def beside_lists(
    server: Server, mentions: Iterator[str], one: Callable[[float], Awaitable[Response]]
) -> dict[str, Any]:
    client = Client(server.port, LISTS)
    start = time.perf_counter()
    lists = [
        asyncio.ensure_future(client.link([next(mentions) for _ in range(LIST_MENTIONS)], start))
        for _ in range(LISTS)
    ]
    singles = await steady(5, SINGLES / 5, one)
    return {"singles": summary(singles), "lists": summary(await asyncio.gather(*lists))}


async def flood(server: Server, one: Callable[[float], Awaitable[Response]]) -> dict[str, Any]:
    mentions = iter(range(10**9))
    many = Client(server.port, FLOOD_CONNECTIONS)
    answers = await steady(
        FLOOD_RATE, FLOOD_SECONDS, lambda due: many.link([f"flood {next(mentions)} fever"], due)
    )
    end = time.perf_counter()
    while True:
        answer = await one(time.perf_counter())
        if answer.status == 200 and answer.seconds < 0.15:
            break
    refused = sorted(answer.seconds for answer in answers if answer.status == 503)
    return {
        "rate": FLOOD_RATE,
        "seconds": FLOOD_SECONDS,
        **summary(answers),
        "refused_p99_ms": round(1000 * refused[int(0.99 * len(refused))], 1) if refused else None,
        "recovered_after_seconds": round(time.perf_counter() - end, 2),
        "peak_mb": server.peak_mb(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("index", nargs="?", default=DEFAULT, help="default: the bundled index")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=float, default=150)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    server = Server(options.index, options.workers)
    try:
        figures = asyncio.run(measure(server, options))
    finally:
        server.stop()
    print(json.dumps(figures, indent=2))
    manifest = load_manifest(resolve_default(options.index, "index"), verify=False)
    about = {"names": manifest.counts["names"], "kind": manifest.details["kind"], "workers": options.workers}
    write_results("serve", {"index": about, **figures}, ("fastapi", "numpy", "onnxruntime", "uvicorn"))


if __name__ == "__main__":
    main()
