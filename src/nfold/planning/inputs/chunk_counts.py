"""Into how many chunks a batch may be cut where operators are placed, and who gets how many of them.

How many samples each chunk has is decided in `core/chunks.py`.
"""

import heapq

from nfold.core.chunks import filled_chunks
from nfold.core.graph import ModelGraph
from nfold.errors import ProgramError
from nfold.planning.inputs.facts import Facts

MULTIPLES = (1, 2, 4)
"""Chunks for each worker: more keep a pipeline fuller and follow unequal speeds better, and each computes less well."""
MOST_CHUNKS = 16
"""Unless there are so many workers that this would not be two for each."""


def chunk_counts(facts: Facts, sharing: int | None = None) -> tuple[int, ...]:
    """Return the numbers of chunks that are worth a proposal, ascending; only the user's where there is one.

    A batch that cannot be cut is one chunk.

    Args:
        facts: what was asked.
        sharing: workers that share the batch; None: all of them.
    """
    if facts.chunks is not None:
        return (facts.chunks,)
    return (
        (1,)
        if facts.graph.indivisible
        else worthwhile_counts(sharing or facts.workers, facts.batch_size, facts.graph.least_chunk)
    )


def worthwhile_counts(workers: int, batch_size: int, least: int = 2) -> tuple[int, ...]:
    """Return the numbers of chunks that are worth a proposal, ascending.

    A chunk has at least two samples where there are enough for all workers; else `least` (see `chunk_sizes`).
    """
    limit = min(batch_size // 2, max(MOST_CHUNKS, 2 * workers))
    counts = tuple(workers * multiple for multiple in MULTIPLES if workers * multiple <= limit)
    return counts or (filled_chunks(batch_size, workers, least),)


def tell_filled(graph: ModelGraph, batch_size: int, num_chunks: int) -> str:
    """Say how many chunks of a full batch hold samples where not all do, and why none may have a single sample."""
    why = f"{_who(graph)} does not compute on one" if graph.least_samples > 1 else graph.why_pairs
    return (
        f"a batch of {batch_size} samples fills {filled_chunks(batch_size, num_chunks)} of {num_chunks} chunks, since "
        f"each has two samples or more ({why})"
    )


def chunk_notes(graph: ModelGraph, batch_size: int, num_chunks: int) -> tuple[str, ...]:
    """Return notes about chunks that stay empty in every step; none where there are none."""
    if filled_chunks(batch_size, num_chunks, graph.least_chunk) >= min(num_chunks, batch_size):
        return ()
    return (f"{tell_filled(graph, batch_size, num_chunks)}; the others stay empty",)


def check_samples(graph: ModelGraph, num_samples: int) -> None:
    """Refuse batches of fewer samples than the program computes on.

    Raises:
        ProgramError: with the numbers and the module that needs more.
    """
    if num_samples < graph.least_samples:
        count = f"{num_samples} sample{'s' if num_samples != 1 else ''}"
        raise ProgramError(
            f"{_who(graph)} does not compute on {count}, which is all that a batch has: it gives "
            f"{graph.least_samples_error}. Use a batch size of at least {graph.least_samples}."
        )


def _who(graph: ModelGraph) -> str:
    """Name what does not compute on a single sample."""
    return f"module {graph.least_samples_module}" if graph.least_samples_module else "the program"


def share_chunks(
    num_chunks: int,
    chunk_seconds: tuple[float, ...],
    least: tuple[int, ...] = (),
    beside_seconds: tuple[float, ...] = (),
) -> tuple[int, ...]:
    """Return how many chunks each of some ranks gets so that the last of them is done as early as possible.

    Args:
        num_chunks: to be shared.
        chunk_seconds: that a chunk takes each rank.
        least: that each gets at least, no more than there are; empty: none.
        beside_seconds: that a step takes each rank beside its chunks, if it gets any; empty: none.

    Returns:
        One number per rank; equal ranks differ by one at most, earlier ones have more. O(chunks log ranks).
    """
    counts = list(least) or [0] * len(chunk_seconds)
    beside_s = beside_seconds or (0.0,) * len(counts)
    ends = [(beside_s[index] + (counts[index] + 1) * seconds, index) for index, seconds in enumerate(chunk_seconds)]
    heapq.heapify(ends)
    for _ in range(num_chunks - sum(counts)):
        end_s, index = ends[0]
        counts[index] += 1
        heapq.heapreplace(ends, (end_s + chunk_seconds[index], index))
    return tuple(counts)


def deal(counts: tuple[int, ...]) -> tuple[int, ...]:
    """Return whose turn each chunk is when everybody's turns are spread evenly over the step.

    So ranks that share a stage work side by side on what the stage before has finished.

    Args:
        counts: chunks of each.

    Returns:
        For each chunk the position of its owner in `counts`.
    """
    turns = [
        ((turn + 0.5) / count, position) for position, count in enumerate(counts) if count for turn in range(count)
    ]
    return tuple(position for _, position in sorted(turns))
