"""Training examples for a reranker: labelled mentions with the candidates that the search finds.

Exact names are not ranked first here but by their score, so that the reranker sees the order of the search. A
mention is kept even if its concept is not among the candidates: the evaluation of the reranker counts it too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sapbert.linking.linker import Linker
from sapbert.linking.settings import LinkSettings
from sapbert.mentions import LabelledMention, no_known_concept, resolve_concepts
from sapbert.protocols import RerankRequest
from sapbert.training.reranking.dataset import RerankerDataset, RerankExample


def rerank_examples(
    linker: Linker,
    labelled: Sequence[LabelledMention],
    *,
    candidates: int,
    context: bool,
    inputs: Mapping[str, Any],
) -> RerankerDataset:
    """Link each distinct mention (and context), and label which of its `candidates` are correct.

    Mentions whose concepts are not in the index are left out.
    """
    distinct = list(dict.fromkeys(labelled))
    known = [each for each in resolve_concepts(distinct, linker.name_table.resolve) if each.concept_ids]
    if not known:
        raise no_known_concept(distinct, "the index")
    texts = [mention.text for mention in known]
    linked = linker.link(texts, settings=LinkSettings(k=candidates, exact=False))
    examples = [
        RerankExample(
            RerankRequest(
                mention.text,
                tuple(candidate.matched_name for candidate in ranked),
                tuple(candidate.score for candidate in ranked),
                mention.context,
            ),
            tuple(candidate.concept_id in mention.concept_ids for candidate in ranked),
        )
        for mention, ranked in zip(known, linked, strict=True)
    ]
    return RerankerDataset(examples=examples, context=context, inputs=inputs)
