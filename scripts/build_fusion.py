"""Fit the ranker and the calibration of the bundled index, and report what the ranker gains.

    python scripts/build_fusion.py --benchmarks BENCHMARKS --everyday benchmarks/everyday \
        --defaults src/sapbert/defaults --work WORK --report benchmarks/results/fusion.json

BENCHMARKS contains one folder per set, as `sapbert evaluate --benchmark` reads them. The ranker is fitted on
training splits: each corpus against its own dictionary, and those with MeSH ids against the bundled index
too. Each mention has a copy with one random edit. The report has Acc@1 and Acc@5 of the development splits
without a ranker, with one fitted on all other corpora, and with the final one. Confidence is fitted on the
development splits, of the corpora and of the everyday set, against the bundled index.

Indexes of the dictionaries are kept in WORK and used again as long as the encoder is the same.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np
import polars as pl

from sapbert.api import build_index, read
from sapbert.defaults import CALIBRATION, VARIABLE
from sapbert.index.settings import IndexSettings, Kind, Precision
from sapbert.linking.calibration.file import Calibration
from sapbert.linking.calibration.fit import calibrate
from sapbert.linking.calibration.model import brier, calibration_error
from sapbert.linking.fusion.examples import labelled_requests
from sapbert.linking.fusion.fit import LabelledRequest, TrainingSet, fit_ranker, training_set, word_weights
from sapbert.linking.fusion.ranker import FusionRanker
from sapbert.linking.fusion.words import WordTable
from sapbert.linking.linker import Linker
from sapbert.linking.settings import CalibrateSettings, LinkSettings
from sapbert.mentions import LabelledMention, read_labelled_mentions, resolve_concepts
from sapbert.vocab.input_files import InputReader
from sapbert.vocab.readers.settings import TableSettings

MENTIONS = 1000
"""Distinct training mentions per corpus and index."""
DEV_MENTIONS = 600
"""Mentions of a development split; those that occur often are drawn often."""
MISSPELT = "misspelt"
MODIFIED = (
    "severe {}", "mild {}", "moderate {}", "acute {}", "chronic {}", "left {}", "right {}", "bilateral {}",
    "history of {}", "h/o {}", "s/p {}", "r/o {}", "recurrent {}", "active {}", "early {}", "end-stage {}",
    "suspected {}", "known {}", "possible {}", "new onset {}", "persistent {}", "poorly controlled {}",
    "my {}", "worst {}", "{} exacerbation", "{}, severe", "{} on the left side", "{} for 3 days",
    "{} stage 4",
)  # fmt: skip
"""Forms of a mention that mean the same concept, unless they are names of another."""
EVERYDAY = "everyday"


@dataclass(frozen=True)
class Corpus:
    """A benchmark that is used."""

    name: str
    prefix: str | None = None
    """Prefix of its ids; None if they have one, or are those of MEDIC."""
    dictionary: str = "dictionary.tsv.gz"
    fold: str = ""
    """Folder of the splits."""
    mesh: bool = False
    """Whether its ids are those of the bundled index."""
    trained: bool = True
    """Whether it has a training split."""


CORPORA = (
    Corpus("ncbi-disease", mesh=True),
    Corpus("bc5cdr-disease", mesh=True),
    Corpus("bc5cdr-chemical", "mesh", mesh=True),
    Corpus("askapatient", "snomedct", fold="fold0"),
    Corpus("craft-mondo"),
    Corpus("medmentions-st21pv", "umls", dictionary="dictionary_open_partial.tsv.gz"),
    Corpus("hpo-gsc-plus", trained=False),
)


@dataclass(frozen=True)
class Task:
    """The mentions of a corpus to be linked with one index."""

    name: str
    corpus: str
    linker: Linker
    train: list[LabelledRequest]
    dev: list[LabelledMention]
    searched: dict[str, list[LabelledRequest]]
    """The mentions of `dev` and misspelt ones, with what the search finds."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--benchmarks", type=Path, required=True)
    parser.add_argument("--everyday", type=Path, help="Folder with dev.tsv; its mentions are not trained on.")
    parser.add_argument("--defaults", type=Path, required=True, help="Folder with encoder and index.")
    parser.add_argument("--work", type=Path, required=True, help="Folder for the indexes of dictionaries.")
    parser.add_argument("--corpora", nargs="*", default=[corpus.name for corpus in CORPORA])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report", type=Path, help="JSON file to write.")
    parser.add_argument("--out", "-o", type=Path, help="Calibration to write; default: that of --defaults.")
    arguments = parser.parse_args()
    started = perf_counter()
    bundled = open_bundled(arguments.defaults)
    tasks = []
    for corpus in CORPORA:
        if corpus.name in arguments.corpora:
            tasks += corpus_tasks(corpus, bundled, arguments, random.Random(arguments.seed))
            print(f"{corpus.name}: {perf_counter() - started:.0f} s", flush=True)
    everyday = (
        [] if arguments.everyday is None else everyday_mentions(arguments.everyday / "dev.tsv", bundled)
    )
    names = bundled.name_table.folded
    words = word_weights(names.span(0, len(names)))
    ranker, rows = fit_and_report(tasks, everyday, bundled, words, arguments.seed)
    print(f"fitted: {perf_counter() - started:.0f} s", flush=True)
    report = {"accuracy": rows, **confidence_report(tasks, everyday, bundled, ranker, arguments)}
    report["seconds"] = round(perf_counter() - started)
    print(json.dumps({key: value for key, value in report.items() if key != "accuracy"}, indent=1))
    if arguments.report is not None:
        arguments.report.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def open_bundled(folder: Path) -> Linker:
    """Open the index in `folder` without its calibration, which may be of another index."""
    os.environ[VARIABLE] = str(folder)
    calibration = folder / CALIBRATION
    hidden = calibration.with_suffix(".hidden")
    if calibration.exists():
        calibration.rename(hidden)
    try:
        return Linker.open()
    finally:
        if hidden.exists():
            hidden.rename(calibration)


def corpus_tasks(
    corpus: Corpus, bundled: Linker, arguments: argparse.Namespace, generator: random.Random
) -> list[Task]:
    """Search the training mentions of a corpus in the index of its dictionary and in the bundled one."""
    folder = arguments.benchmarks / corpus.name
    own = dictionary_linker(corpus, folder, bundled, arguments)
    tasks = []
    for linker, suffix in ((own, ""), *([(bundled, " in MeSH")] if corpus.mesh else [])):
        splits = {}
        for split in ("train", "dev") if corpus.trained else ("dev",):
            # Against the bundled index, abbreviations stay as they were written.
            table = folder / corpus.fold / f"{split}.tsv.gz"
            splits[split] = read_mentions(table, corpus.prefix, raw=linker is bundled)
        train = sampled(known(splits.get("train", []), linker), MENTIONS, generator)
        dev = sampled(known(splits["dev"], linker), DEV_MENTIONS, generator, distinct=False)
        train += misspelt(train, generator) + modified(train, linker, generator)
        searched = {
            name + suffix: searched_mentions(linker, mentions)
            for name, mentions in (
                (corpus.name, dev),
                (f"{corpus.name}, {MISSPELT}", misspelt(dev, generator)),
            )
        }
        examples = labelled_requests(linker, train)
        tasks.append(Task(corpus.name + suffix, corpus.name, linker, examples, dev, searched))
    return tasks


def dictionary_linker(corpus: Corpus, folder: Path, bundled: Linker, arguments: argparse.Namespace) -> Linker:
    """Build the index of a dictionary, or open it if this encoder has built it before."""
    dictionary = folder / corpus.dictionary
    table = pl.read_csv(dictionary, separator="\t", quote_char=None, infer_schema=False).drop_nulls()
    lines = [f"{ids}||{name}\n" for ids, name in table.iter_rows()]
    digest = f"{bundled.encoder.fingerprint[:12]}-{corpus.prefix}-{len(lines)}"
    place = arguments.work / digest
    if (place / "index").is_dir():
        return Linker.open(place / "index")
    place.mkdir(parents=True, exist_ok=True)
    (place / "dictionary.txt").write_text("".join(lines), encoding="utf-8")
    settings = TableSettings(prefix=corpus.prefix)
    vocabulary = read("table", place / "dictionary.txt", place / "vocabulary", settings, overwrite=True)
    index = IndexSettings(kind=Kind.FLAT, precision=Precision.INT8, hybrid=False)
    return build_index(
        vocabulary, place / "index", index, model=arguments.defaults / "encoder", overwrite=True
    )


def read_mentions(table: Path, prefix: str | None, *, raw: bool) -> list[LabelledMention]:
    """Read labelled mentions; `raw` undoes the expansion of abbreviations."""
    mentions = list(read_labelled_mentions(table, InputReader(), prefix=prefix))
    if not raw:
        return mentions
    rows = pl.read_csv(table, separator="\t", quote_char=None, infer_schema=False)
    if "abbr_expanded" not in rows.columns:
        return mentions
    expanded = (rows["abbr_expanded"] == "1").to_list()
    texts = rows["raw_mention"].to_list()
    return [
        replace(mention, text=texts[mention.row].casefold()) if expanded[mention.row] else mention
        for mention in mentions
    ]


def everyday_mentions(table: Path, bundled: Linker) -> list[LabelledMention]:
    mentions = read_labelled_mentions(table, InputReader(), prefix="mesh")
    return resolve_concepts(mentions, bundled.name_table.resolve)


def known(mentions: Iterable[LabelledMention], linker: Linker) -> list[LabelledMention]:
    """Replace ids by those of the index; a tenth of the mentions may have no concept in it."""
    resolved = resolve_concepts(mentions, linker.name_table.resolve)
    inside = [mention for mention in resolved if mention.concept_ids]
    outside = [mention for mention in resolved if not mention.concept_ids]
    return inside + outside[: len(inside) // 10]


def sampled(
    mentions: Sequence[LabelledMention], count: int, generator: random.Random, *, distinct: bool = True
) -> list[LabelledMention]:
    pool = list(dict.fromkeys(mentions)) if distinct else list(mentions)
    return generator.sample(pool, min(count, len(pool)))


def misspelt(mentions: Iterable[LabelledMention], generator: random.Random) -> list[LabelledMention]:
    """Return each mention with one character deleted, inserted, replaced or exchanged."""
    return [replace(mention, text=_one_edit(mention.text, generator)) for mention in mentions]


def modified(
    mentions: Sequence[LabelledMention], linker: Linker, generator: random.Random
) -> list[LabelledMention]:
    """Return a third of the mentions with a modifier, unless this is a name."""
    chosen = sampled(mentions, len(mentions) // 3, generator)
    forms = [replace(each, text=generator.choice(MODIFIED).format(each.text)) for each in chosen]
    return [form for form in forms if not linker.is_name(form.text)]


def own_names(linker: Linker, generator: random.Random) -> list[LabelledMention]:
    """Return names of the index as mentions: misspelt, misspelt twice, and with modifiers."""
    table = linker.name_table
    rows = generator.sample(range(len(table)), min(MENTIONS, len(table)))
    names = [
        LabelledMention(text, frozenset(table.concepts[concept] for concept in table.link_concepts[links]))
        for text, links in zip(table.folded.take(rows), map(table.links_of, rows), strict=True)
        if len(text) < 60
    ]
    once = misspelt(names, generator)
    return once + misspelt(once[::2], generator) + modified(names, linker, generator)


def _one_edit(text: str, generator: random.Random) -> str:
    places = [place for place, character in enumerate(text) if character.isalpha()][1:]
    if len(places) < 4:
        return text
    place, letter = generator.choice(places), generator.choice(string.ascii_lowercase)
    before, character, after = text[:place], text[place], text[place + 1 :]
    edits = (before + after, before + letter + character + after, before + letter + after)
    exchanged = before[:-1] + character + before[-1] + after
    return generator.choice([*edits, exchanged])


def fit_and_report(
    tasks: Sequence[Task], everyday: Sequence[LabelledMention], bundled: Linker, words: WordTable, seed: int
) -> tuple[FusionRanker, list[dict[str, object]]]:
    """Fit on all corpora, and on all but each; print and return the accuracies on development splits."""
    encoder = bundled.encoder.fingerprint
    groups = {task.name: training_set(task.train, words) for task in tasks if task.train}

    def fitted(without: str | None) -> FusionRanker:
        chosen = [groups[task.name] for task in tasks if task.name in groups and task.corpus != without]
        return fit_ranker(TrainingSet.join(chosen), words, encoder=encoder, seed=seed)

    final = fitted(None)
    corpora = dict.fromkeys(task.corpus for task in tasks if task.train)
    left_out = {corpus: fitted(corpus) for corpus in corpora}
    rows: list[dict[str, object]] = []
    for task in tasks:
        for name, examples in task.searched.items():
            rows.append({"set": name, **accuracies(examples, left_out.get(task.corpus, final), final)})
    if everyday:
        rows.append({"set": EVERYDAY, **accuracies(searched_mentions(bundled, everyday), final, final)})
    print(f"{'Acc@1/@5':40} {'search':>11} {'left out':>11} {'ranker':>11}")
    for row in rows:
        columns = " ".join(f"{row[key]:>11}" for key in ("search", "left out", "ranker"))
        print(f"{row['set']:40} {columns} {row['mentions']:>6}", flush=True)
    return final, rows


def searched_mentions(linker: Linker, mentions: Sequence[LabelledMention]) -> list[LabelledRequest]:
    """Search mentions whose concept is in the index; repeated mentions count each time."""
    labelled = [mention for mention in mentions if mention.concept_ids]
    distinct = list(dict.fromkeys(labelled))
    found = dict(zip(distinct, labelled_requests(linker, distinct), strict=True))
    return [found[mention] for mention in labelled]


def accuracies(
    examples: Sequence[LabelledRequest], left_out: FusionRanker, final: FusionRanker
) -> dict[str, object]:
    """Return Acc@1/Acc@5 in the order of the search and of two rankers."""
    columns: dict[str, object] = {"mentions": len(examples)}
    requests = [example.request for example in examples]
    for name, ranker in (("search", None), ("left out", left_out), ("ranker", final)):
        scores = (
            [-np.arange(len(each.names)) for each in requests] if ranker is None else ranker.rerank(requests)
        )
        right = np.array([_first_right(*pair) for pair in zip(examples, scores, strict=True)])
        columns[name] = f"{100 * (right < 1).mean():.1f}/{100 * (right < 5).mean():.1f}"
    return columns


def _first_right(example: LabelledRequest, scores: np.ndarray) -> int:
    """Return the rank of the first right candidate, from 0; exact names are first, as in linking."""
    request = example.request
    exact = [name == request.mention for name in request.names]
    order = np.lexsort((-scores, ~np.array(exact, np.bool_)))
    ranks = np.flatnonzero(np.array(example.correct, np.bool_)[order])
    return int(ranks[0]) if len(ranks) else len(order) + 5


def with_ranker(linker: Linker, ranker: FusionRanker | None) -> Linker:
    return Linker(
        linker.encoder, linker.search, linker.name_table, fingerprint=linker.fingerprint, ranker=ranker
    )


def confidence_report(
    tasks: Sequence[Task],
    everyday: Sequence[LabelledMention],
    bundled: Linker,
    ranker: FusionRanker,
    arguments: argparse.Namespace,
) -> dict[str, object]:
    """Fit the calibration on a mixed set and write it; return how good it is on a fifth that was held out."""
    generator = random.Random(arguments.seed)
    mixed = [mention for task in tasks if task.linker is bundled for mention in task.dev]
    mixed += misspelt(sampled(mixed, len(mixed) // 4, generator), generator) + list(everyday)
    linker = with_ranker(bundled, ranker)
    report = {}
    if everyday:
        texts = {mention.text for mention in everyday}
        others = [mention for mention in mixed if mention.text not in texts]
        unseen = with_calibration(linker, calibrate(linker, others, CalibrateSettings()))
        report["everyday, not fitted on"] = quality(unseen, everyday)
    calibration = calibrate(linker, mixed, CalibrateSettings())
    fitted = calibration.report
    report["mixed, five folds"] = {
        "mentions": fitted["mentions"],
        "right": fitted["right"],
        "calibration error": fitted["calibration error"]["confidence"],
        "brier": fitted["brier"]["confidence"],
        "right above 0.8": [each["precision"] for each in fitted["thresholds"] if each["threshold"] == 0.8],
    }
    target = arguments.out or arguments.defaults / CALIBRATION
    calibration.write(target, overwrite=True)
    print(f"calibration -> {target}, curve {calibration.method}")
    return {"confidence": report}


def with_calibration(linker: Linker, calibration: Calibration) -> Linker:
    return Linker(
        linker.encoder,
        linker.search,
        linker.name_table,
        fingerprint=linker.fingerprint,
        calibration=calibration,
    )


def quality(linker: Linker, mentions: Sequence[LabelledMention]) -> dict[str, float]:
    """Return calibration error, Brier score, and precision and share of the answers above 0.8."""
    linked = linker.link([mention.text for mention in mentions], settings=LinkSettings(k=1))
    answered = [(mention, found[0]) for mention, found in zip(mentions, linked, strict=True) if found]
    confidence = np.array([best.confidence for _, best in answered], np.float64)
    right = np.array([best.concept_id in mention.concept_ids for mention, best in answered])
    sure = confidence > 0.8
    return {
        "mentions": len(mentions),
        "right": round(float(right.mean()), 4),
        "calibration error": round(calibration_error(confidence, right), 4),
        "brier": round(brier(confidence, right), 4),
        "right above 0.8": round(float(right[sure].mean()), 4),
        "share above 0.8": round(float(sure.mean()), 4),
    }


if __name__ == "__main__":
    main()
