"""What the last steps of a run went to, for whoever looks at it while it trains."""

from collections import deque
from dataclasses import dataclass

from nfold.analysis.measured.breakdown import busy_steps, mean_parts, step_duration
from nfold.core.plan import Plan
from nfold.core.report import TimeParts
from nfold.core.trace import StepParts

MOST_STEPS, LEAST_STEPS = 50, 5
MOST_ROWS = 400
"""Of many ranks fewer steps: summing up costs processor time that the ranks want."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepShares:
    """What shares of a rank's last steps went to."""

    compute: float
    """Forward, backward and update."""
    communication: float
    input: float


class RecentSteps:
    """The last steps under one plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        most = min(MOST_STEPS, max(LEAST_STEPS, MOST_ROWS // plan.world_size))
        self._steps: deque[tuple[StepParts, ...]] = deque(maxlen=most)

    def keep(self, step: tuple[StepParts, ...]) -> None:
        """Take in the rows of a step that is done, a row for each rank."""
        self._steps.append(step)

    @property
    def samples_per_s(self) -> float | None:
        """Throughput of all workers together; None: no step took any time."""
        total_s = sum(map(step_duration, self._steps))
        samples = sum(row.samples for step in self._steps for row in step)
        return samples / total_s if total_s > 0 else None

    def left_s(self, num_steps: int) -> float | None:
        """Return how long so many steps take at this pace; None: no step is done."""
        total_s = sum(map(step_duration, self._steps))
        return num_steps * total_s / len(self._steps) if self._steps else None

    @property
    def parts(self) -> TimeParts | None:
        """What a step of the workers went to, on average; None: no step is done."""
        of_workers = [row for step in self._steps for row in step if row.rank < self._plan.workers]
        if not of_workers:
            return None
        return mean_parts(busy_steps(of_workers, 0), is_asynchronous=self._plan.asynchrony is not None)

    def shares(self) -> dict[int, StepShares]:
        """Return what each rank's steps went to, by rank; ranks whose steps took no time are left out."""
        rows: dict[int, list[StepParts]] = {}
        for step in self._steps:
            for row in step:
                rows.setdefault(row.rank, []).append(row)
        return {rank: _shares(of_rank) for rank, of_rank in rows.items() if sum(row.step_s for row in of_rank) > 0}


def _shares(rows: list[StepParts]) -> StepShares:
    total_s = sum(row.step_s for row in rows)
    return StepShares(
        compute=sum(row.compute_s + row.update_s for row in rows) / total_s,
        communication=sum(row.communication_s for row in rows) / total_s,
        input=sum(row.input_s for row in rows) / total_s,
    )
