"""The files of the review page and their headers."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from starlette.testclient import TestClient

from tests.service.conftest import error_of

FILES = sorted(entry.name for entry in (files("sapbert.service") / "page").iterdir())


def test_the_page_may_load_its_own_files_and_nothing_else(client: TestClient) -> None:
    answer = client.get("/")
    policy = answer.headers["content-security-policy"]

    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"<script(?! (type=\"module\" )?src=)|<style|\son\w+=|\sstyle=", answer.text)
    assert "//" not in answer.text


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_served_and_refers_only_to_served_files(client: TestClient, name: str) -> None:
    answer = client.get(f"/page/{name}")

    assert answer.status_code == 200
    assert answer.headers["x-content-type-options"] == "nosniff"
    named = re.findall(r'(?:from "\./|="page/)([\w.]+)"', answer.text)
    assert set(named) <= set(FILES)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", answer.text)


@pytest.mark.parametrize(
    "path", ["/page/", "/page/none.js", "/page/..%2Fapp.py", "/page/../app.py", "/page/%2Fetc%2Fpasswd"]
)
def test_other_paths_are_not_found(client: TestClient, path: str) -> None:
    assert error_of(client.get(path), 404) == "no such path"
