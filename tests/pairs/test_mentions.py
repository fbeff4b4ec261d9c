from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sapbert.errors import FormatError, SapbertError
from sapbert.pairs.artifact import Pairs
from sapbert.pairs.mentions import pair_mentions
from sapbert.text import fold
from sapbert.vocab.input_files import InputReader
from sapbert.vocab.readers.settings import TableSettings
from sapbert.vocab.readers.tabular import read_table
from sapbert.vocab.vocabulary import Vocabulary
from sapbert.vocab.writer import write_vocabulary
from tests.conftest import Read
from tests.pairs.test_draw import homonyms_of, pairs_of

NAMES = {
    "mesh:D1": ["Breast Neoplasms", "Breast Cancer"],
    "mesh:D2": ["Ovarian Neoplasms", "Ovarian Cancer"],
    "mesh:D3": ["Alone"],
    "omim:114480": ["BRCA"],
}
ALIASES = [("mesh:D1", "mesh:D9001"), ("mesh:D1", "mesh:D2")]
"""The second lists a concept of the vocabulary as an alias of another, as some sources do."""


@pytest.fixture
def vocabulary(tmp_path: Path) -> Vocabulary:
    inputs = InputReader()
    rows = [(concept, name) for concept, names in NAMES.items() for name in names]
    with write_vocabulary(tmp_path / "vocabulary", {}, inputs) as writer:
        writer.add(pl.DataFrame(rows, schema=["concept_id", "name"], orient="row"))
        writer.add_facts("aliases", pl.DataFrame(ALIASES, schema=["concept_id", "alias"], orient="row"))
    return Vocabulary.open(tmp_path / "vocabulary")


Pair = Callable[..., Pairs]


@pytest.fixture
def pair(vocabulary: Vocabulary, tmp_path: Path) -> Pair:
    """Pair mentions, given as mention and concept ids."""

    def run(*mentions: tuple[str, str], prefix: str | None = "mesh") -> Pairs:
        table = tmp_path / "train.tsv"
        lines = ["doc_id\tmention\tconcept_ids", *(f"7\t{mention}\t{ids}" for mention, ids in mentions)]
        table.write_text("\n".join(lines) + "\n")
        return pair_mentions(vocabulary, table, tmp_path / "pairs", prefix=prefix, overwrite=True)

    return run


BREAST = {"breast neoplasms", "breast cancer"}
OVARIAN = {"ovarian neoplasms", "ovarian cancer"}


def with_names(concept: str, mention: str, names: set[str]) -> set[tuple[str, str, str]]:
    """The pairs of a mention with `names`."""
    return {(concept, min(mention, name), max(mention, name)) for name in names}


def unknown(pairs: Pairs) -> int:
    return pairs.manifest.counts["mentions without a known concept"]


def test_a_mention_is_paired_with_every_name_of_its_concept(pair: Pair) -> None:
    pairs = pair(("Tumor of the breast", "D1"))

    assert pairs_of(pairs) == with_names("mesh:D1", "tumor of the breast", BREAST)
    assert pairs.manifest.counts["mentions"] == 1
    assert unknown(pairs) == 0


def test_names_of_concepts_without_a_mention_are_left_out(pair: Pair) -> None:
    pairs = pair(("tumor", "D1"))

    assert set(pairs.names.span(0, len(pairs.names))) == {"tumor", *BREAST}


def test_two_mentions_are_not_paired_with_each_other(pair: Pair) -> None:
    pairs = pair(("tumor one", "D1"), ("tumor two", "D1"))

    both = with_names("mesh:D1", "tumor one", BREAST) | with_names("mesh:D1", "tumor two", BREAST)
    assert pairs_of(pairs) == both


def test_a_mention_that_is_a_name_is_paired_with_the_others(pair: Pair) -> None:
    assert pairs_of(pair(("BREAST cancer", "D1"))) == {("mesh:D1", "breast cancer", "breast neoplasms")}


def test_all_names_as_mentions_make_each_pair_once(pair: Pair) -> None:
    pairs = pair(("breast cancer", "D1"), ("breast neoplasms", "D1"))

    assert pairs_of(pairs) == {("mesh:D1", "breast cancer", "breast neoplasms")}


def test_a_repeated_mention_makes_no_more_pairs(pair: Pair) -> None:
    once = pair(("tumor", "D1"))
    thrice = pair(("tumor", "D1"), ("Tumor ", "D1"), ("tumor", "mesh:D1"))

    assert once.manifest.fingerprint == thrice.manifest.fingerprint
    assert thrice.manifest.counts["mentions"] == 3


def test_the_parts_of_a_composite_mention_have_their_own_concepts(pair: Pair) -> None:
    pairs = pair(("breast tumor|ovarian tumor", "D1|D2"))

    breast = with_names("mesh:D1", "breast tumor", BREAST)
    assert pairs_of(pairs) == breast | with_names("mesh:D2", "ovarian tumor", OVARIAN)


@pytest.mark.parametrize("ids", ["D1|D2", "D1+D2"])
def test_a_mention_of_several_concepts_is_paired_with_the_names_of_each(pair: Pair, ids: str) -> None:
    pairs = pair(("tumor", ids))

    expected = with_names("mesh:D1", "tumor", BREAST) | with_names("mesh:D2", "tumor", OVARIAN)
    assert pairs_of(pairs) == expected
    assert homonyms_of(pairs) == {"tumor": {"mesh:D1", "mesh:D2"}}


def test_ids_joined_by_plus_belong_to_the_parts_of_a_composite_mention(pair: Pair) -> None:
    pairs = pair(("breast tumor|ovarian tumor", "D1+D2"))

    breast = with_names("mesh:D1", "breast tumor", BREAST)
    assert pairs_of(pairs) == breast | with_names("mesh:D2", "ovarian tumor", OVARIAN)


def test_parts_and_identifiers_that_do_not_match_are_left_out_and_counted(pair: Pair) -> None:
    pairs = pair(("tumor", "D1"), ("one|two", "D1"), ("one|two", "D1|D2|D3"))

    assert pairs_of(pairs) == with_names("mesh:D1", "tumor", BREAST)
    assert unknown(pairs) == 2


def test_an_alias_is_resolved_to_its_concept(pair: Pair) -> None:
    assert pairs_of(pair(("tumor", "D9001"))) == with_names("mesh:D1", "tumor", BREAST)


def test_an_id_of_a_concept_is_not_resolved_as_an_alias(pair: Pair) -> None:
    assert pairs_of(pair(("tumor", "D2"))) == with_names("mesh:D2", "tumor", OVARIAN)


def test_unknown_concepts_are_counted(pair: Pair) -> None:
    pairs = pair(("tumor", "D1"), ("what", "D77"), ("nothing", ""), ("nil", "-1"), ("half|known", "D1|D77"))

    assert unknown(pairs) == 3
    assert pairs.manifest.counts["mentions"] == 5


def test_ids_with_a_prefix_need_no_prefix_option(pair: Pair) -> None:
    pairs = pair(("tumor", "MSH:D1"), ("gene", "OMIM:114480"), ("bare", "D1"), prefix=None)

    expected = with_names("mesh:D1", "tumor", BREAST) | with_names("omim:114480", "gene", {"brca"})
    assert pairs_of(pairs) == expected
    assert unknown(pairs) == 1


def test_identifiers_of_mesh_and_omim_need_no_prefix(pair: Pair) -> None:
    pairs = pair(("mamma ca", "114480"), prefix=None)
    assert pairs_of(pairs) == with_names("omim:114480", "mamma ca", {"brca"})


def test_an_error_about_ids_without_a_prefix_names_the_option(pair: Pair) -> None:
    with pytest.raises(SapbertError, match=r"train\.tsv: no mention has a concept of .*--prefix mesh"):
        pair(("mamma ca", "X-1"), prefix=None)


def test_mentions_without_any_pair_are_an_error_and_leave_no_files(
    vocabulary: Vocabulary, tmp_path: Path
) -> None:
    table = tmp_path / "train.tsv"
    table.write_text("mention\tconcept_ids\nalone\tmesh:D3\nwhat\tmesh:D77\n\u200b\tmesh:D1\n")

    with pytest.raises(SapbertError, match=r"train\.tsv: no mention has a concept of .* with another name"):
        pair_mentions(vocabulary, table, tmp_path / "pairs")
    assert not (tmp_path / "pairs").exists()


def test_a_name_of_invisible_characters_makes_no_pair(tmp_path: Path) -> None:
    inputs = InputReader()
    with write_vocabulary(tmp_path / "vocabulary", {}, inputs) as writer:
        writer.add(pl.DataFrame({"concept_id": ["x:1", "x:1"], "name": ["\u200b", "seen"]}))
    table = tmp_path / "train.tsv"
    table.write_text("mention\tconcept_ids\nsaw\tx:1\n")

    pairs = pair_mentions(Vocabulary.open(tmp_path / "vocabulary"), table, tmp_path / "pairs")

    assert pairs_of(pairs) == {("x:1", "saw", "seen")}


@pytest.mark.parametrize("missing", ["mention", "concept_ids"])
def test_a_missing_column_is_named(vocabulary: Vocabulary, tmp_path: Path, missing: str) -> None:
    table = tmp_path / "train.tsv"
    other = {"mention": "concept_ids", "concept_ids": "mention"}[missing]
    table.write_text(f"raw_mention\t{other}\na\tb\n")

    with pytest.raises(
        FormatError, match=rf"^train\.tsv:1: no column '{missing}' among: raw_mention, {other}"
    ):
        pair_mentions(vocabulary, table, tmp_path / "pairs")


def test_a_row_with_another_number_of_columns_is_named(vocabulary: Vocabulary, tmp_path: Path) -> None:
    table = tmp_path / "train.tsv"
    table.write_text("mention\tconcept_ids\ntumor\tmesh:D1\ntumor\n")

    with pytest.raises(FormatError, match=r"^train\.tsv:3: expected 2 columns, found 1"):
        pair_mentions(vocabulary, table, tmp_path / "pairs")


def test_a_folder_of_several_files_is_refused(vocabulary: Vocabulary, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(FormatError, match="contains 0 files"):
        pair_mentions(vocabulary, tmp_path / "empty", tmp_path / "pairs")


def test_the_table_may_have_gzip_windows_line_ends_a_byte_order_mark_and_repeated_columns(
    vocabulary: Vocabulary, tmp_path: Path, pair: Pair
) -> None:
    plain = pair(("tumor", "D1"))
    table = tmp_path / "train.tsv.gz"
    table.write_bytes(gzip.compress(b"\xef\xbb\xbfmention\tx\tx\tconcept_ids\r\ntumor\t1\t2\tD1\r\n"))

    pairs = pair_mentions(vocabulary, table, tmp_path / "other", prefix="mesh")

    assert pairs.manifest.fingerprint == plain.manifest.fingerprint
    assert pairs.manifest.inputs.keys() == {"vocabulary", "train.tsv"}


texts = st.sampled_from(["tumor", "Breast cancer", "ovarian cancer", "alone", "brca", "growth", "\u200b"])
known = st.sampled_from(["mesh:D1", "mesh:D2", "mesh:D3", "omim:114480", "mesh:D77"])


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mentions=st.lists(st.tuples(texts, known), max_size=12))
def test_pairs_equal_those_of_plain_loops(pair: Pair, mentions: list[tuple[str, str]]) -> None:
    mentions = [*mentions, ("always", "mesh:D1")]

    pairs = pair(*mentions)

    expected = {
        (concept, *sorted((fold(mention), fold(name))))
        for mention, concept in mentions
        for name in NAMES.get(concept, ())
        if fold(mention) and fold(mention) != fold(name)
    }
    assert pairs_of(pairs) == expected


def test_nearly_every_training_mention_of_ncbi_disease_finds_its_concept_in_medic(
    shared_data: Path, read: Read, tmp_path: Path
) -> None:
    medic = shared_data / "raw" / "medic_06Jul2012.txt.gz"
    vocabulary = read(lambda w, i: read_table(medic, w, i, TableSettings(prefix="mesh")))
    train = shared_data / "benchmarks" / "ncbi-disease" / "train.tsv.gz"

    pairs = pair_mentions(vocabulary, train, tmp_path / "pairs", prefix="mesh")

    assert pairs.manifest.counts["mentions"] == 5134
    assert unknown(pairs) == 0
