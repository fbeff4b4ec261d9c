from __future__ import annotations

import hashlib
import json
import re
from base64 import b64decode
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapbert.pages.document import document


class Elements(HTMLParser):
    """The elements of a page and the text of its data block."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.data = ""
        self._inside = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self._inside = ("id", "data") in attrs

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.data += data

    def handle_endtag(self, tag: str) -> None:
        self._inside = False


def test_a_page_loads_no_other_file() -> None:
    page = document("title", "<p>body</p>", script="errors", data=[])

    assert not re.search(r"\bsrc=|\bhref=|url\(|@import|https?://", page)
    assert "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page


def test_a_page_without_a_script_has_no_script_element() -> None:
    assert "script" not in document("title", "<p>body</p>")


@pytest.mark.parametrize(("tag", "directive"), [("style", "style-src"), ("script", "script-src")])
def test_the_policy_allows_only_our_style_and_script(tag: str, directive: str) -> None:
    page = document("title", "<p>body</p>", script="errors", data=["<script>"])
    (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    (digest,) = re.findall(rf"{directive} 'sha256-([^']+)'", page)

    assert b64decode(digest) == hashlib.sha256(content.encode()).digest()


@given(
    st.recursive(st.text() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)),
    st.text(),
)
def test_data_and_title_are_escaped(data: object, title: str) -> None:
    plain = Elements(document("", "<p>body</p>", script="errors", data=None))
    page = Elements(document(title, "<p>body</p>", script="errors", data=data))

    assert json.loads(page.data) == data
    assert page.seen == plain.seen
