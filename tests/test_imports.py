from __future__ import annotations

import subprocess
import sys

import pytest

import sapbert

HEAVY = {
    "faiss",
    "fastapi",
    "matplotlib",
    "mcp",
    "numpy",
    "onnxruntime",
    "pandas",
    "polars",
    "sklearn",
    "spacy",
    "torch",
    "transformers",
    "uvicorn",
}

GPU_MODULES = (
    "sapbert.training.alignment.trainer",
    "sapbert.training.biosyn.trainer",
    "sapbert.training.flash.trainer",
    "sapbert.training.reranking.trainer",
    "sapbert.encoder.transformer",
    "sapbert.encoder.onnx_export.export",
    "sapbert.gpu.stream",
    "sapbert.tokens.tokenizer_pool",
    "sapbert.pairs.artifact",
)


def run(code: str) -> str:
    """Run `code` in a fresh interpreter and return what it prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("module", ["sapbert", "sapbert.cli.main", "sapbert.artifacts", "sapbert.text"])
def test_an_import_loads_nothing_heavy(module: str) -> None:
    loaded = run(f"import sys, {module}; print(*sys.modules)").split()
    assert module in loaded
    assert HEAVY & set(loaded) == set()


def test_help_is_shown_without_loading_anything_heavy() -> None:
    shown = run(
        "import sys, contextlib, io\n"
        "from sapbert.cli.main import main\n"
        "verbs = 'read', 'pairs', 'train', 'flash', 'biosyn', 'export', 'index', 'link', 'calibrate', "
        "'evaluate', 'plot', 'reproduce', 'serve'\n"
        "for verb in ([], *(words.split() for words in verbs)):\n"
        "    sys.argv = ['sapbert', *verb, '--help']\n"
        "    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as out:\n"
        "        main()\n"
        "    assert 'Usage' in out.getvalue(), verb\n"
        "print(*sys.modules)\n"
    )
    assert HEAVY & set(shown.split()) == set()


def test_pairs_are_opened_where_polars_is_not_installed() -> None:
    blocked = "import sys; sys.modules.update(dict.fromkeys(['polars', 'torch', 'faiss']))\n"
    assert run(f"{blocked}import sapbert.pairs.artifact as a; print(a.Pairs.__name__)") == "Pairs\n"
    assert run(f"{blocked}import sapbert; print(sapbert.Pairs.__name__)") == "Pairs\n"


def test_gpu_machines_need_no_polars_faiss_or_typer() -> None:
    blocked = "import sys; sys.modules.update(dict.fromkeys(['polars', 'faiss', 'typer']))\n"
    assert run(f"{blocked}import {', '.join(GPU_MODULES)}; print('imported')") == "imported\n"


def test_public_names_are_loaded_when_they_are_first_used() -> None:
    code = (
        "import sys, sapbert\n"
        "before = 'polars' in sys.modules\n"
        "print(before, sapbert.Vocabulary.__module__, 'polars' in sys.modules)\n"
    )
    assert run(code) == "False sapbert.vocab.vocabulary True\n"


def test_every_public_name_is_there() -> None:
    assert {name: getattr(sapbert, name) is not None for name in sapbert.__all__} == dict.fromkeys(
        sapbert.__all__, True
    )
    assert {"Vocabulary", "Pairs", "SapbertError", "__version__"} <= set(sapbert.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'sapbert' has no attribute 'Vocabluary'"):
        _ = sapbert.Vocabluary
    assert not hasattr(sapbert, "Linkers")
    with pytest.raises(ImportError):
        exec("from sapbert import Vocabluary")
