"""What a job plans with, and what it says of a plan: for one choice of workers and servers. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

from nfold.core import codec
from nfold.core.cluster import Cluster
from nfold.core.graph import ModelGraph
from nfold.core.job import JobSettings, Known
from nfold.core.plan import Plan
from nfold.core.profile import Profile
from nfold.core.residency import PlacedRun
from nfold.planning.asynchronous.asynchronous_strategies import play
from nfold.planning.choosing.candidates import simulate_proposal
from nfold.planning.choosing.early_checks import (
    RunSteps,
    averages_notes,
    fade_notes,
    loaders_notes,
    mean_notes,
    mode_notes,
    room_notes,
    run_notes,
    snapshot_notes,
    time_notes,
)
from nfold.planning.choosing.first_step import check_first_step, first_step_notes
from nfold.planning.choosing.granted_time import grant_notes
from nfold.planning.choosing.search import plan
from nfold.planning.inputs.facts import Facts, proposal_of
from nfold.planning.residency.epoch_steps import EpochSteps
from nfold.planning.residency.placed_chunks import check_least, check_whole_chunks, shares_of
from nfold.planning.residency.resident_order import count_samples, epoch_steps
from nfold.planning.scheduling.rank_schedules import rank_schedules
from nfold.runtime.control import commands as cmd
from nfold.runtime.coordinator.same_program import averages_of
from nfold.runtime.measuring.probing_rounds import with_fast_links
from nfold.runtime.measuring.slowness import expected_times_s, expected_waits_s
from nfold.runtime.measuring.unsent_bytes import unsent_bytes

Ready = dict[str, Any]
"""What a rank told of the program: samples, batch size, epochs, chunks, and of the threads that it may have."""
OFTEN = 3
"""Steps between two rests: with fewer, most steps end with one or follow one."""
SLOW_BYTES_PER_S = 125_000
"""A link that is declared slower takes longer to probe than a plan takes to make, so that is tried before."""


class JobPlanning:
    """Plans, and predicts steps of plans, for one number of workers and servers."""

    def __init__(self, settings: JobSettings, first_step: int = 0) -> None:
        self.settings, self._first_step = settings, first_step

    def of(self, chosen: Plan) -> "JobPlanning":
        """Return the planning of a plan's ranks alone: others were let go."""
        nodes = chosen.nodes if self.settings.nodes else ()
        settings = replace(self.settings, workers=chosen.workers, servers=chosen.servers, nodes=nodes)
        return JobPlanning(settings, self._first_step)

    def run_steps(self, ready: Ready) -> RunSteps:
        """Return how many steps the run takes, and how they are spread over epochs."""
        spread = ready.get("epoch_steps") or EpochSteps.even(-(-ready["num_samples"] // ready["batch_size"]))
        asked = max((trial.steps for trial in self.settings.trials), default=self.settings.steps)
        return RunSteps(
            num_samples=ready["num_samples"],
            batch_size=ready["batch_size"],
            total_steps=asked or spread.first_step(ready["epochs"]),
            first_step=self._first_step,
            spread=spread,
        )

    def notes(self, ready: Ready, chosen: Plan, graph: ModelGraph) -> tuple[str, ...]:
        """Return notes for the user about the planned run, beside those of the plan itself.

        Raises:
            PlanError: its hosts are taken back before anything of it is kept.
        """
        settings, run_steps = self.settings, self.run_steps(ready)
        step_s, limit_s, every = chosen.predicted.step_s, settings.stop_after_s, settings.checkpoint_every
        return (
            *run_notes(
                run_steps,
                checkpoint_every=settings.checkpoint_every,
                has_metrics=bool(ready["has_metrics"]),
                has_test=bool(ready["has_test"]),
            ),
            *averages_notes(averages_of(ready), run_steps, graph),
            *loaders_notes(ready["loaders"], chosen.loaders, chosen.workers),
            *mode_notes(ready["set_to_train"]),
            *mean_notes(ready["not_means"], run_steps),
            *fade_notes(ready["schedule_fade"], run_steps),
            *first_step_notes(chosen, settings.first_step_limit_s),
            *room_notes(None if settings.plan_only or settings.place else settings.hosts, chosen.chunks),
            *snapshot_notes(settings.protect, is_on=settings.keeps_snapshots, is_replicated=chosen.is_replicated),
            *time_notes(run_steps, step_s, limit_s, every),
            *grant_notes(None if settings.plan_only else settings.grant, run_steps, step_s, limit_s, every),
        )

    def foresee(self, graph: ModelGraph, profiles: dict[int, Profile], declared: Cluster, ready: Ready) -> None:
        """Refuse at once what declared links are too slow for, before they are probed.

        A plan takes a moment, so only where a link is very slow, or gradients need much of the limit to cross it.

        Raises:
            PlanError: nothing fits, or a step would take longer than anybody waits.
        """
        nodes = [declared.node(name) for name in dict.fromkeys(self.nodes(declared))]
        channels = [channel for node in nodes for channel in (node.uplink, node.downlink) if channel is not None]
        slowest = min((channel.bandwidth_bytes_per_s for channel in channels), default=inf)
        least_s = self.settings.first_step_limit_s / 2
        if slowest < max(SLOW_BYTES_PER_S, graph.parameter_bytes / least_s):
            self.plan(Known(graph=graph, profiles=profiles, cluster=with_fast_links(declared)), ready)

    def plan(self, known: Known, ready: Ready, strategy: str | None = None) -> Plan:
        """Return the plan.

        Args:
            known: what was measured.
            ready: what ranks told of the program.
            strategy: None: that which was asked for.

        Raises:
            PlanError: nothing fits, or a step would take longer than anybody waits.
        """
        facts, strategy = (
            self.facts(known.graph, known.profiles, known.cluster, ready),
            strategy or self.settings.strategy,
        )
        chosen = plan(facts, strategy)
        if not self.settings.plan_only:
            check_first_step(facts, strategy, chosen, self.settings.first_step_limit_s)
        return chosen

    def expected_s(self, known: Known, chosen: Plan, ready: Ready) -> dict[str, float]:
        """Return the seconds that everything should take which is watched while training; see `slowness`."""
        if chosen.world_size == 1 or (chosen.asynchrony is not None and self._rests_often(ready)):
            return {}
        facts, proposal = self.facts(known.graph, known.profiles, known.cluster, ready), proposal_of(chosen)
        if chosen.asynchrony is not None:
            nodes = replace(facts, nodes=chosen.nodes)
            played = play(nodes, proposal, chosen.asynchrony, chosen.threads)
            return expected_waits_s(played.waits_s, played.step_s)
        return expected_times_s(simulate_proposal(facts, chosen.strategy, proposal).trace)

    def predicted_s(self, known: Known, chosen: Plan, ready: Ready) -> float:
        """Return the seconds of a plan's step with the links of `known`, which may have changed since it was made."""
        facts = self.facts(known.graph, known.profiles, known.cluster, ready)
        return simulate_proposal(facts, chosen.strategy, proposal_of(chosen)).predicted.step_s

    def _rests_often(self, ready: Ready) -> bool:
        """Whether workers of an asynchronous plan wait for each other at most steps, of which no prediction knows."""
        every = self.settings.checkpoint_every or OFTEN
        per_epoch = -(-ready["num_samples"] // ready["batch_size"])
        return self.settings.lockstep or min(every, per_epoch) < OFTEN

    def nodes(self, cluster: Cluster) -> tuple[str, ...]:
        """Return the name of each rank's node."""
        return self.settings.nodes or (cluster.nodes[0].name,) * self.settings.world_size

    def facts(self, graph: ModelGraph, profiles: dict[int, Profile], cluster: Cluster, ready: Ready) -> Facts:
        """Return the planning question that strategies are asked."""
        return Facts(
            graph=graph,
            profiles=profiles,
            cluster=cluster,
            nodes=self.nodes(cluster),
            workers=self.settings.workers,
            servers=self.settings.servers,
            batch_size=ready["batch_size"],
            chunks=ready["chunks"],
            staleness=self.settings.staleness,
            staleness_aware=self.settings.staleness_aware,
            evaluates=bool(ready["has_test"]) and self.settings.evaluate,
            keeps_snapshots=self.settings.keeps_snapshots,
            chunks_are_settled=self.settings.begun is not None,
            chunk_shares=tuple(ready.get("chunk_shares", ())),
            fraction_bits=ready["gradients"]["fraction_bits"] if self.settings.exact else None,
            may_rest=frozenset(ready.get("may_rest", ())),
        )


def with_placed(ready: Ready, placed: Sequence[PlacedRun]) -> Ready:
    """Return what ranks told, with epochs, chunks and shares of samples that are trained on where they live."""
    if not placed:
        return ready
    run = placed[-1]
    samples = {
        "num_samples": count_samples(run, run.epochs[-1].from_epoch),
        "epoch_steps": epoch_steps(placed, ready["batch_size"]),
    }
    return {**ready, **samples, "loaders": 0, "chunks": len(run.members), "chunk_shares": shares_of(run)}


def build_orders(
    known: Known,
    chosen: Plan,
    total_steps: int,
    checkpoint: bytes = b"",
    placed: Sequence[PlacedRun] = (),
    seed: int = 0,
) -> list[cmd.Order]:
    """Return the orders that make every rank of a plan build its part, one for each rank.

    Args:
        known: graph, profiles and machines that the plan rests on.
        chosen: the plan.
        total_steps: of the run.
        checkpoint: header of the state to begin with; empty: a new model.
        placed: who trains on which samples, the last of them from the next step on; empty: all ranks read all.
        seed: of the program, where samples are placed.

    Raises:
        PlanError: samples cannot be trained on where they live under this plan, or a chunk would have too few.
    """
    if placed:
        check_whole_chunks(chosen, placed[-1])
        check_least(placed, chosen.batch_size, known.graph, seed)
    order = {
        "do": "build",
        "graph": codec.encode(known.graph),
        "plan": codec.encode(chosen),
        "unsent_bytes": unsent_bytes(known.cluster, chosen.nodes),
        "total_steps": total_steps,
        "placed": [codec.encode(each) for each in placed],
        "moves": [],
        "state": None,
        "protect": 0,
        "commits": False,
    }
    schedules = rank_schedules(chosen, known.graph, known.profiles)
    documents = [{**order, "schedule": own.to_document()} for own in schedules]
    return [cmd.Order((rank,), document, checkpoint) for rank, document in enumerate(documents)]
