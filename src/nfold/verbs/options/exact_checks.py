"""What cannot be asked for together with --exact."""

from nfold.core.options.run_options import RunOptions
from nfold.errors import PlanError
from nfold.planning.asynchronous.asynchronous_strategies import ASYNCHRONOUS
from nfold.planning.choosing.exactness import CHUNKS_OF_NODES


def check_exact(asked: RunOptions) -> None:
    """Refuse what no run can promise the bits of one device with.

    Raises:
        PlanError: with the two options.
    """
    if not asked.exact:
        return
    if asked.strategy in ASYNCHRONOUS:
        raise PlanError(
            f"--exact and --strategy {asked.strategy}: each gradient is applied when it comes, and in which order that "
            "is depends on time. Use another strategy, or leave out --exact."
        )
    if asked.device == "cuda":
        raise PlanError(
            "--exact and --device cuda: kernels of CUDA add in an order of their own. Use --device cpu, or leave out "
            "--exact."
        )
    if asked.place is not None:
        raise PlanError(f"--exact and --place {asked.place}: {CHUNKS_OF_NODES}. Leave one of them out.")
