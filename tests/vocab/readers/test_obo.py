"""OBO text: its lines and their errors. `test_ontology` compares it with the other two formats."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from sapbert.errors import FormatError
from sapbert.vocab.readers.obo import read_obo
from sapbert.vocab.readers.settings import OboSettings
from sapbert.vocab.settings import SCOPES, OnError
from sapbert.vocab.vocabulary import Vocabulary
from tests.conftest import GOLDEN, Read

ALL_SCOPES = OboSettings(scopes=SCOPES)
IFO = GOLDEN / "obo" / "ifo.obo"
ReadText = Callable[..., Vocabulary]


def rows(vocabulary: Vocabulary) -> set[tuple[str, str, str]]:
    """Concept, name and scope of every name."""
    columns = [pl.col("concept_id"), pl.col("name"), pl.col("scope").cast(pl.String)]
    return set(vocabulary.names.select(columns).collect().iter_rows())


@pytest.fixture
def read_text(read: Read, tmp_path: Path) -> ReadText:
    """Read an ontology given as text, in a file of this name."""

    def run(
        content: str | bytes,
        *,
        settings: OboSettings = ALL_SCOPES,
        name: str = "invented.obo",
        on_error: OnError = "stop",
    ) -> Vocabulary:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read(lambda writer, inputs: read_obo(path, writer, inputs, settings), on_error=on_error)

    return run


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("name: plain", "plain"),
        ("name:no space", "no space"),
        ("name: with ! a comment", "with"),
        ("name: Yes! it stays", "Yes! it stays"),
        (r"name: kept \! here", "kept ! here"),
        ('name: modified {a="b"}', "modified"),
        ('name: modified {a="b ! }", c="\\"d\\""} ! and a comment', "modified"),
        ("name: N-{4-[(2R)-oxo]phenyl}", "N-{4-[(2R)-oxo]phenyl}"),
        (r"name: a\:b\,c\"d\(e\)\[f\]\{g\}", 'a:b,c"d(e)[f]{g}'),
        (r"name: one\nline\tand\Wmore", "one line and more"),
        (r"name: back\\slash \\n", r"back\slash \n"),
        ("name: two \\\nlines", "two lines"),
        ("name: three \\\r\n lines\\\r\n joined", "three lines joined"),
        ('name: the "quoted"', 'the "quoted"'),
        ("name: nul\0byte", "nul byte"),
        ("name: e\u0301tat \u202b\u0645\u062a", "e\u0301tat \u202b\u0645\u062a"),
        ("name: " + "long " * 20_000 + "end", "long " * 20_000 + "end"),
    ],
)
def test_values_are_unescaped_and_trailers_removed(read_text: ReadText, line: str, name: str) -> None:
    vocabulary = read_text(f"format-version: 1.4\n\n[Term]\nid: IFO:1\n{line}\n")

    assert rows(vocabulary) == {("ifo:1", name, "exact")}


@pytest.mark.parametrize(
    ("line", "name", "scope"),
    [
        ('synonym: "s" EXACT []', "s", "exact"),
        ('synonym: "s" BROAD layperson []', "s", "broad"),
        ('synonym: "s" NARROW [X:1 "a ] b", Y:2] {c="d"} ! e', "s", "narrow"),
        ('synonym: "s" RELATED', "s", "related"),
        ('synonym: "s" exact []', "s", "exact"),
        ('synonym: "no scope" []', "no scope", "related"),
        ('exact_synonym: "old" []', "old", "exact"),
        ('narrow_synonym: "old" []', "old", "narrow"),
        (r'synonym: "a \"b\" \\" BROAD []', 'a "b" \\', "broad"),
        ('synonym: "keeps {a=\\"b\\"} ! this" EXACT []', 'keeps {a="b"} ! this', "exact"),
    ],
)
def test_a_synonym_keeps_its_scope(read_text: ReadText, line: str, name: str, scope: str) -> None:
    vocabulary = read_text(f"[Term]\nid: IFO:1\nname: it\n{line}\n")

    assert rows(vocabulary) == {("ifo:1", "it", "exact"), ("ifo:1", name, scope)}


@pytest.mark.parametrize(
    ("line", "xrefs"),
    [
        ("xref: MSH:D1", ("mesh:D1",)),
        ('xref: MSH:D1 "a ! description" {a="b"} ! comment', ("mesh:D1",)),
        (r"xref: Wikipedia:Glass\ elbow", ("wikipedia:Glass elbow",)),
        ("xref: http://purl.obolibrary.org/obo/SNOMEDCT_US_1234567", ("snomedct:1234567",)),
        ("xref: http://www.orpha.net/page_1", ()),
        (r"xref: url:http\://example.org/page_1", ()),
        ("xref: elbow", ()),
    ],
)
def test_an_xref_is_kept_if_it_is_a_curie(read_text: ReadText, line: str, xrefs: tuple[str, ...]) -> None:
    concept = read_text(f"[Term]\nid: IFO:1\nname: it\n{line}\n").concept("IFO:1")

    assert concept is not None
    assert concept.xrefs == xrefs


def test_stanzas_of_one_id_are_one_concept(read_text: ReadText) -> None:
    vocabulary = read_text(
        "[Term]\nid: IFO:1\nname: a\n\n[Term]\nid: IFO:2\nname: gone\n\n"
        '[Term]\nid: IFO:1\nsynonym: "b" EXACT []\n\n[Term]\nid: IFO:2\nis_obsolete: true\n'
    )

    assert rows(vocabulary) == {("ifo:1", "a", "exact"), ("ifo:1", "b", "exact")}


def test_a_name_that_is_also_a_broad_synonym_counts_as_exact(read_text: ReadText) -> None:
    vocabulary = read_text('[Term]\nid: IFO:1\nsynonym: "a" BROAD []\nname: a\n')

    assert rows(vocabulary) == {("ifo:1", "a", "exact")}


def test_an_id_without_a_curie_is_dropped_and_counted(read_text: ReadText) -> None:
    vocabulary = read_text("[Term]\nid: IFO:1\nname: a\n[Term]\nid: elbow\nname: b\n")

    assert rows(vocabulary) == {("ifo:1", "a", "exact")}
    assert vocabulary.manifest.counts["terms without a CURIE dropped"] == 1


def test_windows_lines_and_a_byte_order_mark_change_nothing(read: Read, read_text: ReadText) -> None:
    plain = read(lambda writer, inputs: read_obo(IFO, writer, inputs, ALL_SCOPES))

    content = IFO.read_text(encoding="utf-8").replace("\n", "\r\n")

    assert read_text(b"\xef\xbb\xbf" + content.encode()).fingerprint == plain.fingerprint


@pytest.mark.parametrize("size", [1, 7, 100, 1000])
def test_block_boundaries_do_not_matter(
    read: Read, read_text: ReadText, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    whole = read(lambda writer, inputs: read_obo(IFO, writer, inputs, ALL_SCOPES))
    broken = IFO.read_text(encoding="utf-8") + '\n[Term]\nid: IFO:9\nsynonym: "a\n'
    line = broken.count("\n")

    monkeypatch.setattr("sapbert.vocab.input_files.BLOCK_BYTES", size)

    cut = read(lambda writer, inputs: read_obo(IFO, writer, inputs, ALL_SCOPES))
    assert cut.fingerprint == whole.fingerprint
    with pytest.raises(FormatError, match=rf"^invented.obo:{line}: cannot read the synonym"):
        read_text(broken)


# Bad input.

HEAD = "format-version: 1.4\n\n"


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("[Term]\nname: a\n", r"invented.obo:3: a \[Term\] without an id"),
        ("[Term]\nid:\nname: a\n", r"invented.obo:3: a \[Term\] without an id"),
        (
            "[Term]\nid: A:1\nid: A:2\n",
            r"invented.obo:5: a second id in one stanza \(is a \[Term\] line missing\?\)",
        ),
        (
            "[Term]\nid: A:1\nname: \\\na\nsynonym: bare EXACT []\n",
            r"invented.obo:7: cannot read the synonym bare",
        ),
        ('[Term]\nid: A:1\nsynonym: "a" SIMILAR TO []\n', r"invented.obo:5: cannot read the synonym"),
        ("[Term]\nid: A:1\nname a\n", r"invented.obo:5: expected `tag: value`, found name a"),
        (b"[Term]\nid: A:1\nname: \xff\n", r"invented.obo:5: byte 0xff in column 7 is not UTF-8"),
        ("[Typedef]\nid: part_of\nname: part of\n", r"invented.obo: contains no term"),
        (
            "[Term]\nid: elbow\nname: a\n",
            r"invented.obo: no id of a term can be converted to a CURIE, such as 'elbow'",
        ),
    ],
)
def test_damage_is_named_with_its_line(read_text: ReadText, content: str | bytes, error: str) -> None:
    with pytest.raises(FormatError, match=f"^{error}"):
        read_text(HEAD.encode() + (content if isinstance(content, bytes) else content.encode()))


def test_bad_lines_are_skipped_and_counted_on_request(read_text: ReadText) -> None:
    vocabulary = read_text(
        b"[Term]\nname: lost\n[Term]\nid: A:1\nname: a\nwhat is this\nsynonym: bad\n"
        b'synonym: "b" EXACT []\nsynonym: "\xff" EXACT []\n[Term]\nid: A:2\nname: x\nid: A:3\n',
        on_error="skip",
    )

    assert rows(vocabulary) == {("a:1", "a", "exact"), ("a:1", "b", "exact")}
    assert vocabulary.manifest.counts["bad rows skipped"] == 5


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("empty.obo", b"", "empty.obo: the file is empty"),
        ("blank.owl", b"\xef\xbb\xbf \n\n", "blank.owl: the file is empty"),
        (
            "MRCONSO.RRF",
            b"C0000001|ENG|P|L1|\n",
            "MRCONSO.RRF:1: unknown ontology format, found 'C0000001",
        ),
        (
            "a.ttl",
            b"@prefix owl: <x> .\n",
            r"a.ttl:1: unknown ontology format, .* \(give OBO, OBO Graphs",
        ),
        (
            "cut.obo.gz",
            gzip.compress(b"[Term]\nid: A:1\n" * 99, mtime=0)[:-9],
            r"cut.obo.gz: damaged or truncated",
        ),
        ("text.obo.gz", b"[Term]\nid: A:1\n", r"text.obo.gz: damaged or truncated: Not a gzipped file"),
    ],
)
def test_a_file_of_the_wrong_kind_is_refused(
    read_text: ReadText, name: str, content: bytes, error: str
) -> None:
    with pytest.raises(FormatError, match=f"^{error}"):
        read_text(content, name=name)


def test_a_folder_is_refused(read: Read) -> None:
    with pytest.raises(
        FormatError, match=r"obo: contains 3 files, .* \(give the .obo, .json or .owl file itself\)"
    ):
        read(lambda writer, inputs: read_obo(GOLDEN / "obo", writer, inputs, OboSettings()))
