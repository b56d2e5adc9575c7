"""What the coordinator tells its shell to do, and what the shell hands on to whoever watches the job.

All plain data, as the events that they answer (`events.py`).
"""

from dataclasses import dataclass, field
from typing import Any

from nfold.core.cluster import Cluster
from nfold.core.job import JobSettings, Known, Recipe
from nfold.core.members import NOBODY, SpeedShift, Turnover
from nfold.core.plan import Plan
from nfold.core.residency import PlacedData
from nfold.core.trace import RankUsage, ReductionParts, StepParts, StepTrace, SystemSample
from nfold.planning.choosing.early_checks import RunSteps
from nfold.planning.inputs.facts import Facts
from nfold.planning.residency.epoch_steps import EpochSteps
from nfold.runtime.control.spool import Arrived


@dataclass(frozen=True, slots=True)
class Order:
    """Tell ranks what to do."""

    ranks: tuple[int, ...]
    message: dict[str, Any]
    blob: bytes = b""


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to members."""

    members: tuple[int, ...]
    message: dict[str, Any]
    blob: bytes = b""


@dataclass(frozen=True, slots=True)
class SendState:
    """Send a member the bytes of the checkpoint that it asks for."""

    member: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class LetGo:
    """Take no more notice of a member that has left."""

    member: int
    is_lost: bool = False
    """Whether it has ended against everybody's will, so that its host may have another one."""
    why: str = ""
    """It was not let in, for this reason; empty: it was."""


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Send TimedOut after a while."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Noted:
    """Tell the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """A part of what comes before the plan is done."""

    what: str


@dataclass(frozen=True, slots=True)
class Measured:
    """Of a job that trains nothing: all that a plan rests on is known."""

    question: Facts
    """That the job's own plan answers."""
    run_steps: RunSteps


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan is made: keep it and what it rests on."""

    known: Known
    plan: Plan
    total_steps: int
    epochs: EpochSteps
    first_step: int
    recipe: Recipe
    foretold: tuple[str, ...] = ()
    """What a user should know of the run before it begins, beside what the plan says."""


@dataclass(frozen=True, slots=True)
class Placed:
    """It is decided who trains on which samples: keep that with the plan."""

    data: PlacedData


@dataclass(frozen=True, slots=True)
class Moved:
    """Samples have come to ranks."""

    num_bytes: int
    seconds: float
    beside_training: bool


@dataclass(frozen=True, slots=True)
class Replanned:
    """The run goes on under another plan from a step on."""

    known: Known
    plan: Plan
    next_step: int
    """Counts from 0."""
    turnover: Turnover = NOBODY
    kind: str = "plan"
    """What is told of it where nobody came or went, as `MemberEvent` has it."""
    reason: str = "links have changed"
    """The same."""
    shifts: tuple[SpeedShift, ...] = ()
    """Nodes whose speed has changed: they are told of instead."""
    num_lacking: int = 0
    """How many hosts more it takes to train; until they are there nobody does."""
    run_steps: RunSteps | None = None
    """Of the run from now on; None: as they were."""


@dataclass(frozen=True, slots=True)
class Departed:
    """Members have gone, and nobody trains: there is no plan for those who are left, or no step is left to be done."""

    turnover: Turnover
    next_step: int
    """Counts from 0."""


@dataclass(frozen=True, slots=True)
class StateRead:
    """All ranks of a generation have the state that they go on from."""

    num_bytes: int
    """That they were given."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanAside:
    """Plan for other members while ranks train; answer with PlannedAside."""

    settings: JobSettings
    """Of the job."""
    known: Known
    """With the plan of now, and the nodes of all members."""
    ready: dict[str, Any]
    """What ranks told of the program."""
    ranks: tuple[int, ...]
    """The members that train now."""
    stayers: tuple[int, ...]
    """Those of them that do not leave."""
    newcomers: tuple[int, ...]
    """Who may come in addition."""
    hosts: tuple[str, ...]
    """Of stayers and newcomers; empty: all share one."""
    are_stranded: bool = False
    """Whether there is no plan for those who stay alone."""
    version: int = 0
    """Of what is known of links and speeds."""


@dataclass(frozen=True, slots=True)
class TakeState:
    """Give ranks the checkpoint that was kept last, from now on; answer with StateTaken."""


@dataclass(frozen=True, slots=True)
class StepDone:
    """All ranks have played a step."""

    step: int
    """Counts from 0."""
    epoch: int
    loss: float
    parts: tuple[StepParts, ...]
    trace: StepTrace | None
    reductions: tuple[ReductionParts, ...] = ()
    is_late: bool = False
    """Whether it counts only now that its ranks have stopped: when it was over is not known."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A rank has looked at itself and its node."""

    samples: tuple[SystemSample, ...]


@dataclass(frozen=True, slots=True)
class LinksChanged:
    """The links were probed again and are not what they were."""

    cluster: Cluster
    next_step: int
    """The first one over the new links; counts from 0."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Test loss and metrics after a number of steps."""

    step: int
    epoch: int
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True)
class KeepCheckpoint:
    """Put a checkpoint in its place."""

    step: int
    file: Arrived


@dataclass(frozen=True, slots=True)
class Unkept:
    """Drop a checkpoint that nobody could go on from; there will be none any more."""

    step: int
    file: Arrived
    reason: str


@dataclass(frozen=True, slots=True)
class KeepBest:
    """Put the model of the best evaluation so far in its place."""

    step: int
    file: Arrived


@dataclass(frozen=True, slots=True)
class KeepAverage:
    """Put the averaged weights in their place."""

    step: int
    file: Arrived


@dataclass(frozen=True, slots=True)
class Settled:
    """In lockstep: after so many steps all that was due is done, and nothing more happens until the caller goes on."""

    step: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The job is over and every rank has said goodbye."""

    usage: tuple[RankUsage, ...] = ()
    model: Arrived | None = None
    interrupted: bool = False
    is_time_up: bool = False
    """It was interrupted because its time was over."""
    is_terminated: bool = False
    """It was interrupted by SIGTERM, or since too few hosts were left: the same command may go on later."""
    staleness: dict[str, int] = field(default_factory=dict)
    """Of an asynchronous run: gradients by how many updates old they were when they were applied."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The job cannot go on: end every rank and raise."""

    error: BaseException
    details: str = field(default="", repr=False)
    """For the log: tracebacks of the ranks."""
    is_death: bool = False
    """A rank ended that could not say why."""


@dataclass(frozen=True, slots=True)
class SetLinks:
    """Give every emulated link another rate before anything else is sent."""

    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class TrialPlanned:
    """What follows belongs to this trial."""

    index: int
    known: Known


@dataclass(frozen=True, slots=True)
class TrialRefused:
    """The trial cannot be run."""

    index: int
    why: str


@dataclass(frozen=True, slots=True)
class TrialDone:
    """All steps of the trial are done."""

    index: int
    usage: tuple[RankUsage, ...]


ToShell = (
    Send
    | SendState
    | LetGo
    | SetTimer
    | Noted
    | Prepared
    | Measured
    | Planned
    | Placed
    | Moved
    | Replanned
    | Departed
    | StateRead
    | PlanAside
    | TakeState
    | StepDone
    | Sampled
    | LinksChanged
    | Evaluated
    | KeepCheckpoint
    | Unkept
    | KeepBest
    | KeepAverage
    | Settled
    | SetLinks
    | TrialPlanned
    | TrialRefused
    | TrialDone
    | Finished
    | Failed
)
Command = Order | ToShell
"""What a generation's flow wants; its orders are to ranks."""

# What the shell adds for those who watch


@dataclass(frozen=True, slots=True)
class RanksStarted:
    """Every rank has loaded and said hello; none has begun to work."""


@dataclass(frozen=True, slots=True)
class TrainingBegins:
    """Every rank has built its part, and the first step is about to be ordered."""
