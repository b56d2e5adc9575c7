"""Begins generations: members that listen become ranks that are connected to each other."""

from collections.abc import Callable

from nfold.core.members import dial_order, find_apart, tell_apart
from nfold.errors import ClusterError
from nfold.runtime.control import commands as cmd
from nfold.runtime.coordinator.members import membership as ms
from nfold.runtime.coordinator.members.membership import Membership
from nfold.runtime.coordinator.rank_requests import Flow, RankRequests
from nfold.runtime.coordinator.states.hand_over import HandOver
from nfold.runtime.failures.first_cause import Postmortem


class Generations:
    """Gives ranks to members, and connects them to each other."""

    def __init__(
        self, requests: RankRequests, membership: Membership, postmortem: Postmortem, hand_over: HandOver
    ) -> None:
        self._requests, self._membership, self._postmortem = requests, membership, postmortem
        self._hand_over = hand_over
        self._is_connected = False

    def enlist(self, members: tuple[int, ...]) -> None:
        """Give ranks to members, in this order; from now on ranks mean these members."""
        self._membership.enlist(members)
        self._postmortem.regroup([self._membership.member(number) for number in members])

    def begin(self, num_ranks: int) -> Flow:
        """Connect the first ranks to each other; the generation before is over with that, and its messages are lost.

        Members that were connected before stay so.

        Raises:
            ClusterError: two of them cannot be connected, since neither can dial the other.
        """
        yield from self._order_to_connect(num_ranks)
        self._postmortem.ordered("connect")
        yield from self._requests.collect(tuple(range(num_ranks)), [], "connected")

    def call(self, num_ranks: int) -> Flow:
        """As `begin`, but the order to connect goes with the next ones to these ranks, who obey it first.

        Ranks that share a process connect before: who builds there shuts out others, and would wait for who still reads
        samples.

        Raises:
            ClusterError: as `begin`.
        """
        members = [self._membership.member(number) for number in self._membership.ranks[:num_ranks]]
        is_shared = len({(each.host, each.pid) for each in members}) < num_ranks
        yield from (self.begin if is_shared else self._order_to_connect)(num_ranks)

    def _order_to_connect(self, num_ranks: int) -> Flow:
        ranks = tuple(range(num_ranks))
        members = [self._membership.member(number) for number in self._membership.ranks[:num_ranks]]
        new = tuple(rank for rank, member in zip(ranks, members, strict=True) if member.address is None)
        if new:
            told = yield from self._requests.ask(new, {"do": "listen"}, "listening")
            for rank in new:
                host, port = told[rank]["address"]
                self._membership.take(ms.MemberPrepared(members[rank].number, (host, port), told[rank].get("seen", "")))
        generation = self._membership.begin(num_ranks)
        addressed = [self._membership.member(number) for number in generation.members]
        if apart := find_apart(addressed):
            raise ClusterError(tell_apart(*apart))
        order = {
            "do": "connect",
            "generation": generation.number,
            "members": list(generation.members),
            "addresses": [[each.number, *(each.address or ())] for each in dial_order(addressed)],
            "gone": list(self._membership.gone),
        }
        self._requests.say(cmd.Order(ranks, order))
        self._is_connected = True

    def sever(self, ranks: tuple[int, ...]) -> Flow:
        """Let ranks end the generation under way where it is: others of it are lost."""
        yield from self._requests.ask(ranks, {"do": "abandon"}, "abandoned")
        self._is_connected = False

    def keep(self, step: int, note: Callable[[], None]) -> Flow:
        """Let ranks keep the state that is in their memory, in a checkpoint too; all are called off.

        Args:
            step: steps done.
            note: is called once the checkpoint is sure to be kept, whoever is lost then.
        """
        ranks = tuple(range(len(self._membership.ranks)))
        yield from self.begin(len(ranks))
        file = yield from self._requests.collect_file(ranks, self._hand_over.keeping(), "kept")
        self._requests.say(cmd.KeepCheckpoint(step, file))
        note()
        yield from self.sever(ranks)

    def spare(self, ranks: tuple[int, ...]) -> Flow:
        """Let ranks leave that a plan has no use for: hosts are not too few because of that."""
        self._membership.spare(len(ranks))
        yield from self.let_go(ranks)

    def let_go(self, ranks: tuple[int, ...]) -> Flow:
        """Let ranks leave the job; the others get new numbers, and what nobody but those who leave has of the state."""
        if ranks:
            if self._hand_over.needs(ranks):
                if not self._is_connected:
                    yield from self.begin(len(self._membership.ranks))
                yield from self._hand_over.rescue(ranks)
            orders = [cmd.Order(ranks, {"do": "abandon"}), cmd.Order(ranks, {"do": "finish", "tag": 0})]
            yield from self._requests.collect(ranks, orders, "finished")
            self.enlist(tuple(each for rank, each in enumerate(self._membership.ranks) if rank not in ranks))
            self._is_connected = False  # by these numbers
