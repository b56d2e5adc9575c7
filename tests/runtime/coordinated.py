"""A coordinator with ranks that say what a test tells them to. No clock, no sockets, no processes."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pretended import GRAPH, a_plan, cluster, profile_of

from nfold.core import codec
from nfold.core.cluster import Channel
from nfold.core.job import JobSettings, Known
from nfold.core.measured import Measured
from nfold.core.outputs import ModuleOutput
from nfold.core.profile import Pace
from nfold.core.trace import RankUsage, StepParts
from nfold.planning.residency.node_inventory import Inventory
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.control.spool import Arrived
from nfold.runtime.coordinator.coordinator import Coordinator
from nfold.runtime.coordinator.members.planned_aside import plan_aside
from nfold.transport.probing.probe import ProbedPair

FOUND = ProbedPair(
    latency_s=0.25, there_bytes_per_s=1e6, back_bytes_per_s=1e6, cpu_s_per_byte=0.0, cpu_s_per_message=0.0
)
LINK = Channel(latency_s=0.25, bandwidth_bytes_per_s=1e6, origin="measured")
READY = {
    **{
        "orders": None,
        "has_collate": False,
        "num_samples": 100,
        "has_test": False,
        "has_metrics": False,
        "set_to_train": [],
        "not_means": [],
        "metrics": ["test_loss"],
        "batch_size": 25,
        "seed": 0,
        "epochs": 2,
        "chunks": None,
        "loaders": 0,
        "weights": {"a.bias": 1, "a.weight": 7},
    },
    "items": {"0": 3, "50": 5, "99": None},
    "first_pass": {
        "samples": 4,
        "outputs": [codec.encode(ModuleOutput(module="a (Linear)", norm=2.0, projection=-1.0))],
        "gradients": [],
    },
    **{
        "autocast": None,
        "has_scheduler": False,
        "clip_norm": None,
        "averages": None,
        "most_threads": 4,
        "schedule_end": None,
    },
    "schedule_fade": None,
    "rates": None,
    "stepping": {"optimizer": "SGD", "groups": [{"lr": 0.1}], "scheduler": None},
}
"""Four steps an epoch, eight in all."""


PACE = codec.encode(Pace(mean_s=sum(profile_of(GRAPH).whole_s(13)), deviation_s=0.0, bookkeeping_s=1e-6))
"""Of half a batch: what was profiled, so nobody slows anybody down."""


def known(workers: int = 2) -> Known:
    return Known(graph=GRAPH, profiles={1: profile_of(GRAPH)}, cluster=cluster(), plan=a_plan(workers))


def file(name: str) -> Arrived:
    """What a rank has sent."""
    return Arrived(Path(name), 1)


@dataclass
class Job:
    """A coordinator with ranks that say what the test tells them to."""

    settings: JobSettings = field(default_factory=lambda: JobSettings(workers=2, strategy="ring"))
    known: Known | None = None
    checkpoint: bytes = b""
    first_step: int = 0
    inventories: tuple[Inventory, ...] = ()
    """What lives on each rank's node; empty: all data on all."""
    ready: dict[str, Any] = field(default_factory=lambda: dict(READY))
    found: ProbedPair = FOUND
    """By every probe."""

    def __post_init__(self) -> None:
        self.coordinator = Coordinator(
            self.settings, cores=4, known=self.known, checkpoint=self.checkpoint, first_step=self.first_step,
        )  # fmt: skip
        self.ranks = range(self.settings.world_size)
        self.told: list[cmd.Command] = []

    def start(self) -> list[cmd.Command]:
        return self._keep(self.coordinator.start({rank: (f"host-{rank}", 100 + rank) for rank in self.ranks}))

    def handle(self, event: ev.Event) -> list[cmd.Command]:
        return self._keep(self.coordinator.handle(event))

    def _keep(self, commands: list[cmd.Command]) -> list[cmd.Command]:
        self.told += commands
        return commands

    def say(self, rank: int, what: str, sent: Arrived | None = None, **message: Any) -> list[cmd.Command]:
        """A message as it comes off a wire: through JSON."""
        return self.handle(ev.Said(rank, json.loads(json.dumps({"is": what, **message})), sent))

    def all_say(self, what: str, ranks: Any = None, **message: Any) -> list[cmd.Command]:
        """Return what only the last one's message brought; nothing may come before."""
        *early, last = self.ranks if ranks is None else ranks
        for rank in early:
            assert self.say(rank, what, **message) == []
        return self.say(last, what, **message)

    def fail(self, rank: int, text: str = "ValueError: boom", **message: Any) -> list[cmd.Command]:
        given = {"kind": "ValueError", "doing": "load", "step": None, "is_echo": False, "peer": None}
        return self.say(rank, "failed", text=text, traceback="the traceback", **{**given, **message})

    def steps(self, rank: int, *numbers: int, step_s: float = 1.0, **report: Any) -> list[cmd.Command]:
        reports = [self._report(rank, number, step_s, report) for number in numbers]
        return self.say(rank, "steps", steps=reports, samples=[], under_way=None)

    def _report(self, rank: int, step: int, step_s: float, report: dict[str, Any]) -> dict[str, Any]:
        parts = StepParts(
            step=step, rank=rank, step_s=step_s, input_s=0.0, forward_s=0.0, backward_s=0.0, update_s=0.0,
            communication_s=0.0, other_s=0.0, sent_bytes=0, samples=13,
        )  # fmt: skip
        given = {"losses": [[rank, 0.5]], "spans": [], "reductions": [], "begin_s": float(rank), "notes": []}
        return {"step": step, "parts": parts.to_row(), **given, **report}

    def all_step(self, *numbers: int, step_s: float = 1.0) -> list[cmd.Command]:
        return [command for rank in self.workers for command in self.steps(rank, *numbers, step_s=step_s)]

    def hold(self, *members: int, alone: int | None = None) -> list[cmd.Command]:
        """Let ranks tell what they hold of the state, the same all of them, but for what one has alone."""
        for member in members:
            told = self.say(member, "holdings", **held(alone=member == alone))
            assert member == members[-1] or told == []
        return told

    def deliver(self, rank: int, sent: Arrived | None = None) -> list[cmd.Command]:
        usage = RankUsage(rank=rank, node="box", role="worker", peak_rss_bytes=1, cpu_s=1.0, wall_s=1.0)
        return self.say(rank, "delivered", sent, usage=codec.encode(usage), staleness={})

    def finish(self, rank: int, sent: Arrived | None = None) -> list[cmd.Command]:
        """Let a rank deliver what the run ends with; once all have, they leave. Return what the last one brought."""
        commands = self.deliver(rank, sent)
        staying = [each for each in commands if isinstance(each, cmd.Send) and each.message["do"] == "finish"]
        for member in staying[0].members if staying else ():
            commands = self.say(member, "finished")
        return commands

    def profiled(self) -> list[cmd.Command]:
        profile = profile_of(GRAPH)
        measured = Measured(graph=GRAPH, profiles=dict.fromkeys((4, 2, 1), profile), node=cluster().nodes[0])
        return self.say(0, "profiled", measured=codec.encode(measured), note="")

    def wire(self) -> list[cmd.Command]:
        for rank in self.ranks[:-1]:
            assert self.say(rank, "listening", address=["10.0.0.1", 5000 + rank]) == []
        self.say(self.ranks[-1], "listening", address=["10.0.0.1", 5000 + self.ranks[-1]])
        return self.all_say("connected")

    def until_planned(self) -> list[cmd.Command]:
        """Play the start up to the plan; return the commands that make ranks build, or leave."""
        self.start()
        if self.inventories:
            self.all_reside()
            self.wire()
        else:
            self.all_say("ready", **self.ready)
        if self.known is not None:
            return self.wire()
        planned = self.profiled()
        if not self.inventories:
            planned = self.wire()
        if len(self.ranks) == 1:
            return planned
        planned = self._probed(planned)
        workers = range(self.settings.workers)
        return self.all_say("paced", workers, pace=PACE) if len(workers) > 1 else planned

    def _probed(self, commands: list[cmd.Command]) -> list[cmd.Command]:
        """Answer all probes, round after round; return what follows."""
        while asked := [each for each in commands if isinstance(each, cmd.Send) and each.message["do"] == "probe"]:
            for each in asked:
                found = codec.encode(self.found) if each.message["measures"] else None
                for member in each.members:
                    commands = self.say(member, "probed", found=found)
        return commands

    def all_reside(self) -> list[cmd.Command]:
        """Ranks tell what lives on their nodes, and learn the numbers of their samples; return what follows."""
        for rank, inventory in enumerate(self.inventories):
            asked = self.say(rank, "ready", **self.ready | {"inventory": codec.encode(inventory)})
        return asked if failed(asked) else self.all_say("resides", schedule={}, costs=None)

    def until_training(self) -> list[cmd.Command]:
        """Play the start; return the first orders to train."""
        self.until_planned()
        self.workers = range(self.planned.plan.world_size)
        return self.all_say("built", self.workers, kept={}, notes=[], seconds=1.0)

    def look_ahead(self, commands: list[cmd.Command], until: str = "") -> list[cmd.Command]:
        """Answer what is done beside training, until nothing of that is left; return all other commands.

        Args:
            commands: with what is to be answered.
            until: the first order, or command, that nobody answers any more.
        """
        left, others = list(commands), []
        while left:
            each = left.pop(0)
            if until and until in orders([each])[0]:
                return [*others, each]
            what = each.message["do"] if isinstance(each, cmd.Send) else ""
            if isinstance(each, cmd.PlanAside):
                left += self.handle(plan_aside(each))
            elif what and each.message.get("beside"):
                found = codec.encode(self.found) if each.message.get("measures") else None
                told = {"ticket": each.message["ticket"], "found": found, "failed": ""}
                left += [then for member in each.members for then in self.say(member, "beside", **told)]
            elif what == "warm":
                left += self.say(each.members[0], "warmed", number=each.message["number"])
            elif what == "pace":
                left += self.say(each.members[0], "paced", pace=PACE)
            else:
                others.append(each)
        return others

    @property
    def planned(self) -> cmd.Planned:
        return next(command for command in self.told if isinstance(command, cmd.Planned))


def held(*, alone: bool = False) -> dict[str, Any]:
    """What a rank tells that it holds; `alone`: with something that no other rank has."""
    facts = {"optimizer": "SGD", "scalars": {}, "groups": {}, "state_dict": None, "unkept": ""}
    facts |= {"fingerprints": {}, "extras": {}, "diverged": ""}
    own = [["optimizer.a.weight.momentum_buffer", "F32", [2, 3], 0, 6, False]] if alone else []
    return {"rows": [["model.a.weight", "F32", [2, 3], 0, 6, False], *own], "facts": facts}


def failed(commands: list[cmd.Command]) -> bool:
    return any(isinstance(command, cmd.Failed) for command in commands)


def orders(commands: list[cmd.Command]) -> list[str]:
    """`RANKS do [step]` of each order, other commands by their names."""
    texts = []
    for command in commands:
        if isinstance(command, cmd.Send):
            ranks = "".join(map(str, command.members))
            texts.append(" ".join([ranks, command.message["do"], *([str(command.message["step"])]
                if "step" in command.message else [])]))  # fmt: skip
        else:
            texts.append(type(command).__name__)
    return texts


def message(commands: list[cmd.Command], do: str) -> dict[str, Any]:
    return next(each.message for each in commands if isinstance(each, cmd.Send) and each.message["do"] == do)


def failure(commands: list[cmd.Command]) -> BaseException:
    (failed,) = commands
    assert isinstance(failed, cmd.Failed)
    return failed.error
