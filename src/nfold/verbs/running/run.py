"""The result of a run that ended well: its report, trace and trained weights."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nfold.core.plan import Plan
from nfold.core.report import Report
from nfold.core.trace import Trace
from nfold.errors import InternalError, PlanError
from nfold.verbs.run_folder.files import AVERAGE, MODEL
from nfold.verbs.run_folder.folder import RunFolder
from nfold.verbs.running.run_job import Job

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A run that ended well, with its report, trace and weights."""

    folder: Path
    """What it left behind."""
    plan: Plan
    history: list[dict[str, Any]]
    """A line per step, and one per evaluation (the one with metrics)."""
    is_stopped: bool = False
    """Its time (`stop_after`) was over before its last step: it goes on from its checkpoint."""
    was_complete: bool = False
    """Nothing was left to do (`go_on`)."""
    unkept: str = ""
    """Why it cannot be made longer, where that showed while it trained."""
    told: str = ""
    """Of a run that was stopped, or was complete: how far it is, and how to go on."""
    measured: tuple[Report, Trace] | None = None
    """What was just measured; None: its folder holds it."""

    @property
    def report(self) -> Report:
        """Return what the run amounted to.

        Raises:
            PlanError: the run was killed before it could write that down.
        """
        return self.measured[0] if self.measured else RunFolder.open(self.folder).report()

    @property
    def trace(self) -> Trace:
        """Return where the run's time went.

        Raises:
            PlanError: the run was killed before it could write that down.
        """
        return self.measured[1] if self.measured else RunFolder.open(self.folder).trace()

    @property
    def best(self) -> dict[str, Any] | None:
        """Return `step`, `metric` and `value` of the model in `best.safetensors`; None without `keep`."""
        return RunFolder.open(self.folder).best()

    @property
    def model(self) -> bytes:
        """Return the trained parameters and buffers as the bytes of a safetensors file."""
        return (self.folder / MODEL).read_bytes()

    def state_dict(self) -> "dict[str, torch.Tensor]":
        """Return the trained parameters and buffers; the plain module's `load_state_dict` takes them."""
        from safetensors.torch import load

        return load(self.model)

    def average_state_dict(self) -> "dict[str, torch.Tensor]":
        """Return the averaged weights (`Program(averages=...)`) as `state_dict` does.

        Raises:
            PlanError: there are none: the program asks for none, or the run ended before the first.
        """
        from safetensors.torch import load_file

        path = self.folder / AVERAGE
        if not path.exists():
            raise PlanError(
                f"{self.folder} holds no averaged weights: Program(averages=...) was left out, or the run ended before "
                "they begin."
            )
        return load_file(path)


def run_of(job: Job) -> Run:
    """Return the result of a job.

    Raises:
        InternalError: it has not ended well.
    """
    outcome = job.outcome
    if outcome.plan is None or outcome.report is None or outcome.trace is None or job.folder is None:
        raise InternalError("the job ended without a report")
    return Run(
        folder=job.folder.path,
        plan=outcome.plan,
        measured=(outcome.report, outcome.trace),
        history=outcome.history,
        is_stopped=job.is_stopped,
        unkept=job.unkept,
        told=job.what_is_kept() if job.is_stopped else "",
    )
