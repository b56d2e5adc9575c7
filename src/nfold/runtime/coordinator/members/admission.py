"""Leads members that have no rank from their hello to where a generation may begin with them. Pure.

    hello ──> load ──> ready ──> is it the same program? ──> listen ──> listening: prepared
                                  └─ no: why, and finish

Where data live on nodes, `reside` comes before `listen`.

The others train meanwhile: nothing here waits. Before they train nobody loads beside them, since they are measured.
"""

from dataclasses import dataclass, replace
from typing import Any

from nfold.core.job import Recipe
from nfold.core.members import Member, find_apart, tell_apart
from nfold.errors import ProgramError
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.members import membership as ms
from nfold.runtime.coordinator.members.membership import Decision, Membership
from nfold.runtime.coordinator.placing.living_data import LivingData
from nfold.runtime.coordinator.same_on_all_ranks import Other, check_alike
from nfold.runtime.coordinator.same_program import check_same_recipe

TOO_FEW = "fewer than the run may go on with would stay: it keeps a checkpoint and ends"


@dataclass(frozen=True, slots=True)
class Standard:
    """The program and environment that a newcomer must equal."""

    load_order: dict[str, Any]
    """As the others were given it."""
    ready: dict[str, Any]
    """What the others told of the program."""
    recipe: Recipe
    living: LivingData | None = None
    """What lives on the nodes of all members; None: every rank reads all data."""


class Admission:
    """Takes members in, and lets those go that have no rank."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._standard: Standard | None = None
        self._unwanted: set[int] = set()
        """Members that are to leave and have not said hello yet."""
        self._refused: dict[int, str] = {}
        """Why members were not let in that have not left yet."""

    def open(self, standard: Standard) -> list[cmd.ToShell]:
        """Let newcomers load the program from now on; return the orders for those that already wait."""
        self._standard = standard
        return [command for number in self._membership.coming for command in self._welcome(number, standard)]

    def hear(self, said: ev.Said) -> list[cmd.ToShell]:
        """Take in what a member without a rank says; return the commands that follow."""
        number, message = said.member, said.message
        match message["is"]:
            case "hello":
                node = self._membership.node(number)
                host = message["host"] if node is None else node.name
                return self._greet(Member(number=number, host=host, pid=message["pid"]))
            case "ready" if self._standard is not None:
                return self._examine(number, message, self._standard)
            case "resides" if self._standard is not None and self._standard.living is not None:
                self._standard.living.resides(number, message)
                return self._let_listen(number)
            case "listening":
                return self._prepare(number, message)
            case "failed":
                self._membership.take(ms.MemberFailed(number))
                return [self._keep_out(number, f"{message['text'].rstrip('.')}.")]
            case "finished":
                self._membership.take(ms.MemberFinished(number))
        return []

    def release(self, number: int, why: str = "") -> list[cmd.ToShell]:
        """Let a member leave, for a reason: at once if it has no rank, else when the generation ends."""
        if not self._membership.knows(number) and self._membership.node(number) is not None:
            self._unwanted.add(number)
            return []
        if not self._membership.knows(number):
            return [cmd.Noted(f"note: member {number} cannot be let go: nobody has come with that number")]
        if self._membership.rank_of(number) is not None and self._membership.fixed:
            return [cmd.Noted(f"note: {self._name(number)} stays until the end: {self._membership.fixed}")]
        if self._membership.rank_of(number) is not None:
            self._membership.histories.gone(self._membership.member(number).host, why)
        decision = self._membership.take(ms.MemberAnnounced(number))
        if number in self._membership.coming:
            return [cmd.Noted(f"{self._name(number)} leaves before it was let in"), *self._dismiss(number)]
        if decision is Decision.STOP:
            return [cmd.Noted(f"{self._name(number)} is to leave, and {self._membership.needed(number) or TOO_FEW}")]
        return []

    def see_off(self, left: ev.Left) -> list[cmd.ToShell]:
        """Take in that a member without a rank has left; return the commands that follow."""
        if not self._membership.knows(left.member):
            if (node := self._membership.node(left.member)) is not None:
                self._membership.miss(node.name)
            told = f"note: member {left.member} {left.status} before it reached the coordinator. The others go on."
            return [cmd.Noted(told), cmd.LetGo(left.member)]
        is_missed = left.member in self._membership.coming
        self._membership.take(ms.MemberLeft(left.member))
        told = f"note: {self._name(left.member)} {left.status} before it was let in. The others go on."
        why = self._refused.pop(left.member, "")
        gone = cmd.LetGo(left.member, is_lost=is_missed and not why, why=why)
        return [*([cmd.Noted(told)] if is_missed else []), gone]

    def close(self) -> list[cmd.ToShell]:
        """Return the commands that dismiss all members without a rank: the job is over."""
        return [command for number in self._membership.coming for command in self._dismiss(number)]

    def _greet(self, member: Member) -> list[cmd.ToShell]:
        self._membership.take(ms.MemberCame(member))
        if member.number in self._unwanted:
            return self._dismiss(member.number)
        return [] if self._standard is None else self._welcome(member.number, self._standard)

    def _welcome(self, number: int, standard: Standard) -> list[cmd.ToShell]:
        if self._membership.fixed:
            return self.refuse(number, self._membership.fixed)
        node, living = self._membership.node(number), standard.living
        where: dict[str, Any] = {"local_rank": number} if node is None else {"local_rank": 0, "node": node.name}
        if node is not None and living is not None:
            where["lives"] = living.part_on(node.name)
        return [cmd.Send((number,), {**standard.load_order, **where})]

    def _examine(self, number: int, ready: dict[str, Any], standard: Standard) -> list[cmd.ToShell]:
        try:
            check_alike(standard.ready, Other(number, has_rank=False), ready)
            if standard.living is not None:
                host, ranks = self._membership.member(number).host, self._membership.ranks
                ready = standard.living.welcome(number, host, ready, ranks, standard.ready)
            check_same_recipe(standard.ready["batch_size"], standard.recipe, ready)
        except ProgramError as error:
            return self.refuse(number, str(error))
        if standard.living is not None:
            return [cmd.Send((number,), standard.living.reside_order(number))]
        return self._let_listen(number)

    def _let_listen(self, number: int) -> list[cmd.ToShell]:
        return [cmd.Send((number,), {"do": "listen"})]

    def _prepare(self, number: int, message: dict[str, Any]) -> list[cmd.ToShell]:
        """Take in that a member listens; one that some rank could not be connected to does not come in."""
        host, port = message["address"]
        listening = replace(self._membership.member(number), address=(host, port), seen=message.get("seen", ""))
        others = {*self._membership.ranks, *self._membership.coming} - {number}
        if apart := find_apart([*map(self._membership.member, sorted(others)), listening]):
            return self.refuse(number, tell_apart(*apart))
        self._membership.take(ms.MemberPrepared(number, (host, port), listening.seen))
        return [cmd.Noted(f"{self._name(number)} is prepared: it takes part as soon as a plan with it is ready")]

    def refuse(self, number: int, why: str) -> list[cmd.ToShell]:
        """Let a newcomer go, and say why."""
        return [self._keep_out(number, why), *self._dismiss(number)]

    def _keep_out(self, number: int, why: str) -> cmd.Noted:
        """Say why a member is not let in, and keep that for its host."""
        self._refused[number] = f"it is not let in: {why}"
        return cmd.Noted(f"note: {self._name(number)} is not let in: {why} The others go on.")

    def _dismiss(self, number: int) -> list[cmd.ToShell]:
        self._membership.take(ms.MemberFinished(number))
        return [cmd.Send((number,), {"do": "finish", "tag": 0})]

    def _name(self, number: int) -> str:
        member = self._membership.member(number)
        return f"member {number} (on {member.host}, pid {member.pid})"
