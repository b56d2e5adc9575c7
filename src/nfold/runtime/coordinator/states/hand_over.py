"""Hands a training's state from one generation's ranks to the next one's, out of their memory. Pure.

holdings: all tell what they hold ──> somebody leaves that has something alone: it gives that to one who stays
recall: those who are left do     ──> build: who reads what from whom
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nfold.core.graph import ModelGraph
from nfold.core.plan import Plan
from nfold.errors import InternalError
from nfold.planning.operator_parts.splitting import split_graph
from nfold.runtime.checkpoint.joined_facts import UNKEPT, check_agreement, fingerprints_of, join_facts
from nfold.runtime.checkpoint.state_file import pack_header
from nfold.runtime.control import commands as cmd
from nfold.runtime.coordinator.members.membership import Membership
from nfold.runtime.coordinator.rank_requests import Flow, RankRequests
from nfold.runtime.coordinator.states.holdings import Holding, entries_of
from nfold.runtime.coordinator.states.kept_state import KeptState
from nfold.runtime.coordinator.states.recall import recalled_state
from nfold.runtime.coordinator.states.sources import Donors, Source, held_alone
from nfold.runtime.coordinator.states.state_ledger import StateLedger


class HandOver:
    """What the next ranks go on from, where that is in the memory of members."""

    def __init__(self, requests: RankRequests, membership: Membership) -> None:
        self._requests, self._membership = requests, membership
        self.ledger = StateLedger()
        self._state: KeptState | None = None
        self._handed = 0
        self._is_in_files = False

    def keep_in_files(self) -> None:
        """Let no state be taken when all have stopped: each generation begins from a file, so that who goes on with the
        run finds its samples where the file says. What is recalled after a loss has to be kept in one first."""
        self._is_in_files = True

    def forget(self) -> None:
        """Let the next ranks go on from a file, or begin."""
        self._state = None

    def take(self, ranks: tuple[int, ...], step: int, graph: ModelGraph, plan: Plan) -> Flow:
        """Let ranks that have stopped keep what they hold; return the state's header, empty where that cannot be done.

        Args:
            ranks: all of the generation.
            step: steps done.
            graph: of the program.
            plan: of the generation.

        Raises:
            ProgramError: ranks hold different values of the same parameter.
            NonFiniteLoss: training diverged.
        """
        self.forget()
        if self._is_in_files or not set(self._membership.ranks) - set(self._membership.leavers):
            return b""
        told = yield from self._requests.ask(ranks, {"do": "holdings"}, "holdings")
        facts = [told[rank]["facts"] for rank in ranks]
        if any(each[UNKEPT] for each in facts):
            return b""
        check_agreement([fingerprints_of(each) for each in facts], split_graph(graph, plan.splits), step)
        members = self._membership.ranks[: len(ranks)]
        for rank in ranks:
            state = self.ledger.take((self._generation, step), members, members[rank], told[rank])
        held, header = state.holdings, pack_header(entries_of(state.holdings), join_facts(facts, step, plan.chunks))
        self._state = KeptState(self._generation, step, header, held, held)
        return header

    def recall(self, ranks: tuple[int, ...], most_steps: int, chunks: int) -> Flow:
        """Find the newest state that ranks hold whole after others were lost; return it, None: there is none.

        Args:
            ranks: all who are left.
            most_steps: of which enough is known that they may count.
            chunks: of a batch.
        """
        self.forget()
        said = yield from self._requests.ask(ranks, {"do": "recall"}, "recalled")
        by_member = {self._membership.ranks[rank]: answer for rank, answer in said.items()}
        self._state = recalled_state(self.ledger, by_member, most_steps, chunks)
        return self._state

    def needs(self, leaving: Collection[int]) -> bool:
        """Whether ranks that leave have something alone."""
        return self._state is not None and bool(self._alone(self._state, leaving))

    def rescue(self, leaving: Collection[int]) -> Flow:
        """Let ranks that leave give those who stay what they have alone.

        Args:
            leaving: ranks; all ranks are connected.

        Raises:
            InternalError: nobody stays, or elements are lost.
        """
        state, staying = self._state, [rank for rank in range(len(self._membership.ranks)) if rank not in leaving]
        if state is None or not (alone := self._alone(state, leaving)):
            return
        rows, came = [], []
        for count, each in enumerate(alone):
            target = staying[count % len(staying)]
            rows.append(self._handing(each, target))
            came.append(replace(each, member=self._membership.ranks[target]))
        involved = tuple(sorted({rank for row in rows for rank in row[1:3]}))
        order = {"do": "hand", "generation": state.generation, "step": state.step, "handings": rows}
        yield from self._requests.ask(involved, order, "handed")
        self._state = replace(state, here=(*state.here, *came))

    @property
    def header(self) -> bytes:
        """The header of the state that is in memory; empty: none is."""
        return b"" if self._state is None else self._state.header

    def keeping(self) -> list[cmd.Order]:
        """Return orders by which rank 0 sends the file of the state in memory; all ranks are connected.

        Raises:
            InternalError: there is none, or elements are lost.
        """
        state, members = self._state, self._membership.ranks
        shared = None if state is None else state.shared(members)
        if state is None or shared is None:
            raise InternalError("no state is in memory as a whole that could be kept")
        read = [Donors(members).sources(members[0], shared, len(state.header)), *([] for _ in members[1:])]
        return [
            cmd.Order((rank,), {"do": "keep", "state": self._told(state, member, read, rank)}, state.header)
            for rank, member in enumerate(members)
        ]

    def with_sources(self, orders: Sequence[cmd.Order], wishes: Mapping[str, Any]) -> list[cmd.Order]:
        """Return orders to build, one for each rank, with what each rank reads from whom.

        Args:
            orders: as they are.
            wishes: what they say of protection besides.

        Raises:
            InternalError: elements are lost.
        """
        orders = [replace(each, message={**each.message, **wishes}) for each in orders]
        if self._state is None:
            return orders
        state, members = self._state, self._membership.ranks[: len(orders)]
        shared = state.shared(members)
        if shared is None:
            raise InternalError(f"elements of the state after {state.step} steps are lost, and were not given before")
        donors = Donors(members)
        read = [donors.sources(member, shared, len(state.header)) for member in members]
        return [
            replace(order, message={**order.message, "state": self._told(state, members[rank], read, rank)})
            for rank, order in enumerate(orders)
        ]

    def _told(self, state: KeptState, member: int, read: Sequence[Sequence[Source]], rank: int) -> dict[str, Any]:
        """Return what one rank reads, and who reads from it."""
        readers = [
            each for each, own in enumerate(read) if each != rank and any(s.holder.member == member for s in own)
        ]
        sources = list(map(self._row, read[rank]))
        return {"generation": state.generation, "step": state.step, "sources": sources, "readers": readers}

    def _alone(self, state: KeptState, leaving: Collection[int]) -> list[Holding]:
        shared = state.shared(self._membership.ranks)
        if shared is None:
            raise InternalError(f"elements of the state after {state.step} steps are lost before they were given")
        return held_alone(shared, {self._membership.ranks[rank] for rank in leaving})

    def _handing(self, held: Holding, target: int) -> list[Any]:
        self._handed += 1
        entry, source = held.entry, self._membership.ranks.index(held.member)
        what = [held.origin, held.index, entry.name, entry.dtype, list(entry.shape), held.start, held.stop]
        return [self._handed, source, target, *what]

    def _row(self, source: Source) -> list[int]:
        holder, rank = source.holder, self._membership.ranks.index(source.holder.member)
        piece = (holder.origin, holder.index)
        return [source.begin, source.end, rank, *piece, source.start, holder.entry.item_bytes]

    @property
    def _generation(self) -> int:
        if self._membership.generation is None:
            raise InternalError("no generation has begun whose state could be kept")
        return self._membership.generation.number
