"""The ways to spread a step that nfold knows. Adding one is one class here and one name in STRATEGIES."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from nfold.core.placement import Placement, Reduction
from nfold.errors import PlanError
from nfold.planning.asynchronous.asynchronous_strategies import (
    ASYNCHRONOUS,
    AsynchronousParameterServer,
    StaleSynchronous,
)
from nfold.planning.costs.dealt_chunks import dealt_chunks
from nfold.planning.hypergraph.hypergraph_strategy import CONTAINED as _OF_HYPERGRAPH
from nfold.planning.hypergraph.hypergraph_strategy import ByHypergraph
from nfold.planning.inputs.facts import Facts, Proposal
from nfold.planning.reductions.buckets import bounds, fill_buckets
from nfold.planning.reductions.data_parallel import (
    bucket_bytes,
    data_parallel,
    data_parallel_objection,
    local_buckets,
    serving_objection,
)
from nfold.planning.reductions.server_shares import best_shares, link_rates
from nfold.planning.reductions.shares import cut_shares
from nfold.planning.stages.stage_strategies import Hybrid, Pipeline

SERVER_ROUNDS = (4, 8, 16, 32)
"""Into how many rounds of pushing, updating and pulling the whole model may be cut: many overlap better, few cost less.
Which one is taken does not change the result, so the simulator may choose."""
LEAST_SHARE_BYTES = 1 << 14
EVEN = 1.01
"""Shares that differ by less are equal: no probe measures a link more exactly."""


class Strategy(Protocol):
    """Proposes placements, which `search` then simulates."""

    name: str

    def accepts(self, facts: Facts) -> str | None:
        """Return the reason why the strategy cannot be used here; None: it can."""
        ...

    def propose(self, facts: Facts) -> Iterator[Proposal]:
        """Yield placements with their reductions."""
        ...


class Single:
    """Everything on one rank, chunk after chunk."""

    name = "single"

    def accepts(self, facts: Facts) -> str | None:
        if facts.servers:
            return "one worker has nothing to send to a server"
        return None

    def propose(self, facts: Facts) -> Iterator[Proposal]:
        chunks = facts.chunks or 1
        placement = Placement(
            num_chunks=chunks, world_size=1, owners={op.name: (0,) * chunks for op in facts.graph.operators}
        )
        yield Proposal(placement=placement, reductions=local_buckets(facts), workers=1, servers=0)


class Ring:
    """Every worker computes some chunks of the whole model; gradients are summed round a ring."""

    name = "ring"

    def accepts(self, facts: Facts) -> str | None:
        if facts.servers:
            return "a ring has no servers"
        return data_parallel_objection(facts)

    def propose(self, facts: Facts) -> Iterator[Proposal]:
        for owners in dealt_chunks(facts, updated=1.0):
            members = tuple(sorted(set(owners)))
            summed = fill_buckets(facts.graph, members, "ring", bucket_bytes(facts))
            yield data_parallel(facts, owners, summed if len(members) > 1 else local_buckets(facts, members[0]))


class ParameterServer:
    """Every worker computes some chunks; servers sum the gradients, update their shard and send the values back.

    With no dedicated servers each worker also serves an equal share.
    """

    name = "ps"

    def accepts(self, facts: Facts) -> str | None:
        return serving_objection(facts) or data_parallel_objection(facts)

    def propose(self, facts: Facts) -> Iterator[Proposal]:
        if facts.workers == 1 and not facts.servers:
            yield from Ring().propose(facts)
            return
        first = facts.workers if facts.servers else 0
        yield from _served(facts, dict.fromkeys(range(first, facts.workers + facts.servers), 1.0))


class Weighted:
    """Like a parameter server, but each rank serves as much as its link can carry; see
    `planning/reductions/server_shares.py`.

    Equal shares are proposed as well, round a ring or on the servers, for where links are even or there is no hurry.
    """

    name = "weighted"

    def accepts(self, facts: Facts) -> str | None:
        if facts.workers == 1 and facts.servers:
            return "one worker keeps its gradients, and needs no servers"
        return serving_objection(facts) or data_parallel_objection(facts)

    def propose(self, facts: Facts) -> Iterator[Proposal]:
        if facts.workers == 1:
            yield from Ring().propose(facts)
            return
        rates = link_rates(facts.cluster, facts.nodes[: facts.workers + facts.servers])
        best = best_shares(rates[: facts.workers], rates[facts.workers :])
        yield from (ParameterServer() if facts.servers else Ring()).propose(facts)
        if facts.servers or max(best.workers) > EVEN * min(best.workers):
            yield from _served(facts, dict(enumerate((*best.workers, *best.servers))))


STRATEGIES: tuple[Strategy, ...] = (
    Single(),
    Ring(),
    ParameterServer(),
    Weighted(),
    Pipeline(),
    Hybrid(),
    ByHypergraph(),
    AsynchronousParameterServer(),
    StaleSynchronous(),
)
CONTAINED: Mapping[str, tuple[Strategy, ...]] = {ByHypergraph.name: _OF_HYPERGRAPH}
"""Those whose placements a strategy could have found as well, so that they count as its own."""
SERVING = (ParameterServer.name, Weighted.name, *ASYNCHRONOUS)
"""Those that can use dedicated servers."""
PLACING = (Pipeline.name, ByHypergraph.name, Hybrid.name)
"""Those that can share a model among workers whose chunks are fewer than they are; hybrids need two."""
SEARCHED = (Pipeline.name, Hybrid.name, ByHypergraph.name)
"""Those whose placements follow from what operators take and links carry."""
AUTO = "auto"
STRATEGY_NAMES = (*(strategy.name for strategy in STRATEGIES), AUTO)


def objection_to(strategy: Strategy, facts: Facts) -> str | None:
    """Return the reason why a strategy cannot be used here; None: it can."""
    return _resident_objection(strategy.name, facts) or strategy.accepts(facts)


def _resident_objection(name: str, facts: Facts) -> str | None:
    """Return why a strategy would have a rank read samples that do not live on it; None: it would not."""
    count = len(facts.chunk_shares)
    if not count:
        return None
    if name in ASYNCHRONOUS:
        return "a worker takes the next slice of a batch when it is done with the last, wherever its samples live"
    if name in PLACING:
        return "a sample would pass through several ranks, and each rank trains on the samples that live on its node"
    if facts.workers not in (1, count) or (name == Single.name and facts.workers > 1):
        return f"the samples live on {count} nodes, and each trains on its own, as {Ring.name} and ps do"
    if (facts.chunks or facts.workers) != count:
        return f"the samples live on {count} nodes, so a batch has {count} chunks, not {facts.chunks or facts.workers}"
    return None


def _served(facts: Facts, weights: Mapping[int, float]) -> Iterator[Proposal]:
    """Propose servers with these weights, among those with chunks and dedicated ones."""
    for owners in dealt_chunks(facts, updated=0.0 if facts.servers else 1 / facts.workers):
        serving = {rank: weight for rank, weight in weights.items() if rank in owners or rank >= facts.workers}
        if any(serving.values()) and (len(set(owners)) > 1 or facts.servers):
            yield from _in_rounds(facts, owners, serving)


def _in_rounds(facts: Facts, owners: tuple[int, ...], weights: Mapping[int, float]) -> Iterator[Proposal]:
    """Propose servers with these weights, in few rounds and in many; a small model has no room for many."""
    buckets = fill_buckets(facts.graph, tuple(sorted(set(owners))), "server", bucket_bytes(facts))
    in_whole = facts.graph.update_scope == "parameter" or facts.fraction_bits is not None
    seen: set[tuple[Reduction, ...]] = set()
    for rounds in SERVER_ROUNDS:
        reductions = tuple(
            replace(
                bucket,
                shares=cut_shares(
                    bucket,
                    weights,
                    _rounds(facts, bucket, rounds, len(weights)),
                    bounds(bucket, facts.graph) if in_whole else (),
                ),
            )
            for bucket in buckets
        )
        if reductions not in seen:
            seen.add(reductions)
            yield data_parallel(facts, owners, reductions)


def _rounds(facts: Facts, bucket: Reduction, rounds: int, num_serving: int) -> int:
    """A bucket's part of the rounds in which the whole model is reduced."""
    part = round(rounds * bucket.num_bytes / facts.graph.parameter_bytes)
    return max(1, min(part, bucket.num_bytes // (num_serving * LEAST_SHARE_BYTES)))


def named(name: str) -> Strategy:
    """Return a strategy by the name that users type.

    Raises:
        PlanError: there is no such strategy.
    """
    for strategy in STRATEGIES:
        if strategy.name == name:
            return strategy
    raise PlanError(f"unknown strategy {name!r}. Use one of: {', '.join(STRATEGY_NAMES)}")
