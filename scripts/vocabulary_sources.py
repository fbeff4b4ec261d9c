"""Where the names of the default vocabulary come from: tables, kinds, credits and licences, and its card."""

from __future__ import annotations

from typing import NamedTuple

from sapbert.vocab.vocabulary import Vocabulary

OWN, LEXICON = "MSH", "SAPBERT"


class Source(NamedTuple):
    """A table of names that are added to MeSH concepts."""

    table: str
    name: str
    """`source` of its names in the vocabulary."""
    kind: str
    only: str = ""
    """Regular expression for the column `source` of the rows that are used."""
    labels: int = 0
    """Rank of its preferred names among those of other sources, as names to display in their language."""


SOURCES = (
    Source("hpo_layperson", "HPO", "lay"),
    Source("nci_dictionary_of_cancer_terms", "NCI", "lay"),
    Source("medquad_focus_synonyms", "MEDQUAD", "lay", only="_[14-9]_[A-Za-z]"),
    Source("medquad_focus_synonyms", "MEDQUAD", "synonym", only="_[23]_[A-Za-z]"),
    Source("mondo", "MONDO", "synonym"),
    Source("mondo_2026-05", "MONDO", "synonym"),
    Source("doid", "DOID", "synonym"),
    Source("orphanet_12lang_2026", "ORPHANET", "synonym"),
    Source("hpo_2025-01", "HPO", "synonym"),
    Source("uberon_2026-04", "UBERON", "synonym"),
    Source("symp_2026-07", "SYMP", "synonym"),
    Source("maxo_2024-07", "MAXO", "synonym", only="^maxo(_exact)?$"),
    Source("drugbank_vocabulary", "DRUGBANK", "synonym"),
    Source("chebi_105_2013", "CHEBI", "brand", only="_brand$"),
    Source("orphanet_12lang_2026", "ORPHANET", "translation", labels=3),
    Source("hpo_translations_2026-08", "HPO", "translation", labels=4),
    Source("hpo_translations_fr_nl_tr_from_history", "HPO", "translation", labels=2),
    Source("doid_es_2026-08", "DOID", "translation", labels=1),
    Source("wikidata_med_en_ja", "WIKIDATA", "translation", labels=1),
)
CREDITS = {
    OWN: "Medical Subject Headings, courtesy of the U.S. National Library of Medicine; free with credit",
    LEXICON: "lexicons of this project (`data/`), CC0 1.0",
    "ABBREVIATIONS": "Clinical Abbreviations (Grossman Liu et al. 2021), the parts of Berman, Stetson and "
    "Vanderbilt, CC BY 4.0",
    "CHEBI": "ChEBI release 105, EMBL-EBI, CC BY 3.0",
    "DOID": "Human Disease Ontology, English and Spanish, CC0 1.0",
    "DRUGBANK": "DrugBank Open Data vocabulary, CC0 1.0",
    "HPO": "Human Phenotype Ontology and its translations, hpo.jax.org; free with credit",
    "MAXO": "Medical Action Ontology, CC BY 4.0",
    "MEDQUAD": "MedQuAD (Ben Abacha and Demner-Fushman 2019) without MedlinePlus encyclopedia and drugs, "
    "CC BY 4.0",
    "MONDO": "Mondo Disease Ontology, Monarch Initiative, CC BY 4.0",
    "NCI": "NCI Dictionary of Cancer Terms, U.S. National Cancer Institute, public domain",
    "ORPHANET": "Orphanet nomenclature, INSERM, orpha.net, CC BY 4.0",
    "RXNORM": "RxNorm prescribable content, U.S. National Library of Medicine; free, no licence required",
    "SYMP": "Symptom Ontology, CC0 1.0",
    "UBERON": "Uberon, OBO Foundry, CC BY 3.0",
    "WIKIDATA": "Wikidata, CC0 1.0",
}
CARD = """# The default vocabulary: MeSH, and how people call its concepts

{concepts:,} concepts of the Medical Subject Headings with {names:,} names: all descriptors with all entry
terms but permutations, and the supplementary records that are drugs or rare diseases. Types are the letters
of the MeSH trees (`C` diseases, `D` chemicals and drugs, …); parents are those of the trees.

Names of other sources are marked by their kind, and `sapbert link --kinds own` leaves them out. They were
joined by one-to-one cross-references or equal names; some are narrower or broader than the concept. The count
of an abbreviation says how common its meanings are relative to each other; it is no corpus frequency.

| kind | names |
|---|---|
{kinds}

| source | names | credit and licence |
|---|---|---|
{sources}

- The NLM requires that it is named as the source, that changes are stated (these are above), and that data
  which is not the most current is labelled so, as this is. It does not endorse this package.
- Names of CC BY sources were selected and joined to MeSH concepts.
- Fingerprint: `{fingerprint}`. Built on {created} by `scripts/build_vocabulary.py`.
"""


def card(vocabulary: Vocabulary) -> str:
    """Return the README of the vocabulary."""
    kinds, sources = vocabulary.count_names("kind", 10), vocabulary.count_names("source", 50)
    return CARD.format(
        concepts=vocabulary.manifest.counts["concepts"],
        names=vocabulary.manifest.counts["names"],
        kinds="\n".join(f"| {kind or 'own'} | {names:,} |" for kind, names in kinds.items()),
        sources="\n".join(f"| `{name}` | {names:,} | {CREDITS[name]} |" for name, names in sources.items()),
        fingerprint=vocabulary.fingerprint,
        created=vocabulary.manifest.created[:10],
    )
