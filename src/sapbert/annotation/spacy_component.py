"""spaCy component `sapbert` (extra `spacy`): finds concepts, or links the entities of an NER before it.

    nlp.add_pipe("sapbert", config={"index": "default", "mode": "find"})

`find` writes all annotations, also overlapping ones, to `doc.spans["sapbert"]` and, unless `set_ents` is
false, the longest that do not overlap to `doc.ents`. `link` keeps `doc.ents` and links each of them. Spans
have the attributes of scispaCy (`span._.kb_ents`, pairs of id and score) and medspaCy (`span._.is_negated`,
`is_uncertain`, `is_hypothetical`, `is_historical`, `is_family`); `span.kb_id_` is the concept.

An annotation that begins or ends inside a token of spaCy is extended to whole tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from sapbert.annotation.annotation import Annotation
from sapbert.annotation.annotator import Annotator
from sapbert.annotation.settings import AnnotateSettings
from sapbert.defaults import DEFAULT
from sapbert.errors import ArtifactError, needing
from sapbert.linking.linker import Linker

with needing("spacy"):
    from spacy.language import Language
    from spacy.tokens import Doc, Span
    from spacy.util import filter_spans

SPANS = "sapbert"
"""Key of the annotations in `doc.spans`."""
_FLAGS = {
    "is_negated": "negated",
    "is_uncertain": "possible",
    "is_hypothetical": "hypothetical",
    "is_historical": "historical",
    "is_family": "family",
}
"""Attribute of medspaCy → kind of context."""
_LABEL = "CONCEPT"
Mode = Literal["find", "link"]


@Language.factory(
    "sapbert",
    assigns=["doc.spans", "doc.ents", "span._.kb_ents"],
    default_config={
        "index": DEFAULT,
        "mode": "find",
        "min_confidence": 0.5,
        "nested": True,
        "set_ents": True,
        "k": 5,
        "threshold": None,
    },
)
def create_component(
    nlp: Language,  # noqa: ARG001  # signature of spaCy
    name: str,
    index: str,
    mode: Mode,
    min_confidence: float,
    nested: bool,  # noqa: FBT001  # signature of spaCy
    set_ents: bool,  # noqa: FBT001
    k: int,
    threshold: float | None,
) -> SapbertComponent:
    """Return the component; its options are those of `sapbert annotate` and `sapbert link`."""
    settings = AnnotateSettings(min_confidence=min_confidence, nested=nested)
    return SapbertComponent(
        Annotator.open(index, settings), name=name, mode=mode, set_ents=set_ents, k=k, threshold=threshold
    )


class SapbertComponent:
    """Annotates documents of spaCy."""

    def __init__(
        self,
        annotator: Annotator,
        *,
        name: str = "sapbert",
        mode: Mode = "find",
        set_ents: bool = True,
        k: int = 5,
        threshold: float | None = None,
    ) -> None:
        if mode not in ("find", "link"):
            raise ValueError(f"mode is find or link, got {mode!r}")
        self.name = name
        self.annotator = annotator
        self._mode, self._set_ents, self._k, self._threshold = mode, set_ents, k, threshold
        for attribute in ("kb_ents", *_FLAGS):
            if not Span.has_extension(attribute):
                Span.set_extension(attribute, default=[] if attribute == "kb_ents" else False)

    @property
    def linker(self) -> Linker:
        """The linker of the index."""
        return self.annotator.linker

    def __call__(self, doc: Doc) -> Doc:
        """Annotate one document."""
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """Annotate documents in batches."""
        remaining = iter(stream)
        while batch := list(islice(remaining, batch_size)):
            if self._mode == "find":
                self._find(batch)
            else:
                self._link(batch)
            yield from batch

    def _find(self, docs: list[Doc]) -> None:
        for doc, result in zip(docs, self.annotator.annotate([doc.text for doc in docs]), strict=True):
            spans = [span for one in result.annotations if (span := _span(doc, one)) is not None]
            doc.spans[SPANS] = spans
            if self._set_ents:
                doc.ents = tuple(filter_spans([*doc.ents, *spans]))

    def _link(self, docs: list[Doc]) -> None:
        mentions = [ent.text for doc in docs for ent in doc.ents]
        linked = iter(self.linker.link(mentions, k=self._k))
        for doc in docs:
            ents = []
            for ent in doc.ents:
                candidates = [
                    (one.concept_id, one.score)
                    for one in next(linked)
                    if self._threshold is None or one.score >= self._threshold
                ]
                best = candidates[0][0] if candidates else ""
                span = Span(doc, ent.start, ent.end, label=ent.label_, kb_id=best)
                span._.kb_ents = candidates
                ents.append(span)
            doc.ents = tuple(ents)
            doc.spans[SPANS] = ents

    def to_disk(self, path: Path | str, *, exclude: Iterable[str] = ()) -> None:
        """Write the fingerprint of the index; the index itself stays where it is."""
        del exclude
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        content = json.dumps({"fingerprint": self.linker.fingerprint})
        (folder / "sapbert.json").write_text(content, encoding="utf-8")

    def from_disk(self, path: Path | str, *, exclude: Iterable[str] = ()) -> SapbertComponent:
        """Check that the index is the one the pipeline was saved with."""
        del exclude
        saved = json.loads((Path(path) / "sapbert.json").read_text(encoding="utf-8"))["fingerprint"]
        if saved != self.linker.fingerprint:
            raise ArtifactError(
                f"the pipeline was saved with the index {saved}, but the index is {self.linker.fingerprint}; "
                "give the same index in its config"
            )
        return self


def _span(doc: Doc, one: Annotation) -> Any:
    """Return an annotation as a span of whole tokens; None if it contains no token."""
    label = one.types[0] if one.types else _LABEL
    span = doc.char_span(one.start, one.end, label=label, kb_id=one.concept_id, alignment_mode="expand")
    if span is None:
        return None
    span._.kb_ents = [
        (one.concept_id, one.confidence),
        *((other, one.confidence) for other in one.other_concept_ids),
    ]
    for attribute, kind in _FLAGS.items():
        setattr(span._, attribute, one.has_context(kind))
    return span
