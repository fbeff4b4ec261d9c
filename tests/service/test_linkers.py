from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from sapbert.linking.linker import Linker
from sapbert.service.linkers import ServedLinker


def test_types_have_the_name_that_the_index_knows() -> None:
    linker = SimpleNamespace(name_table=SimpleNamespace(type_labels={"C": "Diseases"}))
    served = ServedLinker("mesh", "MeSH", cast("Linker", linker))
    assert served.named_types(["C", "X"]) == [
        {"id": "C", "name": "Diseases"},
        {"id": "X", "name": "X"},
    ]
