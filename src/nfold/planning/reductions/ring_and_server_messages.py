"""Expands reductions into the messages that make them up.

Ring (Patarasu and Yuan 2009): the bucket is cut into one share per member. In n - 1 rounds each member passes the
share that it just summed to the next one; in n - 1 more the finished sums go round. Every member sends
2 (n - 1) / n of the bucket.

    round           0        1        2     |  3 .. 5
    member 0 sends  share 0  share 3  share 2  then the sums 1, 0, 3
    member 1 sends  share 1  share 0  share 3  then the sums 2, 1, 0

Server: each member pushes every share to the rank that sums it, which updates and sends the values back. A rank begins
with what the next rank serves, so that not all send to one rank at a time. Contributions are added in ascending rank
order, the server's own in its place, so a sum has the same bits in every run and whoever serves the share:

    rank 2 serves   hold 0    1 + what is held, added to its own    add 3    ((0 + 1) + 2) + 3
    no worker       copy 0    add 1                        add 2    add 3    ((0 + 1) + 2) + 3

What a rank sends to several others goes in rounds, one piece to each of them, and a round waits for the last but one to
have gone (`Turns`). Left to itself, TCP may send much more to one than to another for as long as a step: the two then
get early what they cannot use yet, since a piece is summed when the last rank's has come.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from nfold.core.placement import Reduction, Share
from nfold.core.tasks import BufferKind, ChunkTensor, Elements, Purpose, Receive, Send
from nfold.planning.reductions.shares import equal_shares

Events = tuple[int, ...]
Combine = Literal["copy", "add", "hold"]
ROUNDS_AT_ONCE = 2
"""That a rank may have on their way: one that leaves, and one for those whose part of it has left."""


@dataclass(frozen=True, slots=True)
class PlannedMessage:
    """Elements that one rank sends to another in each step."""

    source: int
    target: int
    purpose: Purpose
    data: Elements | ChunkTensor
    payload_bytes: int
    """Of a full batch."""


def _of_bucket(
    reduction: Reduction, purpose: Purpose, source: int, target: int, start: int, stop: int
) -> PlannedMessage:
    """Sums and values travel as what the program has, addends as whole numbers where they are summed as such."""
    is_addend = purpose in ("reduce", "push") and reduction.fraction_bits is not None
    kind: BufferKind = "value" if purpose == "pull" else "addend" if is_addend else "gradient"
    item_bytes = reduction.addend_bytes if is_addend else reduction.item_bytes
    return PlannedMessage(
        source, target, purpose, Elements(kind, reduction.name, start, stop), (stop - start) * item_bytes
    )


class MessageWriter:
    """Adds the two ends of messages to the ranks' task lists and hands out their tags."""

    def __init__(self, add: Callable[..., Any]) -> None:
        self._add = add
        self.num_tags = 0
        self._turns: defaultdict[tuple[int, Purpose], Turns] = defaultdict(Turns)

    def send_in_turn(
        self, message: PlannedMessage, place: Hashable, after: Events, **receiving: Any
    ) -> tuple[Send, Receive]:
        """Do as `send`, in the round of a place, which is one for all peers."""
        turns = self._turns[message.source, message.purpose]
        send, receive = self.send(message, (*after, *turns.before(place)), **receiving)
        turns.add(send.id)
        return send, receive

    def send(
        self,
        message: PlannedMessage,
        after: Events,
        *,
        receive_after: Events = (),
        combine: Combine = "copy",
        onto: int | None = None,
        completes: bool = False,
    ) -> tuple[Send, Receive]:
        """Add a message to both ranks' task lists, and return its two ends.

        Args:
            message: what is sent.
            after: events that the sender waits for.
            receive_after: events that the receiver waits for before it combines.
            combine: what the receiver does with the data; see `Receive`.
            onto: see `Receive`.
            completes: see `Receive`.
        """
        tag, self.num_tags = self.num_tags, self.num_tags + 1
        both = {"tag": tag, "purpose": message.purpose, "data": message.data, "payload_bytes": message.payload_bytes}
        send: Send = self._add(message.source, Send, peer=message.target, after=after, **both)
        taking = {"after": receive_after, "combine": combine, "onto": onto, "completes": completes}
        receive: Receive = self._add(message.target, Receive, peer=message.source, **taking, **both)
        return send, receive


class Turns:
    """The rounds in which a rank sends the pieces of one kind of message."""

    def __init__(self) -> None:
        self._place: Hashable = None
        self._rounds: deque[list[int]] = deque(maxlen=ROUNDS_AT_ONCE + 1)

    def before(self, place: Hashable) -> Events:
        """Return the events that a message to a place waits for; another place than the last one's begins a round."""
        if place != self._place:
            self._place = place
            self._rounds.append([])
        return tuple(self._rounds[0]) if len(self._rounds) > ROUNDS_AT_ONCE else ()

    def add(self, event: int) -> None:
        """Add the event of a message's end to the round."""
        self._rounds[-1].append(event)


def ring(reduction: Reduction, ready: Mapping[int, Events], network: MessageWriter) -> dict[int, Events]:
    """Add the messages of a ring all-reduce.

    Args:
        reduction: the bucket.
        ready: for each member the events after which its own gradients are complete.
        network: takes the messages.

    Returns:
        For each member the events after which it has all the sums. O(members^2 x pieces).
    """
    members, shares = reduction.members, equal_shares(reduction.num_elements, reduction.members)
    count = len(members)
    done: dict[int, list[int]] = {rank: [] for rank in members}
    have: dict[tuple[int, int, int], Events] = {}
    for turn in range(2 * (count - 1)):
        gathering = turn >= count - 1
        for position, rank in enumerate(members):
            following = members[(position + 1) % count]
            share = shares[(position - turn) % count]
            for start, stop in _pieces(share, reduction.piece_elements):
                purpose: Purpose = "gather" if gathering else "reduce"
                message = _of_bucket(reduction, purpose, rank, following, start, stop)
                _, receive = network.send(
                    message,
                    after=have.get((turn, rank, start), ready[rank]),
                    receive_after=() if gathering else ready[following],
                    combine="copy" if gathering else "add",
                    completes=turn == count - 2,
                )
                have[turn + 1, following, start] = (receive.id,)
                done[following].append(receive.id)
    return {rank: tuple(events) or ready[rank] for rank, events in done.items()}


def summed_first(reduction: Reduction, rank: int) -> tuple[Elements, ...]:
    """Return the pieces of a bucket's sums that one rank has before all others: together all ranks have each once.

    Round a ring that is before the sums go round. A server has what it serves, the only owner of a bucket has all.
    """
    if reduction.route == "server":
        bounds = [(start, stop) for _, share, start, stop in _cut_alike(reduction) if share.rank == rank]
    elif rank not in reduction.members:
        bounds = []
    elif reduction.route == "local":
        bounds = [(0, reduction.num_elements)]
    else:
        shares = equal_shares(reduction.num_elements, reduction.members)
        share = shares[(reduction.members.index(rank) + 1) % len(shares)]
        bounds = list(_pieces(share, reduction.piece_elements))
    return tuple(Elements("gradient", reduction.name, start, stop) for start, stop in bounds)


def push(reduction: Reduction, ready: Mapping[int, Events], network: MessageWriter) -> dict[Share, Events]:
    """Add the messages that bring gradients to the ranks that sum them.

    Returns:
        For each share the events after which it is summed, in the order of `Reduction.shares`. O(members x pieces).
    """
    cut = _cut_alike(reduction)
    chains = {(share, start): _Chain(reduction.members, share.rank, ready) for _, share, start, _ in cut}
    for rank in reduction.members:
        # A round begins with the next rank's.
        for place, share, start, stop in sorted(
            cut, key=lambda piece: (piece[0], piece[1].rank <= rank, piece[1].rank)
        ):
            if rank != share.rank:
                message = _of_bucket(reduction, "push", rank, share.rank, start, stop)
                chains[share, start].add(rank, message, (reduction.name, place), ready[rank], network)
    summed: dict[Share, list[int]] = {share: [] for share in reduction.shares}
    for (share, _), chain in chains.items():
        summed[share].extend(chain.summed)
    return {share: tuple(dict.fromkeys(events)) for share, events in summed.items()}


def pull(reduction: Reduction, updated: Mapping[Share, Events], network: MessageWriter) -> None:
    """Add the messages that bring the new values of every share back to all members."""
    for _, share, start, stop in _cut_alike(reduction):
        for rank in sorted(reduction.members, key=lambda rank: (rank <= share.rank, rank)):
            if rank != share.rank:
                message = _of_bucket(reduction, "pull", share.rank, rank, start, stop)
                network.send_in_turn(message, (reduction.name, start), after=updated[share])


class _Chain:
    """The receives that sum one piece of a share, one after another."""

    def __init__(self, members: tuple[int, ...], server: int, ready: Mapping[int, Events]) -> None:
        self.summed: Events = ready.get(server, ())
        self._own = server in members
        self._last_before = max((rank for rank in members if rank < server), default=-1)
        self._last = max((rank for rank in members if rank != server), default=-1)
        self._held: int | None = None
        self._started = self._own

    def add(self, rank: int, message: PlannedMessage, place: Hashable, after: Events, network: MessageWriter) -> None:
        """Add one rank's push; ranks come in ascending order."""
        if self._own and rank < self._last_before:
            earlier: Events = () if self._held is None else (self._held,)
            _, held = network.send_in_turn(
                message, place, after, receive_after=earlier, combine="hold", onto=self._held
            )
            self._held = held.id
            return
        onto, self._held = self._held, None
        before = self.summed if onto is None else (*self.summed, onto)
        how: Combine = "add" if self._started else "copy"
        taking: dict[str, Any] = {
            "receive_after": before,
            "combine": how,
            "onto": onto,
            "completes": rank == self._last,
        }
        _, receive = network.send_in_turn(message, place, after, **taking)
        self._started, self.summed = True, (receive.id,)


def _cut_alike(reduction: Reduction) -> list[tuple[tuple[int, int], Share, int, int]]:
    """Return the pieces of all shares: the place of the round in which each is pushed, its share and its bounds.

    The first shares of all servers are cut into equally many pieces, then the second of all: who serves less has
    smaller pieces and not fewer, so that a round takes every link as long.
    """
    seen: Counter[int] = Counter()
    numbered: dict[int, list[Share]] = {}
    for share in reduction.shares:
        numbered.setdefault(seen[share.rank], []).append(share)
        seen[share.rank] += 1
    found = []
    for number, shares in numbered.items():
        longest = max(share.stop - share.start for share in shares)
        count = max(1, -(-longest // (reduction.piece_elements or longest or 1)))
        for share in shares:
            bounds = [share.start + (share.stop - share.start) * index // count for index in range(count + 1)]
            pieces = enumerate(pairwise(bounds))
            found += [((number, index), share, start, stop) for index, (start, stop) in pieces if start < stop]
    return found


def _pieces(share: Share, piece_elements: int) -> Iterator[tuple[int, int]]:
    step = piece_elements or max(1, share.stop - share.start)
    for start in range(share.start, share.stop, step):
        yield start, min(start + step, share.stop)
