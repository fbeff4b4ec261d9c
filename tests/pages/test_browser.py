from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from sapbert.evaluation.errors.page import errors_page
from sapbert.evaluation.errors.wrong_links import wrong_links
from sapbert.evaluation.run import evaluate
from sapbert.paper.projection import NameSample, Projection
from sapbert.plots.tsne_page import tsne_page
from tests.evaluation.conftest import mentions, ranker_answering, small_set

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SCRIPT = "<script>document.title = 'taken'</script>"
Show = Callable[[str], "Page"]


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Show]:
    """Open a page on a phone; fail if it logs to the console or sends a request."""
    errors: list[str] = []
    context = browser.new_context(viewport={"width": 360, "height": 700}, color_scheme="dark")

    def run(html: str) -> Page:
        (tmp_path / "page.html").write_text(html, encoding="utf-8")
        page = context.new_page()
        page.on("console", lambda message: errors.append(message.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "request",
            lambda request: None if request.url.startswith("file:") else errors.append(request.url),
        )
        page.goto((tmp_path / "page.html").as_uri())
        return page

    yield run
    context.close()
    assert errors == []


def fits(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


def test_wrong_links_can_be_searched_and_filtered(show: Show) -> None:
    names = {f"disease {number}": f"D{number}" for number in range(200)} | {SCRIPT: "S"}
    rows = [(f"mention{number}", f"D{number}") for number in range(200)] + [(SCRIPT, "D1"), ("tin ear", "Z")]
    ranked = {text: [SCRIPT, "disease 7"] for text, _ in rows}
    evaluation = evaluate(small_set(names, mentions(*rows)), ranker_answering(ranked))
    page = show(errors_page(evaluation, wrong_links(evaluation), title="wrong"))
    count, cards = page.locator("#count"), page.locator("article")

    assert page.title() == "wrong"
    assert count.inner_text() == "202 links, 202 mentions"
    assert cards.count() < 202
    for last in (99, 149, 199, 201):  # more come as one scrolls
        cards.last.scroll_into_view_if_needed()
        cards.nth(last).wait_for()
    page.get_by_role("button", name="not in dictionary").click()
    assert count.inner_text() == "1 links, 1 mentions"
    assert "not in the dictionary" in cards.inner_text()
    page.get_by_role("button", name="not in dictionary").click()
    page.keyboard.press("/")
    page.keyboard.type("SCRIPT mention42")
    assert cards.count() == 1
    assert SCRIPT in cards.inner_text()
    assert "disease 42" in cards.inner_text()
    assert fits(page)


def test_a_concept_is_highlighted_in_every_figure(show: Show) -> None:
    names = ("aches", SCRIPT, "tin ear", "ear of tin")
    sample = NameSample(("x:A", "x:T"), ("Ache", "Tin ear"), names, np.array([0, 0, 1, 1]))
    points = np.array([[0.1, 0.1], [0.9, 0.9], [0.1, 0.9], [0.9, 0.1]])
    page = show(tsne_page(sample, {"before": Projection(points, 0.25), "after": Projection(1 - points, 1.0)}))
    marks, said = page.locator("figure path"), page.locator("#selection")

    assert marks.count() == 8
    marks.nth(1).hover()
    assert said.inner_text() == f"{SCRIPT} \u2014 Ache x:A"
    assert page.locator(".ring").count() == 2
    marks.nth(6).click()
    assert page.locator(".faint").count() == 4
    assert page.get_by_role("button", name="Tin ear", exact=True, pressed=True).count() == 1
    page.mouse.move(0, 0)
    marks.nth(0).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert said.inner_text() == "tin ear \u2014 Tin ear x:T"
    page.keyboard.press("Escape")
    assert page.locator(".faint").count() == 0
    assert page.title() == "4 names of 2 concepts"
    assert fits(page)
