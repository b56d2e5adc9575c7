"""How often ranks keep snapshots of what they hold, so that a host that dies takes few steps along. Plain data."""

import math
from dataclasses import dataclass

from nfold.core.options.whole import read_digits
from nfold.errors import PlanError, clipped

AUTO, OFF = "auto", "off"
FIRST_EVERY = 8
"""Steps, until it is measured what a snapshot takes."""


@dataclass(frozen=True, slots=True)
class Protect:
    """What was asked for."""

    most_steps: int | None
    """That a loss may cost; 0: nothing is kept, None: as many as cost least in the long run."""

    @property
    def is_on(self) -> bool:
        """Whether snapshots are kept."""
        return self.most_steps != 0


def read_protect(text: object) -> Protect:
    """Read `auto`, `off` or a number of steps.

    Raises:
        PlanError: it is something else.
    """
    if text in (AUTO, OFF):
        return Protect(None if text == AUTO else 0)
    steps = read_digits(str(text))
    if isinstance(text, bool) or not steps:
        given = clipped(str(text))
        raise PlanError(
            f"--protect {given}: it must be auto, off, or the most steps that a lost host may cost, as in 20"
        )
    return Protect(steps)


def steps_between(cost_s: float, step_s: float, between_losses_s: float) -> int:
    """Return after how many steps a snapshot costs least: what it takes, and the steps that a loss plays again.

    Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, Future Generation Computer
    Systems 22 (2006), equation 37; its first term is Young's (1974).

    Args:
        cost_s: of a snapshot, in which nobody trains.
        step_s: of a step.
        between_losses_s: mean time from one loss to the next.
    """
    share = cost_s / (2 * between_losses_s)
    if share >= 1:
        interval_s = between_losses_s
    else:
        interval_s = math.sqrt(2 * cost_s * between_losses_s) * (1 + math.sqrt(share) / 3 + share / 9) - cost_s
    return max(1, round(interval_s / step_s))
