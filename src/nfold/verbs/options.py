"""What a user may ask of a run, whether by flags or by arguments: the same names and the same checks."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypedDict

from nfold.errors import PlanError
from nfold.planning.search import check_ranks
from nfold.runtime.events import JobSettings

TransportName = Literal["tcp", "gloo"]
LAST_PORT = 65535
TRANSPORTS: tuple[TransportName, ...] = ("tcp", "gloo")


class CommonWishes(TypedDict, total=False):
    """Keyword arguments of every verb; fields of Options."""

    servers: int
    steps: int | None
    chunks: int | None
    seed: int | None
    out: str | Path | None
    debug: bool
    transport: TransportName
    device: str
    checkpoint_every: int | None
    evaluate: bool
    port: int
    default_chunks: int | None


class Wishes(CommonWishes, total=False):
    """Keyword arguments of the verbs that make one run."""

    workers: int
    strategy: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Settings of one run.

    Raises:
        PlanError: (also a ValueError) a number makes no sense.
    """

    workers: int = 1
    """Worker ranks."""
    strategy: str = "auto"
    """One of nfold.planning.STRATEGY_NAMES."""
    servers: int = 0
    """Dedicated server ranks beside the workers."""
    steps: int | None = None
    """Optimizer steps in all; None: the program's epochs."""
    chunks: int | None = None
    """Equal cuts of a batch; None: the program's, or the planner's choice."""
    seed: int | None = None
    """None: the program's."""
    out: str | Path | None = None
    """Folder of the run; None: a new one under runs/."""
    debug: bool = False
    """Ranks are threads of this process."""
    transport: TransportName = "tcp"
    """How ranks that are processes talk."""
    device: str = "auto"
    """`cpu`, `cuda`, or `auto`: cuda where there is one."""
    checkpoint_every: int | None = None
    """Steps between checkpoints; None: at the end of each epoch; 0: none."""
    evaluate: bool = True
    """Whether to evaluate the test data after each epoch and at the end."""
    port: int = 0
    """Where the coordinator listens; 0: any free port."""
    default_chunks: int | None = None
    """Cuts of a batch where neither the user nor the program says."""

    def __post_init__(self) -> None:
        for name, least in (("workers", 1), ("servers", 0), ("port", 0)):
            if getattr(self, name) < least:
                raise PlanError(f"{name} is {getattr(self, name)}: it must be at least {least}")
        for name, least in (("steps", 1), ("chunks", 1), ("checkpoint_every", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise PlanError(f"{name} is {value}: it must be at least {least}")
        if self.port > LAST_PORT:
            raise PlanError(f"port is {self.port}: the last one is {LAST_PORT}. Use 0 for any free one.")
        check_ranks(self.strategy, self.workers, self.servers)
        if self.chunks is not None and self.chunks < self.workers:
            raise PlanError(
                f"{self.workers} workers cannot share {self.chunks} chunks. "
                f"Use --chunks {self.workers} or more, or -n {self.chunks}."
            )
        if self.transport not in TRANSPORTS:
            raise PlanError(f"unknown transport {self.transport!r}. Use one of: {', '.join(TRANSPORTS)}")
        if self.device not in ("auto", "cpu", "cuda"):
            raise PlanError(f"unknown device {self.device!r}. Use one of: auto, cpu, cuda")

    def settings(self, *, lockstep: bool = False, plan_only: bool = False) -> JobSettings:
        """Return what the coordinator needs to know."""
        return JobSettings(
            workers=self.workers,
            servers=self.servers,
            strategy=self.strategy,
            steps=self.steps,
            chunks=self.chunks,
            default_chunks=self.default_chunks,
            seed=self.seed,
            device=self.device,
            checkpoint_every=self.checkpoint_every,
            evaluate=self.evaluate,
            plan_only=plan_only,
            lockstep=lockstep,
        )
