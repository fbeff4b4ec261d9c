"""Actions of a curator on the review page, and what the page shows."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page
    from playwright.sync_api import expect as expect
else:
    expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

MENTIONS = "Heart attack\ncold\nchest pains\npurple elephant"


def link(page: Page, text: str = MENTIONS) -> None:
    """Paste a list, and wait until all of it is linked."""
    page.locator("#text").fill(text)
    page.get_by_role("button", name="Link", exact=True).click()
    page.locator("#candidates li").first.wait_for()
    linked(page)


def linked(page: Page) -> None:
    """Wait until all mentions are linked."""
    page.locator("#list[aria-busy=false]").wait_for(state="attached")


def current(page: Page) -> str:
    """The current mention."""
    return page.locator("#mention").inner_text()


def decided(page: Page) -> str:
    """The progress text."""
    return page.locator("#decided").inner_text()


def names(page: Page) -> list[str]:
    """Preferred names of the visible candidates."""
    return page.locator("#candidates .name").all_inner_texts()


def press(page: Page, *keys: str) -> None:
    """Press keys one after the other."""
    for key in keys:
        page.keyboard.press(key)


def download(page: Page, button: str) -> str:
    """The content of the file that a button downloads."""
    with page.expect_download() as started:
        page.get_by_role("button", name=button, exact=True).click()
    return started.value.path().read_bytes().decode()


def downloaded_rows(page: Page) -> list[dict[str, str]]:
    """The rows of the downloaded CSV."""
    return list(csv.DictReader(io.StringIO(download(page, "CSV"), newline="")))


def listed(page: Page) -> Locator:
    """The mentions in the list."""
    return page.locator("#list .mention")
