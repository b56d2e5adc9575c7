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
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from nfold.core.placement import Reduction, Share
from nfold.core.schedule import Purpose, Task

Events = tuple[int, ...]
Combine = Literal["copy", "add", "hold"]


@dataclass(frozen=True, slots=True)
class Message:
    """Elements of a bucket that go from one rank to another."""

    reduction: Reduction
    purpose: Purpose
    source: int
    target: int
    start: int
    stop: int

    @property
    def buffer(self) -> str:
        """Where the elements lie on both ends."""
        return f"{'value' if self.purpose == 'pull' else 'gradient'}/{self.reduction.name}"

    @property
    def payload_bytes(self) -> int:
        """Bytes on the wire."""
        return (self.stop - self.start) * self.reduction.item_bytes


class Network:
    """Adds the two ends of messages to the ranks' task lists and hands out their tags."""

    def __init__(self, add: Callable[..., Task]) -> None:
        self._add = add
        self._next_tag = 0

    def send(
        self, message: Message, *, after: Events, receive_after: Events = (), combine: Combine = "copy", onto: int = -1
    ) -> tuple[Task, Task]:
        """Return the SEND and the RECV of one message."""
        fields = {
            "reduction": message.reduction.name,
            "purpose": message.purpose,
            "buffer": message.buffer,
            "start": message.start,
            "stop": message.stop,
            "payload_bytes": message.payload_bytes,
        }
        return self.pair(message.source, message.target, fields, after, receive_after, combine, onto)

    def pair(
        self,
        source: int,
        target: int,
        fields: Mapping[str, object],
        after: Events,
        receive_after: Events = (),
        combine: Combine = "copy",
        onto: int = -1,
    ) -> tuple[Task, Task]:
        """Return the SEND and the RECV of any two ranks; both carry `fields`."""
        tag, self._next_tag = self._next_tag, self._next_tag + 1
        name = f"{fields['purpose']} {fields['reduction'] or fields['buffer']}"
        send = self._add(source, "SEND", name=f"{name} to {target}", peer=target, tag=tag, after=after, **fields)
        receive = self._add(
            target,
            "RECV",
            name=f"{name} from {source}",
            peer=source,
            tag=tag,
            after=receive_after,
            combine=combine,
            onto=onto,
            **fields,
        )
        return send, receive


def equal_shares(num_elements: int, ranks: tuple[int, ...]) -> tuple[Share, ...]:
    """Cut a bucket into one share per rank, as equal as possible."""
    size, extra = divmod(num_elements, len(ranks))
    bounds = [index * size + min(index, extra) for index in range(len(ranks) + 1)]
    return tuple(Share(rank=rank, start=bounds[index], stop=bounds[index + 1]) for index, rank in enumerate(ranks))


def ring(reduction: Reduction, ready: Mapping[int, Events], network: Network) -> dict[int, Events]:
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
                message = Message(reduction, purpose, rank, following, start, stop)
                _, receive = network.send(
                    message,
                    after=have.get((turn, rank, start), ready[rank]),
                    receive_after=() if gathering else ready[following],
                    combine="copy" if gathering else "add",
                )
                have[turn + 1, following, start] = (receive.id,)
                done[following].append(receive.id)
    return {rank: tuple(events) or ready[rank] for rank, events in done.items()}


def push(reduction: Reduction, ready: Mapping[int, Events], network: Network) -> dict[Share, Events]:
    """Add the messages that bring gradients to the ranks that sum them.

    Returns:
        For each share the events after which it is summed, in the order of `Reduction.shares`. O(members x pieces).
    """
    chains: dict[tuple[Share, int], _Chain] = {}
    for rank in reduction.members:
        for share in _in_turn(reduction.shares, rank):
            for start, stop in _pieces(share, reduction.piece_elements):
                chain = chains.setdefault((share, start), _Chain(reduction.members, share.rank, ready))
                if rank != share.rank:
                    message = Message(reduction, "push", rank, share.rank, start, stop)
                    chain.add(rank, message, ready[rank], network)
    summed: dict[Share, list[int]] = {share: [] for share in reduction.shares}
    for (share, _), chain in chains.items():
        summed[share].extend(chain.summed)
    return {share: tuple(dict.fromkeys(events)) for share, events in summed.items()}


def pull(reduction: Reduction, updated: Mapping[Share, Events], network: Network) -> None:
    """Add the messages that bring the new values of every share back to all members."""
    for share in reduction.shares:
        for rank in sorted(reduction.members, key=lambda rank: (rank <= share.rank, rank)):
            if rank == share.rank:
                continue
            for start, stop in _pieces(share, reduction.piece_elements):
                message = Message(reduction, "pull", share.rank, rank, start, stop)
                network.send(message, after=updated[share])


class _Chain:
    """The receives that sum one piece of a share, one after another."""

    def __init__(self, members: tuple[int, ...], server: int, ready: Mapping[int, Events]) -> None:
        self.summed: Events = ready.get(server, ())
        self._own = server in members
        self._last_before = max((rank for rank in members if rank < server), default=-1)
        self._held = -1
        self._started = self._own

    def add(self, rank: int, message: Message, after: Events, network: Network) -> None:
        """Add one rank's push; ranks come in ascending order."""
        if self._own and rank < self._last_before:
            earlier: Events = () if self._held < 0 else (self._held,)
            _, held = network.send(message, after=after, receive_after=earlier, combine="hold", onto=self._held)
            self._held = held.id
            return
        onto, self._held = self._held, -1
        before = self.summed if onto < 0 else (*self.summed, onto)
        how: Combine = "add" if self._started else "copy"
        _, receive = network.send(message, after=after, receive_after=before, combine=how, onto=onto)
        self._started, self.summed = True, (receive.id,)


def _in_turn(shares: tuple[Share, ...], rank: int) -> list[Share]:
    """The shares in the order in which a rank pushes them: the first of every server, then the second of every one.

    Within a round it begins with the next rank's.
    """
    seen: Counter[int] = Counter()
    turns: list[tuple[int, bool, int, Share]] = []
    for share in shares:
        turns.append((seen[share.rank], share.rank <= rank, share.rank, share))
        seen[share.rank] += 1
    return [share for *_, share in sorted(turns, key=lambda turn: turn[:3])]


def _pieces(share: Share, piece_elements: int) -> Iterator[tuple[int, int]]:
    step = piece_elements or max(1, share.stop - share.start)
    for start in range(share.start, share.stop, step):
        yield start, min(start + step, share.stop)
