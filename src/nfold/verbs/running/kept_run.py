"""What is kept of a run that ends early, and how it goes on: said after Ctrl-C, a time limit or a failure."""

import contextlib
from dataclasses import dataclass

from nfold.errors import CheckpointError, NfoldError
from nfold.program import Program, ProgramSource
from nfold.verbs.results.summary import RunOutcome
from nfold.verbs.run_folder.files import MODEL
from nfold.verbs.run_folder.folder import RunFolder


@dataclass(frozen=True, slots=True)
class KeptRun:
    """What is kept of a run that ended early."""

    source: ProgramSource | Program
    folder: RunFolder | None
    outcome: RunOutcome
    step: int
    """Of the last checkpoint; 0: there is none."""
    unkept: str
    """Why the run cannot be resumed, where that showed while it trained."""

    @property
    def goes_on(self) -> bool:
        """Whether it can be resumed."""
        is_begun = bool(self.step) or self.outcome.moves_samples
        return is_begun and self.folder is not None and not self.unkept and isinstance(self.source, ProgramSource)

    def told(self, *, plan_only: bool) -> str:
        """Say how far the run came and how to go on."""
        if not self.outcome.total_steps:
            begun = "Nothing was planned yet." if plan_only else "Training had not begun."
            return f"{begun} {self.told_going_on()}" if self.goes_on else begun
        done = f"{self.outcome.last_step} of {self.outcome.total_steps} steps are done."
        if self.folder is None or not isinstance(self.source, ProgramSource):
            return done
        if self.unkept:
            return f"{done} The run cannot be resumed: {self.unkept}"
        return f"{done} {self.told_going_on() if self.goes_on else 'There is no checkpoint.'}"

    def told_going_on(self, when: str = "") -> str:
        """Say how to go on from the checkpoint, or where none is kept yet with the samples that have come."""
        assert self.folder is not None, "without a folder nothing is kept"
        return self.folder.tell_checkpoint(self.step, when) if self.step else self.folder.tell_samples(when)

    def take_model_of_checkpoint(self, error: NfoldError) -> bool:
        """Write the model of a run that failed after its last step, as an evaluation may; tell if it is there."""
        assert self.folder is not None, "without a folder there is no checkpoint"
        with contextlib.suppress(CheckpointError):  # what ended the job is told; to go on says what is wrong here
            checkpoint = self.folder.checkpoint()
            if checkpoint is not None:
                self.folder.ensure_model(checkpoint)
                place = self.folder.path / MODEL
                error.add_note(f"All {self.outcome.total_steps} steps are done: {place} holds the model.")
                return True
        return False
