from __future__ import annotations

from pathlib import Path

import pytest

from sapbert.artifacts import create
from sapbert.encoder.transformer import TransformerEncoder
from tests.cli.conftest import Sapbert, left_in, one_json, refused
from tests.conftest import GOLDEN, Exported
from tests.encoder.tiny import tiny_bert

PLAIN = GOLDEN / "benchmarks" / "plain"
RAW = sorted((GOLDEN / "raw").glob("INV*.txt"))


def test_evaluate_reports_both_dictionaries_on_standard_output(sapbert: Sapbert) -> None:
    done = sapbert("evaluate", "--benchmark", PLAIN, "--baseline", "edit")

    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "plain, test: edit"
    assert lines[2].split()[:4] == ["dictionary", "3", "100.0", "(100.0-100.0)"]
    assert any(line.startswith("test_dictionary") for line in lines)
    assert "  NIL: 1 mentions, precision -, recall 0.0" in lines


def test_results_are_printed_as_json(sapbert: Sapbert) -> None:
    found = one_json(sapbert("evaluate", "--benchmark", PLAIN, "--baseline", "exact", "--json"))

    assert found["dictionary"]["accuracy"] == {"1": pytest.approx(1 / 3), "5": pytest.approx(1 / 3)}
    assert found["dictionary"]["by type"]["Composite"]["mentions"] == 1
    assert set(found) == {"dictionary", "test_dictionary"}


def test_by_type_reports_each_type_of_mention(sapbert: Sapbert) -> None:
    plain = sapbert("evaluate", "--benchmark", PLAIN, "--baseline", "exact").out
    by_type = sapbert("evaluate", "--benchmark", PLAIN, "--baseline", "exact", "--by-type").out

    added = [line.split()[:3] for line in by_type.splitlines() if line not in plain.splitlines()]
    assert added == [["Disease", "2", "0.0"], ["Composite", "1", "100.0"]] * 2


def test_a_long_type_is_truncated_to_its_column(sapbert: Sapbert, tmp_path: Path) -> None:
    rows = "mention\tconcept_ids\ttype\nfever\tA\tDisease\nrust\tB\tAmino Acid, Peptide, or Protein\n"
    (tmp_path / "test.tsv").write_text(rows)
    (tmp_path / "dictionary.tsv").write_text("concept_id\tname\nA\tfever\n")

    lines = sapbert("evaluate", "--benchmark", tmp_path, "--baseline", "exact", "--by-type").out.splitlines()

    assert lines[4].startswith("  Amino Acid, Peptide,\N{HORIZONTAL ELLIPSIS} ")
    assert [line.index(" 1 ") for line in lines[3:5]] == [lines[1].index("mentions") + 6] * 2


def test_seen_mentions_are_reported_before_unseen_ones(sapbert: Sapbert, tmp_path: Path) -> None:
    rows = {"train": "fever\tA\n", "test": "fever\tA\nrust\tB\nmoss\tB\n"}
    for split, mentions in rows.items():
        (tmp_path / f"{split}.tsv").write_text(f"mention\tconcept_ids\n{mentions}")
    (tmp_path / "dictionary.tsv").write_text("concept_id\tname\nA\tfever\n")

    lines = sapbert("evaluate", "--benchmark", tmp_path, "--baseline", "exact").out.splitlines()

    assert [line[:20].strip() for line in lines[3:5]] == ["seen in training", "unseen"]


def test_a_vocabulary_is_a_dictionary_with_its_other_ids(sapbert: Sapbert, tmp_path: Path) -> None:
    names, test = GOLDEN / "raw" / "names.txt", tmp_path / "test.tsv"
    assert sapbert("read", "table", names, "--prefix", "mesh", "-o", tmp_path / "vocabulary").code == 0
    test.write_text("mention\tconcept_ids\nmoss lung\t700001\n")
    given = ("--dictionary", tmp_path / "vocabulary", "--prefix", "mesh", "--json")

    found = one_json(sapbert("evaluate", "--benchmark", test, "--baseline", "exact", *given))

    assert found["dictionary"]["coverage"] == 1
    assert found["dictionary"]["accuracy"]["1"] == 1


def test_one_encoder_is_not_two_seeds(sapbert: Sapbert, tmp_path: Path) -> None:
    model = tiny_bert(tmp_path / "model")
    both = ("--model", model, "--model", model, "--cache", tmp_path / "cache")

    done = sapbert("evaluate", "--benchmark", PLAIN, *both)

    assert "are the same encoder, not two seeds of one" in refused(done)


def test_an_encoder_is_evaluated_and_its_vectors_are_cached(sapbert: Sapbert, tmp_path: Path) -> None:
    model, cache = tiny_bert(tmp_path / "model"), tmp_path / "cache"
    arguments = ("evaluate", "--benchmark", PLAIN, "--model", model, "--cache", cache)

    first = sapbert(*arguments)
    kept = left_in(next(cache.iterdir()))
    again = sapbert(*arguments)

    assert first.code == again.code == 0
    assert first.out == again.out
    assert left_in(next(cache.iterdir())) == kept


def test_sparse_weight_sets_the_weight_of_the_ngram_score(sapbert: Sapbert, tmp_path: Path) -> None:
    model = ("--model", tiny_bert(tmp_path / "model"), "--cache", tmp_path / "cache")

    def figures(*options: object) -> object:
        return one_json(sapbert("evaluate", "--benchmark", PLAIN, *options, "--json"))

    assert figures(*model, "--sparse-weight", 0) == figures(*model)
    assert figures(*model, "--sparse-weight", 1e6) == figures("--baseline", "tfidf") != figures(*model)


def test_an_exported_encoder_is_evaluated_without_torch(
    sapbert: Sapbert, tiny_export: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(TransformerEncoder, "open")

    done = sapbert(
        "evaluate", "--benchmark", PLAIN, "--model", tiny_export.encoder, "--cache", tmp_path / "cache"
    )

    assert done.code == 0
    assert {"dictionary", "test_dictionary"} <= {line.partition(" ")[0] for line in done.out.splitlines()}


def test_models_of_several_seeds_are_one_system(sapbert: Sapbert, tmp_path: Path) -> None:
    models = [tiny_bert(tmp_path / f"model{seed}", seed=seed) for seed in (0, 1)]
    arguments = ("evaluate", "--benchmark", PLAIN, "--cache", tmp_path / "cache")
    both = (*arguments, "--model", models[0], "--model", models[1])

    done = sapbert(*both, "-o", tmp_path / "seeds")
    found = one_json(sapbert(*both, "--json"))["dictionary"]
    alone = [one_json(sapbert(*arguments, "--model", model, "--json"))["dictionary"] for model in models]

    accuracies = [one["accuracy"]["1"] for one in alone]
    assert [run["accuracy"]["1"] for run in found["runs"]] == accuracies
    assert found["accuracy"]["1"]["mean"] == pytest.approx(sum(accuracies) / 2)
    assert found["accuracy"]["1"]["deviation"] == pytest.approx(abs(accuracies[0] - accuracies[1]) / 2**0.5)
    assert f"{100 * found['accuracy']['1']['mean']:.1f} ± " in done.out.splitlines()[2]
    assert done.out.endswith("Mean and standard deviation over 2 runs.\n")
    assert left_in(tmp_path / "seeds") == {"01", "02"}
    assert sapbert("compare", tmp_path / "seeds", tmp_path / "seeds").code == 0


def test_runs_are_not_added_to_a_folder_with_other_runs(sapbert: Sapbert, tmp_path: Path) -> None:
    (tmp_path / "seeds" / "03").mkdir(parents=True)
    model = tiny_bert(tmp_path / "model")

    done = sapbert(
        "evaluate", "--benchmark", PLAIN, "--model", model, "--model", model, "-o", tmp_path / "seeds"
    )

    assert "03 would count as another run" in refused(done)


def test_two_runs_are_compared_in_text_and_on_a_page(sapbert: Sapbert, tmp_path: Path) -> None:
    for name in ("exact", "edit"):
        assert sapbert("evaluate", "--benchmark", PLAIN, "--baseline", name, "-o", tmp_path / name).code == 0

    page = tmp_path / "page.html"
    done = sapbert("compare", tmp_path / "exact", tmp_path / "edit", "--html", page)

    assert done.code == 0
    assert "  difference  +66.7" in done.out
    assert "2 mentions gained, 0 lost" in done.out
    assert "glimmer fevers" in page.read_text()


def test_the_page_shows_names_as_text(sapbert: Sapbert, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "dictionary.tsv").write_text("concept_id\tname\nX\t<script>alert(1)</script>\n")
    (folder / "test.tsv").write_text("mention\tconcept_ids\n<script>alert(2)</script>\tX\n")
    for name in ("exact", "edit"):
        sapbert("evaluate", "--benchmark", folder, "--baseline", name, "-o", tmp_path / name)

    sapbert("compare", tmp_path / "exact", tmp_path / "edit", "--html", tmp_path / "page.html")

    html = (tmp_path / "page.html").read_text()
    assert "&lt;script&gt;alert(2)" in html
    assert "<script" not in html


def test_errors_are_counted_by_kind_and_shown_on_a_page(sapbert: Sapbert, tmp_path: Path) -> None:
    run, page = tmp_path / "exact", tmp_path / "errors.html"
    assert sapbert("evaluate", "--benchmark", PLAIN, "--baseline", "exact", "-o", run).code == 0

    done = sapbert("errors", run, "-o", page)

    assert (done.code, done.err) == (0, f"page -> {page}\n")
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[:2] == [["dictionary", "test_dictionary"], ["wrong", "2", "of", "3", "2", "of", "3"]]
    assert lines[2:] == [["no", "candidate", "2", "(100%)", "2", "(100%)"]]
    assert "<title>Wrong links of exact on plain, test</title>" in page.read_text()
    assert sapbert("errors", run).out == done.out
    assert "--overwrite" in refused(sapbert("errors", run, "-o", page))


def test_errors_and_compare_measure_distances_with_a_vocabulary(sapbert: Sapbert, tmp_path: Path) -> None:
    names = tmp_path / "names.csv"
    names.write_text("id,name,parents\nx:A,all,\nx:B,some,x:A\n")
    assert sapbert("read", "table", names, "-o", tmp_path / "v").code == 0
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "dictionary.tsv").write_text("concept_id\tname\nA\tfever\nB\thigh fever\n")
    (folder / "test.tsv").write_text("mention\tconcept_ids\nfever\tB\n")
    assert sapbert("evaluate", "--benchmark", folder, "--baseline", "exact", "-o", tmp_path / "run").code == 0

    options = ("--vocabulary", tmp_path / "v", "--prefix", "x")
    errors = sapbert("errors", tmp_path / "run", *options).out.splitlines()
    compared = sapbert("compare", tmp_path / "run", tmp_path / "run", *options).out
    assert "within one step     100.0%" in errors
    assert "  broader           1 (100%)" in errors
    assert "100.0%" in compared
    (tmp_path / "flat.csv").write_text("id,name\nx:A,all\n")
    sapbert("read", "table", tmp_path / "flat.csv", "-o", tmp_path / "flat")
    assert "has no parents" in refused(sapbert("errors", tmp_path / "run", "--vocabulary", tmp_path / "flat"))


def test_errors_needs_an_evaluation_with_gold_names(sapbert: Sapbert, tmp_path: Path) -> None:
    with create(tmp_path / "old") as draft:
        draft.seal("evaluation", settings={}, inputs={}, counts={})

    assert "has no table mentions, because an earlier version of sapbert wrote it" in refused(
        sapbert("errors", tmp_path / "old")
    )


def test_a_benchmark_is_built_and_evaluated(sapbert: Sapbert, tmp_path: Path) -> None:
    names = GOLDEN / "raw" / "names.txt"
    built = sapbert("benchmark", "ncbi-disease", *RAW, "--dictionary", names, "-o", tmp_path / "set")
    done = sapbert("evaluate", "--benchmark", tmp_path / "set", "--baseline", "exact", "--split", "dev")

    assert built.code == done.code == 0
    assert done.out.startswith("set, dev: exact\n")


def test_exactly_one_of_model_and_baseline_is_required(sapbert: Sapbert) -> None:
    assert "give either --model or --baseline" in refused(sapbert("evaluate", "--benchmark", PLAIN))
    both = sapbert("evaluate", "--benchmark", PLAIN, "--model", "a", "--baseline", "exact")
    assert "give either --model or --baseline" in refused(both)
    baseline = sapbert("evaluate", "--benchmark", PLAIN, "--baseline", "exact", "--sparse-weight", "1")
    assert "a baseline has no dense score" in refused(baseline)


def test_compare_needs_evaluations(sapbert: Sapbert, tmp_path: Path) -> None:
    assert "neither an evaluation nor a folder" in refused(sapbert("compare", tmp_path, tmp_path))
