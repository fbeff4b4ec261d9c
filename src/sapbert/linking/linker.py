"""Mentions to concepts: search the most similar names and return their concepts.

If a mention equals a name of the vocabulary after folding (or a labelled mention added to it), the concepts
with that name come first; candidates found by the encoder follow. Each concept appears once, with its best
name.

A ranker, if there is one, orders the nearest concepts by more than their vectors; a reranker reorders its
best candidates, with the context. The confidence is computed last, from the scores that decided the order.

Candidates are cached, not vectors, so a repeated mention costs one lookup. Reranked candidates are not
cached, because they may depend on the context.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from sapbert.defaults import DEFAULT, bundled_calibration, bundled_folder, is_default, resolve_default
from sapbert.errors import ConfigError
from sapbert.index.name_table import NameTable
from sapbert.linking.back_off import BACK_OFF_DEPTH, back_off
from sapbert.linking.calibration.file import Calibration
from sapbert.linking.candidate import Candidate
from sapbert.linking.candidate_cache import CandidateCache
from sapbert.linking.fusion.ranker import RANK_DEPTH, FusionRanker
from sapbert.linking.matches import Match, exact_matches, rank_matches
from sapbert.linking.reranking import RERANK_DEPTH, rerank
from sapbert.linking.search import (
    ConceptHit,
    DenseSearch,
    FilterMasks,
    NameSearch,
    filter_masks,
    nearest_concepts,
)
from sapbert.linking.settings import LinkSettings
from sapbert.protocols import Encoder, Reranker
from sapbert.text import fold

BATCH = 2048
"""Mentions encoded and searched together."""
_MAX_ENCODED = 10_000
"""Characters of a mention that are encoded: more than the context length of any encoder."""
DEFAULTS: Final = LinkSettings()


class Linker:
    """Links mentions to the concepts of an index. Thread-safe."""

    def __init__(
        self,
        encoder: Encoder,
        search: NameSearch,
        name_table: NameTable,
        *,
        fingerprint: str,
        calibration: Calibration | None = None,
        strict: bool = True,
        ranker: Reranker | None = None,
        reranker: Reranker | None = None,
    ) -> None:
        """Link with the most similar names; a `reranker` reorders them, a `calibration` adds a confidence.

        The ranker is that of the calibration, if there is one. A calibration applies only to the reranker and
        the setting of `exact` that it was fitted with. Others are errors if `strict`; otherwise candidates
        have no confidence.
        """
        self._strict = strict
        self.ranker = ranker if calibration is None else calibration.ranker
        """Orders the nearest concepts of a mention, if there is one."""
        self.calibration = self._applicable(calibration, reranker)
        """Computes the confidence of candidates, if there is one."""
        self.name_table = name_table
        self.fingerprint = fingerprint
        """Fingerprint of the index."""
        self.encoder = encoder
        self.search = search
        self.reranker = reranker
        """Reorders the candidates of a mention, if there is one."""
        self._added_names: dict[str, dict[int, str]] = {}
        """Labelled mentions as spelled, by folded text and concept number."""
        self._cache = CandidateCache()
        self._filter: tuple[LinkSettings, FilterMasks] | None = None
        self._rows_by_language: dict[str, NDArray[np.int64]] = {}
        self._lock = Lock()

    @classmethod
    def open(
        cls,
        path: Path | str = DEFAULT,
        *,
        threads: int | None = None,
        sparse_weight: float | None = None,
        calibration: Path | None = None,
        reranker: Reranker | None = None,
    ) -> Self:
        """Open an index written by `sapbert index`, or the bundled MeSH index.

        `threads` is by default the number of cores. `sparse_weight` is the weight of the n-gram score
        relative to the dense score, for an index made with `--hybrid`; by default the weight in the
        `calibration`, or the one the encoder learned, or 0. The bundled index has its own calibration, which
        is not used with a `reranker`. Its ranker is also the default for other indexes of the same encoder.
        """
        # Imported here: a caller with its own encoder and index needs none of these.
        from sapbert.encoder.open import open_exported
        from sapbert.index.folder import ENCODER, encoder_of_index, open_index
        from sapbert.linking.hybrid import open_hybrid, require_ngrams

        folder = resolve_default(path, "index")
        bundled, strict = is_default(path), calibration is not None
        index, name_table, manifest = open_index(folder, threads=threads)
        if bundled and calibration is None:
            calibration = bundled_calibration()
        if sparse_weight:
            require_ngrams(folder)
        fitted, weight = _read_calibration(calibration, manifest.fingerprint, sparse_weight)
        if weight is None:
            weight = float(manifest.settings.get("sparse_weight", 0.0))
        search = open_hybrid(index, folder, weight) if weight else DenseSearch(index)
        encoder_folder = bundled_folder("encoder") if bundled else folder / ENCODER
        encoder = open_exported(encoder_folder, threads=threads)
        return cls(
            encoder_of_index(folder, manifest, encoder),
            search,
            name_table,
            fingerprint=manifest.fingerprint,
            calibration=fitted,
            strict=strict,
            ranker=None if fitted else _default_ranker(manifest.inputs["encoder"]["fingerprint"]),
            reranker=reranker,
        )

    def add_mentions(self, labelled: Iterable[tuple[str, str]]) -> int:
        """Treat mentions as names of their concepts (mention, concept id); return how many were added.

        Ids may be aliases. A mention whose concept is not in the index is left out.
        """
        pairs = list(labelled)
        numbers = self.name_table.concepts_of([curie for _, curie in pairs])
        with self._lock:
            for (mention, _), number in zip(pairs, numbers.tolist(), strict=True):
                if number >= 0:
                    self._added_names.setdefault(fold(mention), {}).setdefault(number, mention)
            self._cache.clear()
        return int((numbers >= 0).sum())

    def is_name(self, mention: str) -> bool:
        """Return whether `mention` equals, after folding, a name of the vocabulary or an added mention."""
        text = fold(mention)
        return text in self._added_names or int(self.name_table.rows_of([text])[0]) >= 0

    def link(
        self,
        mentions: Sequence[str],
        *,
        k: int | None = None,
        settings: LinkSettings = DEFAULTS,
        contexts: Sequence[str] | None = None,
    ) -> list[list[Candidate]]:
        """Return the candidates of each mention, best first; an empty list (NIL) for an empty mention.

        `k` overrides `settings.k`. Repeated mentions, also in different case, are encoded and searched once.
        `contexts` are the texts around the mentions, for a reranker that uses them.
        """
        if isinstance(mentions, str):
            raise TypeError("link takes a list of mentions, got a string; put it into a list")
        settings = _with_k(settings, k)
        if self.reranker is None:
            return self._search(mentions, settings)
        candidates = self._search(mentions, _with_k(settings, max(settings.k, RERANK_DEPTH)))
        reordered = rerank(self.reranker, mentions, contexts or [""] * len(mentions), candidates)
        calibration = self._calibration_for(settings)
        return [self._finish(candidates, calibration, settings) for candidates in reordered]

    def cached(
        self, mentions: Sequence[str], *, k: int | None = None, settings: LinkSettings = DEFAULTS
    ) -> list[list[Candidate]] | None:
        """Return the same as `link` if the candidates of all mentions are in the cache, else None."""
        if self.reranker is not None:
            return None
        settings = _with_k(settings, k)
        results = []
        for text in map(_folded, mentions):
            candidates = self._cache.get(text, settings) if text else []
            if candidates is None:
                return None
            results.append(list(candidates))
        return results

    def _search(self, mentions: Sequence[str], settings: LinkSettings) -> list[list[Candidate]]:
        """Link without a reranker."""
        self._calibration_for(settings)  # raises before any work is done
        masks = self._masks(settings)
        texts = list(map(_folded, mentions))
        results: dict[str, list[Candidate]] = {"": []}
        new = []
        for text in dict.fromkeys(texts):
            if (candidates := self._cache.get(text, settings)) is not None:
                results[text] = candidates
            elif text:
                new.append(text)
        for start in range(0, len(new), BATCH):
            batch = new[start : start + BATCH]
            for text, candidates in zip(batch, self._search_batch(batch, settings, masks), strict=True):
                results[text] = candidates
                self._cache.put(text, settings, candidates)
        return [list(results[text]) for text in texts]

    def _search_batch(
        self, texts: list[str], settings: LinkSettings, masks: FilterMasks
    ) -> list[list[Candidate]]:
        """Link distinct folded mentions, none of them empty."""
        lists = self.matches(texts, self._depth(settings), exact=settings.exact, masks=masks)
        if self.ranker is not None:
            lists = rank_matches(self.ranker, self.name_table, texts, lists, masks)
        labels = self._labels(settings.language)
        # The confidence of the best candidate depends on the score of the second.
        kept = max(settings.k, 2 if settings.back_off is None else BACK_OFF_DEPTH)
        calibration = None if self.reranker is not None else self._calibration_for(settings)
        return [
            self._finish(
                [self._candidate(match, masks, labels) for match in matches[:kept]], calibration, settings
            )
            for matches in lists
        ]

    def matches(self, texts: list[str], depth: int, *, exact: bool, masks: FilterMasks) -> list[list[Match]]:
        """Return the nearest concepts of folded mentions in the order of the search, exact names first."""
        lists: list[list[Match]] = [[] for _ in texts]
        if exact:
            lists = list(exact_matches(self.name_table, self._added_names, texts, masks))
        incomplete = [number for number, matches in enumerate(lists) if len(matches) < depth]
        hits = self._nearest([texts[number] for number in incomplete], depth, masks)
        for number, nearest in zip(incomplete, hits, strict=True):
            known = {match.concept for match in lists[number]}
            others = (Match(*hit) for hit in nearest if hit.concept not in known)
            lists[number] += islice(others, depth - len(known))
        return lists

    def _depth(self, settings: LinkSettings) -> int:
        """Return the number of matches per mention that the result depends on."""
        if self.ranker is not None:
            return max(settings.k, RANK_DEPTH)
        return settings.k if self.calibration is None else max(settings.k, 2)

    def _nearest(self, texts: list[str], k: int, masks: FilterMasks) -> list[list[ConceptHit]]:
        if not texts:
            return []
        vectors = self.encoder.encode([text[:_MAX_ENCODED] for text in texts])
        return nearest_concepts(self.search, self.name_table, texts, vectors, k, masks)

    def _labels(self, language: str | None) -> NDArray[np.int64] | None:
        """Return the row of the preferred name of each concept in a language, -1 if it has none."""
        if language is None:
            return None
        if language not in self._rows_by_language:
            self._rows_by_language[language] = self.name_table.preferred_rows(language)
        return self._rows_by_language[language]

    def _candidate(self, match: Match, masks: FilterMasks, labels: NDArray[np.int64] | None) -> Candidate:
        name_table, concept, row = self.name_table, match.concept, match.row
        label = -1 if labels is None else int(labels[concept])
        return Candidate(
            name_table.concepts[concept],
            name_table.texts[label] if label >= 0 else name_table.preferred[concept],
            name_table.texts[row] if row >= 0 else match.added,
            match.score,
            None,
            "exact" if match.exact else self.search.matched_by,
            match.rank_score,
            name_table.kind_of(row, concept, masks.links) if row >= 0 else "",
            name_table.definition(concept),
        )

    def _applicable(self, calibration: Calibration | None, reranker: Reranker | None) -> Calibration | None:
        """Return the calibration if it was fitted with this reranker, or without one if there is none."""
        used = None if reranker is None else reranker.fingerprint
        if calibration is None or calibration.reranker == used:
            return calibration
        if not self._strict:
            return None
        fitted = "without a reranker" if calibration.reranker is None else "with another reranker"
        raise ConfigError(f"the calibration was fitted {fitted}; calibrate again with `--reranker`")

    def _calibration_for(self, settings: LinkSettings) -> Calibration | None:
        """Return the calibration if it was fitted with the same value of `exact`."""
        calibration = self.calibration
        if settings.back_off is not None and (calibration is None or calibration.ranker is None):
            raise ConfigError("--back-off needs the confidence of every candidate; calibrate with --ranker")
        if calibration is None or calibration.exact == settings.exact:
            return calibration
        if not self._strict:
            return None
        fitted = "exact" if calibration.exact else "no-exact"
        raise ConfigError(f"the calibration was fitted with --{fitted}; use --{fitted}, or calibrate again")

    def _finish(
        self, candidates: list[Candidate], calibration: Calibration | None, settings: LinkSettings
    ) -> list[Candidate]:
        """Add the confidence, back off if requested, apply both thresholds and keep the best k."""
        if calibration is not None and candidates:
            confidences = calibration.confidences([candidate.ranking_score for candidate in candidates])
            candidates = [
                replace(each, confidence=confidence)
                for each, confidence in zip(candidates, confidences, strict=True)
            ]
            if settings.back_off is not None:
                allowed = self._masks(settings).concepts
                candidates = back_off(candidates, self.name_table, settings.back_off, allowed)
            if (candidates[0].confidence or 0.0) < (calibration.threshold or 0.0):
                return []
        if settings.threshold is not None:
            candidates = [candidate for candidate in candidates if candidate.score >= settings.threshold]
        return candidates[: settings.k]

    def _masks(self, settings: LinkSettings) -> FilterMasks:
        """Return the masks of the filters in `settings`; the last are kept, since computing them is slow."""
        known = self._filter
        if known is not None and _filters(known[0]) == _filters(settings):
            return known[1]
        masks = filter_masks(self.name_table, *_filters(settings))
        if masks.rows is not None:
            self._filter = (settings, masks)
        return masks


def _read_calibration(
    path: Path | None, index: str, sparse_weight: float | None
) -> tuple[Calibration | None, float | None]:
    """Read the calibration, if any, and return it with the sparse weight to use; None if not given."""
    if path is None:
        return None, sparse_weight
    calibration = Calibration.read_for_index(path, index=index)
    return calibration, calibration.require_sparse_weight(sparse_weight)


def _default_ranker(encoder: str) -> FusionRanker | None:
    """Return the ranker of the bundled index if it was fitted with this encoder."""
    path = bundled_calibration()
    ranker = None if path is None else Calibration.read(path).ranker
    return ranker if ranker is not None and ranker.encoder == encoder else None


def _filters(settings: LinkSettings) -> tuple[tuple[str, ...], ...]:
    return (
        settings.types,
        settings.sources,
        settings.kinds,
        settings.prefixes,
        settings.within,
        settings.exclude,
    )


def _with_k(settings: LinkSettings, k: int | None) -> LinkSettings:
    return settings if k is None or k == settings.k else replace(settings, k=k)


def _folded(mention: str) -> str:
    if mention is None or mention != mention:  # null in a data frame
        return ""
    if not isinstance(mention, str):
        raise TypeError(f"a mention is a string, got {mention!r}")
    # JSON can contain half a surrogate pair, which tokenizers do not accept.
    return fold(mention.encode(errors="replace").decode())
