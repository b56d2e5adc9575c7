"""A run whose members come and go while it trains, which its test leaves when it has seen enough."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from nfold.core.options.host_range import HostRange
from nfold.program import Program, ProgramSource
from nfold.verbs.options.option_checks import Options
from nfold.verbs.run_folder.folder import RunFolder
from nfold.verbs.running.observer import NullObserver
from nfold.verbs.running.run import Run, run_of
from nfold.verbs.running.run_job import Job

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNKS = 4
SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
import nets
def program():
    return nets.program("plain")
"""

ENDLESS_SCRIPT = """
import torch
from torch import nn
import nfold

def program():
    torch.manual_seed(3)
    inputs, targets = torch.randn(64, 6, dtype=torch.float64), torch.randn(64, 2, dtype=torch.float64)
    return nfold.Program(
        model=lambda: nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 2)).double(),
        loss=nn.MSELoss(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.5),
        train_data=lambda: torch.utils.data.TensorDataset(inputs, targets),
        batch_size=12,
        epochs=10**6,
        seed=1,
    )
"""
"""A program in double precision whose run never ends by itself."""


class Told(NullObserver):
    """Keeps what a user is told."""

    def __init__(self) -> None:
        self.plans: list[Any] = []
        self.notes: list[str] = []

    def planned(self, planned: Any, folder: Any) -> None:
        self.plans.append(planned.plan)

    def noted(self, text: str) -> None:
        self.notes.append(text)


class Elastic:
    """A run of many steps, which its test leaves when it has seen enough."""

    def __init__(
        self,
        source: Program | ProgramSource,
        folder: Path,
        *,
        may_lose: bool = False,
        protect: int | str = "auto",
        **wishes: Any,
    ) -> None:
        given = {"workers": 2, "strategy": "ring", "chunks": CHUNKS, "steps": 10**6, "checkpoint_every": 10**6} | wishes
        self.told = Told()
        options = Options(evaluate=False, **given)
        if may_lose:  # as with `--nodes 1:4`, for which there must be hosts
            object.__setattr__(options, "hosts", HostRange(1, CHUNKS))
            object.__setattr__(options, "protect", protect)
        self.folder = RunFolder.create(folder, "")
        self.job = Job(source, options, self.told, folder=self.folder, lockstep=True)
        self._steps: Iterator[Any] = self.job.play()
        self.step = 0

    def train(self, steps: int) -> None:
        """Play steps."""
        for _ in range(steps):
            self.step = next(self._steps).step

    def until_planned(self, count: int) -> Any:
        """Train until so many plans were made; return the last one."""
        while len(self.told.plans) < count:
            self.train(1)
        return self.told.plans[-1]

    def until_noted(self, text: str) -> str:
        """Train until the user is told something."""
        while not any(text in note for note in self.told.notes):
            self.train(1)
        return next(note for note in self.told.notes if text in note)

    def until_gone(self, *members: int) -> None:
        """Train until nothing is left of some members."""
        while set(members) & set(self.pids()):
            self.train(1)

    @property
    def session(self) -> Any:
        assert self.job.session is not None
        return self.job.session

    def pids(self) -> dict[int, int]:
        """Processes that run, by member."""
        members = self.session._launcher._members.items()
        return {member: asked.child.pid for member, asked in members if asked.child is not None}

    def kill(self, member: int) -> None:
        """Let a member that is a thread vanish without a word."""
        self.session._control_server.channels[member].close()

    def cut_off(self, member: int) -> None:
        """As `kill`, and its connections to others end at once."""
        network = self.session._launcher._finish.__self__._network
        self.session._control_server.far_ends[member].close()  # first: what is killed does not say what it saw
        network.connections(member).abort()

    def to_the_end(self) -> Run:
        """Play all steps that are left."""
        for step in self._steps:
            self.step = step.step
        return run_of(self.job)

    def end(self) -> Run:
        """Leave the loop."""
        self._steps.close()  # type: ignore[attr-defined]
        return run_of(self.job)
