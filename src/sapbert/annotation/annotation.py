"""`Annotation`: a span of a text and its concept. Tables and the service use the same field names."""

from __future__ import annotations

from dataclasses import dataclass, field

from sapbert.annotation.context.rules import Trigger
from sapbert.linking.candidate import MatchedBy


@dataclass(frozen=True, slots=True)
class Annotation:
    """A mention found in a text; `text[start:end] == mention` always holds."""

    start: int
    """Offset of the first character, in code points."""
    end: int
    """Offset after the last character."""
    mention: str
    concept_id: str
    preferred_name: str
    matched_name: str
    """The name of the concept that was found."""
    matched_by: MatchedBy
    score: float
    """1 if the words of mention and name are equal, otherwise the score of the linker."""
    confidence: float
    """Probability that the span is a mention of the concept."""
    nested: bool = False
    """Whether the span is inside a longer annotated span."""
    expanded: str | None = None
    """Long form of the mention, if it is an abbreviation that the text defines."""
    other_concept_ids: tuple[str, ...] = ()
    """Other concepts with the same name."""
    types: tuple[str, ...] = ()
    """Types of the concept."""
    context: tuple[Trigger, ...] = ()
    """What the text says about the mention, at most one trigger per kind: negated, possible, hypothetical,
    historical, family."""
    section: str | None = None
    """Section of the note, such as `family_history`; None if the text has no known header."""

    @property
    def negated(self) -> bool:
        """Whether the text denies the finding."""
        return self.has_context("negated")

    @property
    def possible(self) -> bool:
        """Whether the text is uncertain about the finding."""
        return self.has_context("possible")

    @property
    def hypothetical(self) -> bool:
        """Whether the finding is a risk or a condition, not a fact."""
        return self.has_context("hypothetical")

    @property
    def historical(self) -> bool:
        """Whether the finding is a thing of the past."""
        return self.has_context("historical")

    @property
    def family(self) -> bool:
        """Whether the finding is about someone else than the patient."""
        return self.has_context("family")

    def has_context(self, kind: str) -> bool:
        """Return whether the mention has a context of this kind."""
        return any(trigger.kind == kind for trigger in self.context)


@dataclass(frozen=True, slots=True)
class AnnotatedText:
    """A text and its annotations, in order of their offsets; of equal starts the longest first."""

    text: str
    annotations: tuple[Annotation, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.annotations)

    def __getitem__(self, number: int) -> Annotation:
        return self.annotations[number]
