"""Tokenize in worker processes, for a GPU that encodes faster than one Python process can read tokens.

The Rust code of a tokenizer runs on all cores, but reading and freeing its results takes two microseconds per
name under the GIL, which the loop that feeds the GPU needs too. Worker processes return arrays instead.

They are plain subprocesses: `multiprocessing` would run the caller's script again in each of them. A worker
exits when its input is closed, so none is left behind whatever happens to the caller.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from contextlib import ExitStack, suppress
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Self

from sapbert.errors import SapbertError
from sapbert.tokens.batching import TokenRows
from sapbert.tokens.tokenizer import tokenize_names

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_ENDED = "a tokenizer process ended unexpectedly; is memory short?"


class TokenizerPool:
    """Worker processes with the same tokenizer; safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer, count: int) -> None:
        self._tokenizer, self._count = tokenizer, count
        self._stack = ExitStack()
        self._free: SimpleQueue[_Worker] = SimpleQueue()

    def __enter__(self) -> Self:
        settings = self._tokenizer.to_str()
        with ExitStack() as starting:
            started = [starting.enter_context(_Worker()) for _ in range(self._count)]
            # After all have started: a message longer than the pipe buffer blocks until it is read.
            for process in started:
                process.send(settings)
                self._free.put(process)
            self._stack = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def tokenize(self, names: list[str]) -> TokenRows:
        """Tokenize names like `tokens.tokenizer.tokenize_names`, in the first free worker."""
        process = self._free.get()
        try:
            return process.tokenize(names)
        finally:
            self._free.put(process)


class _Worker:
    """One worker process, with messages through its standard input and output."""

    def __init__(self) -> None:
        # A new session, so that Ctrl-C reaches only the caller. With -P, no file in the working folder
        # replaces an installed package.
        self._process = subprocess.Popen(  # noqa: S603 - a constant command
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TOKENIZERS_PARALLELISM": "false"},
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def tokenize(self, names: list[str]) -> TokenRows:
        assert self._process.stdout is not None
        self.send(names)
        try:
            ids, special, offsets = pickle.load(self._process.stdout)  # noqa: S301 - our worker
        except (EOFError, pickle.UnpicklingError) as error:
            raise SapbertError(_ENDED) from error
        return TokenRows(ids, special, offsets)

    def send(self, message: str | list[str]) -> None:
        """Send the tokenizer, or names to tokenize."""
        assert self._process.stdin is not None
        try:
            pickle.dump(message, self._process.stdin, pickle.HIGHEST_PROTOCOL)
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise SapbertError(_ENDED) from error


def _run_worker() -> None:
    """Run a worker: read the tokenizer, then names until the input ends."""
    from tokenizers import Tokenizer

    # Nothing that is printed may mix with the replies.
    replies, sys.stdout = sys.stdout.buffer, sys.stderr
    requests = sys.stdin.buffer
    tokenizer = Tokenizer.from_str(pickle.load(requests))  # noqa: S301 - our parent
    with suppress(EOFError):
        while True:
            rows = tokenize_names(tokenizer, pickle.load(requests))  # noqa: S301
            pickle.dump((rows.ids, rows.special, rows.offsets), replies, pickle.HIGHEST_PROTOCOL)
            replies.flush()


if __name__ == "__main__":
    _run_worker()
