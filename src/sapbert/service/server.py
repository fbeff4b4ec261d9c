"""Start the service: one process, or several workers under a supervisor.

Workers share one listening socket and, because indexes are memory-mapped, one copy of every index. SIGHUP
reloads the configuration inside each worker, so that not even an idle connection is closed; uvicorn itself
would replace the processes.

A service that other machines can reach without a key does not start. A warning in the log would be noticed
too late, and mentions may be patient data.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging.config
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import STARTUP_FAILURE

from sapbert.errors import ConfigError, SapbertError
from sapbert.service.app import create_app, create_service
from sapbert.service.middleware.connection import BoundedHeaderProtocol
from sapbert.service.middleware.logs import log, logging_config
from sapbert.service.server_settings import ServerSettings
from sapbert.service.settings import ServiceSettings, load_settings
from sapbert.service.state import State, load_state
from sapbert.service.supervisor import Supervisor
from sapbert.tokens.batching import usable_cores

_KEEP_ALIVE_SECONDS = 30
_READY_SECONDS = 60
_STOP_SECONDS = 30
"""Time for open requests to finish after the service is stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan(ServerSettings):
    """Settings of the server, and the configuration or index to serve."""

    source: str
    """A configuration file, an index, or `default`."""
    metrics_folder: Path | None = None
    """Folder in which workers share their metrics."""

    def load(self, *, verify: bool) -> State:
        """Read the configuration and open its linkers; raise if other machines had access without a key."""
        settings = load_settings(self.source)
        self._require_keys(settings)
        threads_per_worker = max(1, usable_cores() // self.workers)
        return load_state(settings, threads=self.threads or threads_per_worker, verify=verify)

    def _require_keys(self, settings: ServiceSettings) -> None:
        if settings.keys or self.without_keys or _is_loopback(self.host):
            return
        raise ConfigError(
            f"other machines can reach {self.host}, and no API key is configured; create one "
            "(sapbert serve --new-key NAME), or allow access to everyone with --without-keys"
        )


def serve(plan: ServerPlan, on_listening: Callable[[str, Sequence[str]], None]) -> None:
    """Serve until stopped; `on_listening` is called with the URL and the names of the linkers."""
    logging.config.dictConfig(logging_config(texts=plan.log_mentions))
    # Done with several workers too: an index that cannot be opened is reported once, before they start.
    state = plan.load(verify=True)
    with _listening(plan) as listener, _exit_cleanly():
        host = f"[{plan.host}]" if ":" in plan.host else plan.host
        on_listening(f"http://{host}:{listener.getsockname()[1]}", list(state.linkers))
        if plan.workers == 1:
            uvicorn.Server(_config(plan, partial(_app, plan, state))).run([listener])
        else:
            del state
            _supervise(plan, listener)


@contextmanager
def _exit_cleanly() -> Iterator[None]:
    """Exit with status 0 after SIGTERM or Ctrl-C.

    uvicorn raises either signal again after it has stopped; SIGTERM would end a single process with 143.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _supervise(plan: ServerPlan, listener: socket.socket) -> None:
    with tempfile.TemporaryDirectory(prefix="sapbert-") as folder:
        shared = replace(plan, metrics_folder=Path(folder))
        supervisor = Supervisor(_config(shared, partial(_worker_app, shared)), [listener])
        supervisor.run()
    if any(process.exitcode == STARTUP_FAILURE for process in supervisor.processes):
        raise SapbertError("a worker could not start; see the log for the reason")


def _config(plan: ServerPlan, factory: Callable[[], ASGIApp]) -> uvicorn.Config:
    return uvicorn.Config(
        factory,
        factory=True,
        http=BoundedHeaderProtocol,
        ws="none",
        workers=plan.workers,
        log_config=logging_config(texts=plan.log_mentions),
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_STOP_SECONDS,
        timeout_worker_healthcheck=_READY_SECONDS,
    )


def _worker_app(plan: ServerPlan) -> ASGIApp:
    try:
        state = plan.load(verify=False)
    except (SapbertError, OSError) as error:
        log("a worker cannot start", fields={"message": str(error)})
        sys.exit(STARTUP_FAILURE)
    return _app(plan, state)


def _app(plan: ServerPlan, state: State) -> ASGIApp:
    service = create_service(state, log_mentions=plan.log_mentions, metrics_folder=plan.metrics_folder)

    @asynccontextmanager
    async def lifespan(_app: object) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        if hasattr(signal, "SIGHUP"):
            load = partial(plan.load, verify=True)
            loop.add_signal_handler(signal.SIGHUP, lambda: loop.run_in_executor(None, service.reload, load))
        yield
        service.close()

    return create_app(service, lifespan=lifespan)


@contextmanager
def _listening(plan: ServerPlan) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in plan.host else socket.AF_INET
    try:
        listener = socket.create_server((plan.host, plan.port), family=family, backlog=2048)
    except OSError as error:
        raise SapbertError(
            f"cannot listen on {plan.host} port {plan.port}: {error.strerror or error}; choose another --port"
        ) from error
    with listener:
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # Inherited by connections: the kernel closes one whose client does not acknowledge data in time.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * _STOP_SECONDS)
        listener.set_inheritable(True)
        yield listener


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
