"""Processes of a rank that read and join samples, as many at once, while the rank computes.

    rank    ── which part ──>  loader 0   reads, joins      A part is a chunk of a step, or a batch of test data.
    thread  <──── batch ─────             (loader_process)  Whichever loader is free reads the next one.

What a part holds and draws follows from the part (`sample_reader.py`), so it does not matter which process reads it.
"""

import contextlib
import queue
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from nfold.capture.batches.joining import Batch
from nfold.errors import ProgramError, RunError
from nfold.launch.child import Child
from nfold.launch.fork_server import ForkServer
from nfold.machine.resident_memory import peak_bytes
from nfold.runtime.data.passing import Closed, receive, send
from nfold.runtime.data.sample_reader import ReadPart, Which

_NAMED = 3
_HINT = "If memory ran out, use fewer loaders. --loaders 0 reads in the rank itself."
_GRACE_S = 2.0
"""For what is being read when a rank ends."""


class Loaders:
    """The loaders of one rank. It starts them at once, and they are ready when the first of them is asked."""

    def __init__(self, server: ForkServer, count: int, seed: int, items: Mapping[str, int | None]) -> None:
        """Args:
        server: forks them.
        count: of processes.
        seed: of the program.
        items: checksums of some items of the rank's own training data.

        Raises:
            RunError: they cannot be started.
        """
        self.count = count
        pairs = [socket.socketpair() for _ in range(count)]
        try:
            processes = server.start(str(seed), [other for _, other in pairs])
        except OSError as error:
            raise RunError(f"no loader can be started: {error}. {_HINT}") from None
        finally:
            for _, other in pairs:
                other.close()
        self._all = [
            _Loader(number, process, connection, items)
            for number, (process, (connection, _)) in enumerate(zip(processes, pairs, strict=True))
        ]
        self._idle: queue.SimpleQueue[_Loader] = queue.SimpleQueue()
        for each in self._all:
            self._idle.put(each)

    def reader(self, what: Which) -> "LoadersReader":
        """Return the reader of one of the data sets."""
        return LoadersReader(self, what)

    def read(self, what: Which, part: ReadPart, apart: Sequence[int] = ()) -> Any:
        """Read a part, on a loader that is free. Threads may call it side by side.

        Args:
            what: the data set.
            part: of it.
            apart: if given, what comes back is what `Reader.read_apart` gives for these sizes.

        Raises:
            ProgramError: as a Reader raises it, or the loader has built other data.
            RunError: a loader is gone.
        """
        loader = self._idle.get()
        try:
            return loader.read(what, part, apart)
        finally:
            self._idle.put(loader)

    @property
    def processes(self) -> tuple[int, ...]:
        """The process numbers of the loaders."""
        return tuple(each.pid for each in self._all)

    @property
    def peak_bytes(self) -> int:
        """The sum of the most bytes that each loader has held."""
        return sum(map(peak_bytes, self.processes))

    def close(self) -> None:
        """End all loaders; who waits for one is told that it is gone."""
        for each in self._all:
            each.hang_up()
        deadline_s = time.monotonic() + _GRACE_S
        for each in self._all:
            each.end(max(0.0, deadline_s - time.monotonic()))


class LoaderPool:
    """The loaders that a rank may have: none where ranks are threads, and none before there is something to read."""

    def __init__(self, server: ForkServer | None) -> None:
        """Args:
        server: forks them; None: the program stays in this process.
        """
        self._server = server
        self._start: Callable[[], Loaders] | None = None
        self._loaders: Loaders | None = None

    def wanted(self, count: int, seed: int, items: Mapping[str, int | None]) -> None:
        """Say what loaders are started as; see Loaders."""
        if self._server is None:
            return
        if count:
            self._start = partial(Loaders, self._server, count, seed, items)
        else:
            self._server.close()

    def hired(self, what: Which) -> "LoadersReader | None":
        """Start the loaders if they are not running; return the reader of a data set, None: this process reads it."""
        if self._loaders is None and self._start is not None:
            self._loaders = self._start()
        return self.reader(what)

    def reader(self, what: Which) -> "LoadersReader | None":
        """Return the reader of a data set in running loaders; None: this process reads it."""
        return self._loaders.reader(what) if self._loaders is not None else None

    def processes(self) -> tuple[int, ...]:
        """Return the process numbers of all loaders."""
        return self._loaders.processes if self._loaders else ()

    @property
    def peak_bytes(self) -> int:
        """Return the sum of the most bytes that each loader has held."""
        return self._loaders.peak_bytes if self._loaders else 0

    def close(self) -> None:
        """End the loaders, and the process that forks them."""
        if self._loaders is not None:
            self._loaders.close()
        if self._server is not None:
            self._server.close()


@dataclass(frozen=True, slots=True)
class LoadersReader:
    """Reads parts of one data set in loader processes."""

    loaders: Loaders
    what: Which

    @property
    def num_loaders(self) -> int:
        """The number of parts that are read at once, each by its own process."""
        return self.loaders.count

    def read(self, part: ReadPart) -> Batch:
        """Read a part."""
        batch: Batch = self.loaders.read(self.what, part)
        return batch

    def read_apart(self, part: ReadPart, sizes: Sequence[int]) -> tuple[Batch, list[Batch]]:
        """Read samples, joined as one part and as several smaller ones."""
        found: tuple[Batch, list[Batch]] = self.loaders.read(self.what, part, sizes)
        return found

    def read_all(self, parts: Iterable[ReadPart]) -> Iterator[Batch]:
        """Yield parts in their order, while later ones are being read."""
        waiting: deque[Future[Batch]] = deque()
        with ThreadPoolExecutor(self.num_loaders) as pool:
            for part in parts:
                waiting.append(pool.submit(self.read, part))
                if len(waiting) > self.num_loaders:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()


class _Loader:
    """One of them, seen from its rank. One thread at a time may ask it."""

    def __init__(self, number: int, process: Child, connection: socket.socket, items: Mapping[str, int | None]) -> None:
        self._number, self._process, self._connection, self._items = number, process, connection, items
        self._objection: str | None = None
        """None: it is not known yet whether there is one."""

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def read(self, what: Which, part: ReadPart, apart: Sequence[int]) -> Any:
        try:
            if self._objection is None:
                self._objection = self._get_ready()
            if self._objection:
                raise ProgramError(self._objection)
            send(self._connection, (what, part, tuple(apart)))
            kind, value = receive(self._connection)
        except Closed:
            raise self._lost(what, part) from None
        if kind == "wrong":
            raise ProgramError(value)
        return value

    def _get_ready(self) -> str:
        """Wait until it has loaded the program; say what is wrong with it."""
        kind, found = receive(self._connection)
        return str(found) if kind == "wrong" else unlike(self._items, found)

    def _lost(self, what: Which, part: ReadPart) -> RunError:
        items = f"{', '.join(map(str, part.indices[:_NAMED]))}{' ..' if len(part.indices) > _NAMED else ''}"
        return RunError(
            f"loader {self._number} (process {self.pid}) {self._process.ended(None)} while it read items {items} of "
            f"{what}(). {_HINT}"
        )

    def hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def end(self, grace_s: float) -> None:
        self._process.end(grace_s)
        self._connection.close()


def unlike(items: Mapping[str, int | None], found: Mapping[str, int | None]) -> str:
    """Return a sentence if the data of a loader differ from the rank's; empty: they do not.

    Args:
        items: checksums of some of the rank's items.
        found: those of the loader.
    """
    if items == found:
        return ""
    differs = next(
        (f"item {index}" for index in items if index in found and found[index] != items[index]), "their number"
    )
    return (
        f"train_data() gives other data in a loader's process than in the rank's: {differs} differs. What it holds "
        "must follow from files that do not change, and what it draws must come from torch's, numpy's or Python's own "
        "generator, which are seeded. Use --loaders 0."
    )
