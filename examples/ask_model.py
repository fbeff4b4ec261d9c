"""A reranker that asks a language model which candidate is correct, over any OpenAI-compatible API.

    export RERANKER_URL=http://localhost:11434/v1 RERANKER_MODEL=llama3.1    # and RERANKER_KEY, if needed
    cd examples && sapbert link --index ../out/index --reranker ask_model:AskModel "swollen joints"

It implements `sapbert.protocols.Reranker` (docs/how-to/rerank.md). Mentions and their context are sent to
that address: they may be patient data.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.request import Request, urlopen

import numpy as np
from numpy.typing import NDArray

from sapbert.errors import ConfigError, SapbertError
from sapbert.protocols import RerankRequest

_PROMPT = """Which of these biomedical names means the same as the mention?
Mention: {mention}
Context: {context}
{names}
Answer with the number of one name and nothing else."""
_CONCURRENT_REQUESTS = 8
_TIMEOUT_SECONDS = 60


class AskModel:
    """Ranks the name that the model chooses first; the others keep the order of the search."""

    def __init__(self) -> None:
        self._url, self._model = (os.environ.get(name, "") for name in ("RERANKER_URL", "RERANKER_MODEL"))
        if not (self._url.startswith(("http://", "https://")) and self._model):
            raise ConfigError("set RERANKER_URL (http://localhost:11434/v1) and RERANKER_MODEL")
        self._key = os.environ.get("RERANKER_KEY", "")

    @property
    def fingerprint(self) -> str:
        """Address, model and prompt: what the scores depend on."""
        return f"{self._url} {self._model} {_PROMPT}"

    def rerank(self, requests: Sequence[RerankRequest]) -> list[NDArray[np.float32]]:
        """Return 1 for the chosen name and 0 for the others, which keep their order."""
        with ThreadPoolExecutor(_CONCURRENT_REQUESTS) as pool:
            return list(pool.map(self._score, requests))

    def _score(self, request: RerankRequest) -> NDArray[np.float32]:
        scores = np.zeros(len(request.names), np.float32)
        if len(scores) > 1:
            number = re.search(r"\d+", self._ask(request))
            # Any other answer keeps the order of the search, which is more often correct than not.
            if number and 1 <= int(number[0]) <= len(scores):
                scores[int(number[0]) - 1] = 1
        return scores

    def _ask(self, request: RerankRequest) -> str:
        names = "\n".join(f"{number}. {name}" for number, name in enumerate(request.names, 1))
        prompt = _PROMPT.format(mention=request.mention, context=request.context or "none", names=names)
        body = {
            "model": self._model,
            "temperature": 0,
            "messages": [{"role": "user", "content": prompt}],
        }
        request = Request(  # noqa: S310  # the scheme was checked in __init__
            f"{self._url.rstrip('/')}/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"},
        )
        try:
            with urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310
                content = json.load(answer)
        except (OSError, ValueError) as error:
            raise SapbertError(f"{self._url} returned no answer: {error}") from error
        try:
            return str(content["choices"][0]["message"]["content"])
        except (LookupError, TypeError) as error:
            raise SapbertError(f"{self._url} returned no answer: {json.dumps(content)[:200]}") from error
