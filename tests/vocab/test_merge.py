from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapbert.errors import ConfigError, FormatError
from sapbert.vocab.clusters import Ints, Nodes, cluster, connected, distinct, one_to_one
from sapbert.vocab.input_files import InputReader
from sapbert.vocab.merge import MergeReport, merge_vocabularies
from sapbert.vocab.readers.settings import TableSettings
from sapbert.vocab.readers.tabular import read_table
from sapbert.vocab.settings import MergeSettings, OnError, Trust
from sapbert.vocab.vocabulary import Vocabulary
from sapbert.vocab.writer import write_vocabulary
from tests.vocab.contents import Content, write

Names = Iterable[tuple[str, str]]
Links = Iterable[tuple[str, str]]


def vocabulary(
    folder: Path, name: str, names: Names, *, types: Links = (), aliases: Links = (), xrefs: Links = ()
) -> Vocabulary:
    """Write a vocabulary whose first name of each concept is preferred."""
    inputs = InputReader()
    with write_vocabulary(folder / name, {}, inputs) as writer:
        rows = pl.DataFrame(list(names), schema=["concept_id", "name"], orient="row")
        first = pl.col("concept_id").is_first_distinct().cast(pl.Int32)
        for piece in rows.with_columns(rank=first, source=pl.lit(name)).iter_slices(5):
            writer.add(piece)
        for table, column, links in (
            ("types", "type", types),
            ("aliases", "alias", aliases),
            ("xrefs", "xref", xrefs),
        ):
            schema = {"concept_id": pl.String, column: pl.String}
            writer.add_facts(table, pl.DataFrame(list(links), schema=schema, orient="row"))
        writer.type_labels.update({code: f"{code} of {name}" for _, code in types})
    return Vocabulary.open(folder / name)


def test_parents_and_definitions_follow_their_concept(tmp_path: Path) -> None:
    mesh = write(
        tmp_path / "mesh",
        Content(
            [("mesh:D1", "Ear", 1, "en", "mesh", "exact"), ("mesh:D2", "Tin ear", 1, "en", "mesh", "exact")],
            parents=[("mesh:D2", "mesh:D1", "broader")],
        ),
    )
    mondo = write(
        tmp_path / "mondo",
        Content(
            [(f"mondo:{n}", f"disease {n}", 1, "en", "mondo", "exact") for n in range(1, 5)],
            parents=[
                ("mondo:2", "mondo:1", "is_a"),
                ("mondo:3", "mondo:2", "is_a"),
                ("mondo:4", "mondo:2", "is_a"),
            ],
            definitions=[("mondo:2", "An ear of tin.", "en", "mondo")],
        ),
    )
    links = xref_file(tmp_path, [("mondo:2", "mesh:D2"), ("mondo:4", "mesh:D2")])

    merged, _ = merge(tmp_path, [mesh, mondo], [links], MergeSettings(trust="any"))

    # The parent of mondo:4 is now the same concept, so that row is dropped.
    assert merged.parent_links.collect().rows() == [
        ("mesh:D2", "mesh:D1", "broader"),
        ("mesh:D2", "mondo:1", "is_a"),
        ("mondo:3", "mesh:D2", "is_a"),
    ]
    concept = merged.concept("mondo:2")
    assert concept is not None
    assert concept.definition == "An ear of tin."


def xref_file(folder: Path, links: Links, name: str = "xrefs.tsv") -> Path:
    path = folder / name
    path.write_text("concept_id\txref\n" + "".join(f"{left}\t{right}\n" for left, right in links))
    return path


def merge(
    folder: Path,
    vocabularies: Sequence[Vocabulary],
    xrefs: Sequence[Path],
    told: MergeSettings | None = None,
    *,
    name: str = "merged",
    on_error: OnError = "stop",
) -> tuple[Vocabulary, MergeReport]:
    inputs = InputReader(on_error=on_error)
    with write_vocabulary(folder / name, {}, inputs) as writer:
        report = merge_vocabularies(vocabularies, xrefs, writer, inputs, told or MergeSettings())
    return Vocabulary.open(folder / name), report


def ids(vocabulary: Vocabulary) -> list[str]:
    return vocabulary.names.select("concept_id").unique().collect().to_series().sort().to_list()


def test_the_same_disease_of_three_vocabularies_becomes_one_concept(tmp_path: Path) -> None:
    mesh = vocabulary(
        tmp_path, "mesh", [("mesh:D1", "Tin Ear"), ("mesh:D1", "Ear, Tin")], types=[("mesh:D1", "T1")]
    )
    mondo = vocabulary(
        tmp_path,
        "mondo",
        [("mondo:1", "tin ear"), ("mondo:2", "glass hand")],
        types=[("mondo:1", "T2")],
        aliases=[("mondo:1", "mondo:9")],
        xrefs=[("mondo:1", "mesh:D1"), ("mondo:1", "icd10:H9")],
    )
    orphanet = vocabulary(tmp_path, "orphanet", [("orphanet:7", "Rare tin ear")])
    # Mondo and Orphanet meet at an id of UMLS, which none of them has.
    links = [
        ("MONDO:1", "MESH:D1"),
        ("MONDO:1", "UMLS:C1"),
        ("ORPHA:7", "umls_cui:C1"),
        ("MONDO:2", "umls:C2"),
    ]

    merged, report = merge(tmp_path, [mesh, mondo, orphanet], [xref_file(tmp_path, links)])

    concept = merged.concept("ORPHA:7")
    assert concept is not None
    assert concept.concept_id == "mesh:D1"
    assert [(name.text, name.source) for name in concept.names if name.preferred] == [("Tin Ear", "mesh")]
    assert {(name.text, name.source) for name in concept.names} == {
        ("Tin Ear", "mesh"), ("Ear, Tin", "mesh"), ("tin ear", "mondo"), ("Rare tin ear", "orphanet")
    }  # fmt: skip
    assert concept.types == ("T1", "T2")
    assert concept.aliases == ("mondo:1", "mondo:9", "orphanet:7")
    assert concept.xrefs == ("icd10:H9",)
    assert ids(merged) == ["mesh:D1", "mondo:2"]
    assert merged.type_labels == {"T1": "T1 of mesh", "T2": "T2 of mondo"}
    assert report == MergeReport(
        concepts_in=4, concepts_out=2, same_id=0, sizes={3: 1}, retried=0, refused=0, largest_refused=()
    )
    assert merged.manifest.inputs["mondo"] == {"fingerprint": mondo.fingerprint}
    assert merged.manifest.inputs["xrefs.tsv"]["bytes"] == (tmp_path / "xrefs.tsv").stat().st_size


def test_equal_ids_and_aliases_are_joined_without_references(tmp_path: Path) -> None:
    old = vocabulary(tmp_path, "old", [("mondo:1", "one"), ("mondo:2", "two"), ("mondo:3", "three")])
    new = vocabulary(
        tmp_path, "new", [("mondo:1", "uno"), ("mondo:4", "due")], aliases=[("mondo:4", "mondo:2")]
    )

    merged, report = merge(tmp_path, [new, old], [])

    assert ids(merged) == ["mondo:1", "mondo:3", "mondo:4"]
    assert [concept.concept_id for concept in merged.find("two")] == ["mondo:4"]
    assert merged.concept("mondo:2") == merged.concept("mondo:4")
    assert (report.same_id, dict(report.sizes)) == (1, {2: 1})
    names = merged.names.filter(pl.col("preferred")).select("name").collect().to_series()
    assert sorted(names) == ["due", "three", "uno"]


@pytest.mark.parametrize("names", [("alpha", "omega"), ("omega", "alpha")])
def test_of_two_members_of_one_vocabulary_the_one_with_the_id_gives_the_preferred_name(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    own = vocabulary(tmp_path, "own", [("mondo:1", names[0]), ("mondo:2", names[1])])
    later = vocabulary(tmp_path, "later", [("doid:1", "aaa"), ("doid:2", "zzz")])
    links = xref_file(tmp_path, [("mondo:1", "mondo:2"), ("doid:1", "mondo:2"), ("doid:2", "mondo:2")])

    merged, _ = merge(tmp_path, [own, later], [links], MergeSettings(trust="any"))

    concept = merged.concept("doid:2")
    assert concept is not None
    assert (concept.concept_id, concept.preferred_name) == ("mondo:1", names[0])


def test_an_alias_of_two_concepts_joins_nothing(tmp_path: Path) -> None:
    split = vocabulary(
        tmp_path, "split", [("ex:1", "a"), ("ex:2", "b")], aliases=[("ex:1", "ex:0"), ("ex:2", "ex:0")]
    )
    merged, _ = merge(tmp_path, [split, vocabulary(tmp_path, "old", [("ex:0", "ab")])], [])
    assert ids(merged) == ["ex:0", "ex:1", "ex:2"]


def test_references_to_a_broader_concept_join_nothing(tmp_path: Path) -> None:
    mesh = vocabulary(tmp_path, "mesh", [("mesh:D1", "Heart Failure"), ("mesh:D2", "Edema")])
    hpo = vocabulary(
        tmp_path, "hpo", [("hp:1", "left heart failure"), ("hp:2", "right heart failure"), ("hp:3", "oedema")]
    )
    xrefs = [xref_file(tmp_path, [("hp:1", "mesh:D1"), ("hp:2", "mesh:D1"), ("hp:3", "mesh:D2")])]

    merged, _ = merge(tmp_path, [mesh, hpo], xrefs)
    assert ids(merged) == ["hp:1", "hp:2", "mesh:D1", "mesh:D2"]

    everything, report = merge(tmp_path, [mesh, hpo], xrefs, MergeSettings(trust="any"), name="any")
    assert ids(everything) == ["mesh:D1", "mesh:D2"]
    assert dict(report.sizes) == {2: 1, 3: 1}
    turned, _ = merge(tmp_path, [hpo, mesh], xrefs, MergeSettings(trust="any"), name="turned")
    concept = turned.concept("mesh:D1")
    assert concept is not None
    assert (concept.concept_id, concept.preferred_name) == ("hp:1", "left heart failure")


def test_an_ambiguous_cluster_is_joined_by_direct_references_only(tmp_path: Path) -> None:
    """Two diseases, each referred to directly, whose third ids cross (DOID has a wrong UMLS id)."""
    mondo = vocabulary(tmp_path, "mondo", [("mondo:1", "a"), ("mondo:2", "b")])
    doid = vocabulary(tmp_path, "doid", [("doid:1", "A"), ("doid:2", "B")])
    links = [("mondo:1", "doid:1"), ("mondo:2", "doid:2"), ("doid:1", "umls:C2"), ("mondo:2", "umls:C2")]

    merged, report = merge(tmp_path, [mondo, doid], [xref_file(tmp_path, links)])

    assert ids(merged) == ["mondo:1", "mondo:2"]
    assert (dict(report.sizes), report.retried, report.refused) == ({2: 2}, 1, 0)


def test_a_cluster_that_stays_ambiguous_is_refused_and_reported(tmp_path: Path) -> None:
    mondo = vocabulary(tmp_path, "mondo", [("mondo:1", "a"), ("mondo:2", "b")])
    doid = vocabulary(tmp_path, "doid", [("doid:1", "A")])
    mesh = vocabulary(tmp_path, "mesh", [("mesh:D1", "AB")])
    links = [("mondo:1", "doid:1"), ("doid:1", "mesh:D1"), ("mondo:2", "mesh:D1")]

    merged, report = merge(tmp_path, [mondo, doid, mesh], [xref_file(tmp_path, links)])

    assert ids(merged) == ["doid:1", "mesh:D1", "mondo:1", "mondo:2"]
    assert report.refused == merged.manifest.counts["clusters refused"] == 1
    assert report.largest_refused == ("doid:1", "mesh:D1", "mondo:1", "mondo:2")


def test_a_cluster_above_the_limit_is_refused(tmp_path: Path) -> None:
    parts = [vocabulary(tmp_path, f"v{i}", [(f"v{i}:1", f"name {i}")]) for i in range(4)]
    links = xref_file(tmp_path, [(f"v{i}:1", f"v{i + 1}:1") for i in range(3)])

    apart, report = merge(tmp_path, parts, [links], MergeSettings(max_cluster=3))
    assert len(ids(apart)) == 4
    assert report.largest_refused == ("v0:1", "v1:1", "v2:1", "v3:1")
    joined, _ = merge(tmp_path, parts, [links], MergeSettings(max_cluster=4), name="joined")
    assert ids(joined) == ["v0:1"]


def test_references_can_be_taken_from_a_vocabulary(tmp_path: Path) -> None:
    mondo = vocabulary(tmp_path, "mondo", [("mondo:1", "a")], xrefs=[("mondo:1", "mesh:D1")])
    mesh = vocabulary(tmp_path, "mesh", [("mesh:D1", "A")])

    assert ids(merge(tmp_path, [mesh, mondo], [])[0]) == ["mesh:D1", "mondo:1"]
    assert ids(merge(tmp_path, [mesh, mondo], [mondo.path], name="joined")[0]) == ["mesh:D1"]


def test_inputs_with_equal_names_are_both_in_the_manifest(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    first = vocabulary(tmp_path / "a", "mondo", [("mondo:1", "a")])
    second = vocabulary(tmp_path / "b", "mondo", [("mondo:2", "b")])

    merged, _ = merge(tmp_path, [first, second], [first.path])

    assert merged.manifest.inputs == {
        "mondo": {"fingerprint": first.fingerprint},
        str(second.path): {"fingerprint": second.fingerprint},
    }


def test_merging_works_over_many_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sapbert.vocab.writer.ROWS_PER_PART", 3)
    left = vocabulary(
        tmp_path, "left", [(f"ex:{i:02}", f"{n} of {i}") for i in range(0, 20, 2) for n in "ab"]
    )
    right = vocabulary(tmp_path, "right", [(f"ex:{i:02}", f"{n} of {i}") for i in range(20) for n in "bc"])
    assert len(left.parts()) > 2

    merged, _ = merge(tmp_path, [left, right], [])

    rows = pl.concat([left.names, right.names]).select("concept_id", "name", "source").collect()
    found = merged.names.select("concept_id", "name", "source").collect()
    assert sorted(found.iter_rows()) == sorted(rows.iter_rows())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("concept_id\txref\nex:1\tex:2\n\nex:3\tnothing\n", r"x\.tsv:4: 'ex:3' or 'nothing' is not an id"),
        ("id\tother\nex:1\tex:2\n", r"x\.tsv:1: no column concept_id; found id, other"),
        ("concept_id\txref\nex:1\n", r"x\.tsv:2: expected 2 columns, found 1"),
        ("", r"x\.tsv: the file is empty"),
    ],
)
def test_a_damaged_xref_file_is_refused(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text(content)
    one = vocabulary(tmp_path, "one", [("ex:1", "a")])
    with pytest.raises(FormatError, match=message):
        merge(tmp_path, [one], [tmp_path / "x.tsv"])
    assert not (tmp_path / "merged").exists()


def test_bad_references_can_be_skipped(tmp_path: Path) -> None:
    links = xref_file(tmp_path, [("ex:1", "?"), ("ex:1", "other:1")])
    parts = [vocabulary(tmp_path, "one", [("ex:1", "a")]), vocabulary(tmp_path, "two", [("other:1", "A")])]
    merged, _ = merge(tmp_path, parts, [links], on_error="skip")
    assert ids(merged) == ["ex:1"]
    assert merged.manifest.counts["bad rows skipped"] == 1


def test_a_cluster_limit_below_two_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_cluster is at least 2"):
        MergeSettings(max_cluster=1)


edges = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=14)


def ends(pairs: list[tuple[int, int]]) -> tuple[Ints, Ints]:
    array = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def union_find(total: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """The obvious way: pour the labels of one end over those of the other."""
    labels = list(range(total))
    for left, right in pairs:
        low, high = sorted((labels[left], labels[right]))
        labels = [low if label == high else label for label in labels]
    return labels


@given(edges)
def test_connected_components_equal_union_find(pairs: list[tuple[int, int]]) -> None:
    assert connected(12, *ends(pairs)).tolist() == union_find(12, pairs)


def test_connected_takes_few_rounds_for_a_long_path() -> None:
    order = np.random.default_rng(0).permutation(200_000)
    assert not connected(200_000, order[1:], order[:-1]).any()


@given(edges, st.lists(st.integers(0, 3), min_size=12, max_size=12))
def test_one_to_one_edges_are_the_only_ones_at_both_ends(
    pairs: list[tuple[int, int]], spaces: list[int]
) -> None:
    undirected = sorted({(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]})
    left, right = distinct(12, *ends(pairs))
    assert list(zip(left.tolist(), right.tolist(), strict=True)) == undirected

    def partners(node: int, space: int) -> int:
        others = [b if a == node else a for a, b in undirected if node in (a, b)]
        return sum(spaces[other] == space for other in others)

    expected = [
        spaces[a] != spaces[b] and partners(a, spaces[b]) == 1 and partners(b, spaces[a]) == 1
        for a, b in undirected
    ]
    assert one_to_one(left, right, np.array(spaces)).tolist() == expected


@given(
    edges,
    edges.map(lambda pairs: pairs[:3]),
    st.lists(st.integers(0, 3), min_size=12, max_size=12),
    st.integers(1, 12),
    st.sampled_from(["one-to-one", "any"]),
    st.integers(2, 5),
)
def test_clusters_have_their_stated_properties(
    pairs: list[tuple[int, int]],
    alike: list[tuple[int, int]],
    spaces: list[int],
    concepts: int,
    trust: Trust,
    cap: int,
) -> None:
    same = np.array(union_find(12, [(a, b) for a, b in alike if a < concepts]))
    nodes = Nodes(concepts=concepts, vocabularies=np.array(spaces), identity=same)
    found = cluster(nodes, *ends(pairs), trust=trust, max_cluster=cap)
    heads = found.heads.tolist()

    everything = union_find(12, [*pairs, *((node, int(other)) for node, other in enumerate(same))])
    for concept, head in enumerate(heads):
        assert head <= concept
        assert heads[head] == head
        assert heads[int(same[concept])] == head
        assert everything[concept] == everything[head]
        things = {int(same[other]) for other in range(concepts) if heads[other] == head}
        if len(things) > 1:
            assert heads.count(head) <= cap
            if trust == "one-to-one":
                assert len({spaces[thing] for thing in things}) == len(things)
    shuffled = [pair[::-1] for pair in pairs][::-1]
    again = cluster(nodes, *ends(shuffled), trust=trust, max_cluster=cap)
    assert again.heads.tolist() == heads
    assert (found.refused == 0) == (found.largest_refused.size == 0)


@settings(max_examples=15)
@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from(["a:1", "a:2", "b:1", "b:2", "c:1"]), st.sampled_from("xyz")),
            min_size=1,
        ),
        min_size=1,
        max_size=3,
    ),
    st.lists(st.tuples(*[st.sampled_from(["a:1", "a:2", "b:1", "b:2", "c:1", "d:1"])] * 2), max_size=5),
)
def test_merging_keeps_every_name_and_every_id_is_found(
    contents: list[list[tuple[str, str]]], links: list[tuple[str, str]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        parts = [vocabulary(path, f"v{i}", dict.fromkeys(names)) for i, names in enumerate(contents)]
        merged, report = merge(path, parts, [xref_file(path, links)])

        assert {
            (name, source) for name, source in merged.names.select("name", "source").collect().iter_rows()
        } == {(name, f"v{i}") for i, names in enumerate(contents) for _, name in names}
        for i, names in enumerate(contents):
            for curie, name in names:
                concept = merged.concept(curie)
                assert concept is not None
                assert (name, f"v{i}") in {(found.text, found.source) for found in concept.names}
        assert report.concepts_out == len(ids(merged))
        again, _ = merge(path, [merged], [], name="again")
        assert again.fingerprint == merged.fingerprint


def test_real_disease_vocabularies_are_joined_correctly(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "vocabularies"
    parts = []
    for name in ("mesh_descriptors", "mondo", "doid", "hpo_2025-01"):
        inputs = InputReader()
        with write_vocabulary(tmp_path / name, {}, inputs) as writer:
            told = TableSettings(prefix="mesh" if name == "mesh_descriptors" else None)
            read_table(folder / f"{name}.tsv.gz", writer, inputs, told)
        parts.append(Vocabulary.open(tmp_path / name))

    merged, report = merge(tmp_path, parts, [folder / "xrefs.tsv.gz"])

    angiosarcoma = merged.concept("MONDO:0016982")
    assert angiosarcoma is not None
    assert angiosarcoma.concept_id == "mesh:D006394"
    assert angiosarcoma.aliases == ("doid:0001816", "hp:0200058", "mondo:0016982")
    # Heart failure, congestive or not, is two concepts of Mondo.
    assert merged.concept("mondo:0005009") != merged.concept("mondo:0005252")
    assert report.joined > 10_000
    assert set(report.sizes) == {2, 3, 4}
    prefixes = merged.aliases.select("concept_id", pl.col("alias").str.extract("^([^:]*)", 1)).collect()
    assert prefixes.is_duplicated().sum() == 0
