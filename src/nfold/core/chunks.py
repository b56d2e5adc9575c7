"""How many samples each chunk of a batch gets."""

from collections.abc import Sequence

from nfold.errors import InternalError


def filled_chunks(batch_size: int, num_chunks: int, least: int = 2) -> int:
    """Return how many chunks of a batch hold samples: the first ones. See `chunk_sizes`."""
    return max(1, min(num_chunks, batch_size // least))


def chunk_sizes(batch_size: int, num_chunks: int, least: int = 2, shares: Sequence[float] = ()) -> tuple[int, ...]:
    """Cut a batch into chunks as equal as possible, larger ones first.

    A batch too small to give every chunk `least` samples (the last of an epoch) is cut into fewer chunks and the rest
    stay empty.

    Args:
        batch_size: samples to cut.
        num_chunks: to cut them into.
        least: samples of a chunk: two, since batch statistics may need them, or one where the batch is so small that
            some chunks would else stay empty in every step, and the program computes the same on one.
        shares: of each chunk, where chunks hold what lives on a node; any of them may then stay empty. Empty: equal.

    Returns:
        One size per chunk; they sum to `batch_size`.
    """
    if shares:
        return _by_shares(batch_size, num_chunks, shares)
    filled = filled_chunks(batch_size, num_chunks, least)
    size, extra = divmod(batch_size, filled)
    return tuple(size + (chunk < extra) if chunk < filled else 0 for chunk in range(num_chunks))


def _by_shares(batch_size: int, num_chunks: int, shares: Sequence[float]) -> tuple[int, ...]:
    """Round shares to whole samples: what is left over goes to those that rounding down took most from."""
    if len(shares) != num_chunks:
        raise InternalError(f"{len(shares)} shares of a batch that is cut into {num_chunks} chunks")
    exact = [batch_size * share / sum(shares) for share in shares]
    sizes = [int(each) for each in exact]
    taken = sorted(range(num_chunks), key=lambda chunk: sizes[chunk] - exact[chunk])
    for chunk in taken[: batch_size - sum(sizes)]:
        sizes[chunk] += 1
    return tuple(sizes)
