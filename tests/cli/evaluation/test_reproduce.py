from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from sapbert.cli.evaluation import reproduce
from sapbert.encoder.adapters import AdapterSettings, add_adapters
from sapbert.encoder.loading import load_encoder
from sapbert.encoder.model_folder import save_model
from sapbert.pairs.artifact import Pairs
from sapbert.paper import cells, projection
from sapbert.tokens.pooling import Pooling
from tests.cli.conftest import Sapbert, left_in, refused
from tests.conftest import GOLDEN
from tests.encoder.tiny import tiny_bert
from tests.training.conftest import tiny_pairs as tiny_pairs


@pytest.fixture
def benchmarks(tmp_path: Path) -> Path:
    """Two sets under the names of the paper's."""
    folder = tmp_path / "benchmarks"
    shutil.copytree(GOLDEN / "benchmarks" / "plain", folder / "ncbi-disease")
    shutil.copytree(GOLDEN / "benchmarks" / "folds", folder / "askapatient")
    return folder


def test_a_resumed_table_is_written_again_without_measuring(
    sapbert: Sapbert, benchmarks: Path, tmp_path: Path
) -> None:
    models = ",".join(str(tiny_bert(tmp_path / f"seed{seed}", seed=seed)) for seed in (0, 1))
    out = tmp_path / "paper"
    arguments = (
        "--benchmarks",
        benchmarks,
        "--baselines",
        "exact,edit",
        "--cache",
        tmp_path / "cache",
        "-o",
        out,
    )

    first = sapbert("reproduce", "table1", *arguments, "--models", f"sapbert={models}")
    refusal = sapbert("reproduce", "table1", *arguments, "--models", f"sapbert={models}")
    again = sapbert("reproduce", "table1", *arguments, "--models", f"sapbert={models}", "--resume")

    assert "give --resume to keep them and compute the missing ones, or --overwrite to start over" in refused(
        refusal
    )
    assert (first.code, again.code) == (0, 0)
    assert [line.partition(",")[0] for line in first.err.splitlines()] == [
        "cell 1 of 8: exact on ncbi-disease",
        "cell 2 of 8: exact on askapatient",
        "cell 3 of 8: edit on ncbi-disease",
        "cell 4 of 8: edit on askapatient",
        "cell 5 of 8: sapbert on ncbi-disease",
        "cell 6 of 8: sapbert on askapatient",
        "cell 7 of 8: sapbert on ncbi-disease",
        "cell 8 of 8: sapbert on askapatient",
        f"table -> {out / 'table1.md'}",
        f"table -> {out / 'table1.csv'}",
    ]
    assert "cell" not in again.err
    assert first.out == again.out == (out / "table1.md").read_text()
    lines = first.out.splitlines()
    (row,) = [number for number, line in enumerate(lines) if line.startswith("| sapbert (2 runs) |")][:1]
    assert lines[row + 2].startswith("| *paper: PubMedBERT + SapBERT* | 92.0/95.6 |")
    assert left_in(out) == {"cells", "table1.md", "table1.csv"}
    table = pl.read_csv(out / "table1.csv").filter(of="here", benchmark="askapatient")
    assert table["row"].unique(maintain_order=True).to_list() == ["exact", "edit", "sapbert"]


def test_the_table_of_xl_bel_searches_the_given_dictionary(sapbert: Sapbert, tmp_path: Path) -> None:
    folder = tmp_path / "sets" / "xl-bel-es"
    folder.mkdir(parents=True)
    (folder / "es_1k_test_query.txt").write_text("C01||asma\nC02||fiebre\n", encoding="utf-8")
    (tmp_path / "names.tsv").write_text("concept_id\tname\nC01\tasma\nC02\tfever\n", encoding="utf-8")
    arguments = ("--benchmarks", tmp_path / "sets", "--dictionary", tmp_path / "names.tsv")

    done = sapbert("reproduce", "xlbel", *arguments, "--baselines", "exact", "-o", tmp_path / "paper")

    assert done.code == 0, done.err
    header, _, row, *_ = done.out[done.out.index("|  |") :].splitlines()
    assert header == "|  | en | es | de | fi | ru | tr | ko | zh | ja | th |"
    assert row.startswith("| exact | \N{EN DASH} | 50.0/50.0 |")
    assert "en was not measured: no folder xl-bel-en" in done.out
    assert left_in(tmp_path / "paper") == {"cells", "xlbel.md", "xlbel.csv"}


def test_another_table_reuses_finished_cells(sapbert: Sapbert, benchmarks: Path, tmp_path: Path) -> None:
    arguments = ("--benchmarks", benchmarks, "--baselines", "exact", "-o", tmp_path / "paper")
    assert sapbert("reproduce", "table1", *arguments).code == 0

    done = sapbert("reproduce", "table4", *arguments, "--resume")

    assert "cell" not in done.err
    assert "| *TaggerOne* | 87.7/- |" in done.out


def test_the_compared_row_and_the_reference_row_can_be_chosen(
    sapbert: Sapbert, benchmarks: Path, tmp_path: Path
) -> None:
    arguments = ("--benchmarks", benchmarks, "--baselines", "exact", "--cache", tmp_path / "cache")
    model = ("--models", f"mine={tiny_bert(tmp_path / 'model')}")

    done = sapbert(
        *("reproduce", "table1", *arguments, *model, "-o", tmp_path / "paper"),
        *("--paper-row", "mine=scibert + sapbert", "--against", "exact"),
    )

    assert "| *paper: SciBERT + SapBERT* | 91.7/95.2 |" in done.out
    assert "better than exact" in done.out


def test_one_option_may_name_several_models_and_their_seeds(
    sapbert: Sapbert, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drawn: dict[str, Any] = {}

    def draw(pairs: Path, models: Any, out: Path, settings: Any, *, overwrite: bool) -> None:
        drawn.update(models=models, out=out, batches=settings.batches)

    monkeypatch.setattr(reproduce, "draw_similarity_figure", draw)
    models = "base=org/base, sap = runs/lr=1,runs/lr=2"
    options = ("--models", models, "--models", "new=c", "--batches", 3)

    done = sapbert("reproduce", "figure2", "pairs", *options, "-o", tmp_path)

    assert done.code == 0
    assert drawn["models"] == {
        "base": "org/base",
        "sap, run 1": "runs/lr=1",
        "sap, run 2": "runs/lr=2",
        "new": "c",
    }
    assert (drawn["out"], drawn["batches"]) == (tmp_path / "figure2.png", 3)


def test_figure1_is_an_image_and_a_page_of_one_projection(
    sapbert: Sapbert, tiny_pairs: Pairs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    projected: list[object] = []

    def project(*given: Any) -> projection.Projection:
        projected.append(given)
        return whole(*given)

    whole = projection.project
    monkeypatch.setattr(projection, "project", project)
    models = ",".join(
        f"{name}={tiny_bert(tmp_path / 'models' / name, seed=1)}" for name in ("before", "after")
    )
    small = ("--concepts", 5, "--names", 4, "--perplexity", 5)

    done = sapbert(
        "reproduce", "figure1", tiny_pairs.path, "--models", models, *small, "-o", tmp_path / "paper"
    )

    assert done.code == 0
    assert len(projected) == 2
    assert left_in(tmp_path / "paper") == {"figure1.html", "figure1.png"}
    page = (tmp_path / "paper" / "figure1.html").read_text()
    assert '{"name":"before","nearest":' in page
    assert '{"name":"after","nearest":' in page
    assert [line.partition(":")[0] for line in done.err.splitlines()[:2]] == ["before", "after"]


def test_trained_parameters_are_counted(sapbert: Sapbert, tmp_path: Path) -> None:
    base = tiny_bert(tmp_path / "base")
    model, tokenizer = load_encoder(base)
    whole = sum(parameter.numel() for parameter in model.parameters())
    add_adapters(model, AdapterSettings(reduction=4))
    trained = sum(parameter.numel() for parameter in model.parameters()) - whole
    save_model(tmp_path / "adapted", model, tokenizer, pooling=Pooling.CLS, max_length=25, card="")
    models = f"full={base},adapter 13={tmp_path / 'adapted'}"

    done = sapbert("reproduce", "table7", "--models", models, "-o", tmp_path / "paper")

    assert done.code == 0
    assert (
        f"| full | - | {whole / 1e6:.2f}M | 100.00% |\n| *paper: full model* | - | 109.48M | 100% |"
        in done.out
    )
    assert f"| adapter 13 | 4 | {trained / 1e6:.2f}M | {trained / whole:.2%} |" in done.out
    assert "| *adapter 1%* | 16 | 0.60M | 1.09% |" in done.out
    assert pl.read_csv(tmp_path / "paper" / "table7.csv").rows() == [
        ("full", None, whole, whole),
        ("adapter 13", 4, trained, whole),
    ]


def test_a_copy_is_not_another_seed(sapbert: Sapbert, benchmarks: Path, tmp_path: Path) -> None:
    model, copy = tiny_bert(tmp_path / "model"), tmp_path / "copy"
    shutil.copytree(model, copy)
    kept = ("--benchmarks", benchmarks, "--cache", tmp_path / "cache", "-o", tmp_path / "paper")

    done = sapbert("reproduce", "table1", *kept, "--models", f"sap={model},{copy}")

    assert f"{copy} and {model} are the same encoder" in refused(done)
    assert not (tmp_path / "paper").exists()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--models", "model"), "--models model: expected NAME=FOLDER"),
        (("--models", "a=x,"), "--models a=x,: expected NAME=FOLDER"),
        (("--models", "exact=x"), "exact is the name of a baseline"),
        (("--beside", "other=BERT"), "--paper-row other=BERT: expected NAME=ROW with the name of a model"),
        (("--models", "a=x", "--beside", "a=GPT"), "the paper's table has no row 'GPT'"),
        (("--against", "GPT"), "the paper's table has no row 'GPT'"),
        (("--baselines", ""), "give --models or --baselines"),
        (
            ("--benchmarks", GOLDEN),
            "golden contains none of the paper's benchmarks; expected subfolders: ncbi-disease, ",
        ),
        (("--baselines", "oracle"), "unknown baseline 'oracle'"),
        (("--models", "a=nowhere/at/all"), "nowhere/at/all"),
    ],
)
def test_wrong_options_are_reported_before_anything_is_measured(
    sapbert: Sapbert, benchmarks: Path, tmp_path: Path, options: tuple[object, ...], problem: str
) -> None:
    done = sapbert("reproduce", "table1", "--benchmarks", benchmarks, "-o", tmp_path / "paper", *options)

    assert problem in refused(done)
    assert not (tmp_path / "paper").exists()


def test_a_folder_with_other_files_is_refused(sapbert: Sapbert, benchmarks: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")

    done = sapbert("reproduce", "table1", "--benchmarks", benchmarks, "-o", tmp_path / "mine")

    assert "mine exists and contains other files" in refused(done)


def test_an_interrupt_reports_how_to_resume(
    sapbert: Sapbert, benchmarks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cells, "measure_cells", stop)

    done = sapbert("reproduce", "table1", "--benchmarks", benchmarks, "-o", tmp_path / "paper")

    assert (done.code, done.out) == (1, "")
    assert done.err.endswith("add --resume to continue\n")
