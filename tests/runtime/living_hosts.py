"""Runs whose data live on hosts that come and go: ranks are threads that say they are hosts, or a test plays them."""

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from coordinated import READY
from coordinated import Job as Coordinated
from harness import difference, plain_loop
from nets import NUM_SAMPLES, images, program
from pretended import cluster
from torch.utils.data import Subset

from nfold.core import codec
from nfold.core.cluster import Channel, Cluster, Node
from nfold.core.job import Begun, JobSettings
from nfold.core.options.host_range import HostRange
from nfold.core.residency import PlacedData
from nfold.core.text.cluster_file import LOCAL
from nfold.node_data import local_data
from nfold.planning.residency.node_inventory import Inventory
from nfold.planning.residency.resident_order import placed_order
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.data.resident_samples import ResidentSamples
from nfold.verbs.options.job_record import Resumed
from nfold.verbs.options.option_checks import Options
from nfold.verbs.run_folder.folder import RunFolder
from nfold.verbs.running.observer import NullObserver
from nfold.verbs.running.run import Run, run_of
from nfold.verbs.running.run_job import Job

if TYPE_CHECKING:
    from collections.abc import Iterator


class Told(NullObserver):
    """Keeps what a user is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.worlds: list[int] = []
        self.alone: Any = None
        """What follows once too few hosts are left, the first time."""

    def noted(self, text: str) -> None:
        self.notes.append(text)
        if self.alone is not None and "too few are left to train" in text:
            self.alone()
            self.alone = None

    def planned(self, planned: Any, folder: Any) -> None:
        self.worlds.append(planned.plan.world_size)


def machine(name: str) -> Node:
    link = Channel(latency_s=0.0, bandwidth_bytes_per_s=1e9, origin="declared")
    return Node(name=name, cores=1.0, memory_bytes=1 << 34, local=LOCAL, uplink=link, downlink=link)


class Living:
    """A run whose nodes hold the next so many samples each; its test leaves it when it has seen enough."""

    def __init__(
        self,
        folder: Any,
        holds: dict[str, int],
        brings: dict[str, int] | None = None,
        least: int = 1,
        place: str = "waterfill",
        net: str = "plain",
        protect: int | str = "auto",
        **changes: Any,
    ):
        told = holds | (brings or {})
        ends = [sum([*told.values()][: index + 1]) for index in range(len(told))]
        parts = {name: range(end - held, end) for (name, held), end in zip(told.items(), ends, strict=True)}
        lives = local_data(lambda node: Subset(images(), parts[node]) if node in parts else None)
        self._net, self._protect = net, protect
        self._mine = replace(program(net), train_data=lives, epochs=10**5, **changes)
        self.folder, self._begun = RunFolder.create(folder / "run", ""), sum(holds.values())
        self._place, self._hosts = place, HostRange(least=least, most=4)
        self.begin(*holds)

    def begin(self, *names: str, resumed: Resumed | None = None) -> None:
        """Begin on some nodes, or go on there."""
        wishes = {"evaluate": False, "measure": False, "strategy": "ring", "place": self._place}
        self.told = Told()
        options = Options(workers=len(names), **wishes)
        self.job = Job(self._mine, options, self.told, folder=self.folder, resumed=resumed, lockstep=True)
        cluster = Cluster(nodes=tuple(map(machine, names)))
        hosts = {"hosts": self._hosts, "protect": self._protect, "waits_s": 60.0}
        self.job._settings = replace(self.job._settings, cluster=cluster, nodes=names, **hosts)
        self._steps: Iterator[Any] = self.job.play()
        self.step = 0

    def go_on(self, *names: str, same: bool) -> None:
        """Leave the loop, and go on from the last checkpoint, as it was planned or anew."""
        self._steps.close()  # type: ignore[attr-defined]
        checkpoint, known = self.folder.checkpoint(), self.folder.known()
        begun = Begun(batch_size=16, steps_per_epoch=2, placed=self.placed)
        given = {"checkpoint": checkpoint, "history": [], "begun": begun}
        self.begin(*names, resumed=Resumed(known=known if same else None, **given))

    def train(self, steps: int = 1) -> None:
        for _ in range(steps):
            self.step = next(self._steps).step

    def until_planned(self, count: int) -> int:
        """Train until so many plans were made; return the ranks of the last one."""
        while len(self.told.worlds) < count:
            self.train()
        return self.told.worlds[-1]

    def until_noted(self, text: str) -> str:
        while not any(text in note for note in self.told.notes):
            self.train()
        return next(note for note in self.told.notes if text in note)

    def come(self, name: str) -> None:
        """Let a host come, as a pool tells of one."""
        self.session._events.put(ev.HostReady(machine(name)))

    def leave(self, member: int) -> None:
        self.session.release(member)

    def cut_off(self, member: int) -> None:
        """Let a member vanish without a word."""
        self.session._launcher._finish.__self__._network.connections(member).abort()
        self.session._control_server.far_ends[member].close()

    @property
    def session(self) -> Any:
        assert self.job.session is not None
        return self.job.session

    @property
    def placed(self) -> PlacedData:
        found = self.folder.placed()
        assert found is not None
        return found

    def end(self, longer_from: int = 10**5, gone: Collection[int] = ()) -> Run:
        """Leave the loop, and hold what was learnt against one device's; from an epoch on all count but those gone."""
        self._steps.close()  # type: ignore[attr-defined]
        ran, mine, runs = run_of(self.job), program(self._net), self.placed.runs
        samples = ResidentSamples(runs, mine.batch_size, mine.seed)
        assert all(line["epoch"] == samples.epoch_steps.begun(line["step"]) for line in ran.history)
        assert difference(ran.state_dict(), plain_loop(mine, self.step, 0, samples=samples).state_dict()) <= 1e-9
        for epoch in range(samples.epoch_steps.begun(self.step)):
            order, count = placed_order(runs, mine.seed, epoch, mine.batch_size), self._begun
            counted = {*range(NUM_SAMPLES if epoch >= longer_from else count)}.difference(gone)
            assert sorted(order.number) == sorted(counted), "each sample once"
        return ran


def lives(held: int, **told: Any) -> Inventory:
    return Inventory(**{"num_samples": held, "sample_bytes": 100.0, "num_pinned": 0, "digest": f"{told}"} | told)


def begun(*inventories: Inventory, place: str | None = "waterfill", least: int = 1, **wishes: Any) -> Coordinated:
    """A job of nodes that hold what they say, and come and go."""
    names = ("box", "box-2", "box-3")[: len(inventories)]
    wishes |= {"place": place, "hosts": HostRange(least=least, most=3)}
    wishes = {"cluster": cluster(*names)} | wishes
    settings = JobSettings(workers=len(names), strategy="ring", nodes=names, **wishes)
    return Coordinated(settings, inventories=inventories)


def training(*inventories: Inventory) -> Coordinated:
    job = begun(*inventories)
    job.until_training()
    return job


def notes(job: Coordinated) -> list[str]:
    return [each.text for each in job.told if isinstance(each, cmd.Noted)]


def newcomer(job: Coordinated, inventory: Inventory, **told: Any) -> list[cmd.Command]:
    job.handle(ev.MemberStarted(2, replace(cluster().nodes[0], name="pi-9")))
    job.say(2, "hello", host="there", pid=77)
    lives_there = {"num_samples": inventory.num_samples, "inventory": codec.encode(inventory)}
    return job.say(2, "ready", **READY | lives_there | told)
