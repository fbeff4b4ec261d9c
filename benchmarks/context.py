"""Accuracy of the context rules (negated, possible, hypothetical, historical, family) on written sentences.

    python benchmarks/context.py

`context/patterns.txt` contains 200 sentence patterns, each with its findings and their context, written for
this purpose. Every pattern is filled with three different sets of findings: 600 sentences. The rules were
written before the patterns; errors were corrected on the patterns with odd numbers only, so those with even
numbers are held out.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from results import write_results
from sapbert.annotation.context.rules import KINDS, ContextRules
from sapbert.index.lexicon.words import Splitter

HERE = Path(__file__).parent
FINDINGS = (
    "fever", "chest pain", "pneumonia", "pulmonary embolism", "diabetes mellitus", "breast cancer", "stroke",
    "heart failure", "seizures", "nausea", "shortness of breath", "deep vein thrombosis", "anemia",
    "headache", "urinary tract infection", "myocardial infarction", "rash", "hypertension",
)  # fmt: skip
LABELS = dict(zip("nphtf", KINDS, strict=True))
SLOT = re.compile(r"<([ABC]):([nphtf]*)>")


class Sentence(NamedTuple):
    """A sentence, the spans of its findings and the context of each."""

    pattern: int
    text: str
    spans: list[tuple[int, int]]
    expected: list[frozenset[str]]


def sentences() -> Iterator[Sentence]:
    """Fill every pattern with three sets of findings."""
    lines = (HERE / "context" / "patterns.txt").read_text(encoding="utf-8").splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    for number, pattern in enumerate(patterns, 1):
        for turn in range(3):
            text, spans, expected, position = "", [], [], 0
            for slot in SLOT.finditer(pattern):
                place = (number * 7 + turn * 5 + "ABC".index(slot[1])) % len(FINDINGS)
                text += pattern[position : slot.start()]
                finding = FINDINGS[place] if text else FINDINGS[place].capitalize()
                spans.append((len(text), len(text) + len(finding)))
                expected.append(frozenset(LABELS[label] for label in slot[2]))
                text += finding
                position = slot.end()
            yield Sentence(number, text + pattern[position:], spans, expected)


def measure(chosen: list[Sentence], *, show: bool = False) -> dict[str, dict[str, float]]:
    """Return precision, recall and F1 of each kind and of all."""
    rules, splitter = ContextRules.open(), Splitter()
    counts = {kind: [0, 0, 0] for kind in (*KINDS, "all")}
    for sentence in chosen:
        spans = [(0, *span) for span in sentence.spans]
        found = rules.find([sentence.text], splitter.split([sentence.text]), spans)
        for triggers, expected in zip(found, sentence.expected, strict=True):
            kinds = {trigger.kind for trigger in triggers}
            if show and kinds != expected:
                print(sentence.pattern, sentence.text, sorted(expected), triggers)
            for kind in KINDS:
                for name in (kind, "all"):
                    counts[name][0] += kind in kinds and kind in expected
                    counts[name][1] += kind in kinds
                    counts[name][2] += kind in expected
    return {
        kind: {
            "precision": round(right / max(found_, 1), 4),
            "recall": round(right / max(gold, 1), 4),
            "f1": round(2 * right / max(found_ + gold, 1), 4),
            "gold": gold,
        }
        for kind, (right, found_, gold) in counts.items()
    }


def main() -> None:
    everything = list(sentences())
    held_out = [sentence for sentence in everything if sentence.pattern % 2 == 0]
    start = time.process_time()
    results = {
        "sentences": len(everything),
        "all": measure(everything),
        "held_out": measure(held_out),
        "cpu_seconds": round(time.process_time() - start, 2),
    }
    print(json.dumps(results, indent=1))
    write_results("context", results)


if __name__ == "__main__":
    main()
