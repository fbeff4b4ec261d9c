"""Tokenise in processes of their own, for a GPU that encodes faster than one Python can read tokens.

A tokenizer's Rust runs on all cores, but to read what it found and to free it takes two microseconds a name
under Python's lock, which the loop that feeds the GPU needs as well. Processes hand over arrays instead.

They are plain subprocesses and not of `multiprocessing`, which would run the caller's script again in each of
them. One ends when its input does, so none is left behind whatever happens to the caller.
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
from sapbert.tokens.tokenizer import split

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_ENDED = "a process that tokenises names has ended; is memory short?"


class TokenProcesses:
    """So many processes with the same tokenizer; threads may ask at once."""

    def __init__(self, tokenizer: Tokenizer, count: int) -> None:
        self._tokenizer, self._count = tokenizer, count
        self._stack = ExitStack()
        self._free: SimpleQueue[_Process] = SimpleQueue()

    def __enter__(self) -> Self:
        settings = self._tokenizer.to_str()
        with ExitStack() as starting:
            started = [starting.enter_context(_Process()) for _ in range(self._count)]
            # Not before the last has started: what is too long for a pipe is waited for until it is read.
            for process in started:
                process.send(settings)
                self._free.put(process)
            self._stack = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def split(self, names: list[str]) -> TokenRows:
        """Split names into tokens as `tokens.split` does, in the first process that is free."""
        process = self._free.get()
        try:
            return process.split(names)
        finally:
            self._free.put(process)


class _Process:
    """One process, told and asked through its input and output."""

    def __init__(self) -> None:
        # A session of its own, so that Ctrl-C reaches the caller alone.
        self._process = subprocess.Popen(  # noqa: S603 - nothing of it comes from outside
            [sys.executable, "-m", __name__],
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

    def split(self, names: list[str]) -> TokenRows:
        assert self._process.stdout is not None
        self.send(names)
        try:
            ids, special, offsets = pickle.load(self._process.stdout)  # noqa: S301 - of a process of ours
        except (EOFError, pickle.UnpicklingError) as error:
            raise SapbertError(_ENDED) from error
        return TokenRows(ids, special, offsets)

    def send(self, message: str | list[str]) -> None:
        """Send a tokenizer, then names."""
        assert self._process.stdin is not None
        try:
            pickle.dump(message, self._process.stdin, pickle.HIGHEST_PROTOCOL)
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise SapbertError(_ENDED) from error


def _serve() -> None:
    """Be one of the processes: read a tokenizer, then names as long as there are any."""
    from tokenizers import Tokenizer

    # What anything prints must not get between the replies.
    replies, sys.stdout = sys.stdout.buffer, sys.stderr
    requests = sys.stdin.buffer
    tokenizer = Tokenizer.from_str(pickle.load(requests))  # noqa: S301 - of the process that started this one
    with suppress(EOFError):
        while True:
            rows = split(tokenizer, pickle.load(requests))  # noqa: S301
            pickle.dump((rows.ids, rows.special, rows.offsets), replies, pickle.HIGHEST_PROTOCOL)
            replies.flush()


if __name__ == "__main__":
    _serve()
