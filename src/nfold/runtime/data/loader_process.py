"""What the process of one loader does, which its rank has forked before it loaded anything of the user's.

It loads the program as the rank has, reads and joins what it is told to, and ends with the rank: by the end of their
socket, or by the kernel where it reads on meanwhile.
"""

import gc
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from nfold.errors import NfoldError
from nfold.program import Program, ProgramSource, describe
from nfold.runtime.data.loaded_program import item_checksums, load_dataset
from nfold.runtime.data.passing import Closed, receive, send
from nfold.runtime.data.sample_reader import SampleReader


def read_for_rank(source: ProgramSource, connection: socket.socket, seed: str) -> None:
    """Read for a rank until it hangs up.

    Args:
        source: where the program is written.
        connection: with the rank.
        seed: of the program, a whole number.
    """
    gc.disable()  # as a rank does
    torch.set_num_threads(1)
    reading = _Reading(source, int(seed))
    task: Callable[[], Any] = reading.begin
    try:
        while True:
            _answer(connection, task)
            task = partial(reading.read, *receive(connection))
    except Closed:
        return


class _Reading:
    """The program's data, as this process builds them."""

    def __init__(self, source: ProgramSource, seed: int) -> None:
        self._source, self._seed = source, seed
        self._program: Program | None = None
        self._readers: dict[str, SampleReader] = {}

    def begin(self) -> Any:
        """Load program and training data; return checksums of some items, to be compared with the rank's."""
        self._program = program = self._source.load()
        dataset = load_dataset(program.train_data, "train_data", self._seed)
        self._readers["train_data"] = SampleReader(dataset, self._seed, program.collate)
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

    def _test_reader(self) -> SampleReader:
        assert self._program is not None, "begin comes first"
        assert self._program.test_data is not None, "the rank has the same program"
        dataset = load_dataset(self._program.test_data, "test_data", self._seed)
        return SampleReader(dataset, self._seed, self._program.collate, "test_data")


def _answer(connection: socket.socket, do: Callable[[], Any]) -> None:
    """Send what comes of doing something, or what was wrong with it."""
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
