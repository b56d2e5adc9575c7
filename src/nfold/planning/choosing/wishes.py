"""Refuses what no plan could give: numbers of workers, servers and chunks, and more chunks than a program allows.

`check_ranks` and `check_chunks` are called when options are read, `check_batch` once the batch's size is known, and
`check`, which knows the program, before anything is simulated. Why a batch must not be cut has been decided in
`capture/program_facts.py`. Flags that exclude each other are refused in `verbs/options/option_checks.py`; what shows
only in a plan, in `early_checks.py`, `first_step.py` and `planning/costs/memory_objection.py`.
"""

from nfold.errors import PlanError
from nfold.planning.choosing.exactness import program_objection
from nfold.planning.choosing.strategies import AUTO, PLACING, SERVING, named
from nfold.planning.inputs.facts import Facts
from nfold.planning.reductions.data_parallel import tell_idle, tell_too_few_chunks


def check(facts: Facts, strategy: str) -> None:
    """Refuse wishes that make no sense for this program and these machines.

    Raises:
        PlanError: with the numbers.
    """
    check_ranks(strategy, facts.workers, facts.servers)
    if objection := program_objection(facts):
        raise PlanError(f"--exact: {objection}")
    check_batch(strategy, facts.workers, facts.chunks, facts.batch_size)
    chunks = facts.chunks or _least_chunks(strategy, facts.workers)
    if strategy not in (AUTO, *PLACING) and (idle := tell_idle(facts)):
        raise PlanError(idle)
    if chunks > 1 and facts.graph.indivisible:
        raise PlanError(f"the batch cannot be cut into {chunks} chunks: {facts.graph.indivisible}")


def check_chunks(strategy: str, workers: int, chunks: int | None) -> None:
    """Refuse fewer chunks than workers where each worker computes chunks of the whole model.

    Raises:
        PlanError: with the numbers.
    """
    if chunks is not None and chunks < _least_chunks(strategy, workers):
        raise PlanError(
            f"{tell_too_few_chunks(workers, chunks)}: --strategy {strategy} gives each worker chunks of its own, as "
            f"--chunks {workers} has, or -n {chunks}; a strategy that places operators, such as {PLACING[0]}, "
            "needs fewer, if the model can be cut"
        )


def check_batch(strategy: str, workers: int, chunks: int | None, batch_size: int) -> None:
    """Refuse cuts of a batch that make no sense whatever the model is.

    Raises:
        PlanError: with the numbers.
    """
    check_chunks(strategy, workers, chunks)
    chunks = chunks or _least_chunks(strategy, workers)
    if chunks > batch_size:
        samples, most = ("1 sample", "1") if batch_size == 1 else (f"{batch_size} samples", f"{batch_size} or fewer")
        raise PlanError(
            f"a batch of {samples} cannot be cut into {chunks} chunks, only into {most}: fewer workers or chunks would "
            "do, or a larger batch"
        )


def _least_chunks(strategy: str, workers: int) -> int:
    """Where one strategy that is looked at can place operators, one chunk does."""
    return 1 if strategy in (AUTO, *PLACING) else workers


def check_ranks(strategy: str, workers: int, servers: int) -> None:
    """Refuse numbers of ranks that make no sense whatever the program is.

    Raises:
        PlanError: with the numbers.
    """
    if strategy != AUTO:
        named(strategy)
    if workers < 1:
        raise PlanError(f"-n {workers}: a job needs at least 1 worker")
    if servers and strategy not in (AUTO, *SERVING):
        *most, last = SERVING
        raise PlanError(f"--servers {servers} needs --strategy {', '.join(most)} or {last}, not {strategy}")
    if not 0 <= servers <= workers:
        raise PlanError(
            f"--servers {servers} with -n {workers}: more servers than workers cannot help, since as many already have "
            f"one link for each worker's. Ask for {workers} at most."
        )
    if strategy == "single" and workers > 1:
        raise PlanError(f"--strategy single runs on one worker, but -n asks for {workers}: one of the two has to go")
