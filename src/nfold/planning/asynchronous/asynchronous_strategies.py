"""Strategies without a common step: each worker takes the next slice of a batch when it is done with the last.

They are never chosen by prediction. Their steps may be short and still learn less, since gradients are applied to
other values than they were computed from; only the time to a loss says which is better, and no profile knows that. So
they are taken when they are asked for, and predicted all the same.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from nfold.core.placement import Reduction
from nfold.core.plan import Asynchrony, Prediction
from nfold.core.profile import Profile
from nfold.errors import PlanError
from nfold.planning.asynchronous.asynchronous_simulation import Question, SimulatedRun, drift
from nfold.planning.costs.machines import machines_of
from nfold.planning.costs.peak_memory import peak_memory_bytes
from nfold.planning.inputs.facts import Facts, Proposal
from nfold.planning.reductions.buckets import bounds, fill_buckets
from nfold.planning.reductions.data_parallel import (
    data_parallel,
    data_parallel_objection,
    even_owners,
    serving_objection,
)
from nfold.planning.reductions.shares import cut_shares
from nfold.planning.reductions.statistics_groups import statistics_groups

DEFAULT_BOUND = 3
"""Of `ssp`, unless the user says: what Ho et al. (2013) found to gain most of the speed and to lose little."""
_WHOLE = 1 << 62
SLOW = 1.5
"""How much longer than the fastest a worker may take and still serve where others need not."""
NOT_COMPARED = "judged by the time to a loss, not by the step time: ask for it by name"


class AsynchronousParameterServer:
    """No worker waits for another: gradients are applied as they come."""

    name = "ps-async"

    def accepts(self, facts: Facts) -> str | None:
        return _objection(facts)

    def propose(self, facts: Facts) -> Iterator[Proposal]:
        yield from _served(facts, Asynchrony(bound=None, staleness_aware=facts.staleness_aware))


class StaleSynchronous:
    """Like `ps-async`, but no worker is more than so many slices ahead of the slowest; 0: none is."""

    name = "ssp"

    def accepts(self, facts: Facts) -> str | None:
        return _objection(facts)

    def propose(self, facts: Facts) -> Iterator[Proposal]:
        bound = DEFAULT_BOUND if facts.staleness is None else facts.staleness
        yield from _served(facts, Asynchrony(bound=bound, staleness_aware=facts.staleness_aware))


ASYNCHRONOUS = (AsynchronousParameterServer.name, StaleSynchronous.name)


def check_staleness(strategy: str, staleness: int | None, *, aware: bool) -> None:
    """Refuse wishes about staleness that a strategy does not understand.

    Raises:
        PlanError: with the flags that would make sense.
    """
    if staleness is not None and strategy != StaleSynchronous.name:
        raise PlanError(f"--staleness {staleness} is the bound of --strategy ssp, not of {strategy}")
    if staleness is not None and staleness < 0:
        raise PlanError(f"--staleness {staleness}: it must be at least 0, where 0 means that nobody runs ahead")
    if aware and strategy not in ASYNCHRONOUS:
        raise PlanError(
            f"--staleness-aware is for gradients that may be old, as with --strategy {' or '.join(ASYNCHRONOUS)}; "
            f"with {strategy} none is"
        )


def predict(facts: Facts, proposal: Proposal, threads: tuple[int, ...], played: SimulatedRun) -> Prediction:
    """Return the predicted seconds, bytes and memory of a proposal that was played.

    Args:
        facts: what was asked.
        proposal: what was played.
        threads: compute threads of each rank.
        played: the result of playing it.
    """
    return Prediction(
        step_s=played.step_s,
        sent_bytes_per_step=played.sent_bytes_per_step,
        peak_memory_bytes=peak_memory_bytes(facts, proposal, facts.profiles[threads[0]]),
        compute_s=played.compute_s,
        exposed_communication_s=max(0.0, played.step_s - played.compute_s),
    )


def play(facts: Facts, proposal: Proposal, asynchrony: Asynchrony, threads: tuple[int, ...]) -> SimulatedRun:
    """Play a proposal in virtual time.

    Args:
        facts: what was asked.
        proposal: what is played.
        asynchrony: its rules.
        threads: compute threads of each rank.
    """
    profiles = facts.profiles_of(threads)
    return drift(
        Question(
            workers=proposal.workers,
            asynchrony=asynchrony,
            cluster=facts.cluster,
            nodes=facts.nodes[: proposal.placement.world_size],
            threads=threads,
            owners=_owners(proposal),
            batch_size=facts.batch_size,
            least_chunk=facts.graph.least_chunk,
            reductions=proposal.reductions,
            statistics_bytes=sum(
                group.num_elements * group.item_bytes for group in statistics_groups(facts.graph, proposal.placement)
            ),
            compute_s=lambda rank, size: sum(profiles[rank].whole_s(size)),
            load_s_per_sample=profiles[0].load_s_per_sample / _read_at_once(profiles[0], proposal),
            load_wait=profiles[0].load_wait,
            update_s=profiles[0].update.median_s,
        )
    )


def _read_at_once(profile: Profile, proposal: Proposal) -> int:
    """Return how many chunks are read at once: those of a slice, since none knows which one comes next."""
    chunks = max(Counter(_owners(proposal)).values())
    return max(1, min(profile.loaders, chunks))


def serving_ranks(reductions: tuple[Reduction, ...]) -> tuple[int, ...]:
    """Return the ranks that serve, ascending; the first hands out tickets and keeps the batch statistics."""
    return tuple(sorted({share.rank for reduction in reductions for share in reduction.shares}))


def loads_s(facts: Facts, proposal: Proposal, threads: tuple[int, ...]) -> tuple[float, ...]:
    """Return the compute seconds of one slice on each rank."""
    sizes = facts.chunk_sizes(proposal.placement.num_chunks)
    owners = _owners(proposal)
    return tuple(
        sum(sum(profile.whole_s(size)) for size, owner in zip(sizes, owners, strict=True) if owner == rank and size)
        for rank, profile in enumerate(facts.profiles_of(threads))
    )


def _owners(proposal: Proposal) -> tuple[int, ...]:
    return next(iter(proposal.placement.owners.values()))


def _served(facts: Facts, asynchrony: Asynchrony) -> Iterator[Proposal]:
    for serving in _serving(facts):
        owners = even_owners(facts.chunks or facts.workers, facts.workers)
        yield replace(data_parallel(facts, owners, _shared(facts, serving)), asynchrony=asynchrony)


def _serving(facts: Facts) -> Iterator[tuple[int, ...]]:
    """Yield who may serve: everybody, and, where workers serve beside their work, only those that are not slow.

    Every worker needs every share for each of its slices, so a share on a slow worker makes all as slow as that one.
    """
    if facts.servers:
        yield tuple(range(facts.workers, facts.workers + facts.servers))
        return
    yield tuple(range(facts.workers))
    paces = [machine.pace for machine in machines_of(facts)]
    if max(paces) > SLOW * min(paces):
        yield tuple(rank for rank, pace in enumerate(paces) if pace <= SLOW * min(paces))


def _shared(facts: Facts, serving: tuple[int, ...]) -> tuple[Reduction, ...]:
    """Cut all parameters of one type into equal shares: a gradient is pushed when it is whole, so one bucket does."""
    weights = dict.fromkeys(serving, 1.0)
    buckets = fill_buckets(facts.graph, tuple(range(facts.workers)), "server", _WHOLE)
    whole = facts.graph.update_scope == "parameter"
    return tuple(
        replace(bucket, shares=cut_shares(bucket, weights, borders=bounds(bucket, facts.graph) if whole else ()))
        for bucket in buckets
    )


def _objection(facts: Facts) -> str | None:
    return (
        _clipping_objection(facts)
        or _averaging_objection(facts)
        or _weighing_objection(facts)
        or serving_objection(facts)
        or data_parallel_objection(facts)
        or _too_many_servers(facts)
    )


def _clipping_objection(facts: Facts) -> str | None:
    if not facts.graph.clips_gradients:
        return None
    return (
        "the program clips gradients by their norm over all parameters (clip_norm), and no server knows it before all "
        "workers' gradients are there"
    )


def _averaging_objection(facts: Facts) -> str | None:
    if not facts.graph.averages_weights:
        return None
    return "the program averages its weights (averages), and workers never hold all weights of the same step"


def _weighing_objection(facts: Facts) -> str | None:
    """A step's share is part of its gradient only where all of a step are applied at once."""
    if not facts.graph.unweighable or facts.workers == 1 or facts.staleness == 0:
        return None
    return f"{facts.graph.unweighable}, and each worker's gradient is applied with its share of that"


def _too_many_servers(facts: Facts) -> str | None:
    """A server without a share could never say that a step is done."""
    everybody = next(_serving(facts))
    serving = {share.rank for bucket in _shared(facts, everybody) for share in bucket.shares}
    if facts.servers > len(serving):
        return f"the parameters can be cut into {len(serving)} shares, which is fewer than --servers {facts.servers}"
    return None
