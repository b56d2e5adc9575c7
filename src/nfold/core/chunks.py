"""How many samples each chunk of a batch gets."""


def filled_chunks(batch_size: int, num_chunks: int, least: int = 2) -> int:
    """Return how many chunks of a batch hold samples: the first ones. See `chunk_sizes`."""
    return max(1, min(num_chunks, batch_size // least))


def chunk_sizes(batch_size: int, num_chunks: int, least: int = 2) -> tuple[int, ...]:
    """Cut a batch into chunks as equal as possible, larger ones first.

    A batch too small to give every chunk `least` samples (the last of an epoch) is cut into fewer chunks and the rest
    stay empty.

    Args:
        batch_size: samples to cut.
        num_chunks: to cut them into.
        least: samples of a chunk: two, since batch statistics may need them, or one where the batch is so small that
            some chunks would else stay empty in every step, and the program computes the same on one.

    Returns:
        One size per chunk; they sum to `batch_size`.
    """
    filled = filled_chunks(batch_size, num_chunks, least)
    size, extra = divmod(batch_size, filled)
    return tuple(size + (chunk < extra) if chunk < filled else 0 for chunk in range(num_chunks))
