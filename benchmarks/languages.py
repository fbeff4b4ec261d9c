"""Accuracy of an encoder across languages: names and mentions in any language, English dictionaries.

    python benchmarks/languages.py ../shared/data                           # bundled encoder, samples
    python benchmarks/languages.py ../shared/data --model FOLDER --mentions 0        # all mentions
    python benchmarks/languages.py ../shared/data --tasks hpo xl-bel --baseline tfidf

| task | mentions | dictionary |
|---|---|---|
| hpo, orphanet | translated labels of the held-out concepts (`is_held_out`) | all English labels |
| distemist | Spanish disease mentions | MeSH diseases |
| codiesp | Spanish diagnoses of the development split | ICD-10-CM |
| mantra, xl-bel | mentions with UMLS ids, "open subset" | names of HPO, Mondo and DOID, by their UMLS ids |

The open subset is the mentions with an id that this dictionary has. UMLS itself is not used, so these
figures cannot be compared with published ones. `hpo` and `orphanet` measure generalization only if the
encoder was trained without the held-out concepts. Accuracy is by the dense score alone.
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from results import write_results
from sapbert.cache import cache_folder
from sapbert.encoder.open import open_encoder
from sapbert.evaluation.benchmarks.dataset import Dictionary, make_dictionary, mention_table
from sapbert.evaluation.benchmarks.loader import EvaluationSet, open_evaluation_set
from sapbert.evaluation.metrics import compute_metrics
from sapbert.evaluation.rankers import EncoderRanker, RankerFactory, baseline
from sapbert.evaluation.run import evaluate
from sapbert.evaluation.vector_cache import CachedEncoder

HELD_OUT = 10
"""One of this many concepts of HPO and Orphanet is held out."""
HPO_TRANSLATIONS = ("hpo_translations_2026-08", "hpo_translations_fr_nl_tr_from_history")
MANTRA_LANGUAGES = ("de", "en", "es", "fr", "nl")
XL_BEL_LANGUAGES = ("de", "en", "es", "fi", "ja", "ko", "ru", "th", "tr", "zh")
MIN_LABELS = 50
"""A language with fewer held-out labels is left out."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", type=Path, help="Folder with `vocabularies`, `benchmarks` and `corpora`.")
    parser.add_argument("--model", default="default", help="Encoder, as `sapbert evaluate` takes it.")
    parser.add_argument("--baseline", help="A baseline of `sapbert evaluate` instead of an encoder.")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--mentions", type=int, default=200, help="Sample per task and language; 0: all.")
    parser.add_argument("--results", default="languages", help="Name of the file of results.")
    options = parser.parse_args()
    name, make_ranker = ranker(options.model, options.baseline)
    rows: list[dict[str, Any]] = []
    print(f"{'task':10} {'language':8} {'mentions':>8} {'acc@1':>6} {'acc@5':>6}")
    for task in options.tasks:
        for row in measure(task, TASKS[task](options.data), make_ranker, options.mentions):
            rows.append(row)
            figures = f"{row['mentions']:8} {row['acc@1']:6.1f} {row['acc@5']:6.1f}"
            print(f"{row['task']:10} {row['language']:8} {figures}", flush=True)
    content = {"ranker": name, "sample": options.mentions or "all", "rows": rows}
    write_results(options.results, content, ("numpy", "polars"))


def ranker(model: str, baseline_name: str | None) -> tuple[str, RankerFactory]:
    if baseline_name:
        return baseline_name, baseline(baseline_name)
    encoder = CachedEncoder(open_encoder(model), cache_folder() / "vectors")
    return encoder.fingerprint, partial(EncoderRanker, encoder=encoder)


def measure(
    task: str, source: tuple[pl.DataFrame, Dictionary], make_ranker: RankerFactory, sample: int
) -> list[dict[str, Any]]:
    """Return the accuracy per language, and the mean over languages other than English."""
    mentions, dictionary = source
    if sample:
        order = mentions["raw"].hash(seed=0).rank("ordinal")
        mentions = mentions.with_columns(order=order).filter(pl.col("order").rank().over("type") <= sample)
    benchmark = EvaluationSet(task, {"test": mentions.drop("order", strict=False)}, dictionary, None, {})
    results = evaluate(benchmark, make_ranker, depth=5).results
    rows = []
    for language in sorted(results["type"].unique()):
        metrics = compute_metrics(results.filter(pl.col("type") == language))
        shares = {f"acc@{k}": round(100 * (metrics.accuracy[k] or 0), 1) for k in (1, 5)}
        rows.append({"task": task, "language": language, "mentions": metrics.mentions, **shares})
    others = [row for row in rows if row["language"] != "en"]
    if len(others) > 1:
        total = sum(row["mentions"] for row in others)
        means = {key: round(sum(row[key] for row in others) / len(others), 1) for key in ("acc@1", "acc@5")}
        rows.append({"task": task, "language": "mean", "mentions": total, **means})
    return rows


def is_held_out(concept_id: str) -> bool:
    """Return whether a concept, such as `HP:0000118` or `ORPHA:558`, is left out of training."""
    return zlib.crc32(concept_id.upper().encode()) % HELD_OUT == 0


def hpo(data: Path) -> tuple[pl.DataFrame, Dictionary]:
    translations = pl.concat(read_vocabulary(data, name) for name in HPO_TRANSLATIONS)
    return translation_task(read_vocabulary(data, "hpo_2025-01"), translations)


def orphanet(data: Path) -> tuple[pl.DataFrame, Dictionary]:
    names = read_vocabulary(data, "orphanet_12lang_2026")
    is_english = pl.col("lang") == "en"
    return translation_task(names.filter(is_english), names.filter(~is_english))


def translation_task(english: pl.DataFrame, translations: pl.DataFrame) -> tuple[pl.DataFrame, Dictionary]:
    """The preferred names of held-out concepts in other languages, and all English preferred names."""
    english = english.filter(pl.col("is_preferred") == "1")
    # Czech and Turkish labels of HPO are not marked as preferred.
    ordered = translations.sort("is_preferred", descending=True, maintain_order=True)
    labels = ordered.unique(["concept_id", "lang"], keep="first", maintain_order=True)
    labels = labels.join(english.select("concept_id"), on="concept_id", how="semi")
    labels = labels.filter(pl.col("concept_id").map_elements(is_held_out, return_dtype=pl.Boolean))
    labels = labels.filter(pl.len().over("lang") >= MIN_LABELS)
    mentions = mention_table({"mention": labels["name"], "ids": labels["concept_id"], "type": labels["lang"]})
    return mentions, make_dictionary(english["name"], english["concept_id"])


def distemist(data: Path) -> tuple[pl.DataFrame, Dictionary]:
    benchmark = open_evaluation_set(data / "benchmarks" / "distemist-es-mesh")
    assert benchmark.dictionary is not None
    return benchmark.split("test").with_columns(type=pl.lit("es")), benchmark.dictionary


def codiesp(data: Path) -> tuple[pl.DataFrame, Dictionary]:
    columns = ["document", "kind", "code", "text", "offsets"]
    file = data / "corpora" / "codiesp_dev.tsv.gz"
    rows = pl.read_csv(
        file, separator="\t", quote_char=None, has_header=False, new_columns=columns, infer_schema=False
    ).filter(pl.col("kind") == "DIAGNOSTICO")
    names = read_vocabulary(data, "icd10cm_2026-04")
    ids = "ICD10CM:" + rows["code"].str.to_uppercase()
    mentions = mention_table(
        {"mention": rows["text"], "ids": ids, "type": pl.repeat("es", len(rows), eager=True)}
    )
    return with_known_ids(mentions, make_dictionary(names["name"], names["concept_id"]))


def open_subset(data: Path, prefix: str, languages: Sequence[str]) -> tuple[pl.DataFrame, Dictionary]:
    """Mentions of several benchmarks with UMLS ids; names from open vocabularies that refer to UMLS."""
    file = data / "benchmarks" / "medmentions-st21pv" / "dictionary_open_partial.tsv.gz"
    names = pl.read_csv(file, separator="\t", quote_char=None, infer_schema=False)
    tests = [
        open_evaluation_set(data / "benchmarks" / f"{prefix}-{language}")
        .split("test")
        .with_columns(type=pl.lit(language))
        for language in languages
    ]
    return with_known_ids(pl.concat(tests), make_dictionary(names["name"], names["concept_id"]))


def with_known_ids(mentions: pl.DataFrame, dictionary: Dictionary) -> tuple[pl.DataFrame, Dictionary]:
    """Keep the mentions with an id that the dictionary has."""
    is_known = pl.col("ids").list.eval(pl.element().is_in(dictionary.ids.implode())).list.any()
    return mentions.filter(is_known), dictionary


def read_vocabulary(data: Path, name: str) -> pl.DataFrame:
    file = data / "vocabularies" / f"{name}.tsv.gz"
    columns = ["concept_id", "name", "is_preferred", "lang"]
    return pl.read_csv(file, separator="\t", quote_char=None, infer_schema=False, columns=columns)


TASKS: dict[str, Callable[[Path], tuple[pl.DataFrame, Dictionary]]] = {
    "hpo": hpo,
    "orphanet": orphanet,
    "distemist": distemist,
    "codiesp": codiesp,
    "mantra": partial(open_subset, prefix="mantra-gsc", languages=MANTRA_LANGUAGES),
    "xl-bel": partial(open_subset, prefix="xl-bel", languages=XL_BEL_LANGUAGES),
}


if __name__ == "__main__":
    main()
