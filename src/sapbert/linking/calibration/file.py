"""The file that `sapbert calibrate` writes and `sapbert link --calibration` reads.

It is bound to the index it was fitted on: scores of another encoder or vocabulary mean another thing. It also
says how names were searched, and linking then does the same.
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
from sapbert.linking.settings import Method
from sapbert.version import __version__

KIND = "calibration"
FORMAT = 1
_DECIMALS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How scores of one index become confidence."""

    index: str
    """Fingerprint of the index."""
    exact: bool
    """Whether exact names answered first."""
    sparse_weight: float
    """What spelling counted beside vectors; 0: nothing."""
    method: Method
    curve: Curve
    threshold: float | None
    """Confidence below which a mention is NIL."""
    report: Mapping[str, Any] = field(default_factory=dict)
    """What was measured."""

    def confidence(self, scores: Sequence[float]) -> float:
        """Return the probability that the first of a mention's candidates is right, by all their scores."""
        lead = scores[0] - scores[1] if len(scores) > 1 else scores[0]
        return round(float(self.curve.confidence(np.array([scores[0]]), np.array([lead]))[0]), _DECIMALS)

    def agreed_weight(self, asked: float | None) -> float:
        """Return the sparse weight that linking must use; another one that is `asked` for is refused."""
        if asked is not None and asked != self.sparse_weight:
            raise ConfigError(
                f"the calibration was fitted with a sparse weight of {self.sparse_weight}, not {asked}: "
                "leave the option out, or calibrate with it"
            )
        return self.sparse_weight

    def write(self, target: Path, *, overwrite: bool = False) -> None:
        """Write this as JSON, whole or not at all."""
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
            "report": self.report,
        }
        with create_file(target, overwrite=overwrite) as partial:
            partial.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path, *, index: str) -> Calibration:
        """Read what `write` wrote; refused unless it was fitted on the `index` with this fingerprint."""
        calibration = cls.parse(path)
        if calibration.index != index:
            raise ArtifactError(
                f"{path} was fitted on the index {calibration.index}, but this is {index}; "
                "make another with sapbert calibrate"
            )
        return calibration

    @classmethod
    def parse(cls, path: Path) -> Calibration:
        """Read what `write` wrote to look at it, whatever index it is of."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["kind"] != KIND or content["format"] > FORMAT:
                raise ValueError(f"it is {content['kind']} in format {content['format']}")
            threshold = content["threshold"]
            return cls(
                index=content["index"],
                exact=bool(content["exact"]),
                sparse_weight=float(content["sparse_weight"]),
                method=Method(content["method"]),
                curve=load_curve(content["method"], content["parameters"]),
                threshold=None if threshold is None else float(threshold),
                report=content["report"],
            )
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            problem = f"no {error}" if isinstance(error, KeyError) else error
            raise ArtifactError(
                f"{path} is no calibration: {problem}; make it with sapbert calibrate"
            ) from error
