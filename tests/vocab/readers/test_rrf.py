from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapbert.errors import ConfigError, FormatError, SapbertError
from sapbert.vocab.input_files import InputReader
from sapbert.vocab.readers.rrf import read_rxnorm, read_umls
from sapbert.vocab.readers.rrf_relations import LANGUAGES
from sapbert.vocab.readers.settings import RrfSettings
from sapbert.vocab.vocabulary import Concept, Vocabulary
from sapbert.vocab.writer import write_vocabulary
from tests.conftest import GOLDEN, Read

META = GOLDEN / "umls" / "META"
RXNORM = GOLDEN / "rxnorm"

FEVER = "umls:C9000001"
DRUG = "umls:C9000002"


def umls(read: Read, path: Path = META, **options: object) -> Vocabulary:
    return read(lambda w, i: read_umls(path, w, i, RrfSettings(**options)))  # type: ignore[arg-type]


def rxnorm(read: Read, path: Path = RXNORM, **options: object) -> Vocabulary:
    return read(lambda w, i: read_rxnorm(path, w, i, RrfSettings(**options)))  # type: ignore[arg-type]


def concept(vocabulary: Vocabulary, id: str) -> Concept:
    found = vocabulary.concept(id)
    assert found is not None
    return found


def texts(vocabulary: Vocabulary, id: str) -> set[str]:
    return {name.text for name in concept(vocabulary, id).names}


def preferred(vocabulary: Vocabulary, id: str) -> dict[str, str]:
    """Language → preferred name."""
    names = [name for name in concept(vocabulary, id).names if name.preferred]
    by_language = {name.language: name.text for name in names}
    assert len(by_language) == len(names)
    return by_language


def ids(vocabulary: Vocabulary) -> set[str]:
    return set(vocabulary.names.select("concept_id").collect().to_series())


@pytest.fixture
def meta(tmp_path: Path) -> Path:
    """A copy of the golden META folder, to be changed."""
    return Path(shutil.copytree(META, tmp_path / "META"))


def conso_row(cui: str, name: str, *, language: str = "ENG", suppress: str = "N") -> str:
    return f"{cui}|{language}|P|L1|PF|S1|Y|A1||X||MSH|PT|X|{name}|0|{suppress}||\n"


# Languages, sources, suppressed rows


def test_only_english_names_are_kept_by_default(read: Read) -> None:
    vocabulary = umls(read)

    assert vocabulary.count_names("language", 9).keys() == {"en"}
    assert {"Glimmer Fever", "Glimmer fever", "Shimmering fever", "Fever, glimmering"} == texts(
        vocabulary, FEVER
    )


def test_languages_are_stored_as_iso_codes(read: Read) -> None:
    vocabulary = umls(read, languages=("all",))

    by_language = {name.language: name.text for name in concept(vocabulary, FEVER).names}
    assert by_language.keys() == {"en", "es", "fr", "ja", "he"}
    assert by_language["ja"] == "きらめき熱"
    assert by_language["he"] == "קדחת נצנוץ"
    assert "umls:C9000006" in ids(vocabulary)


@pytest.mark.parametrize("language", ["es", "ES", "SPA", "spa"])
def test_a_language_can_be_given_as_iso_or_umls_code(read: Read, language: str) -> None:
    vocabulary = umls(read, languages=(language,), tradenames=False)

    assert vocabulary.count_names("language", 9) == {"es": 4}
    assert texts(vocabulary, FEVER) == {"Fiebre del destello", "fiebre centelleante"}


def test_several_languages_can_be_given_in_both_codes(read: Read) -> None:
    vocabulary = umls(read, languages=("en", "FRE"))

    assert vocabulary.count_names("language", 9).keys() == {"en", "fr"}


def test_a_language_without_iso_code_keeps_its_umls_code(read: Read, tmp_path: Path) -> None:
    (tmp_path / "MRCONSO.RRF").write_text(conso_row("C1", "nuqneH", language="TLH"))

    vocabulary = umls(read, tmp_path / "MRCONSO.RRF", languages=("tlh",))

    assert vocabulary.count_names("language", 9) == {"TLH": 1}


def test_no_two_umls_languages_share_an_iso_code() -> None:
    assert len(set(LANGUAGES.values())) == len(LANGUAGES)


def test_a_language_without_names_is_refused(read: Read, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"MRCONSO\.RRF has no name in FIN; `--language all`"):
        umls(read, languages=("en", "fi"))
    assert list(tmp_path.iterdir()) == []


def test_an_empty_list_of_languages_is_refused() -> None:
    with pytest.raises(ConfigError, match="language"):
        RrfSettings(languages=())


def test_only_the_requested_sources_are_kept(read: Read) -> None:
    vocabulary = umls(read, sources=("MSH", "MTH"), tradenames=False)

    assert vocabulary.count_names("source", 9) == {"MSH": 2, "MTH": 1}
    assert texts(vocabulary, FEVER) == {"Glimmer Fever", "Glimmer fever"}


def test_a_source_without_names_is_refused(read: Read) -> None:
    with pytest.raises(ConfigError, match=r"no name from NOSUCH$"):
        umls(read, sources=("MSH", "NOSUCH"))


def test_filters_that_match_nothing_are_an_error(read: Read, tmp_path: Path) -> None:
    with pytest.raises(SapbertError, match="is a filter too narrow"):
        umls(read, languages=("fr",), sources=("MSH",))
    assert list(tmp_path.iterdir()) == []


def test_suppressed_rows_are_dropped_and_counted(read: Read) -> None:
    vocabulary = umls(read)

    assert vocabulary.manifest.counts["rows read"] == 24
    assert vocabulary.manifest.counts["suppressed rows dropped"] == 4
    assert "umls:C9000008" not in ids(vocabulary)


def test_suppressed_rows_of_other_languages_and_sources_are_not_counted(read: Read) -> None:
    assert umls(read, languages=("es",)).manifest.counts["suppressed rows dropped"] == 0
    assert umls(read, sources=("MSH",)).manifest.counts["suppressed rows dropped"] == 2


def test_suppressed_rows_can_be_kept(read: Read) -> None:
    vocabulary = umls(read, keep_suppressed=True)

    assert {"Glimmer fever NOS", "Fevers, Glimmer", "Glimmer fever <1>"} < texts(vocabulary, FEVER)
    assert texts(vocabulary, "umls:C9000008") == {"Forgotten cough"}
    assert "suppressed rows dropped" not in vocabulary.manifest.counts


def test_without_filters_every_row_is_kept(read: Read) -> None:
    vocabulary = umls(read, languages=("all",), keep_suppressed=True, tradenames=False)

    assert vocabulary.manifest.counts["names"] == 24
    assert vocabulary.manifest.counts["rows read"] == 24


# Tradenames


def test_a_drug_has_the_names_of_all_its_brands(read: Read) -> None:
    own = {"bravolin", "Bravolinum"}

    assert texts(umls(read), DRUG) == own | {"Zapfrin", "Zapfrin Forte", "Nolexa", "Quibril"}


def test_a_brand_has_the_names_of_its_drug_but_not_of_other_brands(read: Read) -> None:
    vocabulary = umls(read)

    assert texts(vocabulary, "umls:C9000003") == {"Zapfrin", "Zapfrin Forte", "bravolin", "Bravolinum"}
    # Links given in one direction only, either of the two, work in both.
    assert texts(vocabulary, "umls:C9000004") == {"Nolexa", "bravolin", "Bravolinum"}
    assert texts(vocabulary, "umls:C9000005") == {"Quibril", "bravolin", "Bravolinum"}


def test_a_concept_without_other_names_gets_none_from_a_tradename(read: Read) -> None:
    in_english, in_spanish = umls(read), umls(read, languages=("es",))

    assert not {"umls:C9000006", "umls:C9999999"} & ids(in_english)
    assert texts(in_spanish, "umls:C9000006") == {"Nolexa Rápida", "bravolina"}
    assert texts(in_spanish, DRUG) == {"Nolexa Rápida", "bravolina"}


def test_tradenames_are_related_never_preferred_and_keep_language_and_source(read: Read) -> None:
    names = {(name.text, name.source): name for name in concept(umls(read, languages=("all",)), DRUG).names}

    assert names["Nolexa", "RXNORM"].scope == names["Zapfrin Forte", "MMSL"].scope == "related"
    assert names["Nolexa Rápida", "SCTSPA"].language == "es"
    assert names["bravolin", "RXNORM"].scope == "exact"
    assert not any(name.preferred for name in names.values() if name.scope == "related")


def test_tradename_links_are_counted_once_for_both_directions(read: Read) -> None:
    # Of nine relations two are the same link, one is a link to itself and two are of another kind.
    assert umls(read).manifest.counts["tradename links"] == 5


def test_tradenames_can_be_turned_off(read: Read) -> None:
    vocabulary = umls(read, tradenames=False)

    assert texts(vocabulary, DRUG) == {"bravolin", "Bravolinum"}


# Parents and definitions


def relation(
    first: str, rel: str, second: str, rela: str = "", *, sab: str = "MTH", suppress: str = "N"
) -> str:
    return f"{first}|A1|AUI|{rel}|{second}|A2|AUI|{rela}|R1||{sab}|{sab}|||{suppress}||\n"


def test_the_second_concept_of_par_and_inverse_isa_is_the_parent(read: Read, meta: Path) -> None:
    with open(meta / "MRREL.RRF", "a") as file:
        file.write(relation("C9000001", "PAR", "C9000002"))
        file.write(relation("C9000002", "CHD", "C9000001"))
        file.write(relation("C9000001", "PAR", "C9000003", "inverse_isa"))
        file.write(relation("C9000001", "RB", "C9000004", "inverse_isa", sab="MSH"))
        file.write(relation("C9000004", "RN", "C9000001", "isa", sab="MSH"))
        file.write(relation("C9000001", "PAR", "C9000005", suppress="O"))
        file.write(relation("C9000002", "PAR", "C9000002"))
        file.write(relation("C9000002", "PAR", "C9999998"))
    rows = [
        ("umls:C9000001", "umls:C9000002", "broader"),
        ("umls:C9000001", "umls:C9000003", "is_a"),
        ("umls:C9000001", "umls:C9000004", "is_a"),
        ("umls:C9000002", "umls:C9999998", "broader"),
    ]

    vocabulary = umls(read, meta)
    assert vocabulary.parent_links.collect().rows() == rows
    assert vocabulary.manifest.counts["parents that are not in the vocabulary"] == 1
    assert umls(read, meta, tradenames=False).parent_links.collect().rows() == rows
    chosen = umls(read, meta, sources=("MSH",))
    assert chosen.parent_links.collect().rows() == [("umls:C9000001", "umls:C9000004", "is_a")]


def test_without_mrrel_parents_are_those_in_mrhier(read: Read, meta: Path) -> None:
    (meta / "MRREL.RRF").unlink()
    (meta / "MRHIER.RRF").write_text(
        "C9000001|A1|1|A2|MSH||A3.A2|||\nC9000002|A2|1|A3|MSH||A3|||\nC9000003|A3|1||MSH|||||\n"
    )
    assert umls(read, meta).ancestors("umls:C9000001") == ("umls:C9000002", "umls:C9000003")


def test_definitions_have_the_language_of_their_source(read: Read, meta: Path) -> None:
    (meta / "MRDEF.RRF").write_text(
        "C9000001|A1|AT1||MSH|An invented thing.|N||\n"
        "C9000001|A2|AT2||MSHSPA|Una cosa inventada.|N||\n"
        "C9000001|A3|AT3||NCI|Obsolete.|O||\n"
    )
    (meta / "MRSAB.RRF").write_text("".join(f"|||{sab}|{'|' * 15}{lat}||||||\n" for sab, lat in SOURCES))

    english = umls(read, meta).definitions.collect().rows()
    assert english == [("umls:C9000001", "An invented thing.", "en", "MSH")]
    everything = umls(read, meta, languages=("all",)).definitions.collect().rows()
    assert set(everything) == {*english, ("umls:C9000001", "Una cosa inventada.", "es", "MSHSPA")}


SOURCES = [("MSH", "ENG"), ("MSHSPA", "SPA"), ("NCI", "ENG")]


# Types, preferred names, retired identifiers


def test_types_are_codes_with_labels(read: Read) -> None:
    vocabulary = umls(read)

    assert concept(vocabulary, FEVER).types == ("T047", "T184")
    assert vocabulary.type_labels == {
        "T047": "Disease or Syndrome",
        "T121": "Pharmacologic Substance",
        "T184": "Sign or Symptom",
    }


def test_a_concept_may_have_no_type(read: Read) -> None:
    assert concept(umls(read), "umls:C9000007").types == ()


def test_types_of_concepts_that_are_not_kept_are_dropped(read: Read) -> None:
    vocabulary = umls(read)

    assert set(vocabulary.types.collect()["concept_id"]) <= ids(vocabulary)


def test_the_preferred_name_has_the_highest_rank_in_mrrank(read: Read) -> None:
    vocabulary = umls(read, languages=("all",))

    assert preferred(vocabulary, FEVER) == {
        "en": "Glimmer fever",
        "es": "fiebre centelleante",
        "fr": "Fièvre scintillante",
        "he": "קדחת נצנוץ",
        "ja": "きらめき熱",
    }
    assert concept(vocabulary, DRUG).preferred_name == "bravolin"


def test_flags_decide_if_mrrank_lacks_the_source(read: Read) -> None:
    assert preferred(umls(read), "umls:C9000007") == {"en": "Velvet palsy"}


def test_flags_decide_without_mrrank(read: Read, meta: Path) -> None:
    (meta / "MRRANK.RRF").unlink()

    vocabulary = umls(read, meta, languages=("en", "es"))

    assert preferred(vocabulary, FEVER) == {"en": "Glimmer Fever", "es": "Fiebre del destello"}


def test_the_term_status_counts_more_than_the_string_type_and_that_more_than_ispref(
    read: Read, meta: Path
) -> None:
    flags = [("S", "PF", "Y", "a"), ("P", "VC", "N", "b"), ("P", "VC", "Y", "c"), ("P", "VO", "Y", "d")]
    best = {"C1": "c", "C2": "e"}
    rows = [("C1", *each) for each in flags]
    rows += [("C2", *each) for each in (*flags, ("P", "PF", "N", "e"))]
    lines = [
        f"{cui}|ENG|{ts}|L|{stt}|S|{pref}|A||X||LOCAL|XX|X|{name}|0|N||\n"
        for cui, ts, stt, pref, name in rows
    ]
    (meta / "MRCONSO.RRF").write_text("".join(lines), encoding="utf-8")

    vocabulary = umls(read, meta)

    assert {cui: preferred(vocabulary, f"umls:{cui}")["en"] for cui in best} == best


@pytest.mark.parametrize("ranked", [True, False])
def test_a_concept_has_one_preferred_name_in_each_of_its_own_languages(
    read: Read, meta: Path, ranked: bool
) -> None:
    if not ranked:
        (meta / "MRRANK.RRF").unlink()
    own = umls(read, meta, languages=("all",), tradenames=False).names.collect()
    linked = umls(read, meta, languages=("all",)).names.collect()

    one_each = own.group_by("concept_id", "language").agg(pl.col("preferred").sum())
    assert one_each["preferred"].unique().to_list() == [1]
    columns = ["concept_id", "language", "name"]
    assert own.filter("preferred").select(columns).equals(linked.filter("preferred").select(columns))


def test_retired_identifiers_are_aliases_of_their_successors(read: Read) -> None:
    vocabulary = umls(read)

    assert concept(vocabulary, FEVER).aliases == ("umls:C9000101", "umls:C9000102")
    assert concept(vocabulary, "CUI:C9000101").concept_id == FEVER
    # Deleted, merely related, and merged into a concept that is not here.
    for retired in ("C9000103", "C9000104", "C9000105"):
        assert vocabulary.concept(f"umls:{retired}") is None


# The whole of it, against a plain reading

cuis = st.sampled_from([f"C{number:07}" for number in range(6)])
links = st.lists(
    st.tuples(cuis, cuis, st.sampled_from(["has_tradename", "tradename_of", "isa", ""])), max_size=8
)
rows = st.lists(
    st.tuples(cuis, st.sampled_from("abcdefgh"), st.sampled_from(["ENG", "SPA"]), st.sampled_from("NOYE")),
    min_size=1,
    max_size=15,
)


@given(rows=rows, links=links)
@settings(max_examples=25)
def test_names_equal_those_of_a_plain_implementation(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str, str, str]],
    links: list[tuple[str, str, str]],
) -> None:
    rows = [*rows, ("C0000000", "always there", "ENG", "N")]
    folder = tmp_path_factory.mktemp("meta")
    (folder / "MRCONSO.RRF").write_text(
        "".join(conso_row(cui, name, language=lat, suppress=sup) for cui, name, lat, sup in rows)
    )
    (folder / "MRREL.RRF").write_text(
        "".join(f"{a}||CUI|RO|{b}||CUI|{rela}|R1||X|X||N|N||\n" for a, b, rela in links) or NO_LINK
    )

    own: dict[str, set[str]] = {}
    for cui, name, lat, sup in rows:
        if lat == "ENG" and sup == "N":
            own.setdefault(cui, set()).add(name)
    expected = {cui: set(names) for cui, names in own.items()}
    for a, b, rela in links:
        if rela in ("has_tradename", "tradename_of") and a in own and b in own:
            expected[a] |= own[b]
            expected[b] |= own[a]

    inputs = InputReader()
    with write_vocabulary(folder / "out", {}, inputs) as writer:
        read_umls(folder, writer, inputs, RrfSettings())
    found: dict[str, set[str]] = {}
    for cui, name in Vocabulary.open(folder / "out").names.select("concept_id", "name").collect().iter_rows():
        found.setdefault(cui.removeprefix("umls:"), set()).add(name)
    assert found == expected


NO_LINK = "C1||CUI|RO|C2||CUI|isa|R1||X|X||N|N||\n"


# RxNorm


def test_a_drug_of_rxnorm_has_the_names_of_its_brands(read: Read) -> None:
    vocabulary = rxnorm(read)

    own = {"BRAVOLIN", "ANTIBRAVOL", "a bravolin", "bravolin"}
    assert texts(vocabulary, "rxnorm:9002") == own | {"Zapfrin", "Nolexa"}
    assert texts(vocabulary, "rxnorm:9004") == own | {"Nolexa"}
    assert "rxnorm:9011" not in ids(vocabulary)
    assert vocabulary.manifest.counts["suppressed rows dropped"] == 2


def test_rxnorm_names_a_concept_by_its_own_normalized_name(read: Read) -> None:
    # RxNorm has no MRRANK and leaves TS, STT and ISPREF empty: its own term types tell.
    vocabulary = rxnorm(read)

    assert preferred(vocabulary, "rxnorm:9002") == {"en": "bravolin"}
    assert preferred(vocabulary, "rxnorm:9010") == {"en": "bravolin 5 MG Oral Tablet [Nolexa]"}


def test_rxnorm_has_types(read: Read) -> None:
    assert concept(rxnorm(read), "rxcui:9002").types == ("T109", "T121")


def test_the_prescribable_subset_is_not_read_instead_of_rxnorm(read: Read, tmp_path: Path) -> None:
    shutil.make_archive(str(tmp_path / "RxNorm_full_01052026"), "zip", RXNORM)

    zipped_release = rxnorm(read, tmp_path / "RxNorm_full_01052026.zip")

    assert zipped_release.fingerprint == rxnorm(read).fingerprint
    assert len(ids(zipped_release)) == 4


def test_files_beside_rxnconso_are_read_too(read: Read) -> None:
    assert rxnorm(read, RXNORM / "rrf" / "RXNCONSO.RRF").fingerprint == rxnorm(read).fingerprint


def test_umls_is_not_read_as_rxnorm(read: Read) -> None:
    with pytest.raises(FormatError, match=r"contains no RXNCONSO\.RRF"):
        rxnorm(read, META)
