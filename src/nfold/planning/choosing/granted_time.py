"""Holds a run against the time for which its hosts are granted: they are taken back without asking. Pure."""

from nfold.core.job import Grant
from nfold.core.text.units import count
from nfold.errors import PlanError
from nfold.planning.choosing.early_checks import RunSteps


def grant_notes(
    grant: Grant | None, run_steps: RunSteps, step_s: float, stop_after_s: float | None, checkpoint_every: int | None
) -> tuple[str, ...]:
    """Return what the end of the granted time will cut off, by prediction.

    Args:
        grant: of the hosts; None: nobody limits it.
        run_steps: of the run.
        step_s: predicted for a step; measuring, reading, evaluating and writing come on top.
        stop_after_s: the user's own limit, before which a checkpoint is written; None: there is none.
        checkpoint_every: steps between checkpoints; None: at each end of an epoch; 0: none.

    Raises:
        PlanError: the time is over before anything of the run is kept.
    """
    left = run_steps.total_steps - run_steps.first_step
    if grant is None or left * step_s <= grant.seconds or (stop_after_s or grant.seconds) < grant.seconds:
        return ()
    done, until_kept = int(grant.seconds / step_s), _until_kept(run_steps, left, checkpoint_every)
    told = (
        f"{grant.by} takes its hosts back after {grant.seconds:g} s, and about {done} of the {count(left, 'step')} fit "
        f"into that, at {step_s:.3g} s a step, as predicted"
    )
    if done >= until_kept:
        return (f"{told}. The run ends there, and goes on from its last checkpoint with --resume",)
    due = "no checkpoint is written" if checkpoint_every == 0 else f"the first checkpoint is due after {until_kept}"
    raise PlanError(
        f"{told}: nothing would be kept of it, since {due}, and an epoch has {run_steps.steps_per_epoch}. Ask for "
        f"hosts for longer, or give --stop-after {0.9 * grant.seconds:.0f}, which keeps a checkpoint in time."
    )


def _until_kept(run_steps: RunSteps, left: int, checkpoint_every: int | None) -> int:
    """Steps until something is kept: a checkpoint, or at the end the model."""
    every = run_steps.steps_per_epoch if checkpoint_every is None else checkpoint_every
    return min(left, every - run_steps.first_step % every) if every else left
