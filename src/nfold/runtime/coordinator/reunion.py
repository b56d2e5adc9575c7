"""Brings ranks together again whose coordinator is gone, as far as it takes to keep what they have learnt. Pure.

hello of all members of a generation ──> what some were ordered and others not, to these
                                          until the last step that any of them may play ──> checkpoint ──> Kept
  └─ they are of several generations, one is lost or fails, or an evaluation was not told ──> NotKept, and why

A rank that had just been started says a hello too, and holds nothing: no other word of it counts.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from nfold.core.plan import Plan
from nfold.planning.residency.epoch_steps import EpochSteps
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.control.order_log import NUMBER, are_known, lacking
from nfold.runtime.control.spool import Arrived
from nfold.runtime.coordinator.progress import Progress

TAG = 1 << 24
"""Of the one gather that is ordered here: coordinators count theirs from 1."""


@dataclass(frozen=True, slots=True)
class RunSoFar:
    """What a run's folder says of it."""

    plan: Plan
    """Of the last generation."""
    kept_step: int
    """Of the last checkpoint; 0: there is none."""
    last_step: int
    """In the history."""
    epochs: EpochSteps
    evaluated: frozenset[int] = field(default_factory=frozenset)
    """Steps after which metrics are known."""
    evaluates: bool = False
    """Whether test data are evaluated after each epoch, where there are some."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Where the ranks are, all at the same step."""

    step: int
    file: Arrived
    """Holds it as a checkpoint."""
    steps: tuple[cmd.StepDone, ...]
    """That the history lacks."""


@dataclass(frozen=True, slots=True)
class NotKept:
    """Nobody can go on from what the ranks hold."""

    why: str


class Reunion:
    """Hears the members that come back, and gives the orders.

    Attributes:
        result: how it ended; None: it has not.
    """

    def __init__(self, run: RunSoFar) -> None:
        self._run = run
        self._hellos: dict[int, dict[str, Any]] = {}
        self._members: tuple[int, ...] = ()
        """By rank, once all are there."""
        self._progress: Progress | None = None
        self._stop = 0
        """Steps that all have played then. What is told of later ones is of a time from which they have gone back."""
        self._steps: list[cmd.StepDone] = []
        self._earlier = Counter[int]()
        """Checkpoints that each member was told to give before that, and has not given yet."""
        self._early: list[ev.Said] = []
        """What was told of steps before all were there."""
        self.has_starters = False
        """Whether some came that had just been started."""
        self.result: Kept | NotKept | None = None

    @property
    def has_begun(self) -> bool:
        """Whether all members are back, and have got orders."""
        return bool(self._members)

    @property
    def missing(self) -> tuple[int, ...]:
        """Members of the last generation, as far as anybody who is back knows of it, that are not."""
        return tuple(sorted(set(self._wanted) - self._hellos.keys()))

    def take(self, event: ev.Said | ev.Left) -> list[cmd.Send]:
        """Take in what a member says, or that its connection has ended; return the orders that follow."""
        if isinstance(event, ev.Left):
            self._hellos.pop(event.member, None)
            return self._end(f"member {event.member} was lost once more") if event.member in self._members else []
        kind = event.message["is"]
        if kind == "hello" and "generation" not in event.message:
            self.has_starters = True
            return []
        if kind == "hello" and not self._members:
            self._hellos[event.member] = event.message
            return self._begin() if not self.missing else []
        if event.member not in self._hellos:
            return []
        if kind == "failed":
            return self._end(f"member {event.member} failed: {event.message['text']}")
        if kind == "lacks":
            return self._end(f"the disk of member {event.member} has lost sample {event.message['number']}")
        if not self._members:
            self._early.append(event)
        return self._hear(event)

    @property
    def _wanted(self) -> tuple[int, ...]:
        last = max(self._hellos.values(), key=lambda hello: hello["generation"], default=None)
        return () if last is None else tuple(last["members"])

    def _begin(self) -> list[cmd.Send]:
        members = self._wanted
        hellos = [self._hellos[number] for number in members]
        stop = max(hello["stop"] for hello in hellos)
        if why := self._why_not(hellos, stop):
            return self._end(why)
        self._members, self._stop, ranks = members, stop, tuple(range(len(members)))
        self._progress = Progress(ranks, self._run.plan, self._run.last_step, self._run.epochs)
        self._progress.pending.append((stop, "checkpoint", set(ranks)))
        for early in self._early:
            self._hear(early)
        missed = [(member, order) for rank, member in enumerate(members) for order in lacking(rank, hellos)]
        self._earlier = Counter(member for member, order in missed if order["do"] == "checkpoint")
        last = max(hello["last_order"] for hello in hellos)
        own = ({"do": "until", "step": stop}, {"do": "checkpoint", "tag": TAG, "evaluates": False})
        return [
            *(cmd.Send((member,), order) for member, order in missed),
            *(cmd.Send(members, {**order, NUMBER: number}) for number, order in enumerate(own, last + 1)),
        ]

    def _why_not(self, hellos: list[dict[str, Any]], stop: int) -> str:
        """Return why these ranks cannot be gone on with; empty: they can."""
        gives = any(order["do"] == "hand" for rank in range(len(hellos)) for order in lacking(rank, hellos))
        if gives or len({hello["generation"] for hello in hellos}) > 1 or len(hellos) != self._run.plan.world_size:
            return "the command died while members came and went"
        if stop < self._run.last_step:
            return f"they are at step {stop}, and the run has been at step {self._run.last_step}"
        if not are_known(hellos):
            return "the command died while it ordered a lot that has reached some of the ranks only"
        untold = [end for end in self._ends_of_epochs(stop) if end not in self._run.evaluated]
        if self._run.evaluates and hellos[0]["has_test"] and untold:
            return f"what was evaluated after step {untold[0]} had not been written down"
        return ""

    def _ends_of_epochs(self, stop: int) -> Iterator[int]:
        """Yield the steps after which an epoch has ended since the checkpoint, and at its step, before another one."""
        end = self._run.epochs.next_end(max(self._run.kept_step, 1) - 1)
        while end < stop:
            yield end
            end = self._run.epochs.next_end(end)

    def _hear(self, said: ev.Said) -> list[cmd.Send]:
        if self._progress is None or said.member not in self._members:
            return []
        is_checkpoint = said.message["is"] == "checkpoint"
        is_earlier = is_checkpoint and self._earlier[said.member] > 0
        if said.file is not None and (is_earlier or not is_checkpoint):
            said.file.drop()  # of an order that comes late
        if is_earlier:
            self._earlier[said.member] -= 1
            return []
        for news in self._progress.take(ev.Received(self._members.index(said.member), said.message, said.file)):
            if isinstance(news, cmd.StepDone):
                self._steps += [news] if news.step < self._stop else []
            elif isinstance(news, cmd.KeepCheckpoint):
                self.result = Kept(news.step, news.file, tuple(self._steps))
            elif isinstance(news, cmd.Unkept):
                news.file.drop()
                return self._end(news.reason)
        return []

    def _end(self, why: str) -> list[cmd.Send]:
        self.result = self.result or NotKept(why)
        return []
