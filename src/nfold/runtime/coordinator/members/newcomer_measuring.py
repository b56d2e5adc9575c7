"""Measures one newcomer while the others train, so that a plan can count on it. Pure.

    pace ──> paced ──> meet ──> all have met ──> probe ──> both have told: its node is known
    of a host of its own          connections to all ranks      its link, with one of them

Ranks meet and answer probes in a thread beside their steps, and nobody stops for it.
"""

from collections.abc import Iterable
from typing import Any

from nfold.core import codec
from nfold.core.chunks import chunk_sizes
from nfold.core.cluster import Node
from nfold.core.job import Known
from nfold.core.members import dial_order
from nfold.core.profile import Pace
from nfold.planning.inputs.facts import useful_threads, worker_seconds
from nfold.runtime.control import commands as cmd
from nfold.runtime.coordinator.job_planning import Ready
from nfold.runtime.coordinator.members.membership import Membership
from nfold.runtime.coordinator.replanning import plan_of
from nfold.runtime.measuring.declared_nodes import as_if_measured
from nfold.runtime.measuring.newcomer_node import with_link, with_pace
from nfold.runtime.measuring.probing_rounds import expected_passes_s
from nfold.transport.probing.probe import ProbedPair

PATIENCE_S = 5.0
"""How long a message of a probe may take beside training."""


class NewcomerMeasuring:
    """One newcomer, from where it listens to where its node is known.

    Attributes:
        number: of the member.
        ranks: that it is connected to once it is done.
        nodes: that were measured, by name, once it is done: its own, and its peer's if nobody had measured that one.
        failure: why it cannot be used; empty: nothing speaks against it.
        is_done: whether nothing is left to measure.
    """

    def __init__(
        self, number: int, membership: Membership, known: Known, ready: Ready, *, has_host: bool, is_new: bool
    ) -> None:
        """Args:
        number: of the member, which listens.
        membership: of the job.
        known: what the generation rests on that trains.
        ready: what ranks told of the program.
        has_host: whether it has a host of its own.
        is_new: whether nobody has measured it; else it only meets those who have become ranks since.
        """
        self.number, self.nodes, self.failure, self.is_done = number, dict[str, Node](), "", False
        self._membership, self._known, self._ready = membership, known, ready
        self.ranks, self._peer = membership.ranks, membership.ranks[0]
        node = membership.node(number) if has_host and is_new else None
        self._node = None if node is None else as_if_measured(known.cluster, node)
        self._measures = node is not None and not known.cluster.is_emulated
        self._awaited: set[int] = set()
        self._doing = ""

    def begin(self) -> list[cmd.ToShell]:
        """Return the first orders; of emulated nodes all is declared."""
        if self._node is None:
            return self._meet()
        self.nodes[self._node.name] = self._node
        return self._pace(self._node) if self._measures else self._meet()

    def hear(self, number: int, message: dict[str, Any]) -> list[cmd.ToShell]:
        """Take in what a member answered; return the orders that follow."""
        if self._doing == "pace" and (number, message["is"]) == (self.number, "paced"):
            return self._take_pace(codec.decode(Pace, message["pace"]))
        if message["is"] != "beside" or message["ticket"] != self._ticket or number not in self._awaited:
            return []  # of a newcomer before it
        if message["failed"]:
            self.failure = message["failed"]
            return []
        self._awaited.discard(number)
        if message.get("found"):
            self._take_link(codec.decode(ProbedPair, message["found"]))
        if self._awaited:
            return []
        if self._doing == "meet" and self._measures:
            return self._probe()
        self.is_done = True
        return []

    def _pace(self, node: Node) -> list[cmd.ToShell]:
        self._doing = "pace"
        order = {"do": "pace", "chunk_size": self._chunk_size, "threads": self._threads(node)}
        return [cmd.Send((self.number,), {**order, "longest_pass_s": self._pass_s(node)})]

    def _take_pace(self, pace: Pace) -> list[cmd.ToShell]:
        assert self._node is not None, "it was told to compute"
        tensors = len(self._known.graph.trained)
        self._node = with_pace(self._node, pace, self._pass_s(self._node), num_tensors=tensors)
        self.nodes[self._node.name] = self._node
        return self._meet()

    def _meet(self) -> list[cmd.ToShell]:
        """Connect it to all ranks; each of these needs to know of it alone."""
        self._doing = "meet"
        placed = dial_order([self._membership.member(number) for number in (*self.ranks, self.number)])
        addresses = [[each.number, *(each.address or ())] for each in placed]
        few = [[each for each in addresses if each[0] in (rank, self.number)] for rank in self.ranks]
        orders = zip((*self.ranks, self.number), (*few, addresses), strict=True)
        return self._beside((number, {"do": "meet", "addresses": known}) for number, known in orders)

    def _probe(self) -> list[cmd.ToShell]:
        self._doing = "probe"
        pair = {"do": "probe", "generation": self._membership.reserve(), "patience_s": PATIENCE_S}
        pair["members"] = [self.number, self._peer]
        return self._beside(
            (number, {**pair, "measures": number == self.number}) for number in (self.number, self._peer)
        )

    def _take_link(self, pair: ProbedPair) -> None:
        assert self._node is not None, "it was told to probe"
        peer = self._known.cluster.node(self._membership.member(self._peer).host)
        node, peer = with_link(self._node, peer, pair)
        self.nodes = {node.name: node, peer.name: peer}

    def _beside(self, orders: Iterable[tuple[int, dict[str, Any]]]) -> list[cmd.ToShell]:
        sent = [cmd.Send((number,), {**order, "beside": True, "ticket": self._ticket}) for number, order in orders]
        self._awaited = {number for each in sent for number in each.members}
        return list(sent)

    @property
    def _ticket(self) -> list[Any]:
        """Tells an answer from one to an earlier order."""
        generation = self._membership.generation
        return [self.number, self._doing, -1 if generation is None else generation.number]

    @property
    def _chunk_size(self) -> int:
        chunks = plan_of(self._known).chunks
        return self._known.graph.only_samples or max(chunk_sizes(self._ready["batch_size"], chunks))

    def _threads(self, node: Node) -> int:
        chunks, workers = plan_of(self._known).chunks, len(self.ranks) + 1
        seconds = worker_seconds(self._known.profiles, self._ready["batch_size"], workers, chunks)
        return useful_threads(node.cores, 1, seconds)

    def _pass_s(self, node: Node) -> float:
        """Seconds that the profiled node would need for the same."""
        cluster = type(self._known.cluster)(nodes=(node,))
        threads = (self._threads(node),)
        return expected_passes_s(cluster, (node.name,), threads, self._known.profiles, self._chunk_size)[0]
