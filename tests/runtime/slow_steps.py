"""Steps of two ranks in a ring whose reductions take far longer than predicted, so that links are probed."""

from coordinated import Job, orders

from nfold.core.trace import ReductionParts
from nfold.runtime.control import commands as cmd
from nfold.runtime.measuring.slowness import NUM_STEPS


def play_slowly(job: Job, step: int) -> list[str]:
    """Play a step; return what is said."""
    parts = [ReductionParts(step=step, rank=rank, reduction="b0", queue_s=0.0, duration_s=900.0, sent_bytes=8)
             for rank in (0, 1)]  # fmt: skip
    return [text for part in parts for text in orders(job.steps(part.rank, step, reductions=[part.to_row()]))]


def until_probed(job: Job) -> int:
    """Play steps until ranks are told to probe; return the last one."""
    for step in range(NUM_STEPS + 1):
        if "0 probe" in play_slowly(job, step):
            return step
    raise AssertionError("nobody is told to probe")


def granted_by(job: Job) -> int:
    """Return how many steps ranks may play."""
    return max(each.message["step"] for each in job.told if isinstance(each, cmd.Send) and "step" in each.message)
