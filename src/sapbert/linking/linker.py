"""Mentions to concepts: the nearest names, and what they name.

A mention that is, after folding, a name of the vocabulary (or a labelled mention added to it) is answered by
that name first; the encoder ranks what follows. Of each concept only its best name counts.

Answers are remembered, not vectors: a mention that comes again costs a look into a table. What a reranker
makes of them is not, as it may depend on context.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Final, Self

from sapbert.defaults import DEFAULT, bundled_calibration, bundled_folder, is_default, resolve_default
from sapbert.errors import ConfigError
from sapbert.index.name_table import NameTable
from sapbert.linking.calibration.file import Calibration
from sapbert.linking.candidate import Candidate, MatchedBy
from sapbert.linking.reranking import RERANKED, rerank
from sapbert.linking.search import DenseSearch, NameSearch, Near, Scope, nearest_concepts, scope_of
from sapbert.linking.settings import LinkSettings
from sapbert.protocols import Encoder, Reranker
from sapbert.text import fold

BATCH = 2048
"""Mentions encoded and searched together."""
_READ = 10_000
"""Characters of a mention that are encoded: more than any encoder reads."""
_REMEMBERED = 1 << 18
"""Candidates of all answers that are remembered, some 80 MB; an answer without any counts as one."""
_LONG = 200
"""Characters above which a mention is not expected to come again."""


DEFAULTS: Final = LinkSettings()


class Linker:
    """Links mentions to the concepts of an index. May be used from several threads."""

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
        """Link by the names nearest to a mention, and judge by `calibration` or put in order by `reranker`.

        Mentions linked in another way than it was fitted on are refused or, unless `strict`, not judged.
        """
        if reranker is not None and calibration is not None:
            if strict:
                raise ConfigError("a calibration is fitted without a reranker; give one of them")
            calibration = None
        self.name_table = name_table
        self.fingerprint = fingerprint
        """Of the index."""
        self.encoder = encoder
        self.search = search
        self.calibration = calibration
        """What gives the best candidate of a mention its confidence."""
        self.reranker = reranker
        """What puts the candidates of a mention in order."""
        self._strict = strict
        self._added: dict[str, dict[int, str]] = {}
        self._answers: OrderedDict[tuple[str, int, LinkSettings], list[Candidate]] = OrderedDict()
        self._remembered = 0
        self._scope: tuple[LinkSettings, Scope] | None = None
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
        """Open an index written by `sapbert index`, or the one that comes with the package.

        It uses so many threads, by default all cores. `sparse_weight` is what spelling counts beside vectors,
        for an index made with `--hybrid`; by default what the `calibration` says, or what the encoder
        learned, or nothing. The default index has a calibration of its own, which goes without a `reranker`.
        """
        # Not above: a caller with an encoder and an index of its own needs neither of these.
        from sapbert.encoder.onnx import OnnxEncoder
        from sapbert.index.folder import ENCODER, encoder_of_index, open_index
        from sapbert.linking.hybrid import open_hybrid

        folder = resolve_default(path, "index")
        own, strict = is_default(path), calibration is not None
        index, name_table, manifest = open_index(folder, threads=threads)
        if own and calibration is None:
            calibration = bundled_calibration()
        fitted = None if calibration is None else Calibration.read(calibration, index=manifest.fingerprint)
        weight = sparse_weight if fitted is None else fitted.agreed_weight(sparse_weight)
        if weight is None:
            weight = float(manifest.settings.get("sparse_weight", 0.0))
        search = open_hybrid(index, folder, weight) if weight else DenseSearch(index)
        encoder = OnnxEncoder.open(bundled_folder("encoder") if own else folder / ENCODER, threads=threads)
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
        """Answer these mentions with these concepts, as if they were names; return how many were added.

        Identifiers may be aliases. A mention of a concept that the index does not have is left out.
        """
        pairs = list(labelled)
        numbers = self.name_table.concepts_of([curie for _, curie in pairs])
        with self._lock:
            for (mention, _), number in zip(pairs, numbers.tolist(), strict=True):
                if number >= 0:
                    self._added.setdefault(fold(mention), {}).setdefault(number, mention)
            self._answers.clear()
            self._remembered = 0
        return int((numbers >= 0).sum())

    def is_name(self, mention: str) -> bool:
        """Say whether `mention` is, after folding, a name of the vocabulary or one added to it."""
        text = fold(mention)
        return text in self._added or int(self.name_table.rows_of([text])[0]) >= 0

    def link(
        self,
        mentions: Sequence[str],
        *,
        k: int = 5,
        settings: LinkSettings = DEFAULTS,
        contexts: Sequence[str] | None = None,
    ) -> list[list[Candidate]]:
        """Return the best k candidates of each mention, best first; none (NIL) for an empty mention.

        A mention that comes again, in whatever case, is encoded and searched once. `contexts` are texts that
        the mentions stand in, for a reranker that reads them.
        """
        if isinstance(mentions, str):
            raise TypeError("link takes several mentions; put the one into a list")
        if k < 1:
            raise ConfigError(f"k is the number of candidates wanted, at least 1, got {k}")
        if self.reranker is None:
            return self._link(mentions, k, settings)
        found = self._link(mentions, max(k, RERANKED), settings)
        ordered = rerank(self.reranker, mentions, contexts or [""] * len(mentions), found)
        return [own[:k] for own in ordered]

    def _link(self, mentions: Sequence[str], k: int, settings: LinkSettings) -> list[list[Candidate]]:
        """Link by search alone."""
        self._judge_for(settings)
        scope = self._scope_of(settings)
        texts = list(map(_folded, mentions))
        answers: dict[str, list[Candidate]] = {"": []}
        new = []
        for text in dict.fromkeys(texts):
            if (known := self._recall(text, k, settings)) is not None:
                answers[text] = known
            elif text:
                new.append(text)
        for start in range(0, len(new), BATCH):
            batch = new[start : start + BATCH]
            for text, answer in zip(batch, self._answer(batch, k, settings, scope), strict=True):
                answers[text] = answer
                self._remember(text, k, settings, answer)
        return [list(answers[text]) for text in texts]

    def recall(
        self, mentions: Sequence[str], *, k: int = 5, settings: LinkSettings = DEFAULTS
    ) -> list[list[Candidate]] | None:
        """Return what `link` would, at once, if it remembers every mention; else None."""
        if self.reranker is not None:
            return None
        answers = []
        for text in map(_folded, mentions):
            answer = self._recall(text, k, settings) if text else []
            if answer is None:
                return None
            answers.append(list(answer))
        return answers

    def _answer(
        self, texts: list[str], k: int, settings: LinkSettings, scope: Scope
    ) -> list[list[Candidate]]:
        """Link distinct folded mentions, none of them empty."""
        found: list[dict[int, Candidate]] = [{} for _ in texts]
        if settings.exact:
            for own, named in zip(found, self._exact(texts, scope), strict=True):
                own.update((number, self._candidate(number, named[number], 1.0, "exact")) for number in named)
        # How sure the best is depends on the second, wanted or not.
        depth = k if self._judge_for(settings) is None else max(k, 2)
        wanting = [number for number, own in enumerate(found) if len(own) < depth]
        ranked = self._nearest([texts[number] for number in wanting], depth, scope)
        for number, nearest in zip(wanting, ranked, strict=True):
            for concept, score, row in nearest:
                if len(found[number]) < depth and concept not in found[number]:
                    name = self.name_table.texts[row]
                    found[number][concept] = self._candidate(concept, name, score, self.search.matched_by)
        return [self._judged(list(own.values()), settings)[:k] for own in found]

    def _exact(self, texts: list[str], scope: Scope) -> Iterator[Mapping[int, str]]:
        """Yield, for each mention, the concepts it is a name of, in order, and that name as it is spelled."""
        name_table = self.name_table
        for text, row in zip(texts, name_table.rows_of(texts).tolist(), strict=True):
            named = dict(self._added.get(text, {}))
            if scope.concepts is not None:
                named = {concept: name for concept, name in named.items() if scope.concepts[concept]}
            if row >= 0:
                links = name_table.links_of(row)
                concepts = name_table.link_concepts[links]
                if scope.links is not None:
                    concepts = concepts[scope.links[links]]
                named.update(dict.fromkeys(concepts.tolist(), name_table.texts[row]))
            yield {concept: named[concept] for concept in sorted(named)}

    def _nearest(self, texts: list[str], k: int, scope: Scope) -> list[list[Near]]:
        if not texts:
            return []
        vectors = self.encoder.encode([text[:_READ] for text in texts])
        return nearest_concepts(self.search, self.name_table, texts, vectors, k, scope)

    def _candidate(self, concept: int, name: str, score: float, matched_by: MatchedBy) -> Candidate:
        name_table = self.name_table
        return Candidate(
            name_table.concepts[concept], name_table.preferred[concept], name, score, None, matched_by
        )

    def _judged(self, candidates: list[Candidate], settings: LinkSettings) -> list[Candidate]:
        """Add confidence, and drop what scores too little or is not sure enough."""
        judge = self._judge_for(settings)
        if judge is not None and candidates:
            sure = judge.confidence([candidate.score for candidate in candidates])
            if judge.threshold is not None and sure < judge.threshold:
                return []
            candidates = [replace(candidates[0], confidence=sure), *candidates[1:]]
        if settings.threshold is None:
            return candidates
        return [candidate for candidate in candidates if candidate.score >= settings.threshold]

    def _judge_for(self, settings: LinkSettings) -> Calibration | None:
        """Return the calibration, if it was fitted on mentions linked in this way."""
        judge = self.calibration
        if judge is None or judge.exact == settings.exact:
            return judge
        if not self._strict:
            return None
        fitted = "with" if judge.exact else "without"
        raise ConfigError(f"the calibration was fitted {fitted} exact names first; link likewise")

    def _scope_of(self, settings: LinkSettings) -> Scope:
        """Find what the filters of `settings` leave, which is costly: once for many calls."""
        known = self._scope
        if known is not None and known[0] == settings:
            return known[1]
        scope = scope_of(self.name_table, settings.types, settings.sources, settings.prefixes)
        if scope.rows is not None:
            self._scope = (settings, scope)
        return scope

    def _recall(self, text: str, k: int, settings: LinkSettings) -> list[Candidate] | None:
        with self._lock:
            return self._answers.get((text, k, settings))

    def _remember(self, text: str, k: int, settings: LinkSettings, answer: list[Candidate]) -> None:
        if len(text) > _LONG:
            return
        with self._lock:
            # Two threads may have linked the same mention.
            self._remembered -= _weight(self._answers.pop((text, k, settings), None))
            self._answers[text, k, settings] = answer
            self._remembered += _weight(answer)
            while self._remembered > _REMEMBERED:
                self._remembered -= _weight(self._answers.popitem(last=False)[1])


def _folded(mention: str) -> str:
    # Half a surrogate pair, which JSON can carry, is no text that an encoder reads.
    return fold(mention.encode(errors="replace").decode())


def _weight(answer: list[Candidate] | None) -> int:
    return 0 if answer is None else max(len(answer), 1)
