"""Training examples of a reranker: labelled mentions with the candidates that the search finds.

Names that equal a mention come by their score here and not first of all, so that a reranker sees what a
search does. A mention whose concept is not among the candidates stays: a reranker is measured on it too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sapbert.linking.linker import Linker
from sapbert.linking.settings import LinkSettings
from sapbert.mentions import LabelledMention, no_known_concept, resolve_concepts
from sapbert.protocols import Choice
from sapbert.training.reranking.dataset import LabelledChoice, LabelledChoices


def label_choices(
    linker: Linker,
    labelled: Sequence[LabelledMention],
    *,
    candidates: int,
    context: bool,
    inputs: Mapping[str, Any],
) -> LabelledChoices:
    """Link each distinct mention (in each context) and say which of so many candidates are right.

    Mentions of concepts that the index does not have are left out.
    """
    distinct = list(dict.fromkeys(labelled))
    known = [own for own in resolve_concepts(distinct, linker.name_table.resolve) if own.concept_ids]
    if not known:
        raise no_known_concept(distinct, "the index")
    texts = [mention.text for mention in known]
    found = linker.link(texts, k=candidates, settings=LinkSettings(exact=False))
    choices = [
        LabelledChoice(
            Choice(
                mention.text,
                tuple(candidate.matched_name for candidate in own),
                tuple(candidate.score for candidate in own),
                mention.context,
            ),
            tuple(candidate.concept_id in mention.concept_ids for candidate in own),
        )
        for mention, own in zip(known, found, strict=True)
    ]
    return LabelledChoices(choices=choices, context=context, inputs=inputs)
