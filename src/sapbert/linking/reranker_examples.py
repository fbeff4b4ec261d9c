"""Training examples of a reranker: labelled mentions with the candidates that the search finds.

Names that equal a mention come by their score here and not first of all, so that a reranker sees what a
search does. A mention whose concept is not among the candidates stays: a reranker is measured on it too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sapbert.errors import SapbertError
from sapbert.linking.linker import Linker
from sapbert.linking.settings import LinkSettings
from sapbert.pairs.mentions import Labelled
from sapbert.protocols import Choice
from sapbert.training.reranking.dataset import LabelledChoice, LabelledChoices


def label_choices(
    linker: Linker,
    labelled: Sequence[Labelled],
    *,
    candidates: int,
    context: bool,
    inputs: Mapping[str, Any],
) -> LabelledChoices:
    """Link each distinct mention (in each context) and say which of so many candidates are right.

    Mentions of concepts that the index does not have are left out.
    """
    distinct = list(dict.fromkeys(labelled))
    curies = sorted(set().union(*(mention.concepts for mention in distinct)))
    numbers = linker.entries.concepts_of(curies).tolist()
    # Identifiers may be aliases, while candidates have those of their concepts.
    concepts = linker.entries.concepts
    named = {curie: concepts[number] for curie, number in zip(curies, numbers, strict=True) if number >= 0}
    gold = [{named[curie] for curie in mention.concepts if curie in named} for mention in distinct]
    known = [(mention, right) for mention, right in zip(distinct, gold, strict=True) if right]
    if not known:
        raise SapbertError("no mention has a concept of the index; give --prefix if identifiers have none")
    texts = [mention.text for mention, _ in known]
    found = linker.link(texts, k=candidates, settings=LinkSettings(exact=False))
    choices = [
        LabelledChoice(
            Choice(
                mention.text,
                tuple(candidate.name for candidate in own),
                tuple(candidate.score for candidate in own),
                mention.context,
            ),
            tuple(candidate.concept in right for candidate in own),
        )
        for (mention, right), own in zip(known, found, strict=True)
    ]
    return LabelledChoices(choices=choices, context=context, inputs=inputs)
