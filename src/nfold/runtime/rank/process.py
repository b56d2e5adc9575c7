"""What lives as long as a rank's process, whatever generations come and go."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from nfold.core.residency import Spans
from nfold.program import Program
from nfold.runtime.control.channel import ControlChannel
from nfold.runtime.control.orders import Orders
from nfold.runtime.data.loaders import LoaderPool
from nfold.runtime.failures.stalls import TaskWatch
from nfold.runtime.rank.reporter import Reporter
from nfold.runtime.snapshots.state_memory import HeldState, StateMemory
from nfold.runtime.step.built_model import KeptModel
from nfold.runtime.step.kept_program import KeptProgram


@dataclass(kw_only=True, slots=True)
class Process:
    """A member of the job: its channel to the coordinator, its program, and its device."""

    member: int
    channel: ControlChannel
    orders: Orders
    reporter: Reporter
    loader_pool: LoaderPool
    script: Path | None
    """Of the user, whose line is named when something fails."""
    owns_process: bool
    """False where ranks are threads."""
    clock: Callable[[], float] = time.perf_counter
    program: Program | None = None
    """Once it is loaded."""
    datasets: dict[str, Any] = field(default_factory=dict)
    """`train`, and `test` where there is one."""
    resident: Any = None
    """Training data by their numbers in the whole data, where each rank can read its own alone: `train` has those that
    lie here, for a first look. None: `train` has all."""
    examples: Spans = ()
    """What a node that had no samples was given for a first look; it needs them to the end."""
    node: str = ""
    """Where data live on nodes: which one this is."""
    told: dict[str, Any] = field(default_factory=dict)
    """What the coordinator was told of the program; see `facts_of`."""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    measures: bool = True
    memory: StateMemory = field(default_factory=StateMemory)
    """What it holds of the training's state for the generation that follows."""
    kept: KeptProgram = field(default_factory=KeptProgram)
    tasks: TaskWatch = field(default_factory=TaskWatch)
    """What it does now, for its heartbeat to look at."""
    kept_model: KeptModel = field(default_factory=KeptModel)
    """Its model, while no generation trains it."""
    followed: HeldState | None = None
    """The state of all as a shadow has it that had the whole model, for the generation that follows."""
    followed_bytes: int = 0
    """Of the state that it was given as a shadow, for the generation that follows."""

    @property
    def the_program(self) -> Program:
        """The program, which an earlier order has loaded."""
        assert self.program is not None, "load comes first"
        return self.program
