"""Which worker computes which chunks where each has the whole model: as many to each, and by their speeds."""

from collections.abc import Iterator

from nfold.planning.costs.machines import paces_of
from nfold.planning.inputs.chunk_counts import share_chunks
from nfold.planning.inputs.facts import Facts
from nfold.planning.reductions.data_parallel import even_owners

LEAST_GAIN = 0.1
"""Of the slowest worker's seconds: for less, equal shares stay, so that who adds what does not hang on chance."""


def dealt_chunks(facts: Facts) -> Iterator[tuple[int, ...]]:
    """Yield the owner of each chunk, in runs: in equal shares, then by speed where the slowest is then done earlier.

    By speed, who may rest may get no chunk: the speed of others was only measured for a moment, before they trained.
    """
    chunks = facts.chunks or facts.workers
    even = even_owners(chunks, facts.workers)
    yield even
    paces = () if facts.chunk_shares else paces_of(facts, facts.threads(facts.workers), chunks)
    if not paces:
        return
    least = tuple(int(name not in facts.may_rest) for name in facts.nodes[: facts.workers])
    counts = share_chunks(chunks, paces, least)
    by_speed = tuple(worker for worker, count in enumerate(counts) for _ in range(count))
    if _slowest_s(by_speed, paces) < (1 - LEAST_GAIN) * _slowest_s(even, paces):
        yield by_speed


def _slowest_s(owners: tuple[int, ...], paces: tuple[float, ...]) -> float:
    return max(owners.count(worker) * pace for worker, pace in enumerate(paces))
