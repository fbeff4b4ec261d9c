"""Training examples for a ranker: labelled mentions with the matches that the search finds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sapbert.linking.fusion.fit import LabelledRequest, fit_ranker, training_set, word_weights
from sapbert.linking.fusion.ranker import RANK_DEPTH, FusionRanker
from sapbert.linking.linker import BATCH, Linker
from sapbert.linking.matches import rank_requests
from sapbert.linking.search import filter_masks
from sapbert.mentions import LabelledMention


def labelled_requests(linker: Linker, labelled: Iterable[LabelledMention]) -> list[LabelledRequest]:
    """Search each distinct mention, and label which of its matches are correct.

    Concept ids must be those of the index (`mentions.resolve_concepts`). A mention whose concept is not found
    is an example too: of one for which no match is right.
    """
    distinct = [mention for mention in dict.fromkeys(labelled) if mention.text]
    name_table = linker.name_table
    masks = filter_masks(name_table)
    examples = []
    for start in range(0, len(distinct), BATCH):
        batch = distinct[start : start + BATCH]
        texts = [mention.text for mention in batch]
        lists = linker.matches(texts, RANK_DEPTH, exact=True, masks=masks)
        requests = rank_requests(name_table, texts, lists, masks)
        for mention, matches, request in zip(batch, lists, requests, strict=True):
            right = set(name_table.concepts_of(sorted(mention.concept_ids)).tolist())
            examples.append(LabelledRequest(request, tuple(match.concept in right for match in matches)))
    return examples


def fit_for_index(linker: Linker, examples: Sequence[LabelledRequest], *, seed: int = 0) -> FusionRanker:
    """Fit a ranker; how common words are is counted in the names of the index."""
    names = linker.name_table.folded
    words = word_weights(names.span(0, len(names)))
    data = training_set(examples, words)
    return fit_ranker(data, words, encoder=linker.encoder.fingerprint, seed=seed)
