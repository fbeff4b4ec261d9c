"""The files of the review page and their headers."""

from __future__ import annotations

import gzip
import re
from importlib.resources import files

import pytest
from starlette.testclient import TestClient

from tests.service.conftest import error_of

FOLDER = files("sapbert.service") / "page"
FILES = sorted(entry.name for entry in FOLDER.iterdir())


def test_the_page_may_load_its_own_files_and_nothing_else(client: TestClient) -> None:
    answer = client.get("/")
    policy = answer.headers["content-security-policy"]

    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"<script(?! (type=\"module\" )?src=)|<style|\son\w+=|\sstyle=", answer.text)
    assert "//" not in answer.text


@pytest.fixture
def folder(client: TestClient) -> str:
    """The path of the files that the page refers to."""
    [path] = set(re.findall(r'="(page/[0-9a-f]{16}/)', client.get("/").text))
    return f"/{path}"


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_served_and_refers_only_to_served_files(
    client: TestClient, folder: str, name: str
) -> None:
    answer = client.get(folder + name)

    assert answer.status_code == 200
    assert answer.headers["x-content-type-options"] == "nosniff"
    named = re.findall(r'(?:from "\./|="page/[0-9a-f]{16}/)([\w.]+)"', answer.text)
    assert set(named) <= set(FILES)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", answer.text)


def test_files_are_cached_forever_and_the_page_is_revalidated(client: TestClient, folder: str) -> None:
    assert client.get(f"{folder}app.js").headers["cache-control"] == "public, max-age=31536000, immutable"

    page = client.get("/")
    assert page.headers["cache-control"] == "no-cache"
    again = client.get("/", headers={"If-None-Match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["content-security-policy"] == page.headers["content-security-policy"]
    assert client.get("/", headers={"If-None-Match": '"other"'}).status_code == 200


@pytest.mark.parametrize(
    ("accepted", "compressed"),
    [
        ("gzip, deflate, br", True),
        ("br;q=1.0, GZIP;q=0.5", True),
        ("", False),
        ("identity", False),
        ("gzip;q=0", False),
        ("gzip; q=0.0, br", False),
    ],
)
def test_files_are_compressed_if_the_client_accepts_it(
    client: TestClient, folder: str, accepted: str, compressed: bool
) -> None:
    source = (FOLDER / "style.css").read_bytes()
    with client.stream("GET", f"{folder}style.css", headers={"Accept-Encoding": accepted}) as answer:
        content = b"".join(answer.iter_raw())
    assert (answer.headers.get("content-encoding") == "gzip") == compressed
    assert answer.headers["vary"] == "Accept-Encoding"
    assert (gzip.decompress(content) if compressed else content) == source
    assert not compressed or len(content) < len(source) / 3


@pytest.mark.parametrize(
    "path",
    [
        "/page/",
        "/page/app.js",
        "/page/0123456789abcdef/app.js",
        "/page/..%2Fapp.py",
        "/page/../app.py",
        "/page/%2Fetc%2Fpasswd",
    ],
)
def test_other_paths_are_not_found(client: TestClient, path: str) -> None:
    assert error_of(client.get(path), 404) == "no such path"
