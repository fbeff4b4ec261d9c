"""The review page on a phone, in dark mode, without a mouse, for screen readers, and with a long list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.service.page import curator
from tests.service.page.conftest import OpenWindow

if TYPE_CHECKING:
    from playwright.sync_api import Page

PHONE = {"width": 360, "height": 640}
UNNAMED = """() => [...document.querySelectorAll(
    "button, input, select, textarea, summary, [role=button], dialog[open], section")]
  .filter((one) => one.checkVisibility())
  .filter((one) => !(one.labels?.length || one.getAttribute("aria-label") || one.textContent.trim()
    || document.getElementById(one.getAttribute("aria-labelledby"))))
  .map((one) => one.outerHTML)"""
DANGLING = """() => ["for", "aria-labelledby", "aria-controls", "aria-activedescendant"]
  .flatMap((name) => [...document.querySelectorAll(`[${name}]`)].map((one) => one.getAttribute(name)))
  .filter((id) => document.querySelectorAll(`[id="${id}"]`).length !== 1)"""
# Contrast required by WCAG: 4.5, or 3 for large text.
FAINT = """() => {
  const rgb = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const linear = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const luminance = ([red, green, blue]) =>
    0.2126 * linear(red / 255) + 0.7152 * linear(green / 255) + 0.0722 * linear(blue / 255);
  const behind = (one) => {
    const colour = rgb(getComputedStyle(one).backgroundColor);
    return (colour[3] ?? 1) > 0 ? colour : behind(one.parentElement);
  };
  const hasText = (one) => [...one.childNodes].some((node) => node.nodeName === "#text" && node.data.trim());
  return [...document.querySelectorAll("body *")]
    .filter((one) => hasText(one) && !one.closest("svg") && one.checkVisibility({ opacityProperty: true }))
    .flatMap((one) => {
      const style = getComputedStyle(one);
      const [dark, light] = [luminance(rgb(style.color)), luminance(behind(one))].sort((a, b) => a - b);
      const contrast = (light + 0.05) / (dark + 0.05);
      return contrast >= (parseFloat(style.fontSize) >= 24 ? 3 : 4.5) ? [] : [one.outerHTML, contrast];
    });
}"""


def views(page: Page) -> Iterator[str]:
    """Open every view and yield its name."""
    page.locator("#start").wait_for()
    yield "start"
    page.locator("#text").fill("id,diagnosis,a very long name of a column\n1,cold,2\n2,chest pains,3")
    page.get_by_role("button", name="Link", exact=True).click()
    page.locator("#chooser").wait_for()
    yield "chooser"
    curator.press(page, "Escape")
    curator.link(
        page, "Heart attack\ncold\nchest pains\n" + "pneumonoultramicroscopicsilicovolcanoconiosis" * 2
    )
    curator.press(page, "Enter", "x", "2", "x", "m")
    page.locator("#map circle").first.wait_for()
    yield "review"
    curator.press(page, "/")
    page.keyboard.type("c")
    page.locator("#results li").first.wait_for()
    yield "search"
    curator.press(page, "Escape", "i")
    page.locator("#concept-name").wait_for()
    yield "concept"
    curator.press(page, "Escape")
    if page.locator("#to-list").is_visible():
        page.locator("#to-list").click()
    curator.listed(page).last.wait_for()
    yield "list"
    page.get_by_role("button", name="Forget").click()
    yield "forgetting"


def test_every_view_fits_a_phone(window: OpenWindow) -> None:
    page = window(viewport=PHONE, has_touch=True, is_mobile=True).open()
    for view in views(page):
        assert (view, page.evaluate("document.documentElement.scrollWidth")) == (view, PHONE["width"])


def test_a_phone_shows_the_list_or_a_mention(window: OpenWindow) -> None:
    page = window(viewport=PHONE, has_touch=True, is_mobile=True).open()
    curator.link(page)
    assert not page.locator("#list").is_visible()
    page.get_by_role("button", name="All mentions").tap()
    assert not page.locator("#mention").is_visible()
    curator.listed(page).nth(2).tap()
    assert curator.current(page) == "chest pains"
    page.get_by_role("button", name="NIL").tap()
    assert curator.current(page) == "purple elephant"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast_and_every_control_has_a_label(window: OpenWindow, scheme: Any) -> None:
    page = window(color_scheme=scheme, viewport={"width": 1280, "height": 800}).open()
    for view in views(page):
        assert (view, page.evaluate(FAINT)) == (view, [])
        assert (view, page.evaluate(UNNAMED)) == (view, [])
        assert (view, page.evaluate(DANGLING)) == (view, [])
        assert (view, page.locator("h1:visible").count()) == (view, 1)


def test_the_theme_follows_the_system_until_one_is_chosen(window: OpenWindow) -> None:
    page = window(color_scheme="dark").open()
    body, dark, light = page.locator("body"), "rgb(21, 23, 26)", "rgb(255, 255, 255)"
    curator.expect(body).to_have_css("background-color", dark)
    page.emulate_media(color_scheme="light")
    curator.expect(body).to_have_css("background-color", light)
    page.get_by_role("button", name="Dark colours").click()
    page.reload()
    curator.expect(body).to_have_css("background-color", dark)


def test_a_list_is_linked_and_decided_without_a_mouse(window: OpenWindow) -> None:
    page = window().open()
    curator.expect(page.locator("#text")).to_be_focused()
    page.keyboard.type("cold")
    curator.press(page, "Enter")
    page.keyboard.type("chest pains")
    curator.press(page, "Tab", "Enter")
    page.locator("#candidates li").first.wait_for()
    stops = []
    for _ in range(40):
        curator.press(page, "Tab")
        stops.append(page.evaluate("document.activeElement.id || document.activeElement.textContent"))
    assert {"csv", "sssom", "filter", "order", "search", "Accept", "Reject", "keys"} <= set(stops)
    page.locator(".candidate .accept").first.focus()
    curator.press(page, "Enter")
    curator.expect(page.locator("#mention")).to_be_focused()
    curator.expect(page.locator("#announcement")).to_contain_text("chest pains: best candidate Chest pain")


def test_shortcuts_are_ignored_in_fields_and_can_be_turned_off(window: OpenWindow) -> None:
    page = window().open()
    curator.link(page)
    page.get_by_label("Find in the list").fill("")
    page.get_by_label("Find in the list").press("n")
    page.get_by_label("Find in the list").fill("")
    page.get_by_label("Shortcuts").uncheck()
    page.locator("#mention").focus()
    curator.press(page, "n", "Enter", "1")
    curator.expect(page.locator("#decided")).to_have_text("0 of 4 decided")
    page.get_by_label("Shortcuts").check()
    page.locator("#mention").focus()
    curator.press(page, "n")
    curator.expect(page.locator("#decided")).to_have_text("1 of 4 decided")


def test_only_visible_rows_of_a_long_list_are_drawn(window: OpenWindow) -> None:
    page = window(viewport={"width": 1280, "height": 800}).open()
    page.route("**/v1/link*", lambda route: route.abort())
    page.locator("#text").evaluate(
        "(one) => { one.value = Array.from({ length: 20000 }, (_, at) => `mention ${at}`).join('\\n'); }"
    )
    page.get_by_role("button", name="Link", exact=True).click()
    page.get_by_text("Linking stopped").wait_for()
    curator.expect(page.locator("#none")).to_have_text(
        "Not linked because of an error. Press Continue, or reload the page."
    )

    assert page.locator("#decided").inner_text() == "0 of 20,000 decided"
    assert curator.listed(page).count() < 50
    page.locator("#list").evaluate("(one) => { one.scrollTop = one.scrollHeight; }")
    curator.expect(curator.listed(page).last).to_have_text("mention 19999")
    assert curator.listed(page).count() < 50
    curator.listed(page).last.click()
    curator.press(page, "k")
    assert curator.current(page) == "mention 19998"
