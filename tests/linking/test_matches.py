"""Linking with a ranker: the order of candidates, abbreviations and filters."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from sapbert.index.name_table_writer import write_name_table
from sapbert.linking.calibration.file import Calibration
from sapbert.linking.calibration.model import Platt
from sapbert.linking.fusion.ranker import FusionRanker
from sapbert.linking.linker import Linker
from sapbert.linking.search import DenseSearch
from sapbert.linking.settings import LinkSettings, Method
from sapbert.vocab.input_files import InputReader
from sapbert.vocab.vocabulary import Vocabulary
from sapbert.vocab.writer import write_vocabulary
from tests.index.conftest import NgramEncoder
from tests.linking.conftest import Bench, EveryRow
from tests.linking.fusion.rankers import ranker_of

NAMES = [
    ("mesh:D1", "Rheumatoid Arthritis", "", 0),
    ("mesh:D1", "RA", "abbreviation", 900),
    ("mesh:D2", "Right Atrium", "", 0),
    ("mesh:D2", "RA", "abbreviation", 90),
    ("mesh:D0", "Refractory Anemia", "", 0),
    ("mesh:D0", "RA", "abbreviation", 9),
    ("mesh:D3", "Renal artery", "", 0),
]
RANKER = ranker_of({"equal": 3, "count lead": 20, "edit ratio": 10}, bias=-5)


def bench_with(folder: Path, ranker: FusionRanker | None, calibration: Calibration | None = None) -> Linker:
    names = pl.DataFrame(NAMES, schema=["concept_id", "name", "kind", "count"], orient="row")
    with write_vocabulary(folder / "vocabulary", {}, InputReader()) as writer:
        writer.add(names.with_columns(source=pl.lit("MSH"), rank=pl.lit(1, pl.Int32)))
        types = {"concept_id": ["mesh:D1", "mesh:D2"], "type": ["disease", "anatomy"]}
        writer.add_facts("types", pl.DataFrame(types))
    (folder / "entries").mkdir()
    name_table = write_name_table(Vocabulary.open(folder / "vocabulary"), folder / "entries")
    encoder = NgramEncoder(256)
    index = EveryRow(encoder.encode(name_table.folded.span(0, len(name_table))), [])
    return Linker(
        encoder, DenseSearch(index), name_table, fingerprint="", ranker=ranker, calibration=calibration
    )


@pytest.mark.parametrize("ranker", [None, RANKER], ids=["no ranker", "ranker"])
def test_meanings_of_a_short_form_are_ordered_by_count(tmp_path: Path, ranker: FusionRanker | None) -> None:
    [answer] = bench_with(tmp_path, ranker).link(["ra"], k=3)

    assert [each.concept_id for each in answer] == ["mesh:D1", "mesh:D2", "mesh:D0"]
    assert {(each.matched_by, each.name_kind) for each in answer} == {("exact", "abbreviation")}


def test_filters_apply_to_the_meanings_of_a_short_form(tmp_path: Path) -> None:
    linker = bench_with(tmp_path, RANKER)
    [answer] = linker.link(["ra"], settings=LinkSettings(types=("anatomy",)))

    assert [each.concept_id for each in answer] == ["mesh:D2"]
    [own] = linker.link(["ra"], settings=LinkSettings(kinds=("own",)))
    assert {each.matched_by for each in own} == {"dense"}


def test_every_meaning_has_a_confidence(tmp_path: Path) -> None:
    calibration = Calibration(
        index="",
        exact=True,
        sparse_weight=0,
        method=Method.PLATT,
        curve=Platt(0, 1, 0),
        threshold=None,
        ranker=RANKER,
    )
    [answer] = bench_with(tmp_path, None, calibration).link(["ra"], k=3)
    confidences = [each.confidence or 0 for each in answer]

    assert confidences == sorted(confidences, reverse=True)
    assert 0 < confidences[-1] < confidences[0]
    assert sum(confidences) <= 1


def with_ranker(bench: Bench, ranker: FusionRanker) -> Linker:
    return Linker(bench.encoder, bench.linker.search, bench.name_table, fingerprint="f00d", ranker=ranker)


def test_a_ranker_orders_candidates_and_keeps_exact_names_first(bench: Bench) -> None:
    linker = with_ranker(bench, ranker_of({"length ratio": 10}))  # prefers long names

    [[first, second, *_]] = linker.link(["cold"])
    assert {first.matched_by, second.matched_by} == {"exact"}
    [answer] = linker.link(["colt"])
    scores = [each.rerank_score or 0 for each in answer]
    assert scores == sorted(scores, reverse=True)
    assert answer[0].matched_name == "Heart attack"
    assert answer[0].score < max(each.score for each in answer)


def test_ranked_candidates_are_cached_and_k_does_not_change_them(bench: Bench) -> None:
    linker = with_ranker(bench, ranker_of({"edit ratio": 10}))
    [answer] = linker.link(["hart atack"], k=3)

    assert linker.cached(["hart atack"], k=3) == [answer]
    assert linker.link(["hart atack"], k=1) == [answer[:1]]


def test_labelled_mentions_are_ranked_like_names(bench: Bench) -> None:
    linker = with_ranker(bench, ranker_of({"edit ratio": 10}))
    linker.add_mentions([("Sniffles", "mesh:D2")])
    [[best, *_]] = linker.link(["sniffles"])
    assert (best.concept_id, best.matched_name, best.matched_by) == ("mesh:D2", "Sniffles", "exact")
