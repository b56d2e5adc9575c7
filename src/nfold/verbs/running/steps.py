"""A run in the hands of the user's loop: a step, or a checkpoint, when it wants one, and an end when it leaves."""

import inspect
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Self

from nfold.errors import PlanError, ProgramError
from nfold.verbs.run_folder.files import CHECKPOINT
from nfold.verbs.running.leaving import close_at_exit
from nfold.verbs.running.observer import StepInfo
from nfold.verbs.running.run import Run, run_of
from nfold.verbs.running.run_job import Asked, Job


class Steps:
    """Iterating plays a run step by step.

    A step is handed out when all that is due after it is done: its evaluation, its checkpoint, its lines in the
    history. The ranks then wait, so a loop that is left after step k leaves the weights of step k, whatever its body
    took.
    """

    def __init__(self, begin: Callable[[], Job]) -> None:
        """Args:
        begin: makes the job, when the first step is asked for.
        """
        self._jobs: list[Job] = []
        self._last: StepInfo | None = None
        # It does not know of this object: who lets go of this object lets go of the generator, which ends the run.
        self._play = _play(begin, self._jobs)
        close_at_exit(self._play)

    def __iter__(self) -> Self:
        """Return itself: a second loop goes on where the first was left."""
        return self

    def __next__(self) -> StepInfo:
        """Play the next step.

        Raises:
            NfoldError: the run failed; every rank is gone.
            KeyboardInterrupt: Ctrl-C; a checkpoint is kept.
        """
        self._last = next(self._play)
        return self._last

    def checkpoint(self) -> Path:
        """Keep a checkpoint of the last step that was handed out, now, in place of the one before; return its file.

        Raises:
            PlanError: there is no such step, or the run has ended.
            ProgramError: nobody could go on from it.
            NfoldError: the run failed.
        """
        folder = self._jobs[0].folder if self._jobs else None
        if self._last is None or folder is None or _has_ended(self._play):
            raise PlanError(
                "checkpoint() keeps the step that was handed out last, and there is none: the run has "
                f"{'ended' if self._jobs else 'not begun'}. Call it in the loop over the steps."
            )
        self._play.send("checkpoint")
        if self._jobs[0].unkept:
            raise ProgramError(f"checkpoint() keeps what a run goes on from, and {self._jobs[0].unkept}")
        return folder.path / CHECKPOINT

    def stop(self) -> Run:
        """End the run after the last step that was handed out, if it has not ended, and return what it came to.

        Raises:
            PlanError: no step was played.
            NfoldError: the run failed.
        """
        self.close()
        if not self._jobs or self._jobs[0].outcome.report is None:
            raise PlanError("stop() returns what a run came to, and this one has played no step or failed.")
        return run_of(self._jobs[0])

    def close(self) -> None:
        """End the run after the last step that was handed out; as leaving a loop does that nothing else holds."""
        self._play.close()


def _play(begin: Callable[[], Job], jobs: list[Job]) -> Generator[StepInfo, Asked, None]:
    job = begin()
    jobs.append(job)
    yield from job.play()


def _has_ended(play: Generator[StepInfo, Asked, None]) -> bool:
    return inspect.getgeneratorstate(play) == inspect.GEN_CLOSED
