"""Whole runs whose data live on nodes that come and go: ranks are threads that say they are nodes.

What was trained is what one device trains on the same samples in the same order, whoever held them.
"""

from dataclasses import replace

import pytest
from coordinated import READY, failure, file, message, orders
from living_hosts import Living, begun, lives, newcomer, notes, training
from pretended import cluster

from nfold.core import codec
from nfold.core.job import JobSettings
from nfold.core.options.host_range import HostRange
from nfold.errors import PlanError
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.placing.living_data import check_hosts_stay
from nfold.verbs.ranks.thread_ranks import threads_put_back


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Samples that come are kept in a folder of the test."""
    monkeypatch.setenv("NFOLD_DATA", str(tmp_path / "data"))
    with threads_put_back():
        yield


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
