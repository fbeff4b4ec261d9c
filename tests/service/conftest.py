"""A service in memory: two tiny linkers, and a client without a socket."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from starlette.types import ASGIApp

from sapbert.index.build import build_index
from sapbert.index.settings import IndexSettings
from sapbert.linking.linker import Linker
from sapbert.service.app import create_service, create_unguarded_app
from sapbert.service.linkers import ServedLinker
from sapbert.service.middleware.guard import Guard
from sapbert.service.middleware.keys import make_key
from sapbert.service.middleware.limits import key_quotas
from sapbert.service.settings import KeySettings, Limits, LinkerSettings, ServiceSettings
from sapbert.service.state import Service, State
from tests.index.conftest import Facts, NgramEncoder, Row, write
from tests.linking.conftest import FACTS, ROWS, bench_of

SECOND_ROWS: list[Row] = [("chebi:1", "aspirin", "CHEBI"), ("chebi:2", "water <b>", "CHEBI")]
SECOND_FACTS: Facts = {"types": []}
LIMITS = Limits(body_bytes=100_000, mentions=200, mention_characters=100)


@dataclass(frozen=True)
class Bench:
    """A service, its application and a client."""

    service: Service
    app: ASGIApp
    client: TestClient

    def link(self, *mentions: str, **options: Any) -> Any:
        """Link mentions and return the answers."""
        answer = self.client.post("/v1/link", json={"mentions": list(mentions), **options})
        assert answer.status_code == 200, answer.text
        return answer.json()["answers"]


MakeBench = Callable[..., Bench]


@pytest.fixture(scope="session")
def linkers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Linker]:
    """Linkers in memory; their cache is shared by tests."""
    folder = tmp_path_factory.mktemp("service")
    return {
        "disease": bench_of(folder / "disease", ROWS, FACTS, NgramEncoder(256)).linker,
        "drug": bench_of(folder / "drug", SECOND_ROWS, SECOND_FACTS, NgramEncoder(256)).linker,
    }


@pytest.fixture(scope="session")
def make_state(linkers: dict[str, Linker]) -> Callable[..., State]:
    """Make a state: `make_state(keys={"alice": KeySettings(…)})`."""

    def make(
        *,
        limits: Limits = LIMITS,
        keys: Mapping[str, KeySettings] | None = None,
        public_url: str | None = None,
        served: Mapping[str, Linker] | None = None,
    ) -> State:
        opened = linkers if served is None else served
        settings = ServiceSettings(
            linkers={name: LinkerSettings(index=Path(name)) for name in opened},
            keys=keys or {},
            limits=limits,
            public_url=public_url,
        )
        return State(
            settings=settings,
            linkers={name: ServedLinker(name, name.title(), linker) for name, linker in opened.items()},
            quotas=key_quotas(settings.keys, time.monotonic),
        )

    return make


@pytest.fixture(scope="session")
def make_bench(make_state: Callable[..., State]) -> MakeBench:
    """Make a service: `make_bench(limits=Limits(mentions=2), log_mentions=True)`."""

    # Routes are slow to create and do not depend on the service.
    application = create_unguarded_app()

    def make(*, log_mentions: bool = False, **options: Any) -> Bench:
        service = create_service(make_state(**options), log_mentions=log_mentions)
        app = Guard(application, service=service)
        return Bench(service, app, TestClient(app))

    return make


@pytest.fixture
def bench(make_bench: MakeBench) -> Bench:
    return make_bench()


@pytest.fixture
def client(bench: Bench) -> TestClient:
    return bench.client


@pytest.fixture
def key() -> str:
    return make_key()[0]


def with_key(make_bench: MakeBench, key: str, **settings: Any) -> Bench:
    """Return a service with this key and another one."""
    digest = hashlib.sha256(key.encode()).hexdigest()
    other = make_key()[1]
    keys = {"alice": KeySettings(sha256=digest, **settings), "bob": KeySettings(sha256=other)}
    return make_bench(keys=keys)


def bearer(key: str) -> dict[str, str]:
    """The Authorization header of a key."""
    return {"Authorization": f"Bearer {key}"}


def fresh(linker: Linker) -> Linker:
    """Return a linker of the same index with an empty cache."""
    return Linker(linker.encoder, linker.search, linker.name_table, fingerprint=linker.fingerprint)


def index_in(folder: Path) -> Path:
    """Build an index on disk, whose encoder only `NgramEncoder` can open."""
    vocabulary = write(folder / "vocabulary", ROWS, FACTS)
    build_index(vocabulary, NgramEncoder(64), folder / "index", IndexSettings())
    return folder / "index"


def error_of(answer: Any, status: int) -> str:
    """Check the status of an error and return its message."""
    assert answer.status_code == status, answer.text
    content = answer.json()
    assert list(content) == ["error"]
    assert "\n" not in content["error"]
    return str(content["error"])
