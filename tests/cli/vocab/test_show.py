from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Sapbert

TABLE = """id,name,parent,definition,type
x:1,Pain,,,T1
x:2,Headache,x:1,Pain of the head.,T1
x:3,Migraine,x:2,,T1
x:4,Cluster headache,x:2|x:9,,
"""


def test_a_concept_is_shown_with_definition_parents_and_children(sapbert: Sapbert, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLE)
    sapbert("read", "table", tmp_path / "t.csv", "-o", tmp_path / "v")

    shown = sapbert("show", tmp_path / "v", "headache").out
    assert shown.splitlines()[:6] == [
        "x:2  Headache",
        "  Pain of the head.",
        "  type T1",
        "  parent x:1  Pain",
        "  child x:3  Migraine",
        "  child x:4  Cluster headache",
    ]
    missing = sapbert("show", tmp_path / "v", "x:4").out
    assert "  parent x:9  (not in this vocabulary)" in missing
    [concept] = json.loads(sapbert("show", tmp_path / "v", "x:2", "--json").out)
    assert (concept["parents"], concept["children"]) == (["x:1"], ["x:3", "x:4"])


def test_the_types_of_the_default_vocabulary_are_shown_by_name(sapbert: Sapbert) -> None:
    assert "Diseases (C)" in sapbert("show", "default", "mesh:D003920").out
