"""What a curator does on the page, and sees of it."""

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
    """Paste a list, and wait until the last of it is linked."""
    page.locator("#text").fill(text)
    page.get_by_role("button", name="Link", exact=True).click()
    page.locator("#candidates li").first.wait_for()
    linked(page)


def linked(page: Page) -> None:
    """Wait until all is linked."""
    page.locator("#list[aria-busy=false]").wait_for(state="attached")


def current(page: Page) -> str:
    """The mention that is looked at."""
    return page.locator("#mention").inner_text()


def decided(page: Page) -> str:
    """How much of the list is decided."""
    return page.locator("#decided").inner_text()


def names(page: Page) -> list[str]:
    """The candidates that are seen, by preferred name."""
    return page.locator("#candidates .name").all_inner_texts()


def press(page: Page, *keys: str) -> None:
    """Press keys one after the other."""
    for key in keys:
        page.keyboard.press(key)


def download(page: Page, button: str) -> str:
    """What a button lets the browser save."""
    with page.expect_download() as started:
        page.get_by_role("button", name=button, exact=True).click()
    return started.value.path().read_bytes().decode()


def downloaded_rows(page: Page) -> list[dict[str, str]]:
    """The rows of the CSV that is downloaded."""
    return list(csv.DictReader(io.StringIO(download(page, "CSV"), newline="")))


def listed(page: Page) -> Locator:
    """The mentions in the list."""
    return page.locator("#list .mention")
