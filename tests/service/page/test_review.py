"""Review of a list by keyboard and mouse, until the decisions are downloaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.service.page import curator
from tests.service.page.conftest import OpenWindow

if TYPE_CHECKING:
    from playwright.sync_api import Page


# Review


def test_a_list_is_pasted_linked_reviewed_by_keyboard_and_downloaded(page: Page) -> None:
    curator.link(page)
    assert curator.current(page) == "Heart attack"
    curator.press(page, "Enter")
    assert curator.current(page) == "cold"
    curator.press(page, "2")
    assert curator.current(page) == "chest pains"
    curator.press(page, "x", "n", "n")
    assert curator.decided(page) == "4 of 4 decided"

    heart, cold, chest, purple = curator.downloaded_rows(page)
    assert heart == {
        "mention": "Heart attack",
        "decision": "accepted",
        "concept_id": "mesh:D1",
        "preferred_name": "Cardiac infarction",
        "matched_name": "Heart attack",
        "score": "1",
        "confidence": "",
        "matched_by": "exact",
        "rejected": "",
    }
    assert (cold["concept_id"], cold["matched_by"]) == ("mesh:D2", "exact")
    assert (chest["decision"], chest["concept_id"], chest["rejected"]) == ("NIL", "NIL", "hp:2")
    assert (purple["mention"], purple["decision"], purple["score"]) == ("purple elephant", "NIL", "")


@pytest.mark.filterwarnings("ignore")  # the package's own, of pandas
def test_decisions_are_valid_sssom(page: Page, tmp_path: Path) -> None:
    parsers, validators = (
        pytest.importorskip("sssom.parsers"),
        pytest.importorskip("sssom.validators"),
    )
    curator.link(page)
    page.get_by_role("button", name="Accept 1 exact match", exact=True).click()
    curator.press(page, "Enter", "x", "n")
    page.reload()
    curator.linked(page)
    page.get_by_role("button", name="SSSOM", exact=True).click()
    page.get_by_label("Name or ORCID iD").fill("0000-0002-1825-0097")
    text = curator.download(page, "Save SSSOM file")
    # The author is asked for once.
    assert curator.download(page, "SSSOM").splitlines()[9:] == text.splitlines()[9:]
    (tmp_path / "decisions.sssom.tsv").write_text(text, encoding="utf-8")

    mappings = parsers.parse_sssom_table(tmp_path / "decisions.sssom.tsv")
    reports = validators.validate(mappings, fail_on_error=True)

    assert [result for report in reports.values() for result in report.results] == []
    mappings.clean_prefix_map(strict=True)  # as `sssom parse`: raises if a prefix is unknown
    assert mappings.metadata["mapping_set_id"].startswith("https://w3id.org/sssom/mappings/")
    columns = ["subject_label", "predicate_modifier", "object_id", "mapping_justification", "author_id"]
    by_hand = ["semapv:ManualMappingCuration", "orcid:0000-0002-1825-0097"]
    assert sorted(mappings.df[columns].fillna("").values.tolist()) == [
        ["Heart attack", "", "mesh:D1", "semapv:LexicalMatching", ""],
        ["chest pains", "", "sssom:NoTermFound", *by_hand],
        ["chest pains", "Not", "hp:2", *by_hand],
        ["cold", "", "hp:1", *by_hand],
    ]


def test_a_key_that_is_held_down_decides_once(page: Page) -> None:
    curator.link(page)
    for key in ("Enter", "n"):
        for _ in range(5):
            page.keyboard.down(key)
        page.keyboard.up(key)
    assert curator.decided(page) == "2 of 4 decided"
    for _ in range(3):
        page.keyboard.down("k")
    page.keyboard.up("k")
    assert curator.current(page) == "Heart attack"


def test_arrow_keys_move_in_a_focused_list(page: Page) -> None:
    curator.link(page)
    page.locator("#list").focus()
    curator.press(page, "ArrowDown", "ArrowDown", "ArrowUp")
    assert curator.current(page) == "cold"


def test_a_list_is_not_forgotten_by_pressing_enter_twice(page: Page) -> None:
    curator.link(page)
    page.get_by_role("button", name="Forget").focus()
    curator.press(page, "Enter", "Enter")
    curator.expect(page.locator("#forget-dialog")).to_be_hidden()
    assert curator.current(page) == "Heart attack"


def test_every_decision_can_be_undone(page: Page) -> None:
    curator.link(page)
    before = curator.download(page, "CSV")
    curator.press(page, "Enter", "x", "2", "n")
    assert curator.decided(page) == "3 of 4 decided"

    for left, back_at in ((2, "chest pains"), (1, "cold"), (1, "cold"), (0, "Heart attack")):
        curator.press(page, "u")
        assert (curator.decided(page), curator.current(page)) == (f"{left} of 4 decided", back_at)
    assert curator.download(page, "CSV") == before
    curator.press(page, "Control+z")
    assert page.locator("#announcement").inner_text() == "Nothing to undo"


def test_a_rejection_can_be_withdrawn(page: Page) -> None:
    curator.link(page, "chest pains")
    first, second = curator.names(page)[:2]
    curator.press(page, "x")
    assert page.locator(".rejected .name").all_inner_texts() == [first]
    assert page.locator(".marked .name").inner_text() == second
    curator.press(page, "ArrowUp", "x", "x", "Enter")
    assert page.locator(".chosen .name").inner_text() == second
    page.get_by_role("button", name=f"Do not reject {first}").click()
    page.get_by_role("button", name=f"Accept {first}").click()
    assert page.locator(".chosen .name").inner_text() == first
    assert curator.decided(page) == "1 of 1 decided"


def test_exact_matches_of_a_single_concept_are_accepted_together(page: Page) -> None:
    curator.link(page)
    page.get_by_role("button", name="Accept 1 exact match", exact=True).click()

    assert curator.decided(page) == "1 of 4 decided"
    assert curator.current(page) == "cold"
    assert page.locator("#accept-exact").is_hidden()


def test_candidates_are_filtered_by_type(page: Page) -> None:
    curator.link(page, "cold")
    page.get_by_label("Type").select_option("T184")
    page.get_by_text("hp:2").wait_for()
    curator.linked(page)

    assert curator.names(page) == ["Chest pain"]
    assert page.locator("#candidates .tag").all_inner_texts() == ["T184"]


def test_the_list_is_filtered_and_sorted(page: Page) -> None:
    curator.link(page)
    curator.press(page, "Enter", "j", "n")
    rows = curator.listed(page)

    page.get_by_role("button", name="To do").click()
    curator.expect(rows).to_have_text(["cold", "purple elephant"])
    page.get_by_label("Order").select_option("ascending")
    curator.expect(rows).to_have_text(["purple elephant", "cold"])
    assert curator.current(page) == "purple elephant"
    page.get_by_role("button", name="All").click()
    page.get_by_label("Find in the list").fill("CHEST")
    curator.expect(rows).to_have_text(["chest pains"])
    assert curator.current(page) == "chest pains"


def test_candidates_show_confidence_score_and_matched_name(page: Page) -> None:
    sure = {"concept_id": "x:1", "preferred_name": "Coryza", "matched_name": "cold", "types": ["T047"]}
    result = {**sure, "score": 0.876, "confidence": 0.914, "matched_by": "hybrid"}
    answer = json.dumps({"mention": "colds", "candidates": [result, {**result, "confidence": None}]})
    page.route("**/v1/link*", lambda route: route.fulfill(body=answer))
    curator.link(page, "colds")

    first, second = page.locator("#candidates li").all_inner_texts()
    for words in (
        "Coryza",
        "x:1",
        "T047",
        "similar name and spelling: cold",
        "91 % confidence",
        "score 0.88",
    ):
        assert words in first.replace("\n", " ")
    assert "confidence" not in second


# Concepts


def test_another_concept_is_found_by_the_start_of_a_name(page: Page) -> None:
    nil = json.dumps({"mention": "purple elephant", "candidates": []})
    page.route("**/v1/link*", lambda route: route.fulfill(body=nil))
    page.locator("#text").fill("purple elephant")
    page.get_by_role("button", name="Link", exact=True).click()
    curator.linked(page)
    curator.press(page, "/")
    page.keyboard.type("low te")
    page.get_by_role("option", name="Low temperature").wait_for()
    curator.press(page, "Enter")

    [row] = curator.downloaded_rows(page)
    assert (row["concept_id"], row["matched_name"]) == ("hp:1", "Low temperature")
    assert (row["decision"], row["matched_by"], row["score"]) == ("accepted", "hand", "")


def test_enter_does_not_accept_the_first_of_several_names(page: Page) -> None:
    curator.link(page, "purple elephant")
    curator.press(page, "/")
    page.keyboard.type("c")
    page.locator("#results li").nth(1).wait_for()
    assert page.locator("#results li[aria-selected=true]").count() == 0
    with page.expect_response("**/v1/link*"):
        curator.press(page, "Enter")
    assert curator.decided(page) == "0 of 1 decided"


def test_the_search_falls_back_to_similar_names(page: Page) -> None:
    curator.link(page, "purple elephant")
    curator.press(page, "/")
    page.keyboard.type("attack of heart")
    page.get_by_role("option", name="Heart attack").wait_for()
    curator.press(page, "ArrowDown", "Enter")
    assert curator.downloaded_rows(page)[0]["concept_id"] == "mesh:D1"


def test_the_search_respects_the_filters(page: Page) -> None:
    curator.link(page, "cold")
    for field, value in (("#prefixes", "mesh"), ("#types", "T047")):
        page.locator(field).select_option(value)
        curator.linked(page)
        page.locator("#search").fill("cold")
        page.get_by_role("option", name="mesh:D2").wait_for()
        assert page.get_by_role("option", name="hp:1").count() == 0
        page.locator(field).select_option("")


def test_a_concept_is_shown_with_its_names_and_nearest_concepts(page: Page) -> None:
    curator.link(page, "Heart attack")
    curator.press(page, "i")
    sheet = page.get_by_role("dialog", name="Concept")
    page.locator("#concept-name").wait_for()

    assert sheet.locator(".names li").count() == 3
    for words in ("mesh:D1", "mesh:D9", "T047", "From MSH, NCI", "Myocardial infarction NCI"):
        assert words in sheet.inner_text()
    near = sheet.locator(".near button").first
    name = near.inner_text()
    near.click()
    page.get_by_role("heading", name=name, exact=True).wait_for()
    sheet.get_by_role("button", name="Back").click()
    page.get_by_role("heading", name="Cardiac infarction", exact=True).wait_for()
    sheet.locator(".near button").first.click()
    page.get_by_role("heading", name=name, exact=True).wait_for()
    sheet.get_by_role("button", name="Choose this concept").click()
    assert page.locator(".chosen .name").inner_text() == name


def test_the_map_shows_the_names_near_a_mention(page: Page) -> None:
    curator.link(page, "chest pains")
    curator.press(page, "m")
    points = page.locator("#map circle")
    points.first.wait_for()

    assert points.count() == 7  # names that fold alike are one
    assert page.locator("#map text.mention").text_content() == "chest pains"
    label = page.locator("#map circle.own").get_attribute("aria-label") or ""
    assert label.startswith("Chest pain \u2014 Chest pain hp:2, score 0.")
    points.first.focus()
    curator.press(page, "ArrowRight", "Enter")
    page.locator("#concept-name").wait_for()


# What is kept


def test_decisions_survive_a_reload_until_they_are_forgotten(page: Page) -> None:
    curator.link(page)
    curator.press(page, "Enter", "x", "n")
    before = curator.download(page, "CSV")
    page.reload()
    curator.linked(page)

    assert (curator.decided(page), curator.current(page)) == ("2 of 4 decided", "chest pains")
    assert curator.download(page, "CSV") == before
    curator.press(page, "u")
    assert (curator.decided(page), curator.current(page)) == ("1 of 4 decided", "cold")
    curator.press(page, "n")
    page.get_by_role("button", name="Forget").click()
    assert "4 mentions and 2 decisions will be erased" in page.get_by_role("dialog").inner_text()
    page.get_by_role("button", name="Forget", exact=True).click()
    assert page.evaluate("Object.keys(localStorage)") == []
    assert "Heart" not in page.content()
    page.reload()
    assert page.locator("#text").input_value() == ""


def test_two_tabs_with_the_same_list_share_decisions(window: OpenWindow) -> None:
    opened = window()
    first = opened.open()
    curator.link(first)
    second = opened.open()
    curator.linked(second)
    curator.press(second, "Enter")
    first.get_by_text("1 of 4 decided").wait_for()
    curator.press(first, "j", "n")
    second.get_by_text("2 of 4 decided").wait_for()
    second.get_by_role("button", name="Forget").click()
    second.get_by_role("button", name="Forget", exact=True).click()
    first.locator("#start").wait_for()
    assert "Heart" not in first.content()


def test_a_tab_whose_list_was_replaced_warns_that_it_is_not_stored(window: OpenWindow) -> None:
    opened = window()
    first = opened.open()
    second = opened.open()
    curator.link(first, "cold\nHeart attack")
    curator.link(second, "chest pains")
    curator.press(first, "n")
    assert "Another tab" in first.get_by_role("alert").inner_text()
    second.reload()
    curator.linked(second)
    assert (curator.decided(second), curator.current(second)) == ("0 of 1 decided", "chest pains")


def test_a_list_too_large_to_store_can_be_reviewed(window: OpenWindow) -> None:
    opened = window()
    opened.context.add_init_script("Storage.prototype.setItem = () => { throw new DOMException('full'); }")
    page = opened.open()
    curator.link(page)
    assert "too large to be stored in the browser" in page.get_by_role("alert").inner_text()
    curator.press(page, "Enter")
    assert curator.downloaded_rows(page)[0]["concept_id"] == "mesh:D1"
