"""Start the service: one process, or several workers under a supervisor.

Workers share one listening socket and, as indexes are mapped, one copy of every index. The supervisor is
uvicorn's: it replaces a worker that dies. SIGHUP reads the configuration again in each worker, in place, so
that not even an idle connection is cut; uvicorn would replace the processes.

A service that others can reach without a key is refused, not only warned of: a warning in a log is read when
it is too late, and mentions may be patient data.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging.config
import os
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
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.supervisors import Multiprocess

from sapbert.errors import ConfigError, SapbertError
from sapbert.service.app import create_app, service_of
from sapbert.service.middleware.logs import log, logging_config
from sapbert.service.server_settings import ServerSettings
from sapbert.service.settings import ServiceSettings, settings_of
from sapbert.service.state import State, load_state
from sapbert.tokens.batching import usable_cores

_HEADER_SECONDS = 10.0
_KEEP_ALIVE_SECONDS = 30
_READY_SECONDS = 60
_STOP_SECONDS = 30
"""A request that takes longer after the service was told to stop is cut off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(ServerSettings):
    """What is served, and how."""

    what: str
    """A configuration file, an index, or `default`."""
    metrics_folder: Path | None = None
    """Where workers leave their figures for each other."""

    def load(self, *, verify: bool) -> State:
        """Open what is served; refused where strangers could ask."""
        settings = settings_of(self.what)
        self._require_keys(settings)
        share = max(1, usable_cores() // self.workers)
        return load_state(settings, threads=self.threads or share, verify=verify)

    def _require_keys(self, settings: ServiceSettings) -> None:
        """Refuse a service that others reach without a key, unless that is wanted."""
        if settings.keys or self.without_keys or _is_loopback(self.host):
            return
        raise ConfigError(
            f"{self.host} can be reached by others, and no key is configured: make one "
            "(sapbert serve --new-key NAME), or say --without-keys"
        )


def serve(plan: Plan, on_listening: Callable[[str, Sequence[str]], None]) -> None:
    """Serve until told to stop; `on_listening` is told where, and the names of the linkers."""
    logging.config.dictConfig(logging_config(texts=plan.log_mentions))
    # With several workers too: what cannot be opened is told once, here.
    state = plan.load(verify=True)
    with _listening(plan) as listener, _stoppable():
        host = f"[{plan.host}]" if ":" in plan.host else plan.host
        on_listening(f"http://{host}:{listener.getsockname()[1]}", list(state.linkers))
        if plan.workers == 1:
            uvicorn.Server(_config(plan, partial(_app, plan, state))).run([listener])
        else:
            del state
            _supervise(plan, listener)


@contextmanager
def _stoppable() -> Iterator[None]:
    """Take being told to stop, by SIGTERM as by Ctrl-C, for success: the process ends with 0.

    uvicorn raises both again when it has stopped, and the first would end a single process with 143.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _supervise(plan: Plan, listener: socket.socket) -> None:
    with tempfile.TemporaryDirectory(prefix="sapbert-") as folder:
        shared = replace(plan, metrics_folder=Path(folder))
        supervisor = _Supervisor(_config(shared, partial(_worker_app, shared)), [listener])
        supervisor.run()
    if any(process.exitcode == STARTUP_FAILURE for process in supervisor.processes):
        raise SapbertError("a worker could not start; the log says why")


class _Supervisor(Multiprocess):
    """Replaces workers that die, and passes on SIGHUP."""

    def handle_hup(self) -> None:
        """Let every worker read the configuration again."""
        for process in self.processes:
            if process.pid is not None:
                os.kill(process.pid, signal.SIGHUP)


class PunctualProtocol(HttpToolsProtocol):
    """Closes connections on which a request is begun but its headers do not arrive."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as above it
        """Begin to wait."""
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        """Begin to wait with the first byte after an answer."""
        if self._late is None and (self.cycle is None or self.cycle.response_complete):
            self._expect()
        super().data_received(data)

    def on_headers_complete(self) -> None:
        """Wait no more."""
        self._relax()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._relax()
        super().connection_lost(exc)

    def _expect(self) -> None:
        self._late = self.loop.call_later(_HEADER_SECONDS, self.transport.abort)

    def _relax(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def _config(plan: Plan, factory: Callable[[], ASGIApp]) -> uvicorn.Config:
    return uvicorn.Config(
        factory,
        factory=True,
        http=PunctualProtocol,
        ws="none",
        workers=plan.workers,
        log_config=logging_config(texts=plan.log_mentions),
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_STOP_SECONDS,
        timeout_worker_healthcheck=_READY_SECONDS,
    )


def _worker_app(plan: Plan) -> ASGIApp:
    try:
        state = plan.load(verify=False)
    except (SapbertError, OSError) as error:
        log("a worker cannot start", fields={"message": str(error)})
        sys.exit(STARTUP_FAILURE)
    return _app(plan, state)


def _app(plan: Plan, state: State) -> ASGIApp:
    service = service_of(state, log_mentions=plan.log_mentions, metrics_folder=plan.metrics_folder)

    @asynccontextmanager
    async def lifespan(_app: object) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        if hasattr(signal, "SIGHUP"):
            load = partial(plan.load, verify=True)
            loop.add_signal_handler(signal.SIGHUP, lambda: loop.run_in_executor(None, service.reload, load))
        yield
        service.batcher.close()

    return create_app(service, lifespan=lifespan)


@contextmanager
def _listening(plan: Plan) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in plan.host else socket.AF_INET
    try:
        listener = socket.create_server((plan.host, plan.port), family=family, backlog=2048)
    except OSError as error:
        raise SapbertError(
            f"cannot listen on {plan.host} port {plan.port}: {error.strerror or error}; choose another --port"
        ) from error
    with listener:
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # Connections inherit it: who stops reading is cut off by the kernel, which has what was sent.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * _STOP_SECONDS)
        listener.set_inheritable(True)
        yield listener


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
