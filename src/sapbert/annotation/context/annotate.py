"""Add context and section to annotations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sapbert.annotation.annotation import Annotation
from sapbert.annotation.context.rules import ContextRules, Trigger
from sapbert.annotation.context.sections import Section, find_sections
from sapbert.index.lexicon.words import Words


def add_context(
    rules: ContextRules, texts: Sequence[str], words: Words, found: Sequence[Sequence[Annotation]]
) -> Iterator[list[Annotation]]:
    """Yield the annotations of each text with their context."""
    spans = [(number, one.start, one.end) for number, items in enumerate(found) for one in items]
    contexts = iter(rules.find(texts, words, spans))
    for text, items in zip(texts, found, strict=True):
        # Most texts without line ends are sentences or abstracts.
        sections = find_sections(text) if items and ("\n" in text or ":" in text) else None
        yield [
            _with_context(one, next(contexts), sections.of(one.start) if sections else None, text)
            for one in items
        ]


def _with_context(
    annotation: Annotation, triggers: tuple[Trigger, ...], section: Section | None, text: str
) -> Annotation:
    if section is None:
        return replace(annotation, context=triggers) if triggers else annotation
    if section.context and all(trigger.kind != section.context for trigger in triggers):
        phrase = text[section.start : section.end]
        triggers = (*triggers, Trigger(section.context, section.start, section.end, phrase))
    return replace(annotation, context=triggers, section=section.name)
