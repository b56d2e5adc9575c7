"""The process of one loader: `python -m nfold.runtime.loader`, started by its rank, never by hand.

It loads the program as the rank has, reads and joins what it is told to, and ends with the rank: by the end of their
socket, or by the kernel where it reads on meanwhile.
"""

import argparse
import faulthandler
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nfold.errors import NfoldError
from nfold.launch.orphans import end_with_parent
from nfold.program import Program, ProgramSource, describe

if TYPE_CHECKING:
    from nfold.runtime.reading import Reader


def main() -> int:
    """Read for a rank until it hangs up."""
    faulthandler.enable(all_threads=False)
    signal.signal(signal.SIGTERM, lambda *_: None)  # job managers send it to all processes of a job, see verbs/rank.py
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    arguments = _parse()
    end_with_parent(arguments.rank_process)
    gc.disable()  # as a rank does
    from nfold.runtime.compiler import leave_compiler_out

    leave_compiler_out()
    import torch

    torch.set_num_threads(1)
    from nfold.runtime.passing import Closed, receive

    connection = socket.socket(fileno=arguments.socket)
    try:
        reading = _Reading(ProgramSource(path=Path(arguments.script), function=arguments.function), arguments.seed)
        task: Callable[[], Any] = reading.begin
        while True:
            _answer(connection, task)
            task = partial(reading.read, *receive(connection))
    except Closed:
        pass
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads of the user's libraries must not keep it alive


class _Reading:
    """The program's data, as this process builds them."""

    def __init__(self, source: ProgramSource, seed: int) -> None:
        self._source, self._seed = source, seed
        self._program: Program | None = None
        self._readers: dict[str, Reader] = {}

    def begin(self) -> Any:
        """Load program and training data; return checksums of some items, to be compared with the rank's."""
        from nfold.runtime.loading import item_checksums, load_dataset
        from nfold.runtime.reading import Reader

        self._program = program = self._source.load()
        dataset = load_dataset(program.train_data, "train_data", self._seed)
        self._readers["train_data"] = Reader(dataset, self._seed, program.collate)
        found = item_checksums(dataset, self._seed, program.collate)
        gc.freeze()
        gc.enable()
        return found

    def read(self, what: str, part: Any, apart: tuple[int, ...]) -> Any:
        """Return a part of a data set; together and apart, where sizes are given."""
        if what not in self._readers:
            self._readers[what] = self._test_reader()
        reader = self._readers[what]
        return reader.read_apart(part, apart) if apart else reader.read(part)

    def _test_reader(self) -> "Reader":
        from nfold.runtime.loading import load_dataset
        from nfold.runtime.reading import Reader

        assert self._program is not None, "begin comes first"
        assert self._program.test_data is not None, "the rank has the same program"
        dataset = load_dataset(self._program.test_data, "test_data", self._seed)
        return Reader(dataset, self._seed, self._program.collate, "test_data")


def _answer(connection: socket.socket, do: Callable[[], Any]) -> None:
    """Send what comes of doing something, or what was wrong with it."""
    from nfold.runtime.passing import Closed, send

    try:
        found = ("done", do())
    except NfoldError as error:
        found = ("wrong", str(error))
    except Exception as error:
        found = ("wrong", describe(error))
    try:
        send(connection, found)
    except Closed:
        raise
    except Exception as error:
        reason = f"a batch cannot be passed on by the process that reads it: {describe(error)}"
        send(connection, ("wrong", f"{reason}. Give tensors, numbers and texts, or use --loaders 0."))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="nfold-loader")
    parser.add_argument("--socket", type=int, required=True)
    parser.add_argument("--rank-process", type=int, required=True, help="process that started this one")
    parser.add_argument("--script", required=True)
    parser.add_argument("--function", required=True)
    parser.add_argument("--seed", type=int, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
