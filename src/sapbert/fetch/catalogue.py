"""Open vocabularies: where they are published, their licence, and how `sapbert read` reads them.

The addresses are those of the publishers. They were not tested from the machine that built this package,
which has no network; an address that has moved causes an error that names it. Most are of the newest release.
Only vocabularies that need no account are listed; UMLS and SNOMED CT need one.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from sapbert.errors import ConfigError, suggestion

_OBO = "https://purl.obolibrary.org/obo/"
_MESH = "https://nlmpubs.nlm.nih.gov/projects/mesh/MESH_FILES/xmlmesh/"
_NLM = "free; credit: U.S. National Library of Medicine"


@dataclass(frozen=True, slots=True)
class Publication:
    """A vocabulary that can be downloaded."""

    name: str
    """Its name in `sapbert fetch`."""
    title: str
    address: str
    licence: str
    kind: str
    """Its kind in `sapbert read`."""
    options: str = ""
    """Options that `sapbert read` needs for it."""

    @property
    def file(self) -> str:
        """Name of the downloaded file."""
        return urlsplit(self.address).path.rpartition("/")[2]


CATALOGUE = (
    Publication("chebi", "Chemical Entities of Biological Interest", f"{_OBO}chebi.obo", "CC BY 4.0", "obo"),
    Publication("cl", "Cell Ontology", f"{_OBO}cl.obo", "CC BY 4.0", "obo"),
    Publication("doid", "Human Disease Ontology", f"{_OBO}doid.obo", "CC0 1.0", "obo"),
    Publication(
        "efo", "Experimental Factor Ontology", "https://www.ebi.ac.uk/efo/efo.obo", "Apache 2.0", "obo"
    ),
    Publication("go", "Gene Ontology", f"{_OBO}go.obo", "CC BY 4.0", "obo"),
    Publication(
        "hgnc",
        "Human gene symbols (HGNC)",
        "https://storage.googleapis.com/public-download-files/hgnc/tsv/tsv/hgnc_complete_set.txt",
        "CC0 1.0",
        "table",
        "--format csv --id-column hgnc_id --name-column symbol --synonyms-column alias_symbol",
    ),
    Publication(
        "hpo",
        "Human Phenotype Ontology",
        f"{_OBO}hp.obo",
        "free with credit, unchanged: hpo.jax.org/license",
        "obo",
    ),
    Publication("mesh", "MeSH 2026, descriptors", f"{_MESH}desc2026.gz", _NLM, "mesh"),
    Publication(
        "mesh-supplementary", "MeSH 2026, supplementary records", f"{_MESH}supp2026.gz", _NLM, "mesh"
    ),
    Publication("mondo", "Mondo Disease Ontology", f"{_OBO}mondo.obo", "CC BY 4.0", "obo"),
    Publication("ncbitaxon", "NCBI organismal classification", f"{_OBO}ncbitaxon.obo", "CC0 1.0", "obo"),
    Publication("ncit", "NCI Thesaurus, OBO edition", f"{_OBO}ncit.obo", "CC BY 4.0", "obo"),
    Publication(
        "ordo",
        "Orphanet Rare Disease Ontology 4.9",
        "https://www.orphadata.com/data/ontologies/ordo/last_version/ORDO_en_4.9.owl",
        "CC BY 4.0",
        "obo",
    ),
    Publication(
        "rxnorm",
        "RxNorm, current prescribable content",
        "https://download.nlm.nih.gov/rxnorm/RxNorm_full_prescribe_current.zip",
        _NLM,
        "rxnorm",
    ),
    Publication("symp", "Symptom Ontology", f"{_OBO}symp.obo", "CC0 1.0", "obo"),
    Publication("uberon", "Uberon anatomy", f"{_OBO}uberon.obo", "CC BY 3.0", "obo"),
)


def find_publication(name: str) -> Publication:
    """Return the vocabulary with this name."""
    by_name = {publication.name: publication for publication in CATALOGUE}
    if name.lower() not in by_name:
        near = suggestion(name, by_name)
        raise ConfigError(f"no vocabulary {name!r} to fetch{near} (`sapbert fetch` lists all)")
    return by_name[name.lower()]
