"""Members that come and go while others train: who is let in, and how a run goes on with other ranks."""

import re
from dataclasses import replace
from typing import Any

import pytest
from coordinated import FOUND, PACE, READY, Job, file, held, message, orders
from pretended import cluster

from nfold.core import codec
from nfold.core.cluster import Cluster
from nfold.core.job import JobSettings
from nfold.core.members import Turnover
from nfold.core.options.host_range import HostRange
from nfold.core.profile import Pace
from nfold.core.trace import ReductionParts, StepParts
from nfold.errors import WorkerLost
from nfold.runtime.checkpoint.state_file import StateHeader
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.coordinator import MOST_LOOKS
from nfold.runtime.coordinator.members.planned_aside import plan_aside
from nfold.runtime.measuring.slowness import NUM_STEPS

KILLED = "was killed by signal 9 (SIGKILL)"
HELLO = {"host": "there", "pid": 77}
CHUNKED = READY | {"chunks": 4}


def training(workers: int = 2, ready: dict[str, Any] = CHUNKED, **settings: Any) -> Job:
    """A job of a ring that trains."""
    job = Job(JobSettings(workers=workers, strategy="ring", **settings), ready=ready)
    job.until_training()
    return job


def prepared(job: Job, number: int) -> list[cmd.Command]:
    """Let a member come, get ready and be planned with; return what follows."""
    assert orders(job.say(number, "hello", **HELLO)) == [f"{number} load"]
    assert orders(job.say(number, "ready", **CHUNKED)) == [f"{number} listen"]
    return job.look_ahead(job.say(number, "listening", address=["10.0.0.9", 5000 + number]))


def arrived(job: Job, number: int) -> list[cmd.Command]:
    """Let a member come on a host of its own, and get ready; return what follows."""
    job.handle(ev.MemberStarted(number, replace(cluster().nodes[0], name="pi-9")))
    job.say(number, "hello", **HELLO)
    job.say(number, "ready", **CHUNKED)
    return job.say(number, "listening", address=["10.0.0.9", 5000 + number])


def released(job: Job, number: int) -> list[cmd.Command]:
    """Let a member want to leave; return what follows once that is planned for."""
    return job.look_ahead(job.handle(ev.ReleaseWanted(number)))


def told(commands: list[cmd.Command]) -> list[str]:
    return [command.text for command in commands if isinstance(command, cmd.Noted)]


def test_a_member_that_comes_while_others_train_gets_ready_beside_them():
    job = training(checkpoint_every=100)
    assert message(job.say(2, "hello", **HELLO), "load") == {**message(job.told, "load"), "local_rank": 2}
    assert orders(job.say(2, "ready", **CHUNKED)) == ["2 listen"]
    assert orders(job.all_step(0)) == ["StepDone"], "the others train on"
    noted, *meet = job.say(2, "listening", address=["10.0.0.9", 5002])
    assert told([noted]) == [
        "member 2 (on there, pid 77) is prepared: it takes part as soon as a plan with it is ready"
    ]
    assert orders(meet) == ["0 meet", "1 meet", "2 meet"]
    known = [[[each[0] for each in order.message["addresses"]]] for order in meet]
    assert known == [[[0, 2]], [[1, 2]], [[0, 1, 2]]], "ranks know each other already"
    for number in (1, 0):
        assert job.say(number, "beside", ticket=meet[0].message["ticket"], found=None, failed="") == []
    (plan,) = job.say(2, "beside", ticket=meet[0].message["ticket"], found=None, failed="")
    assert (plan.stayers, plan.newcomers) == ((0, 1), (2,))
    assert orders(job.all_step(1)) == ["StepDone"], "the others train on"
    (warm,) = job.handle(plan_aside(plan))
    assert (warm.members, warm.message["do"], warm.message["rank"]) == ((2,), "warm", 2)
    assert job.say(2, "warmed", number=warm.message["number"] - 1) == [], "it is what an earlier plan asked for"
    assert orders(job.say(2, "warmed", number=warm.message["number"])) == ["01 hold"], "nobody waits from now on"


def test_a_member_that_some_rank_cannot_be_connected_to_is_not_let_in():
    job = training(checkpoint_every=100)
    for number, seen in ((2, "10.0.0.8"), (3, "10.0.0.9")):
        job.say(number, "hello", **HELLO)
        job.say(number, "ready", **CHUNKED)
        commands = job.say(number, "listening", address=["192.168.1.5", 5002], seen=seen)

    (noted,) = told(commands)
    assert noted.startswith(
        "note: member 3 (on there, pid 77) is not let in: there (192.168.1.5, seen as 10.0.0.8) and"
    )
    assert noted.endswith("The others go on.")
    assert orders(commands)[-1] == "3 finish"


def until_regrouped(job: Job, *members: int, alone: int | None = None) -> list[cmd.Command]:
    """Let a generation of some members end after its fourth step, and keep its state."""
    for step in (0, 1, 2, 3):
        for member in members:
            job.steps(member, step)
    *others, last = members
    for member in others:
        job.say(member, "checkpoint", file("epoch") if member == members[0] else None, has_file=True)
    kept = job.say(last, "checkpoint", file("epoch") if not others else None, has_file=True)
    if orders(kept)[-1] == "TakeState":  # nobody stays who could hold it
        return job.handle(ev.StateTaken(b"header"))
    assert orders(kept)[-1] == "".join(map(str, members)) + " holdings"
    return job.hold(*members, alone=alone)


def test_the_next_generation_begins_with_those_who_came_under_the_plan_that_was_made():
    job = training()
    prepared(job, 2)
    again, connect, *builds = until_regrouped(job, 0, 1)
    assert (connect.members, connect.message["members"], connect.message["generation"]) == ((0, 1, 2), [0, 1, 2], 1)
    assert connect.message["addresses"][2] == [2, "10.0.0.9", 5002]
    assert (again.plan.workers, again.plan.chunks, again.next_step) == (3, 4, 4)
    assert [each.members for each in builds] == [(0,), (1,), (2,)]
    assert all(StateHeader(each.blob).facts["step"] == 4 for each in builds)
    stays, stays_too, came = (each.message["state"] for each in builds)
    assert [row[2] for row in stays["sources"]] == [0], "who has it reads it from nobody else"
    assert [row[2] for row in stays_too["sources"]] == [1]
    assert (came["readers"], stays["readers"], [row[2] for row in came["sources"]]) == ([], [2], [0])
    assert orders(job.all_say("built", (0, 1, 2), kept={}, notes=[], seconds=1.0)) == ["012 until 8", "012 checkpoint"]


def test_who_announces_that_it_leaves_is_let_go_and_the_others_change_their_ranks():
    job = training()
    assert orders(released(job, 0)) == []
    assert orders(until_regrouped(job, 0, 1)) == ["0 abandon", "0 finish"]
    assert job.say(0, "abandoned") == []
    *notes, replanned, connect, build = job.say(0, "finished", usage=None)
    assert "ring cannot be had with the 1 that stay" in "".join(told(notes)) or not notes
    assert replanned.plan.world_size == 1
    assert (connect.members, connect.message["members"], connect.message["gone"]) == ((1,), [1], [0])
    assert job.handle(ev.Left(0, "exited with code 0"))[0] == cmd.LetGo(0)
    assert orders([build]) == ["1 build"]
    assert job.say(1, "connected") == []
    assert orders(job.say(1, "built", kept={}, notes=[], seconds=1.0)) == ["1 until 8", "1 checkpoint"]
    assert [each.step for each in job.steps(1, 4) if isinstance(each, cmd.StepDone)] == [4]
    (failed,) = job.handle(ev.Left(1, "was killed by signal 9 (SIGKILL)"))
    assert "rank 0 (on host-1, pid 101) was killed by signal 9" in str(failed.error), "its rank of now"


def test_who_leaves_gives_first_what_nobody_else_has():
    job = training(3)
    released(job, 1)
    (give,) = until_regrouped(job, 0, 1, 2, alone=1)
    assert (give.members, give.message["do"]) == ((0, 1), "hand")
    number, source, target, origin, index, name, *what = give.message["handings"][0]
    assert (number, source, target, origin, index) == (1, 1, 0, 1, 1)
    assert (name, what) == ("optimizer.a.weight.momentum_buffer", ["F32", [2, 3], 0, 6])
    assert orders(job.all_say("handed", (0, 1))) == ["1 abandon", "1 finish"]
    *_, first, second = job.say(1, "finished", usage=None)
    assert [row[2:5] for row in first.message["state"]["sources"]] == [[0, 0, 0], [0, 1, 1]]
    assert [row[2:5] for row in second.message["state"]["sources"]] == [[1, 2, 0], [0, 1, 1]]
    assert (first.message["state"]["readers"], second.message["state"]["readers"]) == ([1], [])


def test_where_all_leave_the_state_goes_through_a_checkpoint():
    job = training(checkpoint_every=100)
    prepared(job, 2)
    released(job, 0)
    released(job, 1)
    job.say(0, "holding", step=1)
    job.say(1, "holding", step=1)
    assert orders(job.all_step(0))[-1] == "01 checkpoint"
    job.say(1, "checkpoint", has_file=False)
    assert orders(job.say(0, "checkpoint", file("epoch"), has_file=True)) == ["KeepCheckpoint", "TakeState"]


def test_all_may_be_replaced_by_one_who_came():
    job = training()
    prepared(job, 2)
    released(job, 0)
    released(job, 1)
    assert orders(until_regrouped(job, 0, 1)) == ["01 abandon", "01 finish"]
    *_, connect, _ = job.all_say("finished", (0, 1), usage=None)
    assert connect.message["members"] == [2]


def test_nobody_is_left_where_who_came_ends_before_it_can_begin():
    job = training()
    prepared(job, 2)
    released(job, 0)
    released(job, 1)
    until_regrouped(job, 0, 1)
    job.handle(ev.Left(2, "was killed by signal 9 (SIGKILL)"))
    job.all_say("abandoned", (0, 1))
    (failed,) = job.all_say("finished", (0, 1), usage=None)
    assert str(failed.error).startswith("nobody is left to go on with: all ranks were to leave, and who came")


def test_who_wants_to_leave_while_others_are_let_in_waits_for_the_next_generation():
    job = training()
    prepared(job, 2)
    released(job, 0)
    until_regrouped(job, 0, 1)
    assert released(job, 1) == []
    job.say(0, "abandoned")
    *_, connect, _, _ = job.say(0, "finished", usage=None)
    assert connect.message["members"] == [1, 2]


def test_when_all_want_to_leave_the_run_is_kept_and_ends():
    job = training(checkpoint_every=100)
    assert orders(released(job, 0)) == ["01 hold"]
    (noted,) = told(job.handle(ev.ReleaseWanted(1)))
    assert noted.startswith("member 1 (on host-1, pid 101) is to leave, and fewer than the run may go on with would")
    job.say(0, "holding", step=1)
    assert orders(job.say(1, "holding", step=1)) == ["01 until 1"]
    assert orders(job.all_step(0))[-2:] == ["01 checkpoint", "01 deliver"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"batch_size": 20}, "its program has a batch size of 20, and the job's has a batch size of 25."),
        ({"clip_norm": 1.0}, "its program has clip_norm=1.0, and the job's has no clip_norm."),
        ({"num_samples": 99}, "rank 0 and member 2 built different programs: samples of train_data() are 100 and 99."),
        ({"items": {"0": 4, "50": 5, "99": None}}, "rank 0 and member 2 hold different data: item 0 of train_data()"),
        (
            {"rates": [[0, [0.1]], [4, [0.05]]]},
            "rank 0 and member 2 built different programs: after 4 steps of the schedule the learning rates are [0.02] "
            "and [0.05]. All hosts need the same script, started in the same way.",
        ),
        ({"weights": {"b": 1}}, "rank 0 and member 2 built different programs: only the model of rank 0 has a.bias."),
    ],
    ids=lambda each: str(each)[:20],
)
def test_who_brings_another_program_is_not_let_in_and_the_others_go_on(changes, why):
    job = training(ready=CHUNKED | {"rates": [[0, [0.1]], [4, [0.02]]]})
    job.say(2, "hello", **HELLO)
    refused = job.say(2, "ready", **(CHUNKED | changes))
    assert orders(refused) == ["Noted", "2 finish"]
    assert told(refused)[0].startswith(f"note: member 2 (on there, pid 77) is not let in: {why}")
    assert job.say(2, "finished", usage=None) == []
    (gone,) = job.handle(ev.Left(2, "exited with code 0"))
    assert isinstance(gone, cmd.LetGo)
    assert gone.why.startswith(f"it is not let in: {why}"), "for its own terminal"
    assert orders(job.all_step(0)) == ["StepDone"]


def test_who_fails_or_dies_before_it_is_let_in_is_told_and_the_others_go_on():
    job = training(checkpoint_every=100)
    job.say(2, "hello", **HELLO)
    assert "member 2 (on there, pid 77) is not let in: ValueError: boom" in told(job.fail(2))[0]
    failed = cmd.LetGo(2, why="it is not let in: ValueError: boom.")
    assert job.handle(ev.Left(2, "exited with code 1")) == [failed]
    job.say(3, "hello", **HELLO)
    noted, gone = job.handle(ev.Left(3, "was killed by signal 9 (SIGKILL)"))
    assert "member 3 (on there, pid 77) was killed by signal 9 (SIGKILL) before it was let in" in noted.text
    assert gone == cmd.LetGo(3, is_lost=True)
    noted, gone = job.handle(ev.Left(4, "exited with code 1"))
    assert "member 4 exited with code 1 before it reached the coordinator" in noted.text
    assert gone == cmd.LetGo(4)
    prepared(job, 5)
    assert job.handle(ev.Left(5, "was killed by signal 9 (SIGKILL)"))[-1] == cmd.LetGo(5, is_lost=True)
    job.say(0, "holding", step=1)
    held = job.say(1, "holding", step=1)
    assert orders(held) == ["01 until 1", "01 until 4"], "nobody is left to stop for: the generation of now goes on"


def test_nobody_loads_while_ranks_are_measured():
    job = Job(JobSettings(workers=2, strategy="ring"), ready=CHUNKED)
    job.start()
    job.all_say("ready", **CHUNKED)
    assert job.say(2, "hello", **HELLO) == []
    job.profiled()
    job.wire()
    job.say(1, "probed", found=None)
    job.say(0, "probed", found=codec.encode(FOUND))
    assert orders(job.all_say("paced", (0, 1), pace=PACE)) == ["Planned", "2 load", "0 build", "1 build"]


def test_where_no_checkpoint_is_kept_members_stay_and_nobody_comes():
    job = training(checkpoint_every=0)
    refused = job.say(2, "hello", **HELLO)
    assert orders(refused) == ["Noted", "2 finish"]
    assert "is not let in: the run keeps no checkpoints" in told(refused)[0]
    assert (
        "member 1 (on host-1, pid 101) stays until the end: the run keeps no ch"
        in told(job.handle(ev.ReleaseWanted(1)))[0]
    )
    assert "member 9 cannot be let go: nobody has come with that" in told(job.handle(ev.ReleaseWanted(9)))[0]


def test_members_wait_where_it_turns_out_that_nobody_can_go_on_from_a_checkpoint():
    job = training()
    prepared(job, 2)
    job.all_step(0, 1, 2, 3)
    job.say(1, "checkpoint", has_file=False, unkept="")
    given_up = job.say(0, "checkpoint", file("epoch"), has_file=True, unkept="it has a secret")
    assert orders(given_up) == ["Unkept", "Noted", "01 until 6"]
    assert told(given_up) == [
        "note: member 2 waits until the end: nobody could go on from a checkpoint of this program"
    ]


def test_who_waits_for_a_rank_can_leave_at_once_and_all_do_at_the_end():
    job = training()
    prepared(job, 2)
    noted, finish = job.handle(ev.ReleaseWanted(2))
    assert (told([noted]), orders([finish])) == (
        ["member 2 (on there, pid 77) leaves before it was let in"],
        ["2 finish"],
    )
    job.say(3, "hello", **HELLO)
    for steps, kept in (((0, 1, 2, 3), "epoch"), ((4, 5, 6, 7), "end")):
        job.all_step(*steps)
        job.say(1, "checkpoint", has_file=False)
        job.say(0, "checkpoint", file(kept), has_file=True)
    job.finish(0, file("model"))
    assert orders(job.finish(1)) == ["3 finish", "Finished"]


def test_a_newcomer_that_cannot_be_used_is_let_go():
    """Four ranks and as many chunks: a fifth has nothing to compute."""
    job = training(4)
    noted, finish = prepared(job, 4)[1:]
    assert told([noted])[0].startswith("note: member 4 (on there, pid 77) is not let in: it cannot be used: ")
    assert orders([finish]) == ["4 finish"]
    assert orders(job.all_step(0)) == ["StepDone"], "nobody stops for it"
    assert job.say(4, "finished", usage=None) == []
    gone = job.handle(ev.Left(4, "exited with code 0"))[0]
    assert isinstance(gone, cmd.LetGo)
    assert gone.why.startswith("it is not let in: it cannot be used: ")


def test_a_rank_that_is_lost_ends_the_run_whoever_waits():
    job = training()
    prepared(job, 2)
    assert job.handle(ev.Left(1, "was killed by signal 9 (SIGKILL)"))
    (failed,) = job.handle(ev.TimedOut())
    assert isinstance(failed.error, WorkerLost)
    assert "1 other rank stopped because of it" in str(failed.error)


def hosted(
    count: int,
    least: int = 1,
    checkpoint_every: int | None = None,
    strategy: str = "ring",
    waits_s: float = 0.0,
    **found: float,
) -> Job:
    """A job whose hosts come and go, before it begins."""
    link = replace(FOUND, **({"latency_s": 1e-6, "there_bytes_per_s": 1e9, "back_bytes_per_s": 1e9} | found))
    names = tuple(f"host-{number}" for number in range(count))
    declared = Cluster(nodes=tuple(replace(cluster().nodes[0], name=name) for name in names))
    settings: dict[str, Any] = {"nodes": names, "cluster": declared, "hosts": HostRange(least, 4)}
    settings |= {"workers": count, "strategy": strategy, "checkpoint_every": checkpoint_every}
    return Job(JobSettings(**settings, waits_s=waits_s), ready=CHUNKED, found=link)


def on_hosts(count: int, **wishes: Any) -> Job:
    """The same, once it trains."""
    job = hosted(count, **wishes)
    job.until_training()
    return job


def test_a_host_that_comes_is_a_node_of_the_next_plan_and_is_told_by_its_name():
    job = on_hosts(2)
    assert job.handle(ev.MemberStarted(2, replace(cluster().nodes[0], name="pi-9"))) == []
    load = message(job.say(2, "hello", **HELLO), "load")
    assert (load["node"], load["local_rank"]) == ("pi-9", 0)
    job.say(2, "ready", **CHUNKED)
    noted, *_ = job.look_ahead(job.say(2, "listening", address=["10.0.0.9", 5002]))
    assert "member 2 (on pi-9, pid 77) is prepared" in told([noted])[0]
    until_regrouped(job, 0, 1)
    again = [each for each in job.told if isinstance(each, cmd.Replanned)]
    assert again[0].plan.nodes == ("host-0", "host-1", "pi-9")
    assert [node.name for node in again[0].known.cluster.nodes] == ["host-0", "host-1", "pi-9"]
    assert again[0].turnover == Turnover(joined=("pi-9",))


def coming(job: Job, number: int, name: str = "pi-9") -> list[cmd.Command]:
    """Let a host come and its member be prepared; return what follows."""
    job.handle(ev.MemberStarted(number, replace(cluster().nodes[0], name=name)))
    return prepared(job, number)


def test_a_host_is_measured_beside_training_before_it_is_planned_with():
    job = on_hosts(2)
    job.handle(ev.MemberStarted(2, replace(cluster().nodes[0], name="pi-9")))
    job.say(2, "hello", **HELLO)
    job.say(2, "ready", **CHUNKED)
    _, pace = job.say(2, "listening", address=["10.0.0.9", 5002])
    assert orders([pace]) == ["2 pace"], "by itself"
    slow = codec.decode(Pace, PACE)
    slow = replace(slow, mean_s=2 * slow.mean_s)
    meets = job.say(2, "paced", pace=codec.encode(slow))
    ticket = meets[0].message["ticket"]
    job.all_step(0)
    probes = [then for each in (0, 1, 2) for then in job.say(each, "beside", ticket=ticket, found=None, failed="")]
    assert orders(probes) == ["2 probe", "0 probe"]
    assert [each.message["members"] for each in probes] == [[2, 0], [2, 0]]
    assert probes[0].message["generation"] == 1, "later than that of the steps"
    found = replace(FOUND, latency_s=0.0, there_bytes_per_s=2e6, back_bytes_per_s=3e6, cpu_s_per_byte=9.0)
    answer = {"ticket": probes[0].message["ticket"], "failed": ""}
    assert job.say(0, "beside", found=None, **answer) == []
    (plan,) = job.say(2, "beside", found=codec.encode(found), **answer)
    *others, node = plan.known.cluster.nodes
    assert (node.name, 2 * node.speed) == ("pi-9", pytest.approx(others[0].speed, rel=1e-3))
    assert (node.uplink.bandwidth_bytes_per_s, node.downlink.bandwidth_bytes_per_s) == (2e6, 3e6)
    assert node.uplink.cpu_s_per_byte == others[0].uplink.cpu_s_per_byte, "its peer was busy with more than the probe"


def test_a_host_that_would_make_steps_longer_waits_as_a_spare():
    job = on_hosts(2, strategy="auto")
    job.found = replace(job.found, latency_s=0.25)
    _, spared = told(coming(job, 2))
    link = "its link carries 8 Gbit/s, after 250 ms on the way"
    assert re.fullmatch(rf"pi-9 would make a step \d+ % longer \({link}\): it waits as a spare", spared)
    assert orders(job.all_step(0)) == ["StepDone"], "nobody stops for it"
    (plan,) = job.handle(ev.ClockTick(1.0, {0: 1e9, 1: 1e9}))
    assert (plan.stayers, plan.newcomers) == ((1,), ()), "nor is a loss forgotten for it"
    assert "it waits as a spare" in told(released(job, 0))[0]
    until_regrouped(job, 0, 1)
    job.say(0, "abandoned")
    job.say(0, "finished", usage=None)
    (again,) = [each for each in job.told if isinstance(each, cmd.Replanned)]
    assert again.plan.nodes == ("host-1",), "one alone sends nothing"
    assert job.coordinator._membership.newcomers == (2,), "and it still waits"


def test_newcomers_that_die_again_and_again_stop_nobody():
    """Wherever they are: while they compute, meet, probe, are planned with, or build."""
    job = on_hosts(2, checkpoint_every=100)
    for step, stage in enumerate(("pace", "meet", "probe", "PlanAside", "warm")):
        number = 2 + step
        assert stage in orders(job.look_ahead(arrived(job, number), until=stage))[-1]
        (noted, gone) = job.handle(ev.Left(number, KILLED))
        assert (told([noted])[0].split(" (")[0], gone) == (
            f"note: member {number}",
            cmd.LetGo(number, is_lost=True),
        )
        for later in (1000.0, 2000.0, 3000.0):
            late = job.handle(ev.ClockTick(step * 10**4 + later, {0: 1e9, 1: 1e9}))
            assert not told(late), "nobody waits for who has gone"
        assert orders(job.all_step(step))[0] == "StepDone"
    assert not [each for each in job.told if orders([each])[0].endswith(("hold", "abandon"))]


def test_a_newcomer_that_hangs_is_not_waited_for():
    job = on_hosts(2)
    arrived(job, 2)
    heard = {0: 1e9, 1: 1e9}
    assert job.handle(ev.ClockTick(10.0, heard)) == []
    assert job.handle(ev.ClockTick(99.0, heard)) == []
    refused = job.handle(ev.ClockTick(100.0, heard))
    assert told(refused)[0].endswith("is not let in: it has not answered for 90 s. The others go on.")


def test_a_newcomer_that_cannot_be_reached_is_not_let_in():
    job = on_hosts(2)
    arrived(job, 2)
    meet, *_ = job.say(2, "paced", pace=PACE)
    refused = job.say(1, "beside", ticket=meet.message["ticket"], found=None, failed="member 1 waited 60 s.")
    assert told(refused)[0].endswith("is not let in: member 1 waited 60 s. The others go on.")
    assert orders(refused)[1:] == ["2 finish"]


def test_who_leaves_takes_its_host_along():
    job = on_hosts(2)
    released(job, 1)
    until_regrouped(job, 0, 1)
    job.say(1, "abandoned")
    commands = job.say(1, "finished", usage=None)
    (again,) = [each for each in commands if isinstance(each, cmd.Replanned)]
    assert again.turnover == Turnover(left=("host-1",))
    assert again.plan.nodes == ("host-0",)
    assert [node.name for node in again.known.cluster.nodes] == ["host-0"]


def test_who_is_called_back_before_it_has_said_hello_is_dismissed_then():
    job = on_hosts(2)
    job.handle(ev.MemberStarted(2, replace(cluster().nodes[0], name="pi-9")))
    assert job.handle(ev.ReleaseWanted(2)) == []
    assert orders(job.say(2, "hello", **HELLO)) == ["2 finish"]


def test_fewer_than_the_least_end_the_run_with_a_checkpoint():
    job = on_hosts(2, least=2)
    (noted,) = told(job.handle(ev.ReleaseWanted(1)))
    assert noted.startswith("member 1 (on host-1, pid 101) is to leave, and fewer than the run may go on with would")
    job.all_step(0, 1, 2, 3)
    assert "01 checkpoint" in orders(job.told)


def lose(job: Job, number: int, *witnesses: int) -> list[cmd.Command]:
    """Let a member be killed, which the others see."""
    commands = job.handle(ev.Left(number, KILLED))
    for each in witnesses:
        commands = job.fail(each, "PeerLost: it is gone", kind="PeerLost", is_echo=True, doing="until")
    return commands


def begun(commands: list[cmd.Command]) -> list[cmd.Command]:
    """Return the plan that follows a loss, the order to connect, and those to build."""
    (at,) = (index for index, each in enumerate(commands) if isinstance(each, cmd.Replanned))
    return commands[at:]


def test_who_was_told_to_leave_is_not_waited_for_when_another_one_is_lost():
    job = training(3, hosts=HostRange(1, 4), protect=2, checkpoint_every=100)
    released(job, 2)
    job.all_say("holding", step=0)
    assert orders(job.hold(0, 1, 2)) == ["2 abandon", "2 finish"]
    job.handle(ev.Left(1, KILLED))
    assert orders(job.handle(ev.TimedOut())) == ["LetGo", "LetGo", "0 abandon"]
    assert job.say(2, "finished") == []
    assert orders(job.handle(ev.Left(2, "exited with code 0"))) == ["LetGo"]
    assert orders(job.say(0, "abandoned")) == ["0 recall"]
    job.say(0, "recalled", states=[whole_at(0)])
    (again,) = [each for each in job.told if isinstance(each, cmd.Replanned)]
    assert (again.turnover.lost, again.turnover.left) == (("host-1",), ("host-2",))


def test_who_leaves_may_be_killed_once_it_was_told_to():
    job = training(3, hosts=HostRange(1, 4), protect=2, checkpoint_every=100)
    released(job, 2)
    job.all_say("holding", step=0)
    assert orders(job.hold(0, 1, 2)) == ["2 abandon", "2 finish"]
    let_go, _, connect, *builds = job.handle(ev.Left(2, KILLED))
    assert (let_go, orders([connect, *builds])) == (cmd.LetGo(2), ["01 connect", "0 build", "1 build"])
    job.all_say("connected", (0, 1))
    assert "01 until 4" in orders(job.all_say("built", (0, 1), kept={}, notes=[], seconds=0.1))


def test_who_is_lost_while_some_connect_and_others_build_is_done_without():
    job = training(4, hosts=HostRange(1, 4), protect=2, checkpoint_every=100)
    released(job, 3)
    job.all_say("holding", step=0)
    job.hold(0, 1, 2, 3)
    assert "012 connect" in orders(job.say(3, "finished"))
    job.say(0, "connected")
    job.say(0, "built", kept={}, notes=[], seconds=0.1)
    job.say(1, "connected")
    assert orders(lose(job, 2, 0, 1)) == ["LetGo", "01 abandon"]
    job.all_say("abandoned", (0, 1))
    again, connect, *builds = begun(job.all_say("recalled", (0, 1), states=[whole_at(0)]))
    assert (again.turnover.lost, connect.members, orders(builds)) == (("host-2",), (0, 1), ["0 build", "1 build"])


def test_the_others_go_on_from_the_beginning_where_nothing_was_kept():
    job = on_hosts(2)
    job.all_step(0, 1)
    job.handle(ev.KillAnnounced((1,), "kill host-1@1s"))
    gone, abandon = lose(job, 1, 0)
    assert (gone, orders([abandon])) == (cmd.LetGo(1, is_lost=True), ["0 abandon"])
    assert lose(job, 1, 0) == [], "what was seen of a loss that is known"
    assert orders(job.say(0, "abandoned")) == ["0 recall"]
    *_, again, connect, build = job.say(0, "recalled", states=[])
    assert (again.next_step, again.turnover) == (
        0,
        Turnover(lost=("host-1",), steps_again=2, again_from="the beginning"),
    )
    assert again.turnover.why == {"host-1": f'{KILLED} (--fault "kill host-1@1s")'}
    assert again.plan.nodes == ("host-0",)
    assert (connect.members, connect.message["gone"]) == ((0,), [1])
    assert build.blob == b""
    assert orders(job.say(0, "built", kept={}, notes=[], seconds=1.0)) == ["0 until 4", "0 checkpoint"]


def test_what_the_others_saw_of_a_loss_may_come_long_before_the_loss():
    """How a process has ended its agent says, which may have other things to do."""
    job = on_hosts(2)
    job.all_step(0, 1)
    echo = {"kind": "PeerLost", "is_echo": True, "doing": "until"}
    assert orders(job.fail(0, "PeerLost: it is gone", **echo)) == ["SetTimer"]
    for _ in range(5):
        assert orders(job.handle(ev.TimedOut())) == ["SetTimer"]
    assert orders(job.handle(ev.Left(1, KILLED))) == ["LetGo", "0 abandon"]


def test_an_echo_of_nothing_ends_the_run_in_the_end():
    job = on_hosts(2)
    job.all_step(0)
    commands = job.fail(0, "PeerLost: it is gone", kind="PeerLost", is_echo=True, doing="until")
    for _ in range(MOST_LOOKS + 1):
        assert orders(commands) == ["SetTimer"]
        commands = job.handle(ev.TimedOut())
    (failed,) = commands
    assert "lost its connection" in str(failed.error)


def test_a_plan_for_each_loss_is_there_before_it_happens():
    job = on_hosts(2)
    heard = dict.fromkeys(range(2), 1e9)
    (first,) = job.handle(ev.ClockTick(1.0, heard))
    assert job.handle(ev.ClockTick(2.0, heard)) == [], "one at a time"
    (second,) = job.handle(plan_aside(first))
    assert [(plan.stayers, plan.newcomers) for plan in (first, second)] == [((1,), ()), ((0,), ())]
    planned = plan_aside(second)
    assert job.handle(planned) == []
    assert job.handle(ev.ClockTick(3.0, heard)) == []
    lose(job, 1, 0)
    job.say(0, "abandoned")
    *_, again, _, build = job.say(0, "recalled", states=[])
    assert again.known is planned.known
    assert build.message["schedule"] == planned.builds[0]["schedule"]


def test_a_plan_for_a_loss_is_made_anew_where_a_speed_has_changed_meanwhile():
    job = hosted(3, checkpoint_every=10**6)
    job.ready = CHUNKED | {"epochs": 1000}
    job.until_training()
    plan = job.planned.plan
    heard = dict.fromkeys(range(3), 1e9)
    (asked,) = job.handle(ev.ClockTick(1.0, heard))
    nothing = dict.fromkeys(["input_s", "forward_s", "update_s", "communication_s", "other_s"], 0.0)
    for step in range(80):
        for rank, load_s in enumerate(plan.loads_s):
            slower = 1.8 if rank == 2 and step >= 40 else 1.0
            parts = StepParts(
                step=step, rank=rank, step_s=1.0, backward_s=slower * load_s, sent_bytes=0,
                samples=plan.batch_size if rank == 0 else 0, **nothing,
            )  # fmt: skip
            job.steps(rank, step, parts=parts.to_row())
    (again,) = job.handle(plan_aside(asked))
    assert again.stayers == asked.stayers
    assert again.known.cluster.node("host-2").speed < asked.known.cluster.node("host-2").speed


def test_nobody_stops_to_probe_links_while_a_newcomer_is_made_ready():
    job = hosted(2, checkpoint_every=10**6)
    job.ready = CHUNKED | {"epochs": 1000}
    job.until_training()
    arrived(job, 2)

    def play(steps: range) -> list[str]:
        slow = {"reduction": "b0", "queue_s": 0.0, "duration_s": 900.0, "sent_bytes": 8}
        rows = [(rank, step, ReductionParts(step=step, rank=rank, **slow)) for step in steps for rank in (0, 1)]
        return [text for rank, step, row in rows for text in orders(job.steps(rank, step, reductions=[row.to_row()]))]

    assert not any("probe" in text for text in play(range(2 * NUM_STEPS)))
    job.handle(ev.Left(2, KILLED))
    assert "0 probe" in play(range(2 * NUM_STEPS, 4 * NUM_STEPS)), "they are as slow without it"


def test_who_leaves_does_so_at_once_where_its_loss_was_planned_for():
    job = on_hosts(2, checkpoint_every=100)
    (plan,) = job.handle(ev.ClockTick(1.0, {0: 1e9, 1: 1e9}))
    assert plan.stayers == (1,)
    job.handle(plan_aside(plan))
    assert orders(job.handle(ev.ReleaseWanted(0))) == ["01 hold"]


def test_the_others_go_on_from_the_checkpoint_that_was_kept_last():
    job = on_hosts(2)
    job.all_step(0, 1, 2, 3)
    job.say(1, "checkpoint", has_file=False)
    job.say(0, "checkpoint", file("epoch"), has_file=True)
    job.all_step(4)
    lose(job, 0, 1)
    job.say(1, "abandoned")
    assert orders(job.say(1, "recalled", states=[])) == ["TakeState"]
    *_, again, _, build = job.handle(ev.StateTaken(b"header"))
    assert (again.next_step, again.turnover) == (
        4,
        Turnover(lost=("host-0",), steps_again=1, again_from="a checkpoint"),
    )
    assert (build.members, build.blob) == ((1,), b"header")


def snapshot(job: Job, step: int, alone: int | None = None) -> list[cmd.Command]:
    """Let all ranks tell of a snapshot; return what follows."""
    found: list[cmd.Command] = []
    for rank in job.workers:
        found += job.say(rank, "snapshot", step=step, seconds=0.01, **held(alone=rank == alone))
    return found


def test_the_others_go_back_to_the_last_snapshot_that_all_had_taken():
    job = training(3, hosts=HostRange(1, 4), protect=2)
    job.all_step(0, 1)
    assert orders(snapshot(job, 2)) == ["Noted"], "all have all, so that no buddy is needed"
    job.all_step(2, 3)
    for rank in (0, 1):  # who dies has not taken the next one
        job.say(rank, "snapshot", step=4, seconds=0.01, rows=None, facts=held()["facts"])
    lose(job, 2, 0, 1)
    job.all_say("abandoned", (0, 1))
    states = [{"generation": 0, "step": step, "told": held(), "others": [], "is_whole": False} for step in (2, 4)]
    again, _, *builds = begun(job.all_say("recalled", (0, 1), states=states))
    assert (again.next_step, again.turnover) == (2, Turnover(lost=("host-2",), steps_again=2, again_from="a snapshot"))
    assert [(each.message["state"]["step"], StateHeader(each.blob).facts["step"]) for each in builds] == [(2, 2)] * 2


@pytest.mark.parametrize(("is_told", "step", "origin"), [(True, 4, "the step under way"), (False, 2, "a snapshot")])
def test_a_step_that_one_of_those_left_has_ended_counts_if_its_losses_are_known(is_told, step, origin):
    job = training(3, hosts=HostRange(1, 4), protect=2)
    job.all_step(0, 1)
    snapshot(job, 2)
    job.all_step(2)
    for rank in job.workers if is_told else (0, 1):
        under_way = {"step": 3, "losses": [[rank, 0.5]], "samples": 13}
        job.say(rank, "steps", steps=[], samples=[], under_way=under_way)
    lose(job, 2, 0, 1)
    job.all_say("abandoned", (0, 1))
    taken = {"generation": 0, "told": held(), "others": []}
    job.say(0, "recalled", states=[taken | {"step": 2, "is_whole": False}, taken | {"step": 4, "is_whole": True}])
    states = [taken | {"step": 2, "is_whole": False}]
    if is_told:  # the other one is within the step
        states.append(taken | {"step": 3, "is_whole": True})
    *before, again, _, first, second = job.say(1, "recalled", states=states)
    assert (again.next_step, again.turnover.again_from) == (step, origin)
    assert [each.step for each in before if isinstance(each, cmd.StepDone)] == ([3] if is_told else [])
    assert again.turnover.steps_again == (0 if is_told else 1)
    assert [each.message["commits"] for each in (first, second)] == [True, True]


def play_on_while_a_loss_is_looked_into(job: Job) -> None:
    """Rank 0 sees a loss after two steps; all play two more, and take a snapshot after each two."""
    job.all_step(0, 1)
    snapshot(job, 2)
    job.fail(0, "PeerLost: it is gone", kind="PeerLost", is_echo=True, doing="until")
    job.all_step(2, 3)
    for rank in job.workers:
        job.say(rank, "snapshot", step=4, seconds=0.01, rows=None, facts=held()["facts"])


def test_what_ranks_told_while_all_had_their_say_about_a_loss_counts():
    """A host's end may be noticed long before its rank ends, which trains on with the others meanwhile."""
    job = training(3, hosts=HostRange(1, 4), protect=2)
    play_on_while_a_loss_is_looked_into(job)
    lose(job, 2, 1)
    job.all_say("abandoned", (0, 1))
    states = [{"generation": 0, "step": 4, "told": held(), "others": [], "is_whole": False}]
    again, *_ = begun(job.all_say("recalled", (0, 1), states=states))
    assert (again.next_step, again.turnover) == (4, Turnover(lost=("host-2",), steps_again=0, again_from="a snapshot"))


def waiting(**wishes: Any) -> Job:
    """A job of two hosts at least that has lost one, and whose other one has built anew."""
    job = on_hosts(2, least=2, waits_s=60.0, **wishes)
    job.all_step(0, 1, 2, 3)
    job.say(1, "checkpoint", has_file=False)
    job.say(0, "checkpoint", file("epoch"), has_file=True)
    lose(job, 1, 0)
    job.say(0, "abandoned")
    job.say(0, "recalled", states=[])
    job.handle(ev.StateTaken(b"header"))
    job.say(0, "connected")
    assert orders(job.say(0, "built", kept={}, notes=[], seconds=0.1)) == [], "nobody trains"
    commands = job.handle(ev.ClockTick(100.0, {}))
    (noted,) = told(commands)
    assert orders(commands)[-1] == "0 checkpoint", "nobody else has it"
    job.say(0, "checkpoint", file("again"), has_file=True)
    assert noted.startswith("waiting for 1 host more (--nodes 2:4), 60.0 s at most: nfold scale, nfold join")
    return job


def test_who_is_left_alone_where_two_are_the_fewest_trains_once_another_takes_part():
    job = waiting()
    assert told(job.handle(ev.ClockTick(159.0, {}))) == []
    noted, *pace = arrived(job, 2)
    assert orders([noted, *pace]) == ["Noted", "2 pace"], "nobody trains while it is made ready"
    assert orders(job.look_ahead(pace)) == ["0 holdings"]
    again, connect, *_ = job.hold(0)
    assert (again.num_lacking, connect.members) == (0, (0, 2))
    assert orders(job.all_say("built", (0, 2), kept={}, notes=[], seconds=0.1))[0] == "02 until 8"


def test_who_is_left_alone_waits_on_where_the_one_that_came_cannot_be_used():
    job = waiting()
    arrived(job, 2)
    assert "is not let in" in told(job.fail(2))[0]
    job.handle(ev.Left(2, "exited with code 1"))
    assert told(job.handle(ev.ClockTick(161.0, {}))) == ["nobody has come within 60.0 s (--hosts-within)"]


def test_a_spare_is_one_of_the_fewest_hosts():
    job = waiting(strategy="auto")
    job.found = replace(job.found, there_bytes_per_s=1e3, back_bytes_per_s=1e3)
    commands = job.look_ahead(arrived(job, 2))
    assert "it waits as a spare" in told(commands)[1]
    assert orders(commands)[2] == "0 until 8"
    assert job.handle(ev.Left(2, KILLED))[-1] == cmd.LetGo(2, is_lost=True)
    assert job.coordinator._membership.num_lacking == 1


def test_a_run_that_has_waited_for_a_host_in_vain_is_kept_and_ends():
    job = waiting()
    commands = job.handle(ev.ClockTick(161.0, {}))
    assert told(commands) == ["nobody has come within 60.0 s (--hosts-within)"]
    assert orders(commands)[-2:] == ["0 checkpoint", "0 deliver"]


@pytest.mark.parametrize("waits_s", [0.0, 60.0])
def test_a_plan_that_has_no_use_for_a_host_waits_for_nobody(waits_s):
    """Two were there, as many as are the fewest."""
    slow = {"there_bytes_per_s": 1e3, "back_bytes_per_s": 1e3}
    job = hosted(2, least=2, strategy="auto", waits_s=waits_s, **slow)
    assert orders(job.until_planned())[-1] == "1 finish"
    job.say(1, "finished")
    job.handle(ev.Left(1, "exited with code 0"))
    job.say(0, "built", kept={}, notes=[], seconds=0.1)
    assert job.coordinator._membership.ranks == (0,)
    assert told(job.handle(ev.ClockTick(100.0, {}))) == []
    assert "StepDone" in orders(job.steps(0, 0, 1))
    assert told(job.handle(ev.ClockTick(900.0, {}))) == []


def evaluating(**wishes: Any) -> Job:
    """A job of three hosts that has played an epoch, after which it keeps a checkpoint and evaluates."""
    job = training(3, CHUNKED | {"has_test": True}, hosts=HostRange(1, 4), **wishes)
    job.all_step(0, 1, 2, 3)
    return job


def whole_at(step: int) -> dict[str, Any]:
    return {"generation": 0, "step": step, "told": held(), "others": [], "is_whole": True}


def test_what_ranks_found_in_evaluating_counts_though_it_comes_while_a_loss_is_looked_into():
    job = evaluating()
    job.all_say("checkpoint", (1, 2), has_file=False)
    job.say(0, "checkpoint", file("epoch"), has_file=True)
    job.say(0, "evaluated", sums={"test_loss": [3.0, 10]})
    job.fail(0, "PeerLost: it is gone", kind="PeerLost", is_echo=True, doing="until")
    job.say(1, "evaluated", sums={"test_loss": [2.0, 10]})
    job.say(2, "evaluated", sums={"test_loss": [1.0, 10]})
    lose(job, 2, 1)
    job.all_say("abandoned", (0, 1))
    commands = job.all_say("recalled", (0, 1), states=[whole_at(4)])
    job.all_say("connected", (0, 1))
    assert [each for each in job.told if isinstance(each, cmd.Evaluated)] == [cmd.Evaluated(4, 0, {"test_loss": 0.2})]
    assert "01 evaluate" not in orders(job.all_say("built", (0, 1), kept={}, notes=[], seconds=0.1))[:2], commands


def test_a_checkpoint_and_an_evaluation_that_a_loss_has_cut_short_are_made_by_those_who_are_left():
    job = evaluating()
    lose(job, 2, 0, 1)
    job.all_say("abandoned", (0, 1))
    job.all_say("recalled", (0, 1), states=[whole_at(4)])
    job.all_say("connected", (0, 1))
    commands = job.all_say("built", (0, 1), kept={}, notes=[], seconds=0.1)
    assert orders(commands)[:3] == ["01 checkpoint", "01 evaluate", "01 until 8"]


def test_the_model_of_the_best_evaluation_is_asked_for_again_and_not_evaluated_anew():
    job = evaluating(keep="best:test_loss")
    job.all_say("checkpoint", (1, 2), has_file=False)
    job.say(0, "checkpoint", file("epoch"), has_file=True)
    for rank in (0, 1, 2):
        commands = job.say(rank, "evaluated", sums={"test_loss": [3.0, 10]})
    assert "012 model" in orders(commands)
    lose(job, 2, 0, 1)
    job.all_say("abandoned", (0, 1))
    job.all_say("recalled", (0, 1), states=[whole_at(4)])
    job.all_say("connected", (0, 1))
    assert orders(job.all_say("built", (0, 1), kept={}, notes=[], seconds=0.1)) == ["01 model"]


def test_two_losses_at_once_are_told_of_what_came_late_only_once():
    """The second one is found out while the others connect without the first."""
    job = training(4, hosts=HostRange(1, 4), protect=2)
    play_on_while_a_loss_is_looked_into(job)
    lose(job, 3, 1, 2)
    job.all_say("abandoned", (0, 1, 2))
    states = [{"generation": 0, "step": 4, "told": held(), "others": [], "is_whole": False}]
    job.all_say("recalled", (0, 1, 2), states=states)
    lose(job, 2, 0, 1)
    job.all_say("abandoned", (0, 1))
    again, *_ = begun(job.all_say("recalled", (0, 1), states=states))
    assert (again.next_step, again.turnover.lost, again.turnover.again_from) == (4, ("host-2",), "a snapshot")
    lost = [host for each in job.told if isinstance(each, cmd.Replanned) for host in each.turnover.lost]
    assert lost == ["host-3", "host-2"], "each is told once"


def test_who_wants_the_run_to_end_while_a_loss_is_looked_into_is_heard_once_it_goes_on():
    job = training(3, hosts=HostRange(1, 4), protect=2)
    job.all_step(0, 1)
    snapshot(job, 2)
    job.fail(0, "PeerLost: it is gone", kind="PeerLost", is_echo=True, doing="until")
    assert job.handle(ev.Interrupted(by_manager=True)) == []
    lose(job, 2, 1)
    job.all_say("abandoned", (0, 1))
    states = [{"generation": 0, "step": 2, "told": held(), "others": [], "is_whole": False}]
    job.all_say("recalled", (0, 1), states=states)
    job.all_say("connected", (0, 1))
    assert orders(job.all_say("built", (0, 1), kept={}, notes=[], seconds=0.1))[-2:] == ["01 checkpoint", "01 deliver"]


def test_who_leaves_ends_the_run_where_no_plan_is_left_for_the_others():
    job = training(2, hosts=HostRange(1, 4))
    assert orders(job.handle(ev.ReleaseWanted(1))) == ["PlanAside"]
    ended = job.handle(ev.PlannedAside(stayers=(0,), newcomers=(), refusal="it does not fit into 1 GB."))
    assert told(ended) == [
        "note: host-1 is to leave, and the others cannot go on without it: it does not fit into 1 GB."
    ]
    job.all_step(0, 1, 2, 3)
    assert "01 checkpoint" in orders(job.told)
    assert "01 abandon" not in orders(job.told), "the host was never left out, nor waited for until it was killed"


def test_what_one_rank_has_alone_is_given_to_another_and_lost_only_with_both():
    job = training(3, hosts=HostRange(1, 4), protect=2)
    job.all_step(0)
    protect, _ = snapshot(job, 1, alone=2)
    ((number, source, target, member, pieces),) = protect.message["shipments"]
    assert (protect.message["every"], protect.message["lag"]) == (1, 1), "at most two steps are lost"
    assert (number, source, target, member, [piece[0] for piece in pieces]) == (1, 2, 0, 2, [1])
    lose(job, 2, 0, 1)
    job.all_say("abandoned", (0, 1))
    kept = {"generation": 0, "step": 1, "told": held()}
    job.say(0, "recalled", states=[kept | {"others": [[2, 1]], "is_whole": False}])
    again, *_ = begun(job.say(1, "recalled", states=[kept | {"others": [], "is_whole": False}]))
    assert again.turnover.again_from == "a snapshot"
    lose(job, 0, 1)
    job.say(1, "abandoned")
    again, *_ = begun(job.say(1, "recalled", states=[kept | {"others": [], "is_whole": False}]))
    assert (again.next_step, again.turnover.again_from) == (0, "the beginning")


def test_who_is_lost_while_the_others_begin_anew_is_missed_too():
    job = on_hosts(2)
    job.handle(ev.MemberStarted(2, replace(cluster().nodes[0], name="pi-9")))
    prepared(job, 2)
    until_regrouped(job, 0, 1)
    lose(job, 1, 0, 2)
    assert orders(lose(job, 2)) == ["SetTimer"]
    *_, abandon = job.handle(ev.TimedOut())
    assert orders([abandon]) == ["0 abandon"]
    job.say(0, "abandoned")
    assert orders(job.say(0, "recalled", states=[])) == ["TakeState"]
    again, connect, _ = begun(job.handle(ev.StateTaken(b"header")))
    assert again.turnover.lost == ("host-1", "pi-9")
    assert connect.members == (0,)


@pytest.mark.parametrize(("least", "failure"), [(2, {}), (1, {"is_echo": False, "kind": "ValueError"})])
def test_a_loss_that_nobody_goes_on_from(least, failure):
    """Too few are left, or the program itself has failed."""
    job = on_hosts(2, least=least)
    job.all_step(0)
    job.handle(ev.Left(1, KILLED))
    (failed,) = job.fail(0, "it is gone", **({"kind": "PeerLost", "is_echo": True, "doing": "until"} | failure))
    assert isinstance(failed, cmd.Failed)
