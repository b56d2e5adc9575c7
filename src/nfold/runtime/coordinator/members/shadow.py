"""Lets one newcomer follow as a shadow while others train, so that nobody waits for its way to the state. Pure.

    ranks with a part of it      newcomer, which has built
    lend ──> lent, after the same step ──> follow ──> followed: as far as the others ──> all may stop
      └─ from then on they give it all sums of each step ──^

It is worth its bytes where the state would take the newcomer longer than a step. Whatever goes wrong, it joins as
others do, and reads the state when all have stopped.
"""

from dataclasses import replace
from math import inf
from typing import Any

from nfold.core import codec
from nfold.core.cluster import Node
from nfold.core.graph import ModelGraph
from nfold.core.job import Known
from nfold.core.placement import Reduction
from nfold.core.plan import Plan
from nfold.errors import NfoldError, RunError
from nfold.planning.scheduling.shadow_part import whole_plan, whole_schedule
from nfold.runtime.checkpoint.joined_facts import join_facts
from nfold.runtime.checkpoint.state_file import pack_header
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.members.membership import Membership
from nfold.runtime.coordinator.replanning import plan_of
from nfold.runtime.coordinator.states.holdings import entries_of, read_rows, share_out
from nfold.runtime.coordinator.states.sources import Donors

LONGEST_READ_S = 0.1
"""That all may wait for a newcomer which reads the state, where a step is shorter."""
MOST_STEPS = 4.0
"""That the sums of one step may take on the newcomer's link. They must take one at most, and its measured rate is a
lower bound, since its peer was busy."""
MOST_STEPS_ALONE = 0.8
"""The same where one trains alone: its steps wait for no link, and it sent nothing while the newcomer's was probed."""
OF_LINK = 0.5
"""Of a link, that the state may take; the rest is for gradients and sums."""
TIMES_STATE = 4
"""Of the state's bytes, that sums may take while they wait to be played: twice what they do where links are full."""
LENT_TIMES_STATE = 4
"""Of its part of them, that a rank may hold for the newcomer: a copy of the state, and sums that wait to go out."""
TIMES_READ = 3
"""How many times as long as to read the state, by the lower bound of its link, a newcomer may follow."""


def following_rate(now: Known, then: Known, rank: int, node: Node | None, step_s: float) -> float | None:
    """Return the bytes per second at which a newcomer reads the state as a shadow; None: it does when all have stopped.

    Args:
        now: what trains.
        then: what is to follow.
        rank: of the newcomer in it.
        node: of the newcomer; None: nobody has measured it.
        step_s: of a step by now. Predictions rest on lower bounds of links.
    """
    rate = _rate(node)
    before, after = plan_of(now), plan_of(then)
    if not _can_follow(before, after, rank, now.graph) or rate is None or node is None:
        return None
    state_bytes, sums_bytes = _state_bytes(now), sum(each.num_bytes for each in before.reductions)
    beside_bytes = TIMES_STATE * state_bytes + (0 if _goes_on(before, after) else state_bytes + sums_bytes)
    lent_bytes = LENT_TIMES_STATE * state_bytes / (len(before.placement.working) if before.is_replicated else 1)
    has_room = _has_room(node, after.predicted.peak_memory_bytes[rank] + beside_bytes) and all(
        _has_room(now.cluster.node(name), peak_bytes + lent_bytes)
        for name, peak_bytes in zip(before.nodes, before.predicted.peak_memory_bytes, strict=True)
    )
    is_long = _part_bytes(now, after, rank) / rate > max(step_s, LONGEST_READ_S)
    most_s = step_s * (MOST_STEPS_ALONE if before.is_alone else MOST_STEPS)
    if not (has_room and is_long and sums_bytes / rate <= most_s):
        return None
    return OF_LINK * max(rate, _least_uplink(now))


def longest_follow_s(now: Known, node: Node | None) -> float:
    """Return for how long a newcomer may follow and not be as far as the others; 0: nobody knows its link."""
    rate = _rate(node)
    return 0.0 if rate is None else TIMES_READ * _state_bytes(now) / (OF_LINK * rate)


def _has_room(node: Node, num_bytes: float) -> bool:
    return not node.limits_memory or num_bytes <= node.memory_bytes


def to_follow_with(now: Known | None, found: ev.PlannedAside, number: int | None) -> dict[str, Any]:
    """Return what newcomers are told beside their parts of the next plan: whether they follow, and what they build for
    that if it is not their part.

    Args:
        now: what trains.
        found: what is to follow.
        number: of the newcomer that follows; None: nobody does.
    """
    if now is None or found.known is None or number is None:
        return {"follows": False, "whole": None}
    before, after, rank = plan_of(now), plan_of(found.known), found.members.index(number)
    if _goes_on(before, after):
        return {"follows": True, "whole": None}
    whole, schedule = whole_plan(before, after.nodes[rank], after.threads[rank]), whole_schedule(before, now.graph)
    return {"follows": True, "whole": {"plan": codec.encode(whole), "schedule": schedule.to_document()}}


def _can_follow(before: Plan, after: Plan, rank: int, graph: ModelGraph) -> bool:
    """Whether somebody else can play what changes the state in steps of one plan, and the other gives it work.

    One rank alone has sparse gradients as they are; several sum them as dense ones.
    """
    if rank not in after.placement.working:
        return False
    if before.is_alone:
        return _goes_on(before, after) and not any(each.sparse_dims for each in graph.parameters)
    is_synchronous = before.asynchrony is None and after.asynchrony is None
    is_summed = all(each.route == "local" or len(each.members) > 1 for each in before.reductions)
    may_be = before.keeps_snapshots and len(before.placement.working) > 1
    return may_be and is_synchronous and is_summed and not (before.servers or before.splits)


def _goes_on(before: Plan, after: Plan) -> bool:
    """Whether who has played steps of one plan goes on under the other with the model that it has."""
    commit = before.may_be_followed and after.commits
    return commit and list(map(_bucket, lent_by(before, after))) == list(map(_bucket, after.reductions))


def lent_by(before: Plan, after: Plan) -> tuple[Reduction, ...]:
    """Return in which buckets those who train give sums to a newcomer; one alone, in those that follow."""
    if not before.is_alone:
        return before.reductions
    return tuple(replace(each, members=before.placement.working) for each in after.reductions)


def _bucket(reduction: Reduction) -> Reduction:
    return replace(reduction, members=())


def _rate(node: Node | None) -> float | None:
    """Return the larger of two lower bounds, of which one may be far too low: a busy peer sends late."""
    ways = [] if node is None else [way for way in (node.uplink, node.downlink) if way is not None]
    return max((way.bandwidth_bytes_per_s for way in ways), default=None)


def _least_uplink(known: Known) -> float:
    """Return the slowest rate at which those who train send, which were measured at rest; 0: it is not known."""
    nodes = map(known.cluster.node, plan_of(known).nodes)
    return min((node.uplink.bandwidth_bytes_per_s for node in nodes if node.uplink is not None), default=0.0)


def _state_bytes(known: Known) -> int:
    weights_bytes = sum(each.num_bytes for each in known.graph.parameters)
    return _num_copies(known) * weights_bytes + _optimizer_bytes(known)


def _part_bytes(known: Known, plan: Plan, rank: int) -> float:
    """Return how much of the state a rank of a plan holds: weights of all that it computes with, and all that belongs
    to what it updates."""
    reductions = plan.reductions
    foreign_bytes = sum(each.num_bytes for each in reductions if rank not in each.members)
    not_updated = sum(each.num_bytes - each.item_bytes * _num_updated(each, rank) for each in reductions)
    optimizer_bytes = _optimizer_bytes(known) * not_updated / max(1, sum(each.num_bytes for each in reductions))
    return _state_bytes(known) - _num_copies(known) * foreign_bytes - optimizer_bytes


def _num_updated(reduction: Reduction, rank: int) -> int:
    if reduction.route == "server":
        return sum(share.stop - share.start for share in reduction.shares if share.rank == rank)
    return reduction.num_elements if rank in reduction.members else 0


def _num_copies(known: Known) -> int:
    """Of each weight."""
    return 2 if known.graph.averages_weights else 1


def _optimizer_bytes(known: Known) -> int:
    return max((profile.optimizer_bytes for profile in known.profiles.values()), default=0)


class Shadow:
    """One newcomer, from where it has built to where it is as far as the others.

    Attributes:
        number: of the member.
        failure: why it follows no more; empty: nothing speaks against it.
        is_ready: whether it was as far as the others once, so that all may stop.
        longest_s: for which it may follow until it is.
    """

    def __init__(
        self, number: int, membership: Membership, now: Known, then: Known, bytes_per_s: float, longest_s: float
    ) -> None:
        """Args:
        number: of the member.
        membership: of the job.
        now: what trains.
        then: what is to follow.
        bytes_per_s: at which it reads the state; infinite: as fast as it goes.
        longest_s: for which it may follow until it is as far as the others.
        """
        self.number, self.failure, self.is_ready, self.longest_s = number, "", False, longest_s
        self._plan, self._bytes_per_s = plan_of(now), bytes_per_s
        self._reductions = [codec.encode(each) for each in lent_by(self._plan, plan_of(then))]
        self._lenders = tuple(membership.ranks[rank] for rank in self._plan.keepers)
        self._generation, self._beside = membership.generation, membership.reserve()
        self._lent: dict[int, dict[str, Any]] = {}
        self._reached = 0

    @property
    def is_awaited(self) -> bool:
        """Whether it has all that it follows from, and was never as far as the others."""
        return len(self._lent) == len(self._lenders) and not self.is_ready

    def begin(self) -> list[cmd.ToShell]:
        """Return the first order: ranks obey it after the same step."""
        return [self._order((self.number, *self._lenders))]

    def end(self) -> list[cmd.ToShell]:
        """Return the order that nobody gives it anything more."""
        return [self._order(())]

    def reach(self, step: int) -> None:
        """Take in that so many steps are done."""
        self._reached = step

    def hear(self, number: int, message: dict[str, Any]) -> list[cmd.ToShell]:
        """Take in what a rank has lent, or how far the newcomer is; return the order that follows."""
        if message["ticket"] != self._beside:
            return []  # of another one
        unexplained = "it does not say why" if message.get("step") is None else ""
        self.failure = self.failure or message["failed"] or unexplained
        if self.failure:
            return []
        if message["is"] == "followed":
            self.is_ready |= message["step"] >= self._reached - 1
            return []
        self._lent[number] = message
        try:
            return self._follow() if len(self._lent) == len(self._lenders) else []
        except NfoldError as error:
            self.failure = str(error)
            return []

    def _order(self, members: tuple[int, ...]) -> cmd.Send:
        order = {"do": "lend", "ticket": self._beside, "generation": self._beside, "members": list(members)}
        return cmd.Send(self._lenders, {**order, "reductions": self._reductions})

    def _follow(self) -> list[cmd.ToShell]:
        """Let the newcomer read what was lent.

        Raises:
            NfoldError: it is not one whole state.
        """
        told = [self._lent[number] for number in self._lenders]
        steps = {each["step"] for each in told}
        if len(steps) > 1 or self._generation is None:
            raise RunError(f"ranks have lent the state after different steps: {sorted(steps)}")
        step = steps.pop()
        self._reached = max(self._reached, step)
        holdings = [each for number in self._lenders for each in read_rows(number, self._lent[number]["rows"])]
        header = pack_header(
            entries_of(holdings), join_facts([each["facts"] for each in told], step, self._plan.chunks)
        )
        shared = share_out(holdings, holdings)
        if shared is None:
            raise RunError("what ranks have lent is no whole state")
        sources = [
            [each.begin, each.end, 1 + self._lenders.index(each.holder.member), each.holder.origin, each.holder.index,
             each.start, each.holder.entry.item_bytes]
            for each in Donors(self._lenders).sources(self.number, shared, len(header))
        ]  # fmt: skip
        state_bytes = sum(end - begin for begin, end, *_ in sources)
        order = {
            "do": "follow",
            "ticket": self._beside,
            "generation": self._beside,
            "members": [self.number, *self._lenders],
            "state": [self._generation.number, step],
            "sources": sources,
            "sums": [each["sums"] for each in told],
            "bytes_per_s": None if self._bytes_per_s == inf else self._bytes_per_s,
            "most_bytes": TIMES_STATE * state_bytes,
        }
        return [cmd.Send((self.number,), order, header)]
