"""Start workers, replace those that die, and stop them.

uvicorn's supervisor is the base, with these differences. Workers are forked from a process that has already
imported everything, so a new one needs a fraction of a second of CPU time instead of one and a half. The end
of a worker is noticed immediately, and a worker that does not respond does not delay the replacement of
another. When the service is stopped, the supervisor closes its own copy of the listening socket: otherwise
the kernel would accept connections that no worker serves. If the supervisor is killed, the workers stop.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
import time
from multiprocessing import Pipe
from multiprocessing.connection import wait
from typing import Any, Final

import uvicorn
from uvicorn._subprocess import subprocess_started
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from sapbert.service.middleware.logs import log

_START_METHOD: Final = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
_PRELOADED = ["__main__", "sapbert.service.server", "sapbert.linking.linker", "sapbert.encoder.open"]
"""Modules that workers need. onnxruntime is not among them, because it may start threads."""
_POLL_SECONDS = 0.1
"""Delay until a signal is handled."""


class Worker(Process):
    """A process that serves requests."""

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket]) -> None:
        self.config = config
        self._server = None
        self._pinged_at: float | None = None
        self.parent_conn, self.child_conn = Pipe()
        arguments: dict[str, Any] = {
            "config": config,
            "target": self.target,
            "sockets": sockets,
            "stdin_fileno": None,
        }
        context: Any = multiprocessing.get_context(_START_METHOD)
        if _START_METHOD == "forkserver":
            context.set_forkserver_preload(_PRELOADED)
        self.process = context.Process(target=subprocess_started, kwargs=arguments)

    def target(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve, in the new process."""
        threading.Thread(target=_stop_with_parent, daemon=True).start()
        super().target(sockets)

    def is_alive(self, timeout: float = 5) -> bool:
        """Whether the process runs and answered a ping within `timeout` seconds; does not wait for it."""
        if not self.process.is_alive():
            return False
        now = time.monotonic()
        try:
            if self._pinged_at is None:
                self.parent_conn.send(b"ping")
                self._pinged_at = now
            elif self.parent_conn.poll():
                self.parent_conn.recv()
                self._pinged_at = None
        except (OSError, EOFError):
            return False
        return self._pinged_at is None or now - self._pinged_at < timeout


def _stop_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


class Supervisor(Multiprocess):
    """Replaces workers that die, and forwards SIGHUP to all workers."""

    def run(self) -> None:
        """Run until a signal stops the service or a worker cannot start."""
        self.init_processes()
        while not self.should_exit.is_set():
            wait([worker.process.sentinel for worker in self.processes], timeout=_POLL_SECONDS)
            self.handle_signals()
            self.keep_subprocess_alive()
        for listener in self.sockets:
            listener.close()
        self.terminate_all()
        self.join_all()

    def init_processes(self) -> None:
        """Start all workers."""
        self.processes = [self._start_worker() for _ in range(self.processes_num)]

    def keep_subprocess_alive(self) -> None:
        """Replace workers that died or do not respond; stop if one cannot start."""
        if self.should_exit.is_set():
            return
        for number, worker in enumerate(self.processes):
            if worker.is_alive(timeout=self.config.timeout_worker_healthcheck):
                continue
            worker.kill()
            worker.join()
            if worker.exitcode == STARTUP_FAILURE:
                self.should_exit.set()
                return
            log("a worker died; starting another", fields={"pid": worker.pid, "exitcode": worker.exitcode})
            self.processes[number] = self._start_worker()

    def handle_hup(self) -> None:
        """Reload the configuration in every worker."""
        for worker in self.processes:
            if worker.pid is not None:
                os.kill(worker.pid, signal.SIGHUP)

    def _start_worker(self) -> Worker:
        worker = Worker(self.config, self.sockets)
        worker.start()
        return worker
