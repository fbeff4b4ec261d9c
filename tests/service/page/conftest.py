"""The review page of a service on a free port, in a browser whose errors are recorded."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
from starlette.types import ASGIApp

from tests.service.conftest import MakeBench

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@contextmanager
def serving(app: ASGIApp) -> Iterator[str]:
    """Serve an application and yield its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, lifespan="off", log_config=None, timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


class Window:
    """A browser context with its own storage, and the errors that occurred in it."""

    def __init__(self, browser: Browser, address: str, **options: Any) -> None:
        self.address = address
        self.errors: list[str] = []
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(10_000)

    def open(self) -> Page:
        """Open the page in a new tab; console messages and requests to other hosts are recorded as errors."""
        page = self.context.new_page()
        page.on("console", lambda message: self._hear(message.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", lambda dialog: self.errors.append(dialog.message))
        page.on("request", self._watch)
        page.goto(self.address)
        return page

    def _hear(self, words: str) -> None:
        # The browser's own message for answers like 401 or 503; tests check how the page handles them.
        if not words.startswith("Failed to load resource"):
            self.errors.append(words)

    def _watch(self, request: Any) -> None:
        if not request.url.startswith((f"{self.address}/", "blob:")):
            self.errors.append(request.url)


OpenWindow = Callable[..., Window]


@pytest.fixture(scope="module")
def address(make_bench: MakeBench) -> Iterator[str]:
    """URL of a service with two tiny linkers."""
    with serving(make_bench().app) as result:
        yield result


@pytest.fixture
def window(browser: Browser, address: str) -> Iterator[OpenWindow]:
    """Open a window; fail at the end if errors occurred in it."""
    opened: list[Window] = []

    def make(to: str = address, **options: Any) -> Window:
        opened.append(Window(browser, to, **options))
        return opened[-1]

    yield make
    for one in opened:
        one.context.close()
    assert [words for one in opened for words in one.errors] == []


@pytest.fixture
def page(window: OpenWindow) -> Page:
    """The page in a new window."""
    return window().open()
