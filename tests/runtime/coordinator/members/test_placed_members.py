"""Whole runs whose data live on nodes that come and go: ranks are threads that say they are nodes.

What was trained is what one device trains on the same samples in the same order, whoever held them.
"""

from dataclasses import replace
from typing import Any

import pytest
from coordinated import READY, failure, file, held, message, orders
from living_hosts import Living, begun, lives, newcomer, notes, training
from pretended import cluster
from test_coming_and_going import lose

from nfold.core import codec
from nfold.core.job import JobSettings
from nfold.core.options.host_range import HostRange
from nfold.core.residency import EpochSamples, NodeData, PlacedData, PlacedRun, RankSamples, SampleMove
from nfold.errors import ClusterError, PlanError
from nfold.planning.residency.model.spans import joined
from nfold.planning.residency.resident_order import check_runs, epoch_steps, placed_order, runs_before
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.members.generations import Generations
from nfold.runtime.coordinator.placing.kept_placement import lists_at
from nfold.runtime.coordinator.placing.living_data import check_hosts_stay
from nfold.runtime.step.cells import Cells
from nfold.verbs.ranks.thread_ranks import threads_put_back


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Samples that come are kept in a folder of the test."""
    monkeypatch.setenv("NFOLD_DATA", str(tmp_path / "data"))
    with threads_put_back():
        yield


def test_who_leaves_gives_its_samples_to_those_who_stay(tmp_path, monkeypatch):
    let_go, known = Generations.let_go, []

    def note_and_let_go(generations, ranks):
        known.append(run.session._coordinator._living.runs[-1].nodes)
        yield from let_go(generations, ranks)
        known.append(run.placed.runs[-1].nodes)

    run = Living(tmp_path, {"pi": 24, "desk": 20})
    run.train(2)
    monkeypatch.setattr(Generations, "let_go", note_and_let_go)
    run.leave(1)
    assert run.until_planned(2) == 1
    assert known[0] == ("pi",), "before it goes: another host may be lost right then"
    assert known[1] == ("pi",), "in the folder too: the command may be killed right then"
    run.train(3)
    assert [each.nodes for each in run.placed.runs] == [("pi", "desk"), ("pi",)]
    run.end()


@pytest.mark.exhaustive
def test_a_run_that_ends_as_a_host_has_left_goes_on_with_those_who_have_its_samples(tmp_path, monkeypatch):
    """Another one is lost before the next plan is made, and samples live on it alone."""
    let_go = Generations.let_go

    def let_go_and_lose(generations, ranks):
        yield from let_go(generations, ranks)
        if ranks:
            run.cut_off(2)

    run = Living(tmp_path, {"pi": 12, "desk": 10, "third": 10})
    run.train(2)
    monkeypatch.setattr(Generations, "let_go", let_go_and_lose)
    run.leave(1)
    with pytest.raises(ClusterError, match="samples that the run trains on live on nodes that are not there"):
        run.train(9)
    assert len(run.told.worlds) == 1, "the plan in the folder is that of three"
    run.go_on("pi", "third", same=False)
    run.train(3)
    run.end()


@pytest.mark.exhaustive
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


@pytest.mark.parametrize("net", ["plain", pytest.param("residual", marks=pytest.mark.exhaustive)])
def test_who_is_lost_amid_an_epoch_takes_no_step_along_and_its_samples_come_elsewhere(tmp_path, monkeypatch, net):
    """Within a step, before its gradients are known: the batch of that step is another one then."""
    backward, armed = Cells._backward, []

    def vanish_and_go_on(self, task, emit):
        if armed and self._schedule.rank == 2:
            armed.pop()()
        backward(self, task, emit)

    monkeypatch.setattr(Cells, "_backward", vanish_and_go_on)
    run = Living(tmp_path, {"pi": 24, "desk": 20}, net=net)
    run.train(2)
    run.come("new")
    assert run.until_planned(2) == 3
    run.train(3 - run.step % 3 + 1)
    lost_in = run.step
    armed.append(lambda: run.cut_off(2))
    assert run.until_planned(3) == 2
    run.train(4)
    run.end()
    *_, loss = run.folder.events()
    assert (loss.kind, loss.again_from, loss.steps_again) == ("loss", "the step under way", 0)
    assert run.placed.runs[-1].first_step == lost_in
    assert [line["step"] for line in run.folder.history()] == list(range(1, run.step + 1))


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


def test_hosts_of_data_that_stay_where_they_are_stay_too():
    for place in (None, "nothing"):
        job = begun(lives(50), lives(50, digest="others"), place=place)
        job.start()
        told = str(failure(job.all_reside()))
        assert told.startswith("--nodes 1:3: data live on nodes and stay there, so the hosts of the run stay the same.")
        assert "Add --place auto" in told


def test_hosts_of_data_that_stay_in_an_emulated_cluster_are_all_its_nodes():
    box = replace(cluster("a", "b"), is_emulated=True)
    settings = JobSettings(workers=2, strategy="ring", hosts=HostRange(1, 3), cluster=box, box=box)
    with pytest.raises(PlanError, match=r"Add --place auto, which lets samples follow .*, or leave out --nodes\.$"):
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


@pytest.mark.parametrize("step", range(1, 15))
def test_whichever_step_a_loss_goes_back_to_its_epoch_visits_each_sample_once(step):
    """Two hosts have given samples to a third, which is lost; some of these were to come in the second epoch."""
    lived = (((0, 40),), ((40, 70),))
    begun = EpochSamples(from_epoch=0, by_rank=(_own((0, 25)), _own((40, 70)), _own((25, 40))))
    moved = RankSamples(own=((25, 40),), arriving=((60, 70),))
    later = EpochSamples(from_epoch=1, by_rank=(_own((0, 25)), _own((40, 60)), moved))
    moves = (SampleMove(source=0, target=2, spans=((25, 40),)),)
    moves = (*moves, SampleMove(source=1, target=2, spans=((60, 70),), epoch=1))
    names = ("pi", "desk", "new")
    before = PlacedRun(first_step=0, members=(0, 1, 2), nodes=names, epochs=(begun, later), moves=moves)
    held = zip(names, (40, 30, 0), strict=True)
    members = tuple(NodeData(node=node, num_samples=count) for node, count in held)
    plan: Any = None
    kept = PlacedData(members=members, key="", sample_bytes=1.0, runs=(before,), plan=plan)
    epoch = epoch_steps(kept.runs, 10).epoch(step)
    lists = lists_at(kept, step, epoch, (0, 1))
    assert tuple(map(joined, map(sorted, lists))) == lived, "where they came from"
    ranks = tuple(RankSamples(own=spans) for spans in lists)
    epochs = (EpochSamples(from_epoch=epoch, by_rank=ranks),)
    after = PlacedRun(first_step=step, members=(0, 1), nodes=names[:2], epochs=epochs)
    runs = (*runs_before(kept.runs, step), after)
    check_runs(runs, 10)
    order, planned = (placed_order(each, 3, epoch, 10) for each in (runs, kept.runs))
    done = 10 * (step - 7 * epoch)
    assert sorted(order.number) == list(range(70))
    assert list(order.number[:done]) == list(planned.number[:done]), "what was visited stays"


def _own(*spans: tuple[int, int]) -> RankSamples:
    return RankSamples(own=spans)


def taken(step: int) -> list[dict[str, Any]]:
    """What a rank holds of the state of all."""
    return [{"generation": 0, "step": step, "told": held(), "others": [], "is_whole": True}]


GONE = "50 samples that the run trains on live on nodes that are not there, box-2 among them."


def test_a_lost_host_whose_samples_nobody_has_ends_the_run_which_keeps_the_step_under_way():
    job = training(lives(50), lives(50, digest="others"))
    job.all_step(0)
    for rank in (0, 1):
        job.say(rank, "steps", steps=[], samples=[], under_way={"step": 1, "losses": [[rank, 0.5]], "samples": 13})
    lose(job, 1, 0)
    assert orders(job.say(0, "abandoned")) == ["0 recall"]
    assert orders(job.say(0, "recalled", states=taken(2))) == ["StepDone", "0 connect"], "it has ended that step"
    assert orders(job.say(0, "connected")) == ["0 keep"]
    assert orders(job.say(0, "kept", file("two"), has_file=True)) == ["KeepCheckpoint", "0 abandon"]
    assert orders(job.say(0, "abandoned")) == ["TakeState"]
    assert str(failure(job.handle(ev.StateTaken(b"header")))).startswith(GONE)


def test_the_last_one_keeps_the_state_where_another_is_lost_while_both_do():
    job = training(lives(50), lives(50, digest="others"), lives(50, digest="third"))
    job.all_step(0, 1)
    lose(job, 2, 0, 1)
    job.all_say("abandoned", (0, 1))
    assert orders(job.all_say("recalled", (0, 1), states=taken(2))) == ["01 connect"]
    assert orders(job.all_say("connected", (0, 1))) == ["0 keep", "1 keep"]
    assert orders(lose(job, 1, 0)) == ["LetGo", "0 abandon"]
    assert orders(job.say(0, "abandoned")) == ["0 recall"]
    assert orders(job.say(0, "recalled", states=taken(2))) == ["0 connect"]
    job.say(0, "connected")
    kept, abandon = job.say(0, "kept", file("two"), has_file=True)
    assert (kept, orders([abandon])) == (cmd.KeepCheckpoint(2, file("two")), ["0 abandon"])


def test_a_file_that_has_the_step_already_is_not_written_again():
    job = training(lives(50), lives(50, digest="others"))
    job.all_step(0, 1, 2, 3)
    job.say(1, "checkpoint", has_file=False)
    job.say(0, "checkpoint", file("epoch"), has_file=True)
    lose(job, 1, 0)
    job.say(0, "abandoned")
    assert orders(job.say(0, "recalled", states=taken(4))) == ["TakeState"]
    assert "50 samples" in str(failure(job.handle(ev.StateTaken(b"header"))))


def test_nothing_is_made_ready_while_others_train_and_the_state_goes_through_a_file():
    job = training(lives(50), lives(50, digest="others"))
    assert message(job.told, "build")["state"] is None
    assert job.handle(ev.ClockTick(1e3, {0: 1e3, 1: 1e3})) == []
    assert job.handle(ev.ReleaseWanted(1)) == []
    assert set(orders(job.all_step(0, 1, 2, 3))) == {"StepDone"}
    job.say(1, "checkpoint", has_file=False)
    assert orders(job.say(0, "checkpoint", file("epoch"), has_file=True)) == ["KeepCheckpoint", "TakeState"]
    assert orders(job.handle(ev.StateTaken(b"header"))) == ["01 connect"]


def test_who_comes_learns_the_numbers_of_all_samples_and_then_listens():
    job = training(lives(50), lives(50, digest="others"))
    assert orders(newcomer(job, lives(0))) == ["2 reside"]
    reside = message(job.told[-1:], "reside")
    assert (reside["first"], reside["total"], reside["key"]) == (100, 100, message(job.told, "reside")["key"])
    assert orders(job.say(2, "resides", schedule={}, costs=None)) == ["2 listen"]


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
