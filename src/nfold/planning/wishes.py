"""Refuses wishes that make no sense, with their numbers, before anything is measured or simulated."""

from nfold.errors import PlanError
from nfold.planning.facts import Facts
from nfold.planning.strategies import AUTO, CUTTING, SERVING, named


def check(facts: Facts, strategy: str) -> None:
    """Refuse wishes that make no sense, with their numbers.

    Raises:
        PlanError: see the message.
    """
    check_ranks(strategy, facts.workers, facts.servers)
    check_batch(facts.workers, facts.chunks, facts.batch_size)
    chunks = facts.chunks or (1 if strategy in CUTTING else facts.workers)
    if chunks > 1 and facts.graph.indivisible:
        raise PlanError(
            f"the batch cannot be cut into {chunks} chunks: {facts.graph.indivisible}. Use -n 1, --chunks 1, or "
            f"--strategy {CUTTING[0]}."
        )


def check_batch(workers: int, chunks: int | None, batch_size: int) -> None:
    """Refuse cuts of a batch that make no sense whatever the model is.

    Raises:
        PlanError: see the message.
    """
    chunks = chunks or workers
    if chunks < workers:
        raise PlanError(
            f"{workers} workers cannot share {chunks} chunks. Use --chunks {workers} or more, or -n {chunks}."
        )
    if chunks > batch_size:
        raise PlanError(
            f"a batch of {batch_size} samples cannot be cut into {chunks} chunks. Use a batch size of at least "
            f"{chunks}, or fewer workers or chunks."
        )


def check_ranks(strategy: str, workers: int, servers: int) -> None:
    """Refuse numbers of ranks that make no sense whatever the program is.

    Raises:
        PlanError: see the message.
    """
    if strategy != AUTO:
        named(strategy)
    if workers < 1:
        raise PlanError(f"-n {workers}: a job needs at least 1 worker")
    if not 0 <= servers <= workers:
        raise PlanError(
            f"--servers {servers} with -n {workers}: more servers than workers cannot help, since as many already have "
            f"one link for each worker's. Use --servers 0 to {workers}."
        )
    if servers and strategy not in (AUTO, *SERVING):
        *most, last = SERVING
        raise PlanError(f"--servers {servers} needs --strategy {', '.join(most)} or {last}, not {strategy}")
    if strategy == "single" and workers > 1:
        raise PlanError(f"--strategy single runs on one worker, but -n asks for {workers}. Use ring or ps.")
