"""Moves samples among the nodes of a generation: both sides of one of them, in threads beside whatever it trains."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nfold.core.residency import SampleMove
from nfold.errors import InternalError, RunError
from nfold.planning.residency.model.pieces import piece_bytes_on
from nfold.runtime.samples.fetching import Fetcher, Wanted
from nfold.runtime.samples.pacing import Pacer
from nfold.runtime.samples.resident_dataset import ResidentDataset
from nfold.runtime.samples.sample_messages import BEFORE_TRAINING
from nfold.runtime.samples.sending import Sender
from nfold.transport.generations.generation_transport import GenerationTransport


@dataclass(frozen=True, kw_only=True, slots=True)
class Moved:
    """What one node has moved."""

    sent_bytes: int
    received_bytes: int
    """Of samples and the names of files; those that were there already did not travel."""
    num_received: int
    seconds: float


class Mover:
    """One order to move samples, on one node. It begins at once.

    While it goes on, whoever reads a sample that is on its way waits for it; so it must begin before anybody does, and
    be closed before what may wait. All nodes must be given the same moves.
    """

    def __init__(
        self,
        transport: GenerationTransport,
        members: Sequence[int],
        moving: int,
        moves: Sequence[SampleMove],
        dataset: ResidentDataset,
        *,
        pacer: Pacer | None = None,
        link_bytes_per_s: float | None = None,
        on_failure: Callable[[Exception], None] = lambda error: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        transport: of the generation.
        members: of the generation, by rank.
        moving: counts the orders to move of a generation, from 0.
        moves: of all nodes.
        dataset: what lives here, and the store for what comes.
        pacer: says how fast this node sends, and when; None: as fast as it goes, always.
        link_bytes_per_s: of its link, by which the pieces are cut; None: as large as they may be.
        on_failure: is told from another thread if this cannot go on; `wait` raises it, too.
        clock: seconds.
        """
        self._store, self._on_failure, self._clock = dataset.store, on_failure, clock
        self._lock = threading.Lock()
        self._failure: Exception | None = None
        self._left, self._done = 2, threading.Event()
        self._is_closed = False
        self._begin_s = self._end_s = clock()
        self._pacer = pacer or Pacer()
        targets, wanted = _shares(transport.rank, members, moves)
        piece_bytes = piece_bytes_on(link_bytes_per_s)
        self._sender = Sender(transport, moving, targets, dataset.records, self._pacer, piece_bytes)
        self._fetcher = Fetcher(transport, moving, wanted, self._store)
        self._store.expect(is_expecting=True)
        transport.on_failure_too(self._fail)
        for name, side in (("nfold-send", self._sender), ("nfold-fetch", self._fetcher)):
            threading.Thread(target=self._run, args=(side,), name=name, daemon=True).start()

    @property
    def moved(self) -> Moved:
        """What has been moved so far."""
        return Moved(
            sent_bytes=self._sender.sent_bytes,
            received_bytes=self._fetcher.received_bytes,
            num_received=self._fetcher.received,
            seconds=(self._end_s if self.is_done else self._clock()) - self._begin_s,
        )

    @property
    def is_done(self) -> bool:
        """Whether nothing moves any more, also where that is for a failure."""
        return self._done.is_set()

    def limit(self, bytes_per_s: float | None) -> None:
        """Let this node send so many bytes in a second; 0: none until the next time, None: as many as go."""
        self._pacer.change(bytes_per_s)

    def stop(self) -> None:
        """Fetch no more than what is on its way. Once all nodes have been told so, nothing moves."""
        self._fetcher.stop()

    def wait(self) -> Moved:
        """Wait until all that this node sends and fetches has moved.

        Raises:
            ProgramError: a sample cannot be read here, or has changed.
            ClusterError: one that came has no room.
            RunError: a peer is lost, or this was closed.
        """
        self._done.wait()
        if self._failure is not None:
            raise self._failure
        return self.moved

    def close(self) -> None:
        """End at once, whatever is on its way, and let go of whoever waits for it."""
        self._is_closed = True
        self._fail(RunError("samples stopped moving, since their generation ended"))
        self._done.wait()

    def _run(self, side: Sender | Fetcher) -> None:
        try:
            side.run()
        except Exception as error:
            self._fail(error)
        with self._lock:
            self._left -= 1
            is_last = not self._left
        if is_last:
            self._end_s = self._clock()
            self._store.expect(is_expecting=False, failure=self._failure)
            self._done.set()

    def _fail(self, error: Exception) -> None:
        """End both sides for the first error; later ones follow from it."""
        with self._lock:
            if self._failure is not None or not self._left:
                return
            self._failure = error
        self._store.expect(is_expecting=False, failure=error)
        self._pacer.close()
        self._sender.fail(error)
        self._fetcher.fail(error)
        if not self._is_closed:
            self._on_failure(error)


def _shares(
    rank: int, members: Sequence[int], moves: Sequence[SampleMove]
) -> tuple[list[int], dict[int, list[Wanted]]]:
    """Return the ranks to which one sends, and what it fetches by the rank that has it, as it is needed."""
    ranks = {member: rank for rank, member in enumerate(members)}
    if strangers := {end for move in moves for end in (move.source, move.target)}.difference(ranks):
        raise InternalError(f"samples shall move from or to member {min(strangers)}, which is not among {[*ranks]}")
    targets: list[int] = []
    wanted: dict[int, list[Wanted]] = {}
    for move in sorted(moves, key=_needed):
        if members[rank] == move.source:
            targets.append(ranks[move.target])
        if members[rank] == move.target:
            ranges = [(first, end, _needed(move)) for first, end in move.spans]
            wanted.setdefault(ranks[move.source], []).extend(ranges)
    return list(dict.fromkeys(targets)), wanted


def _needed(move: SampleMove) -> int:
    return BEFORE_TRAINING if move.epoch is None else move.epoch + 1
