"""The calibration file: written by `sapbert calibrate`, read by `sapbert link --calibration`.

It applies only to the index it was fitted on, because scores of another encoder or vocabulary differ. It also
stores how candidates were ordered in the fit (`exact`, `sparse_weight`, the ranker and the fingerprint of a
reranker); linking must do the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sapbert.artifacts import create_file
from sapbert.errors import ArtifactError, ConfigError
from sapbert.linking.calibration.model import Curve, load_curve
from sapbert.linking.fusion.ranker import FusionRanker
from sapbert.linking.settings import Method
from sapbert.version import __version__

KIND = "calibration"
FORMAT = 2
"""Format 1 has neither ranker nor reranker."""
_DECIMALS = 6
_SMALLEST = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Maps the scores of one index to confidence."""

    index: str
    """Fingerprint of the index."""
    exact: bool
    """Whether exact names were ranked first."""
    sparse_weight: float
    """Weight of the n-gram score relative to the dense score; 0 for dense search."""
    method: Method
    curve: Curve
    threshold: float | None
    """Mentions with a lower confidence are NIL."""
    ranker: FusionRanker | None = None
    """Orders the nearest concepts; the scores of the fit are its probabilities."""
    reranker: str | None = None
    """Fingerprint of the reranker whose scores the fit used."""
    report: Mapping[str, Any] = field(default_factory=dict)
    """Measurements on held-out mentions."""

    def confidences(self, scores: Sequence[float]) -> list[float | None]:
        """Return the probability that each candidate of a mention is correct, given their scores, best first.

        Without a ranker only the best has one. With a ranker, the others share what the best leaves, in
        proportion to their own probabilities.
        """
        margin = scores[0] - scores[1] if len(scores) > 1 else scores[0]
        best = float(self.curve.confidence(np.array([scores[0]]), np.array([margin]))[0])
        if self.ranker is None or self.reranker is not None:
            return [round(best, _DECIMALS), *[None] * (len(scores) - 1)]
        left = (1 - best) / max(1 - scores[0], _SMALLEST)
        others = (min(score * left, best) for score in scores[1:])
        return [round(best, _DECIMALS), *(round(other, _DECIMALS) for other in others)]

    def require_sparse_weight(self, requested: float | None) -> float:
        """Return the sparse weight of the fit; raise `ConfigError` if another one is `requested`."""
        if requested is not None and requested != self.sparse_weight:
            raise ConfigError(
                f"the calibration was fitted with a sparse weight of {self.sparse_weight}, not {requested}; "
                "leave out --sparse-weight, or calibrate again with it"
            )
        return self.sparse_weight

    def write(self, target: Path, *, overwrite: bool = False) -> None:
        """Write this as JSON, atomically."""
        content = {
            "kind": KIND,
            "format": FORMAT,
            "sapbert": __version__,
            "index": self.index,
            "exact": self.exact,
            "sparse_weight": self.sparse_weight,
            "method": self.method,
            "parameters": self.curve.parameters(),
            "threshold": self.threshold,
            "ranker": None if self.ranker is None else self.ranker.parameters(),
            "reranker": self.reranker,
            "report": self.report,
        }
        with create_file(target, overwrite=overwrite) as partial:
            partial.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read_for_index(cls, path: Path, *, index: str) -> Calibration:
        """Read a calibration; raise `ArtifactError` if its index does not have the fingerprint `index`."""
        calibration = cls.read(path)
        if calibration.index != index:
            raise ArtifactError(
                f"{path} was fitted on the index {calibration.index}, but this index is {index}; "
                "fit another one with `sapbert calibrate`"
            )
        return calibration

    @classmethod
    def read(cls, path: Path) -> Calibration:
        """Read a calibration of any index."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["kind"] != KIND or content["format"] > FORMAT:
                raise ValueError(f"kind is {content['kind']}, format {content['format']}")
            threshold = content["threshold"]
            return cls(
                index=content["index"],
                exact=bool(content["exact"]),
                sparse_weight=float(content["sparse_weight"]),
                method=Method(content["method"]),
                curve=load_curve(content["method"], content["parameters"]),
                threshold=None if threshold is None else float(threshold),
                ranker=FusionRanker.load(ranker) if (ranker := content.get("ranker")) else None,
                reranker=content.get("reranker"),
                report=content["report"],
            )
        except FileNotFoundError as error:
            raise ArtifactError(f"{path}: no such file; write it with `sapbert calibrate`") from error
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            problem = f"{error} is missing" if isinstance(error, KeyError) else error
            raise ArtifactError(
                f"{path} is not a calibration ({problem}); write one with `sapbert calibrate`"
            ) from error
