"""Identifiers as CURIEs with one spelling per prefix: `MESH:D009203` and `MSH:D009203` are `mesh:D009203`.

Vocabularies spell each other's prefixes differently, and cross-references only match if the spelling is
the same. Prefixes are lowercased, and those with several names are replaced by the name in the Bioregistry.
Loading the whole Bioregistry would take a second at import, for prefixes that no vocabulary here uses.
"""

from __future__ import annotations

import re

PREFIX_SYNONYMS = {
    "cui": "umls",
    "drug_central": "drugcentral",
    "hpo": "hp",
    "icd-10": "icd10",
    "icd-10-cm": "icd10cm",
    "icd-9-cm": "icd9cm",
    "icd10_cm": "icd10cm",
    "icd9_cm": "icd9cm",
    "medra": "meddra",
    "mim": "omim",
    "msh": "mesh",
    "mthmsh": "mesh",
    "nci": "ncit",
    "nci_thesaurus": "ncit",
    "omimps": "omim.ps",
    "ordo": "orphanet",
    "orpha": "orphanet",
    "rxcui": "rxnorm",
    "sctid": "snomedct",
    "snomed": "snomedct",
    "snomed_ct": "snomedct",
    "snomedct_us": "snomedct",
    "snomed_ct_us": "snomedct",
    "taxid": "ncbitaxon",
    "taxon": "ncbitaxon",
    "taxonomy": "ncbitaxon",
    "umls_cui": "umls",
}
"""Lowercase spelling → the one used here."""

_PREFIX = re.compile(r"[a-z0-9][a-z0-9_.\-]*")


def canonical_prefix(prefix: str) -> str:
    """Return the one spelling of `prefix`."""
    lowered = prefix.strip().lower()
    return PREFIX_SYNONYMS.get(lowered, lowered)


def parse_curie(text: str, *, prefix: str | None = None) -> str | None:
    """Return `text` as a CURIE; None if it is not one.

    `prefix` is used for identifiers without one: `parse_curie("D009203", prefix="mesh")`.
    """
    head, colon, local = text.strip().partition(":")
    if not colon and prefix is not None:
        head, local = prefix, head
    head = canonical_prefix(head)
    # Some files repeat the prefix, in any of its spellings: GO:GO:0005634, ORPHA:Orphanet:58.
    while canonical_prefix(local.partition(":")[0]) == head and ":" in local:
        local = local.partition(":")[2]
    if not local or local != local.strip() or not _PREFIX.fullmatch(head):
        return None
    return f"{head}:{local}"
