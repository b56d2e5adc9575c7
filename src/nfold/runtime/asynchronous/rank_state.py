"""What one rank of an asynchronous plan has of the model's state: for a checkpoint, at a rest, and for a snapshot."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from nfold.core.graph import ModelGraph
from nfold.core.plan import Plan
from nfold.core.schedule import StatisticsGroup
from nfold.planning.asynchronous.asynchronous_strategies import serving_ranks
from nfold.planning.asynchronous.snapshot_steps import SnapshotSteps
from nfold.runtime.asynchronous.snapshot_parts import ServedNames, WorkerPart, shard_offer
from nfold.runtime.checkpoint.agreement import first_diverged
from nfold.runtime.checkpoint.checkpoint_format import Offer, offer
from nfold.runtime.checkpoint.joined_facts import DIVERGED
from nfold.runtime.parameters.weights import Weights
from nfold.runtime.snapshots.shipments import Giving
from nfold.runtime.step.replica import Clock
from nfold.runtime.step.traced_model import modules_of

if TYPE_CHECKING:
    from nfold.runtime.asynchronous.store import Store

KeepSnapshot = Callable[[int, Offer, float, Callable[[], None], frozenset[str]], Giving | None]
"""Given steps done, what is to be kept, when taking it has begun, what to call once all buddies have it, and weights
that the program itself changes; returns how buddies are given it, None if nobody is given any."""


class RankState:
    """The state of one rank in one generation.

    Attributes:
        steps: after which snapshots are due.
        part: of its worker; None: it has none.
        store: of its shard; None: it has none.
        written: weights that the program itself changes.
    """

    def __init__(
        self,
        rank: int,
        graph: ModelGraph,
        plan: Plan,
        groups: tuple[StatisticsGroup, ...],
        weights: Weights,
        steps: SnapshotSteps | None,
        keep: KeepSnapshot | None,
        first_step: int,
        clock: Clock,
    ) -> None:
        """Args:
        rank: which.
        graph: of the model.
        plan: of the generation.
        groups: of batch statistics.
        weights: of the rank's module.
        steps: after which snapshots are due; None: there are none.
        keep: keeps a snapshot, from the thread that serves, or without a shard from the worker's.
        first_step: where training goes on.
        clock: seconds.
        """
        self._rank, self._graph, self._plan, self._groups, self._weights = rank, graph, plan, groups, weights
        self.steps, self._keep, self._clock = steps or SnapshotSteps(0, first_step, first_step), keep, clock
        self._told_at = first_step
        self.written = frozenset(each.name for each in graph.parameters if each.written)
        self._served = ServedNames.of(weights, plan.reductions, modules_of(graph, groups))
        given = (weights.model, self.steps, self._served.all, self.written, rank)
        self.part = WorkerPart(*given) if rank < plan.workers else None
        self.store: Store | None = None

    def offer(self, *, with_optimizer: bool) -> Offer:
        """Return what only this rank holds of the whole model while all rest, and of the optimizer's if wanted."""
        keeper = serving_ranks(self._plan.reductions)[0] if self._groups else 0
        kept = [module for operator in self._graph.operators for module in operator.statistics]
        updaters = (self.store.updaters if self.store is not None else {}) if with_optimizer else None
        modules = dict.fromkeys(kept) if self._rank == keeper else ()
        return offer(self._rank, self._plan.reductions, updaters, self._weights, modules)

    def held(self, step: int, *, is_checked: bool) -> Offer:
        """Return what this rank has after so many steps while all rest: the same pieces as of a snapshot.

        So it does not matter which of both a member holds. What its worker has of others' shards is not counted.

        Args:
            step: steps done.
            is_checked: whether to look if all is numbers; a pass over the weights.
        """
        found = self.snapshot(step)
        if is_checked:
            found.facts[DIVERGED] = first_diverged(self._rank, self._plan.reductions, self._weights.parameters)
        return found

    def snapshot(self, step: int) -> Offer:
        """Return what this rank has after so many steps, while its shard applies nothing; others may be further."""
        found = shard_offer(self.store, self._weights, self._served)
        return found if self.part is None else self.part.add_to(found, step)

    def keep(self, step: int, begin_s: float, given: Callable[[], None]) -> Giving | None:
        """Keep a snapshot, of which all steps have been reported; return as `KeepSnapshot`."""
        if self._keep is None:
            return None
        return self._keep(step, self.snapshot(step), begin_s, given, self.written)

    def keep_until(self, steps_done: int) -> None:
        """Keep all snapshots that are due by then, on a rank without a shard, which knows of all up to there."""
        due, self._told_at = self.steps.within(self._told_at, steps_done), steps_done
        for step in due:
            self.keep(step, self._clock(), _nothing)


def _nothing() -> None:
    """Nobody waits for the buddies of a rank without a shard."""
