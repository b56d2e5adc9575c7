"""Whole runs whose data live on nodes that come and go: ranks are threads that say they are nodes.

What was trained is what one device trains on the same samples in the same order, whoever held them.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from coordinated import READY, failure, file, message, orders
from coordinated import Job as Coordinated
from harness import difference, plain_loop
from nets import NUM_SAMPLES, images, program
from pretended import cluster
from torch.utils.data import Subset

from nfold.core import codec
from nfold.core.cluster import Channel, Cluster, Node
from nfold.core.job import Begun, JobSettings
from nfold.core.options.averages import Averages
from nfold.core.options.host_range import HostRange
from nfold.core.residency import PlacedData
from nfold.core.text.cluster_file import LOCAL
from nfold.errors import PlanError
from nfold.node_data import local_data
from nfold.planning.residency.node_inventory import Inventory, keys_of
from nfold.planning.residency.resident_order import placed_order
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.placing.living_data import LivingData, check_hosts_stay
from nfold.runtime.data.resident_samples import ResidentSamples
from nfold.verbs.options.job_record import Resumed
from nfold.verbs.options.option_checks import Options
from nfold.verbs.ranks.thread_ranks import threads_put_back
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
        """What follows once a single host is left, the first time."""

    def noted(self, text: str) -> None:
        self.notes.append(text)

    def planned(self, planned: Any, folder: Any) -> None:
        self.worlds.append(planned.plan.world_size)
        if self.alone is not None and self.worlds[-1] == 1:
            self.alone()
            self.alone = None


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Samples that come are kept in a folder of the test."""
    monkeypatch.setenv("NFOLD_DATA", str(tmp_path / "data"))
    with threads_put_back():
        yield


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
        **changes: Any,
    ):
        told = holds | (brings or {})
        ends = [sum([*told.values()][: index + 1]) for index in range(len(told))]
        parts = {name: range(end - held, end) for (name, held), end in zip(told.items(), ends, strict=True)}
        lives = local_data(lambda node: Subset(images(), parts[node]) if node in parts else None)
        self._mine = replace(program("plain"), train_data=lives, epochs=10**5, **changes)
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
        self.job._settings = replace(self.job._settings, cluster=cluster, nodes=names, hosts=self._hosts, waits_s=60.0)
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

    @property
    def session(self) -> Any:
        assert self.job.session is not None
        return self.job.session

    @property
    def placed(self) -> PlacedData:
        found = self.folder.placed()
        assert found is not None
        return found

    def end(self, longer_from: int = 10**5) -> Run:
        """Leave the loop, and hold what was learnt against one device's; all samples count from some epoch on."""
        self._steps.close()  # type: ignore[attr-defined]
        ran, mine, runs = run_of(self.job), program("plain"), self.placed.runs
        samples = ResidentSamples(runs, mine.batch_size, mine.seed)
        assert all(line["epoch"] == samples.epoch_steps.begun(line["step"]) for line in ran.history)
        assert difference(ran.state_dict(), plain_loop(mine, self.step, 0, samples=samples).state_dict()) <= 1e-9
        for epoch in range(samples.epoch_steps.begun(self.step)):
            order, count = placed_order(runs, mine.seed, epoch, mine.batch_size), self._begun
            assert sorted(order.number) == [*range(NUM_SAMPLES if epoch >= longer_from else count)], "each sample once"
        return ran


def test_who_leaves_gives_its_samples_to_those_who_stay(tmp_path):
    run = Living(tmp_path, {"pi": 24, "desk": 20})
    run.train(2)
    run.leave(1)
    assert run.until_planned(2) == 1
    run.train(3)
    assert [each.nodes for each in run.placed.runs] == [("pi", "desk"), ("pi",)]
    run.end()


def test_who_comes_is_given_samples_and_may_go_again(tmp_path):
    run = Living(tmp_path, {"pi": 24, "desk": 20})
    run.train(2)
    run.come("new")
    assert run.until_planned(2) == 3
    run.train(3)
    run.leave(0)
    assert run.until_planned(3) == 2
    run.train(2)
    assert [each.nodes for each in run.placed.runs] == [("pi", "desk"), ("pi", "desk", "new"), ("desk", "new")]
    run.end()


def test_what_a_host_brings_that_comes_later_counts_from_the_next_epoch_on(tmp_path):
    run = Living(tmp_path, {"pi": 18, "desk": 14}, {"new": 12})
    run.train(3)
    run.come("new")
    assert run.until_planned(2) == 3
    epoch = run.placed.runs[-1].epochs[-1].from_epoch
    note = run.until_noted("new brings 12 samples")
    assert note.startswith(
        f"new brings 12 samples: they count from epoch {epoch + 1} on, which has 44 samples in 3 steps; the run has "
    )
    assert [(member.node, member.is_brought) for member in run.placed.members][-1] == ("new", True)
    run.train(7)
    assert run.job.outcome.total_steps == 2 * epoch + 3 * (10**5 - epoch)
    run.leave(2)  # what it brought stays with the others
    assert run.until_planned(3) == 2
    run.train(4)
    run.end(longer_from=epoch)


@pytest.mark.parametrize("same", [True, False])
def test_a_run_goes_on_with_what_was_brought_though_its_host_is_gone(tmp_path, same):
    run = Living(tmp_path, {"pi": 18, "desk": 14}, {"new": 12})
    run.train(1)
    run.come("new")
    run.until_planned(2)
    epoch = run.placed.runs[-1].epochs[-1].from_epoch
    run.train(5)
    run.leave(2)
    run.until_planned(3)
    run.train(2)
    run.go_on("pi", "desk", same=same)
    run.train(3)
    run.end(longer_from=epoch)


def test_who_is_below_min_trains_again_once_somebody_is_back_whether_it_is_of_use_or_not(tmp_path, monkeypatch):
    """Neither what it brings can be placed, nor it."""
    placed_anew = LivingData.placed_anew

    def refusing(living: Any, gathered: Any, excluded: Any, *rest: Any) -> PlacedData:
        if len(gathered.members) - len(excluded) > 1:
            raise PlanError("they compute nothing" if gathered.brought else "it has no room")
        return placed_anew(living, gathered, excluded, *rest)

    run = Living(tmp_path, {"pi": 24, "desk": 8}, {"new": 12}, least=2)
    run.train(1)
    monkeypatch.setattr(LivingData, "placed_anew", refusing)
    run.told.alone = lambda: run.come("new")
    run.leave(1)
    assert run.until_planned(3) == 1
    assert "note: 12 samples of new do not count: they compute nothing" in run.told.notes
    assert "note: new cannot be used, and is let go: it has no room" in run.told.notes
    run.train(2)
    run.end()


def test_a_sample_that_the_disk_loses_comes_again_while_the_run_goes_on(tmp_path):
    run = Living(tmp_path, {"pi": 40, "desk": 4})
    run.train(1)
    (kept,) = [path for path in (tmp_path / "data").rglob("items-0") if path.stat().st_size]
    kept.write_bytes(bytes(kept.stat().st_size))
    note = run.until_noted("lost or changed by its disk")
    assert note.endswith("on desk was lost or changed by its disk, and is fetched again from pi")
    run.train(4)
    run.end()


# What is decided, without ranks


def lives(held: int, **told: Any) -> Inventory:
    return Inventory(**{"num_samples": held, "sample_bytes": 100.0, "num_pinned": 0, "digest": f"{told}"} | told)


def begun(*inventories: Inventory, place: str | None = "waterfill", least: int = 1, **wishes: Any) -> Coordinated:
    """A job of nodes that hold what they say, and come and go."""
    names = ("box", "box-2", "box-3")[: len(inventories)]
    wishes |= {"place": place, "hosts": HostRange(least=least, most=3)}
    settings = JobSettings(workers=len(names), strategy="ring", nodes=names, cluster=cluster(*names), **wishes)
    return Coordinated(settings, inventories=inventories)


def training(*inventories: Inventory) -> Coordinated:
    job = begun(*inventories)
    job.until_training()
    return job


def notes(job: Coordinated) -> list[str]:
    return [each.text for each in job.told if isinstance(each, cmd.Noted)]


def test_hosts_of_data_that_stay_where_they_are_stay_too():
    for place in (None, "nothing"):
        job = begun(lives(50), lives(50, digest="others"), place=place)
        job.start()
        told = str(failure(job.all_reside()))
        assert told.startswith("--nodes 1:3: data live on nodes and stay there, so the hosts of the run stay the same.")
        assert "Add --place auto" in told


def test_data_of_an_emulated_cluster_have_no_hosts_to_follow():
    box = replace(cluster("a", "b"), is_emulated=True)
    settings = JobSettings(workers=2, strategy="ring", hosts=HostRange(1, 3), cluster=box)
    with pytest.raises(PlanError, match=r"the hosts of the run stay the same\. Leave out --nodes\.$"):
        check_hosts_stay(settings)


def test_who_pins_samples_ends_the_run_when_it_is_to_leave():
    job = training(lives(50, num_pinned=7), lives(50))
    why = "7 samples pinned to box would be missing in every epoch: the run keeps a checkpoint and ends"
    assert f"note: if box leaves, {why}" in notes(job)
    told, *_ = job.handle(ev.ReleaseWanted(0))
    assert told.text == f"member 0 (on box, pid 100) is to leave, and {why}"


def test_a_host_that_is_left_out_at_the_start_counts_as_one_that_is_there():
    """All samples are pinned, and fewer than MIN train on them."""
    job = begun(lives(50, num_pinned=50), lives(0), least=2, waits_s=60.0)
    job.start()
    job.all_reside()
    assert "note: box-2 is left out: it holds no samples, and all samples of others are pinned" in notes(job)
    for reply in ("abandoned", "finished"):
        job.say(1, reply, usage=None, staleness={}, has_file=False)
    assert job.coordinator._membership.num_lacking == 0


def test_a_lost_host_whose_samples_nobody_has_ends_the_run():
    job = training(lives(50), lives(50, digest="others"))
    job.handle(ev.Left(1, "was killed by signal 9 (SIGKILL)"))
    job.fail(0, "it is gone", kind="PeerLost", is_echo=True, doing="until")
    told = str(failure(job.say(0, "abandoned")))
    assert told.startswith("50 samples that the run trains on live on nodes that are not there, box-2 among them.")


def test_nothing_is_made_ready_while_others_train_and_the_state_goes_through_a_file():
    job = training(lives(50), lives(50, digest="others"))
    assert message(job.told, "build")["protect"] == 0
    assert job.handle(ev.ClockTick(1e3, {0: 1e3, 1: 1e3})) == []
    assert job.handle(ev.ReleaseWanted(1)) == []
    assert set(orders(job.all_step(0, 1, 2, 3))) == {"StepDone"}
    job.say(1, "checkpoint", has_file=False)
    assert orders(job.say(0, "checkpoint", file("epoch"), has_file=True)) == ["KeepCheckpoint", "TakeState"]
    assert orders(job.handle(ev.StateTaken(b"header"))) == ["01 connect"]


def newcomer(job: Coordinated, inventory: Inventory, **told: Any) -> list[cmd.Command]:
    job.handle(ev.MemberStarted(2, replace(cluster().nodes[0], name="pi-9")))
    job.say(2, "hello", host="there", pid=77)
    lives_there = {"num_samples": inventory.num_samples, "inventory": codec.encode(inventory)}
    return job.say(2, "ready", **READY | lives_there | told)


def test_who_comes_learns_the_numbers_of_all_samples_and_then_listens():
    job = training(lives(50), lives(50, digest="others"))
    assert orders(newcomer(job, lives(0))) == ["2 reside"]
    reside = message(job.told[-1:], "reside")
    assert (reside["first"], reside["total"], reside["key"]) == (100, 100, message(job.told, "reside")["key"])
    assert orders(job.say(2, "resides", schedule={}, costs=None)) == ["2 listen"]


OTHERS = {"first_pass": {"samples": 4, "outputs": []}}


@pytest.mark.parametrize(
    ("brings", "wishes", "ready", "told", "says"),
    [
        ({}, {"steps": 90}, {}, {}, "which would make epochs longer, and the run was asked for 90 steps in all"),
        ({}, {}, {"has_scheduler": True}, {}, "and Program(scheduler=...) was made for the steps that there are now"),
        ({}, {}, {"averages": codec.encode(Averages(kind="swa", every="epoch"))}, {}, "counts epochs of the steps"),
        ({"keys": keys_of({"a.jpg": "1"})}, {}, {}, {}, "they are named files, while those of the others are items"),
        ({}, {}, {}, {"first_pass": None}, "the program computes nothing from them"),
        ({}, {}, {}, OTHERS, "the model calls other modules with them than with those of the others"),
        ({"digest": "others"}, {}, {}, {}, "box-2 and pi-9 both hold the same 5 samples, as far as a few of them tell"),
    ],
)
def test_who_brings_samples_that_the_run_cannot_count_is_not_let_in(brings, wishes, ready, told, says):
    job = begun(lives(50), lives(50, digest="others"), **wishes)
    job.ready |= ready
    job.until_training()
    refused, finish = newcomer(job, lives(5, **brings), **ready | told)
    assert refused.text.startswith("note: member 2 (on pi-9, pid 77) is not let in: ")
    assert says in refused.text
    assert orders([finish]) == ["2 finish"]


def test_who_brings_samples_is_told_numbers_of_their_own():
    job = training(lives(50), lives(50, digest="others"))
    assert orders(newcomer(job, lives(5, digest="mine"))) == ["2 reside"]
    reside = message(job.told[-1:], "reside")
    assert (reside["first"], reside["total"], reside["num_begun"]) == (100, 105, 100)
    assert reside["brought"] == [[100, 105, "mine"]]


def test_a_lost_sample_is_asked_of_the_node_that_it_lived_on():
    job = training(lives(50), lives(50, digest="others"))
    noted, give = job.say(1, "lacks", number=7)
    assert noted.text == "note: sample 7 on box-2 was lost or changed by its disk, and is fetched again from box"
    assert (give.members, give.message) == ((0,), {"do": "give", "beside": True, "number": 7, "to": 1})
    (given,) = job.say(0, "gives", number=7, to=1, why="", name="a.jpg", data="QUI=", crc=5)
    assert (given.members, given.blob) == ((1,), b"AB")
    assert given.message == {"do": "given", "beside": True, "number": 7, "why": "", "name": "a.jpg", "crc": 5}


def test_a_lost_sample_that_lived_on_a_node_that_is_gone_ends_the_run():
    job = training(lives(50), lives(50, digest="others"))
    (given,) = job.say(1, "lacks", number=70)
    assert "only box-2 has it, which is not there" in given.message["why"]


def test_a_second_rank_on_a_node_is_not_let_in():
    job = training(lives(50), lives(50, digest="others"))
    job.handle(ev.MemberStarted(2, cluster("box").nodes[0]))
    job.say(2, "hello", host="there", pid=77)
    refused, _ = job.say(2, "ready", **READY | {"inventory": codec.encode(lives(50))})
    assert "box trains already, and what lives on a node is for one rank of it" in refused.text
