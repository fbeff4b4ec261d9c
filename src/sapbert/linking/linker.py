"""Mentions to concepts: search the most similar names and return their concepts.

If a mention equals a name of the vocabulary after folding (or a labelled mention added to it), the concepts
with that name come first; candidates found by the encoder follow. Each concept appears once, with its best
name.

Candidates are cached, not vectors, so a repeated mention costs one lookup. Reranked candidates are not
cached, because they may depend on the context.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple, Self

from sapbert.defaults import DEFAULT, bundled_calibration, bundled_folder, is_default, resolve_default
from sapbert.errors import ConfigError
from sapbert.index.name_table import NameTable
from sapbert.linking.calibration.file import Calibration
from sapbert.linking.candidate import Candidate, MatchedBy
from sapbert.linking.candidate_cache import CandidateCache
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


class MatchedName(NamedTuple):
    """A name of a concept, and its kind."""

    text: str
    kind: str


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
        reranker: Reranker | None = None,
    ) -> None:
        """Link with the most similar names, and add a confidence (`calibration`) or reorder (`reranker`).

        A calibration does not apply to a reranker, nor if `exact` differs from the setting it was fitted
        with. Both are errors if `strict`; otherwise candidates have no confidence.
        """
        if reranker is not None and calibration is not None:
            if strict:
                raise ConfigError(
                    "a calibration does not apply to reranked candidates; give a calibration or a reranker"
                )
            calibration = None
        self.name_table = name_table
        self.fingerprint = fingerprint
        """Fingerprint of the index."""
        self.encoder = encoder
        self.search = search
        self.calibration = calibration
        """Computes the confidence of the best candidate, if there is one."""
        self.reranker = reranker
        """Reorders the candidates of a mention, if there is one."""
        self._strict = strict
        self._added_names: dict[str, dict[int, str]] = {}
        """Labelled mentions as spelled, by folded text and concept number."""
        self._cache = CandidateCache()
        self._filter: tuple[LinkSettings, FilterMasks] | None = None
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
        is not used with a `reranker`.
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
        return [best[: settings.k] for best in reordered]

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
        by_concept: list[dict[int, Candidate]] = [{} for _ in texts]
        if settings.exact:
            for candidates, names in zip(by_concept, self._exact_names(texts, masks), strict=True):
                for concept, name in names.items():
                    candidates[concept] = self._candidate(concept, name, 1.0, "exact")
        # The confidence of the best candidate depends on the score of the second.
        depth = settings.k if self._calibration_for(settings) is None else max(settings.k, 2)
        incomplete = [number for number, candidates in enumerate(by_concept) if len(candidates) < depth]
        hits = self._nearest([texts[number] for number in incomplete], depth, masks)
        for number, nearest in zip(incomplete, hits, strict=True):
            for concept, score, row in nearest:
                if len(by_concept[number]) < depth and concept not in by_concept[number]:
                    name = self._name(row, concept, masks)
                    by_concept[number][concept] = self._candidate(
                        concept, name, score, self.search.matched_by
                    )
        return [self._finish(list(candidates.values()), settings) for candidates in by_concept]

    def _exact_names(self, texts: list[str], masks: FilterMasks) -> Iterator[Mapping[int, MatchedName]]:
        """Yield for each mention the concepts that have it as a name, in order, with that name."""
        name_table = self.name_table
        for text, row in zip(texts, name_table.rows_of(texts).tolist(), strict=True):
            names = {
                concept: MatchedName(name, "") for concept, name in self._added_names.get(text, {}).items()
            }
            if masks.concepts is not None:
                names = {concept: name for concept, name in names.items() if masks.concepts[concept]}
            if row >= 0:
                links = name_table.links_of(row)
                concepts = name_table.link_concepts[links]
                if masks.links is not None:
                    concepts = concepts[masks.links[links]]
                names |= {concept: self._name(row, concept, masks) for concept in set(concepts.tolist())}
            yield {concept: names[concept] for concept in sorted(names)}

    def _nearest(self, texts: list[str], k: int, masks: FilterMasks) -> list[list[ConceptHit]]:
        if not texts:
            return []
        vectors = self.encoder.encode([text[:_MAX_ENCODED] for text in texts])
        return nearest_concepts(self.search, self.name_table, texts, vectors, k, masks)

    def _name(self, row: int, concept: int, masks: FilterMasks) -> MatchedName:
        """Return the name in `row` as a name of `concept`."""
        return MatchedName(self.name_table.texts[row], self.name_table.kind_of(row, concept, masks.links))

    def _candidate(self, concept: int, name: MatchedName, score: float, matched_by: MatchedBy) -> Candidate:
        return Candidate(
            self.name_table.concepts[concept],
            self.name_table.preferred[concept],
            name.text,
            score,
            None,
            matched_by,
            name_kind=name.kind,
        )

    def _finish(self, candidates: list[Candidate], settings: LinkSettings) -> list[Candidate]:
        """Add the confidence, apply both thresholds and keep the best k."""
        calibration = self._calibration_for(settings)
        if calibration is not None and candidates:
            confidence = calibration.confidence([candidate.score for candidate in candidates])
            if calibration.threshold is not None and confidence < calibration.threshold:
                return []
            candidates[0] = replace(candidates[0], confidence=confidence)
        if settings.threshold is not None:
            candidates = [candidate for candidate in candidates if candidate.score >= settings.threshold]
        return candidates[: settings.k]

    def _calibration_for(self, settings: LinkSettings) -> Calibration | None:
        """Return the calibration if it was fitted with the same value of `exact`."""
        calibration = self.calibration
        if calibration is None or calibration.exact == settings.exact:
            return calibration
        if not self._strict:
            return None
        fitted = "exact" if calibration.exact else "no-exact"
        raise ConfigError(f"the calibration was fitted with --{fitted}; use --{fitted}, or calibrate again")

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


def _filters(settings: LinkSettings) -> tuple[tuple[str, ...], ...]:
    return settings.types, settings.sources, settings.kinds, settings.prefixes


def _with_k(settings: LinkSettings, k: int | None) -> LinkSettings:
    return settings if k is None or k == settings.k else replace(settings, k=k)


def _folded(mention: str) -> str:
    if not isinstance(mention, str):
        raise TypeError(f"a mention is a string, got {mention!r}")
    # JSON can contain half a surrogate pair, which tokenizers do not accept.
    return fold(mention.encode(errors="replace").decode())
