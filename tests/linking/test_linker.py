from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapbert.errors import ConfigError
from sapbert.index.name_table import NameTable
from sapbert.linking import candidate_cache, search
from sapbert.linking import linker as linker_module
from sapbert.linking.calibration.file import Calibration
from sapbert.linking.calibration.model import Platt
from sapbert.linking.candidate import Candidate
from sapbert.linking.linker import Linker
from sapbert.linking.search import DenseSearch, FilterMasks, filter_masks
from sapbert.linking.settings import LinkSettings, Method
from sapbert.text import fold
from tests.index.conftest import NgramEncoder, Row
from tests.linking.conftest import FACTS, ROWS, Bench, LetterEncoder, bench_of


def ids(answer: Sequence[Candidate]) -> list[str]:
    return [candidate.concept_id for candidate in answer]


def test_a_mention_is_linked_to_concepts_best_first(linker: Linker) -> None:
    [answer] = linker.link(["hart atack"], k=3)

    assert len(answer) == 3
    assert answer[0].concept_id == "mesh:D1"
    assert (answer[0].matched_name, answer[0].matched_by, answer[0].confidence) == (
        "Heart attack",
        "dense",
        None,
    )
    assert answer[0].preferred_name in {"Heart attack", "Myocardial infarction", "Cardiac infarction"}
    assert answer[0].score > answer[1].score
    assert len(set(ids(answer))) == 3


def test_an_exact_name_ranks_first_ignoring_case_and_spacing(linker: Linker) -> None:
    [answer] = linker.link(["  HEART\tattack "], k=2)

    assert answer[0] == Candidate("mesh:D1", answer[0].preferred_name, "Heart attack", 1.0, None, "exact")
    assert answer[1].matched_by == "dense"


def test_the_concepts_of_an_ambiguous_name_are_ordered_by_identifier(linker: Linker) -> None:
    [answer] = linker.link(["COLD"], k=3)

    assert [(c.concept_id, c.score, c.matched_by) for c in answer[:2]] == [
        ("hp:1", 1.0, "exact"),
        ("mesh:D2", 1.0, "exact"),
    ]
    assert answer[2].matched_by == "dense"


def test_a_candidate_has_the_kind_of_its_matched_name(tmp_path: Path) -> None:
    rows: list[Row] = [
        ("x:1", "hypertension", "M", "en", "1"),
        ("x:1", "htn", "A", "en", "0", "abbreviation", "9"),
        ("x:1", "high blood pressure", "L", "en", "0", "lay"),
        ("x:2", "hip", "M", "en", "1"),
    ]
    linker = bench_of(tmp_path, rows, None, NgramEncoder(256)).linker

    [exact], [near] = linker.link(["HTN", "hih blood presure"], k=1)
    [own] = linker.link(["htn"], k=1, settings=LinkSettings(kinds=("own",)))[0]

    assert (exact.name_kind, near.name_kind) == ("abbreviation", "lay")
    assert (own.matched_by, own.name_kind) == ("dense", "")


def test_preferred_names_are_in_the_requested_language_if_there_are_any(tmp_path: Path) -> None:
    rows: list[Row] = [
        ("x:1", "fever", "M", "en", "1"),
        ("x:1", "Fieber", "O", "de", "1", "translation"),
        ("x:1", "Temperatur", "O", "de", "0", "translation"),
        ("x:2", "fever dream", "M", "en", "1"),
    ]
    linker = bench_of(tmp_path, rows, None, NgramEncoder(256)).linker

    [answer] = linker.link(["fever"], k=2, settings=LinkSettings(language="de"))
    assert [candidate.preferred_name for candidate in answer] == ["Fieber", "fever dream"]
    [answer] = linker.link(["fever"], k=2)
    assert [candidate.preferred_name for candidate in answer] == ["fever", "fever dream"]
    with pytest.raises(ConfigError, match="the index has no language 'fi'; it has de, en"):
        linker.link(["fever"], settings=LinkSettings(language="fi"))


def test_without_exact_all_candidates_come_from_the_encoder(linker: Linker) -> None:
    [answer] = linker.link(["cold"], k=2, settings=LinkSettings(exact=False))

    assert [(c.concept_id, c.score, c.matched_by) for c in answer] == [
        ("hp:1", 1.0, "dense"),
        ("mesh:D2", 1.0, "dense"),
    ]


def test_a_mention_with_enough_exact_matches_is_not_encoded(bench: Bench) -> None:
    bench.linker.link(["cold", "heart attack"], k=1)
    assert isinstance(bench.encoder, NgramEncoder)
    assert bench.encoder.encoded == []


def test_an_empty_list_of_mentions_gives_an_empty_list(linker: Linker) -> None:
    assert linker.link([]) == []


def test_an_empty_mention_is_nil(linker: Linker) -> None:
    assert linker.link(["", " \t ", "\u200b"]) == [[], [], []]


def test_null_of_a_data_frame_is_nil(linker: Linker) -> None:
    nulls: list[Any] = [None, float("nan")]
    assert linker.link([*nulls, "cold"], k=1) == [[], [], linker.link(["cold"], k=1)[0]]
    with pytest.raises(TypeError, match="a mention is a string, got 3"):
        linker.link([3])  # type: ignore[list-item]


def test_half_a_surrogate_pair_is_replaced(linker: Linker) -> None:
    assert linker.link(["cold \ud83e"]) == linker.link(["cold ?"])


def test_a_mention_of_a_megabyte_is_linked(linker: Linker) -> None:
    [answer] = linker.link(["heart attack " * 80_000], k=2)
    assert len(answer) == 2


def test_a_large_k_returns_all_concepts(linker: Linker) -> None:
    [answer] = linker.link(["pain"], k=10_000)
    assert set(ids(answer)) == {"mesh:D1", "mesh:D2", "hp:1", "hp:2"}


@pytest.mark.parametrize("k", [0, -3])
def test_k_below_one_is_refused(linker: Linker, k: int) -> None:
    with pytest.raises(ConfigError, match="from 1 to 10,000"):
        linker.link(["x"], k=k)


def test_a_string_instead_of_a_list_is_refused(linker: Linker) -> None:
    with pytest.raises(TypeError, match="into a list"):
        linker.link("heart attack")


# Thresholds and confidence


def test_candidates_below_the_threshold_are_left_out(linker: Linker) -> None:
    [all_of_them] = linker.link(["hart atack"], k=4)
    between = (all_of_them[0].score + all_of_them[1].score) / 2

    assert ids(linker.link(["hart atack"], k=4, settings=LinkSettings(threshold=between))[0]) == ["mesh:D1"]
    assert linker.link(["hart atack"], settings=LinkSettings(threshold=1.0)) == [[]]
    assert ids(linker.link(["heart attack"], settings=LinkSettings(threshold=1.0))[0]) == ["mesh:D1"]


def test_a_threshold_outside_the_range_of_cosines_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"between -1 and 1, got 80"):
        LinkSettings(threshold=80)


def calibrated(bench: Bench, *, threshold: float | None = None, exact: bool = True) -> Linker:
    """A linker whose confidence is the logistic function of the margin."""
    calibration = Calibration(
        index="",
        exact=exact,
        sparse_weight=0,
        method=Method.PLATT,
        curve=Platt(0, 0, 1),
        threshold=threshold,
    )
    search = DenseSearch(bench.index)
    return Linker(bench.encoder, search, bench.name_table, fingerprint="", calibration=calibration)


def test_confidence_depends_on_the_margin_and_not_on_k(bench: Bench) -> None:
    [plain] = bench.linker.link(["hart atack"], k=3)
    expected = 1 / (1 + math.exp(plain[1].score - plain[0].score))

    for k in (1, 3):
        [answer] = calibrated(bench).link(["hart atack"], k=k)
        assert [candidate.concept_id for candidate in answer] == [
            candidate.concept_id for candidate in plain[:k]
        ]
        assert answer[0].confidence == pytest.approx(expected, abs=1e-6)
        assert {candidate.confidence for candidate in answer[1:]} <= {None}


def test_a_mention_below_the_confidence_threshold_is_nil(bench: Bench) -> None:
    [[best]] = calibrated(bench).link(["hart atack"], k=1)
    assert best.confidence is not None

    assert calibrated(bench, threshold=best.confidence).link(["hart atack"]) != [[]]
    assert calibrated(bench, threshold=best.confidence + 0.01).link(["hart atack"]) == [[]]


def test_a_calibration_fitted_with_another_exact_is_refused(bench: Bench) -> None:
    with pytest.raises(ConfigError, match="fitted with --no-exact"):
        calibrated(bench, exact=False).link(["hart atack"])


# Filters


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (LinkSettings(types=("T047",)), {"mesh:D1", "mesh:D2"}),
        (LinkSettings(types=("T033", "T184")), {"hp:1", "hp:2"}),
        (LinkSettings(prefixes=("HP",)), {"hp:1", "hp:2"}),
        (LinkSettings(sources=("NCI",)), {"mesh:D1"}),
        (LinkSettings(sources=("HPO",), types=("T184",)), {"hp:2"}),
        (LinkSettings(sources=("HPO",), prefixes=("mesh",)), set()),
    ],
)
def test_filters_apply_inside_the_search(linker: Linker, wanted: LinkSettings, expected: set[str]) -> None:
    for mention in ("cold", "pain in the chest", "Heart attack"):
        [answer] = linker.link([mention], k=10, settings=wanted)
        assert set(ids(answer)) == expected


def test_the_matched_name_is_from_an_allowed_source(linker: Linker) -> None:
    [answer] = linker.link(["heart attack"], settings=LinkSettings(sources=("NCI",)))
    assert [(c.matched_name, c.matched_by) for c in answer] == [("Myocardial infarction", "dense")]


def test_an_unknown_type_is_refused(linker: Linker) -> None:
    with pytest.raises(ConfigError, match="T048"):
        linker.link(["cold"], settings=LinkSettings(types=("T048",)))


# Labelled mentions


def test_labelled_mentions_match_like_names(linker: Linker) -> None:
    before = linker.link(["WIDOWMAKER"], k=3)
    added = linker.add_mentions([("Widowmaker", "mesh:D9"), ("widowmaker", "hp:2"), ("x", "mesh:none")])

    [answer] = linker.link(["WIDOWMAKER"], k=3)

    assert added == 2
    assert before[0][0].matched_by == "dense"
    assert [(c.concept_id, c.matched_name, c.score, c.matched_by) for c in answer[:2]] == [
        ("hp:2", "widowmaker", 1.0, "exact"),
        ("mesh:D1", "Widowmaker", 1.0, "exact"),
    ]
    assert answer[2].matched_by == "dense"
    [filtered] = linker.link(["widowmaker"], k=1, settings=LinkSettings(prefixes=("mesh",)))
    assert ids(filtered) == ["mesh:D1"]


# Caching


def test_a_repeated_mention_is_encoded_once(bench: Bench) -> None:
    assert isinstance(bench.encoder, NgramEncoder)
    first = bench.linker.link(["hart", "Hart ", "HART"])
    again = bench.linker.link(["hart"])

    assert bench.encoder.encoded == ["hart"]
    assert first == again * 3
    first[0].clear()
    assert bench.linker.link(["hart"])[0] == first[1] != []


def test_the_cache_is_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(bench.encoder, NgramEncoder)
    monkeypatch.setattr(candidate_cache, "MAX_CANDIDATES", 4)
    for mentions in (["a"], ["b"], ["c"], ["b"], ["a"], ["z" * 300], ["z" * 300]):
        bench.linker.link(mentions, k=2)
    assert bench.encoder.encoded == ["a", "b", "c", "a", "z" * 300, "z" * 300]


def test_the_cache_size_counts_candidates(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(bench.encoder, NgramEncoder)
    monkeypatch.setattr(candidate_cache, "MAX_CANDIDATES", 4)
    for mentions in (["a"], ["b"], ["c"], ["d"], ["a"]):
        bench.linker.link(mentions, k=1)
    bench.linker.link(["e"], k=3)

    assert bench.encoder.encoded == ["a", "b", "c", "d", "e"]
    assert [bench.linker.cached([text], k=1) is None for text in "abcd"] == [True, True, True, False]


def test_cached_returns_none_unless_all_mentions_are_cached(linker: Linker) -> None:
    wanted = LinkSettings(types=("T047",))
    expected = linker.link(["hart", "", "cold"], k=2, settings=wanted)

    assert linker.cached(["COLD", "hart", ""], k=2, settings=wanted) == [expected[i] for i in (2, 0, 1)]
    assert linker.cached(["hart", "unheard of"], k=2, settings=wanted) is None
    assert linker.cached(["hart"], k=3, settings=wanted) is None
    assert linker.cached(["hart"], k=2) is None


def test_filter_masks_are_computed_once_for_many_calls(
    linker: Linker, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []

    def counted(name_table: NameTable, types: Sequence[str], *others: Sequence[str]) -> FilterMasks:
        found.append(types)
        return filter_masks(name_table, types, *others)

    monkeypatch.setattr(linker_module, "filter_masks", counted)
    wanted = LinkSettings(types=("T047",))
    for mention, filters in (("a", wanted), ("b", LinkSettings()), ("c", wanted)):
        linker.link([mention], settings=filters)

    assert found == [("T047",), ()]


def test_cached_filter_masks_are_not_used_for_other_filters(tmp_path: Path) -> None:
    rows = [*ROWS, ("mesh:D1", "Heart trouble", "MSH", "en", "0", "lay")]
    facts = {**FACTS, "parents": [("hp:1", "mesh:D2", "is_a")]}
    bench = bench_of(tmp_path / "bench", rows, facts, NgramEncoder())
    every = [
        LinkSettings(),
        LinkSettings(sources=("NCI",)),
        LinkSettings(kinds=("lay",)),
        LinkSettings(prefixes=("hp",)),
        LinkSettings(within=("mesh:D2",)),
        LinkSettings(exclude=("mesh:D1",)),
    ]
    parts = (bench.encoder, bench.linker.search, bench.name_table)
    for first, second in permutations(every, 2):
        linker, fresh = (Linker(*parts, fingerprint="f00d") for _ in range(2))
        linker.link(["cold"], settings=first)
        assert linker.link(["heart"], settings=second) == fresh.link(["heart"], settings=second)


def test_the_batch_size_does_not_change_the_links(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    mentions = [f"{word} {number}" for number in range(20) for word in ("cold", "pain", "heart")]
    expected = bench.linker.link(mentions, k=3)

    monkeypatch.setattr(linker_module, "BATCH", 7)
    monkeypatch.setattr(search, "_MAX_CELLS", 16)
    fresh = Linker(bench.encoder, DenseSearch(bench.index), bench.name_table, fingerprint="")
    assert fresh.link(mentions, k=3) == expected


# Comparison with a simple implementation


def slow_link(
    mention: str, rows: Sequence[Row], encoder: LetterEncoder, k: int, wanted: LinkSettings
) -> list[tuple[str, float, str, str]]:
    """Compare with every name: return concept, score, folded name and matched_by."""
    text = fold(mention)
    having = {concept for concept, found in FACTS["types"] if found in wanted.types}
    best: dict[str, tuple[bool, float, str]] = {}
    for concept, name, source in rows:
        if (
            (wanted.types and concept not in having)
            or (wanted.sources and source not in wanted.sources)
            or (wanted.prefixes and concept.split(":")[0] not in wanted.prefixes)
            or not text
        ):
            continue
        exact = wanted.exact and fold(name) == text
        cosine = float(encoder.encode([text])[0] @ encoder.encode([fold(name)])[0])
        found = (exact, 1.0 if exact else round(cosine, 6), fold(name))
        old = best.get(concept)
        if old is None or (-found[0], -found[1], found[2]) < (-old[0], -old[1], old[2]):
            best[concept] = found
    ranked = sorted(best.items(), key=lambda item: (-item[1][0], -item[1][1], item[0]))[:k]
    return [
        (concept, score, name, "exact" if exact else "dense")
        for concept, (exact, score, name) in ranked
        if wanted.threshold is None or score >= wanted.threshold
    ]


names = st.text("abAB ", min_size=1, max_size=5).filter(lambda name: name.strip() != "")
vocabularies = st.lists(
    st.tuples(
        st.sampled_from([f"{p}:{n}" for p in ("hp", "mesh") for n in range(1, 6)]),
        names,
        st.sampled_from("PQ"),
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=60)
@given(
    rows=vocabularies,
    mentions=st.lists(st.text("abAB ", max_size=5), max_size=5),
    k=st.integers(1, 12),
    exact=st.booleans(),
    threshold=st.none() | st.floats(-1, 1),
    filters=st.sets(st.sampled_from(["type", "source", "prefix"])),
)
def test_linking_agrees_with_a_loop_over_all_names(
    rows: list[Row], mentions: list[str], k: int, exact: bool, threshold: float | None, filters: set[str]
) -> None:
    known = {row[0] for row in rows}
    facts = {"types": [pair for pair in FACTS["types"] if pair[0] in known]}
    wanted = LinkSettings(
        exact=exact,
        threshold=threshold,
        types=("T033",) if "type" in filters and "hp:1" in known else (),
        sources=("P",) if "source" in filters and "P" in {row[2] for row in rows} else (),
        prefixes=("mesh",) if "prefix" in filters and any(c.startswith("mesh") for c in known) else (),
    )
    encoder = LetterEncoder()
    with tempfile.TemporaryDirectory() as folder:
        bench = bench_of(Path(folder) / "bench", rows, facts, encoder)
        answers = bench.linker.link(mentions, k=k, settings=wanted)

    found = [
        [(c.concept_id, c.score, fold(c.matched_name), c.matched_by) for c in answer] for answer in answers
    ]
    assert found == [slow_link(mention, rows, encoder, k, wanted) for mention in mentions]


def test_the_search_gets_deeper_until_no_other_row_can_change_the_result(tmp_path: Path) -> None:
    crowd = [("x:2", f"b{number}") for number in range(500)]
    bench = bench_of(tmp_path, [*crowd, ("x:1", "bz"), ("x:3", "a")], None, LetterEncoder())

    [answer] = bench.linker.link(["c"], k=2)

    assert [(c.concept_id, c.score) for c in answer[:2]] == [("x:1", 1.0), ("x:2", 1.0)]
    assert bench.index.depths == [64, 256, 502]
    assert ids(bench.linker.link(["c"], k=1)[0]) == ["x:1"]
    assert np.isclose(bench.linker.link(["c"], k=3)[0][2].score, np.cos(1), atol=1e-6)
