"""Which worker computes which chunks where each has the whole model: as many to each, and by their speeds."""

from collections.abc import Iterator

from nfold.planning.costs.machines import all_paces, paces_of
from nfold.planning.inputs.chunk_counts import share_chunks
from nfold.planning.inputs.facts import Facts
from nfold.planning.reductions.data_parallel import even_owners

LEAST_GAIN = 0.1
"""Of the slowest worker's seconds: for less, equal shares stay, so that who adds what does not hang on chance."""
LEAST_GAIN_SEEN = 0.05
"""The same where training has shown how fast all workers are."""


def dealt_chunks(facts: Facts, updated: float) -> Iterator[tuple[int, ...]]:
    """Yield the owner of each chunk, in runs: in equal shares, then by speed where the slowest is then done earlier.

    What a step takes a worker beside its chunks counts: on a slow node, that may be as long as several of them.

    By speed, who may rest may get no chunk: the speed of others was only measured for a moment, before they trained.

    Args:
        facts: what was asked.
        updated: share of the weights' elements that each worker updates.
    """
    chunks = facts.chunks or facts.workers
    even = even_owners(chunks, facts.workers)
    yield even
    threads = facts.threads(facts.workers)
    least = tuple(int(name not in facts.may_rest) for name in facts.nodes[: facts.workers])
    are_seen = not any(least)
    paces = () if facts.chunk_shares else (all_paces if are_seen else paces_of)(facts, threads, chunks)
    if not paces:
        return
    chunk_s = sum(facts.profiles[threads[0]].whole_s(facts.batch_size / chunks)) or 1.0
    chunks_s = tuple(pace * chunk_s for pace in paces)
    beside_s = _beside_chunks_s(facts, threads, updated)
    gain = LEAST_GAIN_SEEN if are_seen else LEAST_GAIN
    counts = share_chunks(chunks, chunks_s, least, beside_s)
    by_speed = tuple(worker for worker, count in enumerate(counts) for _ in range(count))
    if _slowest_s(by_speed, chunks_s, beside_s) < (1 - gain) * _slowest_s(even, chunks_s, beside_s):
        yield by_speed


def _beside_chunks_s(facts: Facts, threads: tuple[int, ...], updated: float) -> tuple[float, ...]:
    """Return the seconds of a step that each worker computes whatever chunks it has: bookkeeping, and its updates."""
    nodes = [facts.cluster.node(name) for name in facts.nodes[: facts.workers]]
    return tuple(
        node.step_cpu_s * node.slowdown(1) + (profile.update_s(updated) / node.speed if updated else 0.0)
        for node, profile in zip(nodes, facts.profiles_of(threads), strict=True)
    )


def _slowest_s(owners: tuple[int, ...], chunks_s: tuple[float, ...], beside_s: tuple[float, ...]) -> float:
    return max(beside_s[worker] + owners.count(worker) * chunks_s[worker] for worker in set(owners))
