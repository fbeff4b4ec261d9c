"""Input of the review page: pasted lists, files, unusual content, and a service that fails."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sapbert.service.middleware.keys import make_key
from sapbert.service.settings import KeySettings
from tests.service.conftest import MakeBench
from tests.service.page import curator
from tests.service.page.conftest import OpenWindow, serving

if TYPE_CHECKING:
    from playwright.sync_api import Page

MARKUP = "<img src=x onerror=\"document.title='taken'\">"
DROP = """([name, bytes]) => {
  const data = new DataTransfer();
  data.items.add(new File([new Uint8Array(bytes)], name));
  document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
}"""


def drop(page: Page, name: str, content: str | bytes) -> None:
    bytes_ = content.encode() if isinstance(content, str) else content
    page.locator("#start").wait_for()
    page.evaluate(DROP, [name, list(bytes_)])


# What comes in


def test_a_dropped_table_keeps_its_columns_and_equal_mentions_are_decided_once(page: Page) -> None:
    table = 'patient,diagnosis,Score\n17,"cold",3\n18,"chest, ""pain""",4\n19,cold,5\n20,,6\n'
    drop(page, "patients.csv", table)
    assert page.get_by_role("radio", name="diagnosis").is_checked()
    page.get_by_role("button", name="Link this column").click()
    curator.linked(page)
    assert page.locator("#where").inner_text() == "in 2 rows"
    curator.press(page, "1")
    assert page.locator("#where").inner_text() == "row 2 \u00b7 patient 18 \u00b7 Score 4"

    rows = curator.downloaded_rows(page)
    assert [(row["patient"], row["diagnosis"], row["input_Score"]) for row in rows] == [
        ("17", "cold", "3"), ("18", 'chest, "pain"', "4"), ("19", "cold", "5"), ("20", "", "6"),
    ]  # fmt: skip
    assert [row["concept_id"] for row in rows] == ["hp:1", "", "hp:1", ""]


def test_a_table_without_a_header_can_be_linked_by_any_column(page: Page) -> None:
    drop(page, "table.tsv", "cold\tHeart attack\nchest pain\tcold\n")
    page.get_by_label("The first row is a header").uncheck()
    page.get_by_role("radio", name="column 2").check()
    page.get_by_role("button", name="Link this column").click()
    curator.linked(page)

    curator.expect(curator.listed(page)).to_have_text(["Heart attack", "cold"])
    assert curator.download(page, "CSV").startswith("column 1,column 2,decision,")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
def test_files_in_common_encodings_are_read(page: Page, encoding: str) -> None:
    drop(page, "list.txt", "M\u00e9ni\u00e8re\r\ncold\r\n".encode(encoding))
    curator.linked(page)
    curator.expect(curator.listed(page)).to_have_text(["M\u00e9ni\u00e8re", "cold"])


def test_a_binary_file_is_refused_with_a_message(page: Page) -> None:
    drop(page, "book.xlsx", b"PK\x03\x04\x00\x00")
    assert page.get_by_role("alert").inner_text().startswith("This file is not text.")
    page.get_by_role("button", name="Link", exact=True).click()
    assert page.get_by_role("alert").inner_text().startswith("The input is empty.")


def test_prose_with_commas_is_not_taken_for_a_table(page: Page) -> None:
    curator.link(page, "diabetes, type II\npain, chest")
    curator.expect(curator.listed(page)).to_have_text(["diabetes, type II", "pain, chest"])
    page.get_by_role("button", name="Forget").click()
    page.get_by_role("button", name="Forget", exact=True).click()
    page.locator("#text").fill("id,name\n1,cold\n2,chest pain")
    page.get_by_role("button", name="Link", exact=True).click()
    page.get_by_role("button", name="Not a table: one mention per line").click()
    curator.linked(page)
    curator.expect(curator.listed(page)).to_have_text(["id,name", "1,cold", "2,chest pain"])


def test_the_example_is_linked_with_one_click(page: Page) -> None:
    page.get_by_role("button", name="Try an example").click()
    curator.linked(page)
    assert curator.current(page) == "Heart attack"
    assert curator.decided(page) == "0 of 15 decided"


def test_a_too_long_mention_is_reported_and_the_others_are_linked(page: Page) -> None:
    curator.link(page, "cold\n" + "x" * 101)
    curator.press(page, "j")
    assert page.locator("#none").inner_text() == "Too long to link: more than 100 characters"
    curator.press(page, "n")
    assert curator.decided(page) == "1 of 2 decided"


cells = st.text("ab \"',;|\t\r\n\u00e9\U0001f9e0", max_size=4)
tables = st.integers(2, 4).flatmap(
    lambda width: st.lists(st.lists(cells, min_size=width, max_size=width), min_size=1, max_size=4)
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables, delimiter=st.sampled_from(",;\t|"))
def test_tables_are_read_and_written_as_python_does(
    page: Page, table: list[list[str]], delimiter: str
) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows(table)
    calls = """async ([text, table, delimiter]) => {
      const folder = document.querySelector("script[type=module]").src;
      const { readTable, writeTable } = await import(new URL("tables.js", folder));
      return [readTable(text, delimiter), writeTable(table, delimiter)];
    }"""
    read, written = page.evaluate(calls, [text.getvalue(), table, delimiter])

    assert read == [row for row in table if any(cell.strip() for cell in row)]
    assert list(csv.reader(io.StringIO(written, newline=""), delimiter=delimiter)) == table


# What goes wrong


def test_markup_in_mentions_and_names_stays_text(window: OpenWindow) -> None:
    page = window(viewport={"width": 1280, "height": 800}).open()
    page.get_by_label("Linker").select_option("drug")
    curator.link(page, f"{MARKUP}\nwater <b>")
    assert curator.current(page) == MARKUP
    curator.press(page, "m")
    page.locator("#map circle").first.wait_for()
    assert page.locator("#map text.mention").text_content() == MARKUP[:27] + "\u2026"
    curator.press(page, "j", "i")
    page.locator("#concept-name").wait_for()
    assert page.locator("#concept-name").inner_text() == "water <b>"
    curator.press(page, "Escape", "/")
    page.keyboard.type("water")
    page.get_by_role("option", name="water <b>").first.wait_for()
    assert page.locator("main img, main b, dialog b").count() == 0
    assert page.title() == "2 mentions \u00b7 sapbert"
    assert curator.downloaded_rows(page)[0]["mention"] == MARKUP


def test_no_script_can_turn_text_into_markup(window: OpenWindow) -> None:
    opened = window()
    page = opened.open()
    page.locator("#start").wait_for()
    script = "() => { try { document.body.innerHTML = '<b>x</b>' } catch (error) { return error.name } }"
    assert page.evaluate(script) == "TypeError"
    assert "TrustedHTML" in opened.errors.pop()


def test_requests_are_retried_under_overload_and_failures_are_shown(page: Page) -> None:
    answers = [
        {"status": 503, "headers": {"Retry-After": "0"}, "body": '{"error": "too much to do"}'},
        {"status": 200, "body": '{"mention": "Heart attack", "candidates": []}\n{"error": "too slow"}\n'},
        {"status": 500, "body": '{"error": "internal error"}'},
    ]
    requests: list[list[str]] = []

    def answer(route: Any) -> None:
        mentions = route.request.post_data_json["mentions"]
        # The page may ask for the mention that is looked at, at any time between.
        if len(mentions) > 1:
            requests.append(mentions)
        if len(mentions) > 1 and answers:
            route.fulfill(**answers.pop(0))
        else:
            route.continue_()

    page.route("**/v1/link*", answer)
    page.locator("#text").fill("Heart attack\ncold\nchest pains")
    page.get_by_role("button", name="Link", exact=True).click()
    page.get_by_text("Linking stopped: internal error.").wait_for()
    assert not page.get_by_text("Linking\u2026").is_visible()
    page.get_by_role("button", name="Continue").click()
    curator.linked(page)
    assert requests[0] == requests[1] == ["Heart attack", "cold", "chest pains"]
    assert requests[2] == requests[3] == ["cold", "chest pains"]


def test_a_late_answer_does_not_change_the_selected_candidate(page: Page) -> None:
    held: list[Any] = []

    def hold_lists(route: Any) -> None:
        if len(route.request.post_data_json["mentions"]) > 1:
            held.append(route)
        else:
            route.continue_()

    page.route("**/v1/link*", hold_lists)
    page.locator("#text").fill("cold\nchest pains")
    page.get_by_role("button", name="Link", exact=True).click()
    page.locator("#candidates li").first.wait_for()
    curator.press(page, "ArrowDown")
    chosen = page.locator(".marked .name").inner_text()
    held[0].continue_()
    curator.linked(page)
    curator.press(page, "Enter")
    [row, _] = curator.downloaded_rows(page)
    assert row["preferred_name"] == chosen


def test_an_unpaired_surrogate_does_not_prevent_linking(page: Page) -> None:
    page.locator("#text").evaluate("(one) => { one.value = 'cold \\ud83d\\nHeart attack'; }")
    page.get_by_role("button", name="Link", exact=True).click()
    curator.linked(page)
    assert curator.names(page)


def test_the_page_asks_for_an_api_key(window: OpenWindow, make_bench: MakeBench) -> None:
    key, digest = make_key()
    with serving(make_bench(keys={"alice": KeySettings(sha256=digest)}).app) as address:
        page = window(address).open()
        field = page.get_by_label("API key", exact=True)
        assert not page.get_by_text("Unknown API key.").is_visible()
        field.fill("wrong")
        page.get_by_role("button", name="Continue").click()
        page.get_by_text("Unknown API key.").wait_for()
        field.fill(key)
        page.get_by_role("button", name="Continue").click()
        curator.link(page, "cold")
        assert curator.names(page)
        assert key not in page.evaluate("JSON.stringify({ ...localStorage, ...sessionStorage })")
