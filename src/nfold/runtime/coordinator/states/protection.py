"""When ranks keep snapshots, and who gives whom what nobody else has of them. Pure.

built, every --> snapshot: all have told what they hold, and what keeping it took
             --> protect: a better number of steps between, and buddies for what one host has alone
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nfold.core.cluster import Cluster
from nfold.core.job import JobSettings
from nfold.core.options.protection import FIRST_EVERY, read_protect, steps_between
from nfold.core.plan import Plan
from nfold.core.text.units import count, seconds, size
from nfold.planning.choosing.early_checks import snapshot_notes
from nfold.runtime.control import commands as cmd
from nfold.runtime.coordinator.members.membership import Membership
from nfold.runtime.coordinator.states.holdings import Holding, share_out
from nfold.runtime.coordinator.states.sources import held_alone
from nfold.runtime.coordinator.states.state_ledger import StateLedger, ToldState

if TYPE_CHECKING:
    from nfold.core.members import Generation

_OTHERWISE = 1.5
"""A number of steps that is this much larger or smaller is worth an order."""
_NEVER = -1
_RATE_MARGIN = 1.25
"""A buddy has everything this much before it must."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """When snapshots are taken."""

    every: int
    """Steps from one to the next; 0: none are taken."""
    lag: int
    """Steps after which a buddy must have it; 0: ranks wait for that."""

    @classmethod
    def of(cls, most_steps: int, *, ships: bool) -> "Rhythm":
        """Return the rhythm in which a loss costs at most so many steps."""
        every = (most_steps + 1) // 2 if ships else most_steps  # a buddy has each before the next one is taken
        return cls(every, most_steps - every if ships else 0)


class Protection:
    """Snapshots of the generations of one job."""

    def __init__(self, settings: JobSettings, ledger: StateLedger, membership: Membership) -> None:
        self._protect, self._lasts_s = settings.protect, float(settings.hosts_last)
        self._wish = read_protect(settings.protect)
        self._is_on = settings.keeps_snapshots
        self._ledger, self._membership = ledger, membership
        self._members: tuple[int, ...] = ()
        self._keepers: tuple[int, ...] = ()
        """Those that have a part of the state: only they take snapshots."""
        self._generation: Generation | None = None
        self._number = 0
        self._rhythm, self._commits = Rhythm(0, 0), False
        self._told_commits: bool | None = None
        """Whether the user was told that no step is lost with a host; None: the plan has told what one costs."""
        self._cost_s: float | None = None
        self._link_bytes_per_s: float | None = None
        self._other_at = self._ordered_at = _NEVER
        """Steps of the last snapshot of which somebody told other pieces, and of that for which buddies were chosen."""
        self._is_told = False

    def begin(self, plan: Plan, cluster: Cluster) -> list[cmd.Command]:
        """Take in that a generation begins under a plan; return what to tell where a lost host costs otherwise now."""
        self._members = self._membership.ranks[: plan.world_size]
        self._keepers = tuple(self._members[rank] for rank in plan.keepers)
        self._generation = self._membership.generation
        is_on = self._is_on and plan.world_size > 1
        self._commits = is_on and plan.is_replicated
        # Ranks that wait for no step change to another rhythm late: it is what it will be once buddies are given any.
        ships, most_steps = plan.asynchrony is not None, self._wish.most_steps or FIRST_EVERY
        self._rhythm = Rhythm.of(most_steps, ships=ships) if is_on else Rhythm(0, 0)
        self._cost_s, self._other_at, self._ordered_at = None, _NEVER, _NEVER
        rates = [node.uplink.bandwidth_bytes_per_s for node in cluster.nodes if node.uplink and node.name in plan.nodes]
        self._link_bytes_per_s = min(rates, default=None)
        before = self._told_commits
        if is_on or before is None:
            self._told_commits = self._commits
        if before in (None, self._told_commits):
            return []
        self._is_told = False  # with what a lost host costs now
        changed = "" if self._commits else "not each rank has the whole state any more: "
        texts = snapshot_notes(self._protect, is_on=True, is_replicated=self._commits)
        return [cmd.Noted(f"note: {changed}{text}") for text in texts]

    @property
    def wishes(self) -> dict[str, Any]:
        """What orders to build say of it: steps between snapshots, and whether each step is committed by all."""
        return {"protect": self._rhythm.every, "commits": self._commits}

    def take(self, rank: int, message: Mapping[str, Any], step_s: float | None) -> list[cmd.Command]:
        """Take in what a rank tells of a snapshot; return the orders that follow.

        Args:
            rank: that tells it.
            message: what it tells, and after how many steps.
            step_s: of a step, on average where steps are not alike; None: not known yet.
        """
        state = self.note(rank, message)
        if state is None:
            return []
        if message["rows"] is not None:
            self._other_at = max(self._other_at, message["step"])
        if not state.is_whole:
            return []
        if state.cost_s:  # where one rank has waited, training has
            self._cost_s = min(state.cost_s, self._cost_s or state.cost_s)
        return self._order(state, step_s)

    def note(self, rank: int, message: Mapping[str, Any]) -> ToldState | None:
        """Take in what a rank tells of a snapshot; return what all have told of that one, None if it tells of none."""
        if message["is"] != "snapshot" or self._generation is None or self._members[rank] not in self._keepers:
            return None
        label = (self._generation.number, message["step"])
        return self._ledger.take(label, self._keepers, self._members[rank], message)

    def _order(self, state: ToldState, step_s: float | None) -> list[cmd.Command]:
        shipped = self._buddies(state)
        rhythm = self._best(shipped, step_s)
        if not (shipped and self._other_at > self._ordered_at) and rhythm == self._rhythm:
            return self._tell(shipped, rhythm, step_s)
        self._ordered_at, self._rhythm = state.step, rhythm
        ranks, shipments = tuple(range(len(self._members))), self._shipments(shipped)
        told = {"every": rhythm.every, "lag": rhythm.lag, "shipments": shipments}
        order = {"do": "protect", **told, "bytes_per_s": self._rate(shipped, rhythm, step_s)}
        return [cmd.Order(ranks, order), *self._tell(shipped, rhythm, step_s)]

    def _best(self, shipped: Sequence[tuple[Holding, int]], step_s: float | None) -> Rhythm:
        """Return the rhythm that was asked for, or that costs least; the one of now where another is hardly better."""
        if self._wish.most_steps is not None:
            return Rhythm.of(self._wish.most_steps, ships=bool(shipped))
        now, ships = self._rhythm, bool(shipped)
        if step_s is None or self._cost_s is None:
            return Rhythm.of(now.every + now.lag, ships=ships)
        sent_s = _most_sent(shipped) / self._link_bytes_per_s if self._link_bytes_per_s else 0.0
        best = steps_between(self._cost_s + sent_s, step_s, self._lasts_s / len(self._members))
        before = now.every + now.lag
        is_other = max(best, before) > _OTHERWISE * min(best, before)
        return Rhythm.of(best if is_other else before, ships=ships)

    def _buddies(self, state: ToldState) -> list[tuple[Holding, int]]:
        """Return what one host has alone, and the rank that is to have it too."""
        whole, hosts = state.holdings, self._hosts()
        shared = share_out(whole, whole) or []
        found = []
        for host in sorted(set(hosts)):
            alone = held_alone(shared, [member for member, at in zip(self._members, hosts, strict=True) if at == host])
            found += [(each, self._buddy(self._members.index(each.member), hosts)) for each in alone]
        return found

    def _hosts(self) -> list[str]:
        """The host of each rank; where all share one, each counts as one."""
        hosts = [self._membership.member(number).host for number in self._members]
        return hosts if len(set(hosts)) > 1 else [f"{number:09}" for number in self._members]

    @staticmethod
    def _buddy(rank: int, hosts: Sequence[str]) -> int:
        later = ((rank + step) % len(hosts) for step in range(1, len(hosts)))
        return next(each for each in later if hosts[each] != hosts[rank])

    def _shipments(self, shipped: Sequence[tuple[Holding, int]]) -> list[list[Any]]:
        """Return one row for each pair of ranks, as `Shipment.from_row` reads it."""
        pairs: dict[tuple[int, int], list[Holding]] = {}
        for each, target in shipped:
            pairs.setdefault((each.member, target), []).append(each)
        rows = []
        for (member, target), holdings in pairs.items():
            self._number += 1
            pieces = [
                [each.index, each.entry.name, each.entry.dtype, list(each.entry.shape), each.start, each.stop]
                for each in holdings
            ]
            rows.append([self._number, self._members.index(member), target, member, pieces])
        return rows

    def _rate(self, shipped: Sequence[tuple[Holding, int]], rhythm: Rhythm, step_s: float | None) -> float | None:
        """Return how fast a rank gives its buddy what it must have in time; None: as fast as it goes."""
        if not rhythm.lag or not step_s or not shipped:
            return None
        return _RATE_MARGIN * _most_sent(shipped) / (rhythm.lag * step_s)

    def _tell(self, shipped: Sequence[tuple[Holding, int]], rhythm: Rhythm, step_s: float | None) -> list[cmd.Command]:
        if self._is_told or not step_s or self._cost_s is None:
            return []
        self._is_told = True
        costs = f": a lost host costs at most {count(rhythm.every + rhythm.lag, 'step')}" if not self._commits else ""
        sent = f" and {size(_most_sent(shipped))} for another host" if shipped else ""
        return [
            cmd.Noted(
                f"note: ranks keep a snapshot in memory every {count(rhythm.every, 'step')}, which takes "
                f"{seconds(self._cost_s)}{sent}{costs}"
            )
        ]


def _most_sent(shipped: Sequence[tuple[Holding, int]]) -> int:
    """Return the most bytes that one member gives of a snapshot."""
    sent: dict[int, int] = {}
    for each, _ in shipped:
        sent[each.member] = sent.get(each.member, 0) + (each.stop - each.start) * each.entry.item_bytes
    return max(sent.values(), default=0)
