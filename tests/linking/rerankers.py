"""A small trained cross-encoder, and a fake server of a language model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import torch

from sapbert.protocols import RerankRequest
from sapbert.training.reranking.dataset import RerankerDataset, RerankExample
from sapbert.training.reranking.trainer import train_reranker
from sapbert.training.settings import RerankerSettings
from tests.encoder.tiny import WORDS

WHOLE = [word for word in WORDS if not word.startswith("#")]
CPU = torch.device("cpu")


def settings(**changes: object) -> RerankerSettings:
    short = {"batch_size": 4, "epochs": 2, "learning_rate": 1e-3, "checkpoint_every": 3, "max_length": 40}
    return RerankerSettings(**{**short, **changes})  # type: ignore[arg-type]


def labelled(*, context: bool = True) -> RerankerDataset:
    """Twenty mentions with two to four candidates; the right one, the last, contains the mention."""
    examples = []
    for number in range(20):
        word = WHOLE[number]
        names = (*WHOLE[number + 1 : number + 2 + number % 3], f"{word} disease")
        scores = tuple(0.9 - 0.1 * place for place in range(len(names)))
        around = f"the chronic {word} of a" if context else ""
        examples.append(
            RerankExample(
                RerankRequest(word, names, scores, around), tuple(name == names[-1] for name in names)
            )
        )
    return RerankerDataset(examples=examples, context=context, inputs={"index": {"fingerprint": "f00d"}})


def train(base: Path, folder: Path, **changes: object) -> Path:
    """Train on `labelled`."""
    train_reranker(labelled(), str(base), folder, settings(**changes), device=CPU)
    return folder


@contextmanager
def answering(reply: Any, asked: list[dict[str, Any]], *, status: int = 200) -> Iterator[str]:
    """Serve `reply` as the content of each completion; if it is not a string, as the whole body."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            asked.append({"path": self.path, "key": self.headers["Authorization"]})
            asked[-1].update(json.loads(self.rfile.read(length)))
            content = {"choices": [{"message": {"content": reply}}]} if isinstance(reply, str) else reply
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
