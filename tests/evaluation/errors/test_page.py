from __future__ import annotations

import json
import re
from typing import Any

import pytest

from sapbert.evaluation.errors import page
from sapbert.evaluation.errors.wrong_links import wrong_links
from sapbert.evaluation.run import Evaluation, evaluate
from tests.evaluation.conftest import mentions, ranker_answering, small_set

SCRIPT = "</script><script>alert(1)</script><!--"
NAMES = {"fever": "F", "hot fever": "F", "moss lung": "M", SCRIPT: "S"}
RANKED = {"hot": ["moss lung", "fever"], SCRIPT: ["fever", SCRIPT], "cold": [SCRIPT]}


def run() -> Evaluation:
    return evaluate(
        small_set(NAMES, mentions(("hot", "F"), (SCRIPT, "M"), ("cold", "Z"), ("hot", "F"))),
        ranker_answering(RANKED),
    )


def html() -> str:
    evaluation = run()
    return page.errors_page(evaluation, wrong_links(evaluation), title=f"wrong & {SCRIPT}")


def data_of(html: str) -> Any:
    (block,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    return json.loads(block)


def test_kinds_are_counted_and_described() -> None:
    text = html()

    assert "4 of 4 mentions are linked wrongly (100.0%), 3 distinct." in text
    assert re.search(r'data-kind="near miss">near miss</th>\s*<td>None of the above, and the gold', text)
    assert '<td class="number" data-head="dictionary">2 (50%)</td>' in text
    assert "hot \u2192 moss lung; gold: fever" in text
    assert "composite" not in text.partition("<script")[0]


def test_a_script_finds_the_links_and_the_names_of_their_gold_concepts() -> None:
    (own,) = data_of(html())["dictionaries"]

    assert own["name"] == "dictionary"
    assert own["concepts"]["F"] == {"names": ["fever", "hot fever"], "more": 0}
    assert own["links"][0] == {
        "kind": "near miss",
        "times": 2,
        "raws": ["hot"],
        "documents": [],
        "gold": ["F"],
        "rank": 2,
        "seen": False,
        "parts": [{"text": "hot", "answers": [["moss lung", "M", 1.0, False], ["fever", "F", 0.99, True]]}],
    }


def test_text_never_becomes_markup() -> None:
    text = html()

    assert len(re.findall("<script", text)) == len(re.findall("</script", text)) == 2
    assert "<!--" not in text
    assert "alert(1)" in json.dumps(data_of(text))
    assert "wrong &amp; &lt;/script&gt;" in text


def test_only_the_most_frequent_links_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluation = run()
    links = wrong_links(evaluation)
    monkeypatch.setattr(page, "MAX_SHOWN", 1)

    shown = page.errors_page(evaluation, links, title="wrong")

    assert "3 distinct; the 1 most frequent are shown" in shown
    assert [link["times"] for link in data_of(shown)["dictionaries"][0]["links"]] == [2]
