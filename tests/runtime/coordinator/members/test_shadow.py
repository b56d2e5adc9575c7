"""A newcomer that follows as a shadow while others train, order by order, and when that is worth its bytes."""

from dataclasses import replace
from itertools import product
from math import inf
from typing import Any

import pytest
from coordinated import FOUND, READY, Job, file, held, message, orders
from pretended import GRAPH, a_plan, cluster, profile_of

from nfold.core import codec
from nfold.core.cluster import Channel, Cluster, Node
from nfold.core.job import JobSettings, Known
from nfold.core.options.host_range import HostRange
from nfold.core.placement import Reduction
from nfold.core.plan import Plan
from nfold.core.schedule import RankSchedule
from nfold.core.trace import ReductionParts
from nfold.runtime.checkpoint.state_file import StateHeader
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.members import following
from nfold.runtime.coordinator.members.shadow import following_rate, longest_follow_s, to_follow_with
from nfold.runtime.measuring.slowness import NUM_STEPS

CHUNKED = READY | {"chunks": 4}
TICKET = 1
"""The generation beside the first one."""


@pytest.fixture
def trained(monkeypatch) -> Job:
    """Two that train."""
    monkeypatch.setattr(following, "following_rate", lambda *_: inf)
    job = Job(JobSettings(workers=2, strategy="ring", steps=100, checkpoint_every=100), ready=CHUNKED)
    job.until_training()
    return job


def let_come(job: Job) -> list[cmd.Command]:
    """A third comes; return what follows once it has built."""
    job.say(2, "hello", host="there", pid=77)
    job.say(2, "ready", **CHUNKED)
    return job.look_ahead(job.say(2, "listening", address=["10.0.0.9", 5002]))


@pytest.fixture
def job(trained) -> Job:
    """Two that train, and a third that has built and is to follow."""
    job = trained
    (*_, noted, lend) = let_come(job)
    assert noted.text == "there follows as a shadow: it reads the state beside the steps"
    assert orders([lend]) == ["01 lend"]
    assert lend.message["members"] == [2, 0, 1]
    assert message(job.told, "warm")["follows"]
    return job


def lent(rank: int, step: int = 1, **more: Any) -> dict[str, Any]:
    """What a rank tells that lends its half of the only tensor."""
    rows = [["model.a.weight", "F32", [2, 3], 3 * rank, 3 * rank + 3, False]]
    sums = [["Elements", "gradient", "b0", 3 * rank, 3 * rank + 3, None]]
    return {"ticket": TICKET, "step": step, "failed": "", **held(), "rows": rows, "sums": sums, **more}


def followed(job: Job, step: int) -> list[cmd.Command]:
    return job.say(2, "followed", ticket=TICKET, step=step, failed="")


def test_all_stop_once_a_shadow_is_as_far_as_they_are(job):
    job.all_step(0)
    assert job.say(0, "lent", **lent(0)) == []
    (follow,) = job.say(1, "lent", **lent(1))
    assert (orders([follow]), follow.message["state"]) == (["2 follow"], [0, 1])
    assert follow.message["sums"] == [lent(rank)["sums"] for rank in (0, 1)]
    assert StateHeader(follow.blob).facts["step"] == 1
    assert [row[2] for row in follow.message["sources"]] == [1, 2], "ranks beside the steps"
    job.all_step(1, 2, 3)
    assert followed(job, 2) == []
    assert not any("hold" in each for each in orders(job.all_step(4))), "nobody stops for one that is behind"
    assert orders(followed(job, 4)) == ["01 hold"]


def test_no_other_newcomer_is_measured_while_one_follows(job):
    job.say(3, "hello", host="elsewhere", pid=78)
    job.say(3, "ready", **CHUNKED)
    (prepared,) = job.say(3, "listening", address=["10.0.0.8", 5003])
    assert "member 3 (on elsewhere, pid 78) is prepared" in prepared.text


def test_a_step_is_taken_for_as_long_as_most_are(trained, monkeypatch):
    """One after a checkpoint finds its samples loaded."""
    asked = list[float]()
    monkeypatch.setattr(following, "following_rate", lambda *given: asked.append(given[-1]))
    for step, step_s in enumerate((0.4, 0.01, 0.4, 3.0, 0.4)):
        trained.all_step(step, step_s=step_s)
    let_come(trained)
    assert set(asked) == {0.4}


@pytest.mark.parametrize(
    "told",
    [
        (0, "lent", lent(0) | {"failed": "its link is too slow"}),
        (1, "lent", lent(1, step=2)),
        (2, "followed", {"ticket": TICKET, "step": None, "failed": "it is too slow"}),
        (2, "followed", {"ticket": TICKET, "step": None, "failed": ""}),
        (0, "lent", {"ticket": TICKET, "failed": ""}),
    ],
)
def test_a_shadow_that_cannot_follow_builds_again_and_joins_as_others_do(job, told):
    job.say(0, "lent", **lent(0))
    number, what, answer = told
    noted, stop, warm = job.say(number, what, **answer)
    assert "there follows no more: " in noted.text
    assert (orders([stop, warm]), stop.message["members"]) == (["01 lend", "2 warm"], [])
    assert not warm.message["follows"]
    assert followed(job, 1) == [], "it is of the one before"
    assert orders(job.say(2, "warmed", number=warm.message["number"])) == ["01 hold"]


def test_nobody_begins_to_follow_while_links_are_probed_again(trained):
    for step, rank in product(range(NUM_STEPS), (0, 1)):
        late = ReductionParts(step=step, rank=rank, reduction="b0", queue_s=0.0, duration_s=900.0, sent_bytes=8)
        told = trained.steps(rank, step, reductions=[late.to_row()])
    assert "0 probe" in orders(told)
    assert not any("lend" in each for each in orders(let_come(trained)))
    trained.say(1, "probed", found=None)
    assert "01 lend" in orders(trained.look_ahead(trained.say(0, "probed", found=codec.encode(FOUND))))


def test_a_shadow_that_never_comes_near_is_given_up(job):
    job.handle(ev.ClockTick(0.0, {}))
    job.say(0, "lent", **lent(0))
    job.handle(ev.ClockTick(1000.0, {}))
    assert orders(job.say(1, "lent", **lent(1))) == ["2 follow"], "nobody waits for it before that"
    assert job.handle(ev.ClockTick(1001.0, {})) == []
    followed(job, -1)
    assert job.handle(ev.ClockTick(1090.0, {})) == []
    noted, stop, warm = job.handle(ev.ClockTick(1091.0, {}))
    assert "there follows no more: after 90" in noted.text
    assert (orders([stop, warm]), stop.message["members"]) == (["01 lend", "2 warm"], [])


def test_a_newcomer_may_follow_for_three_times_as_long_as_its_link_may_take_for_the_state():
    link = Channel(latency_s=0.0, bandwidth_bytes_per_s=GRAPH.parameter_bytes / 50, origin="measured")
    node = replace(cluster().nodes[0], uplink=link, downlink=None)
    assert longest_follow_s(planned(2), node) == pytest.approx(3 * 100)


def test_ranks_lend_no_more_to_a_shadow_that_is_gone_and_train_on(job):
    *_, stop = job.handle(ev.Left(2, "was killed by signal 9 (SIGKILL)"))
    assert (orders([stop]), stop.message["members"]) == (["01 lend"], [])
    assert orders(job.all_step(0, 1)) == ["StepDone", "StepDone"]


def test_a_shadow_is_given_nothing_more_once_training_is_over(job):
    job.all_step(0)
    for rank in (0, 1):
        job.say(rank, "lent", **lent(rank))
    job.handle(ev.Interrupted())
    job.say(0, "holding", step=1)
    told = job.say(1, "holding", step=1)
    assert [each for each in orders(told) if each in ("01 lend", "01 deliver")] == ["01 lend", "01 deliver"]
    lost = {"ticket": TICKET, "step": None, "failed": "rank 0 lost rank 1"}
    assert job.say(2, "followed", **lost) == [], "ranks have ended in order"


def test_a_host_that_leaves_does_not_wait_for_a_shadow(job):
    stop, plan = job.handle(ev.ReleaseWanted(0))
    assert (orders([stop]), stop.message["members"]) == (["01 lend"], [])
    assert (plan.stayers, plan.newcomers) == ((1,), (2,))
    job.look_ahead([plan])
    assert not message(job.told[-2:], "warm")["follows"]


def let_several_come(job: Job, *numbers: int) -> list[cmd.Command]:
    """Several come, and meet the others before anybody is planned with; return what follows then."""
    for number in numbers:
        job.say(number, "hello", host=f"far-{number}", pid=77)
        job.say(number, "ready", **CHUNKED)
    left = [then for each in numbers for then in job.say(each, "listening", address=["10.0.0.9", 5000 + each])]
    plans = []
    while left:
        each = left.pop(0)
        if isinstance(each, cmd.PlanAside):
            plans.append(each)
        elif isinstance(each, cmd.Send):
            left += job.say(*each.members, "beside", ticket=each.message["ticket"], found=None, failed="")
    return job.look_ahead(plans)


def follow_and_train(job: Job, number: int, step: int, *ranks: int) -> list[cmd.Command]:
    """Let a newcomer follow ranks from a step on, and take part; return what follows once all have built."""
    ticket = next(each.message for each in reversed(job.told) if orders([each])[0].endswith("lend"))["ticket"]
    job.workers = ranks
    job.all_step(step)
    for rank in ranks:
        rows = [["model.a.weight", "F32", [2, 3], 6 * rank // len(ranks), 6 * (rank + 1) // len(ranks), False]]
        told = job.say(rank, "lent", **{**lent(rank, step + 1), "ticket": ticket, "rows": rows})
    assert orders(told) == [f"{number} follow"]
    job.say(number, "followed", ticket=ticket, step=step + 1, failed="")
    job.all_say("holding", ranks, step=step + 1)
    job.hold(*ranks)
    job.all_say("connected", (*ranks, number))
    return job.all_say("built", (*ranks, number), kept={}, notes=[], seconds=1.0)


def built_once(job: Job) -> list[tuple[int, bool]]:
    """Which newcomers were told to build beside steps, and whether to follow."""
    sent = [each for each in job.told if isinstance(each, cmd.Send) and each.message["do"] == "warm"]
    return [(*each.members, each.message["follows"]) for each in sent]


def test_several_newcomers_follow_one_after_another_each_once_it_has_met_who_trains_by_then(trained):
    noted, lend = let_several_come(trained, 2, 3)
    assert noted.text == "far-2 follows as a shadow: it reads the state beside the steps; after it far-3"
    assert lend.message["members"] == [2, 0, 1]
    meets = [each for each in follow_and_train(trained, 2, 0, 0, 1) if orders([each])[0].endswith("meet")]
    assert [each.members for each in meets] == [(0,), (1,), (2,), (3,)]
    noted, lend = trained.look_ahead(meets)
    assert noted.text == "far-3 follows as a shadow: it reads the state beside the steps"
    assert lend.message["members"] == [3, 0, 1, 2]
    follow_and_train(trained, 3, 1, 0, 1, 2)
    assert built_once(trained) == [(2, True), (3, True)]
    assert [each.plan.workers for each in trained.told if isinstance(each, cmd.Replanned)] == [3, 4]


def test_a_newcomer_that_would_not_follow_comes_in_before_one_that_would(trained, monkeypatch):
    monkeypatch.setattr(
        following, "following_rate", lambda _, then, rank, *__: None if rank == 3 or then.plan.workers == 3 else inf
    )
    assert orders(let_several_come(trained, 2, 3)) == ["01 hold"]
    assert built_once(trained) == [(3, False)]


def test_newcomers_come_in_all_at_once_where_none_can_follow_alone(trained, monkeypatch):
    monkeypatch.setattr(following, "following_rate", lambda _, then, *__: inf if then.plan.workers == 4 else None)
    assert orders(let_several_come(trained, 2, 3)) == ["01 hold"]
    assert built_once(trained) == [(2, False), (3, False)]


def test_a_newcomer_that_dies_in_its_turn_keeps_no_other_one_out(trained):
    let_several_come(trained, 2, 3)
    *_, stop, plan = trained.handle(ev.Left(2, "was killed by signal 9 (SIGKILL)"))
    assert (stop.message["members"], plan.newcomers) == ([], (3,))
    *_, lend = trained.look_ahead([plan])
    assert lend.message["members"] == [3, 0, 1]


def test_nobody_follows_or_waits_where_too_few_are_there_to_train(monkeypatch):
    monkeypatch.setattr(following, "following_rate", lambda *_: inf)
    settings = JobSettings(workers=1, strategy="ring", steps=100, hosts=HostRange(3, 5), waits_s=60.0)
    job = Job(settings, ready=CHUNKED)
    job.until_training()
    job.handle(ev.ClockTick(0.0, {}))
    job.say(0, "checkpoint", file("s"), has_file=True, unkept="")
    assert orders(let_several_come(job, 1, 2))[-1] == "0 holdings"
    assert built_once(job) == [(1, False), (2, False)]


def test_all_newcomers_come_in_with_a_host_that_leaves(trained):
    let_several_come(trained, 2, 3)
    stop, plan = trained.handle(ev.ReleaseWanted(0))
    assert (stop.message["members"], plan.stayers, plan.newcomers) == ([], (1,), (2, 3))
    trained.look_ahead([plan])
    assert built_once(trained)[1:] == [(2, False), (3, False)]


def planned(workers: int, strategy: str = "ring", **wishes: Any) -> Known:
    plan = replace(a_plan(workers, strategy), **{"keeps_snapshots": True, **wishes})
    predicted = replace(plan.predicted, peak_memory_bytes=(1000,) * workers)
    chunked = replace(plan, predicted=predicted)
    return Known(graph=GRAPH, profiles={1: profile_of(GRAPH)}, cluster=cluster(), plan=chunked)


def node_of(rate: float) -> Node:
    """Of a newcomer; what was measured of one way is far too low."""
    link = Channel(latency_s=0.0, bandwidth_bytes_per_s=rate, origin="measured")
    late = replace(link, bandwidth_bytes_per_s=rate / 99)
    return replace(cluster().nodes[0], uplink=link, downlink=late)


@pytest.mark.parametrize(
    ("step_s", "seconds", "wishes", "follows"),
    [
        (0.5, 1.0, {}, True),
        (0.5, 0.4, {}, False),  # it reads within a step
        (0.01, 0.05, {}, False),  # or so quickly that nobody minds
        (0.5, 100.0, {}, False),  # sums of a step would take many steps
        (0.5, 1.0, {"keeps_snapshots": False}, False),  # a step that fails may have changed something
    ],
)
def test_a_newcomer_follows_where_the_state_takes_it_longer_than_a_step_and_sums_do_not(
    step_s, seconds, wishes, follows
):
    now, then = planned(2, **wishes), planned(3, **wishes)
    rate = GRAPH.parameter_bytes / seconds
    node = node_of(rate)
    assert following_rate(now, then, 2, node, step_s) == (pytest.approx(rate / 2) if follows else None)
    assert following_rate(now, then, 2, None, step_s) is None
    assert following_rate(now, then, 2, replace(node, memory_bytes=1001), step_s) is None, "sums that wait need room"
    full = replace(now, cluster=Cluster(nodes=(replace(cluster().nodes[0], memory_bytes=1001),)))
    assert following_rate(full, then, 2, node, step_s) is None, "and so do those that are lent"


def test_who_gets_a_part_of_the_state_follows_as_one_that_has_all_where_its_part_takes_it_long():
    now, then = planned(2, "ps"), planned(3, "ps")
    assert following_rate(now, then, 2, node_of(GRAPH.parameter_bytes), 0.5) is not None, "all weights"
    more = replace(now.profiles[1], optimizer_bytes=8 * GRAPH.parameter_bytes)
    stateful = [replace(known, profiles={1: more}) for known in (now, then)]
    rate = 2 * GRAPH.parameter_bytes  # its share of the optimizer's state takes that long, all of it thrice
    assert following_rate(*stateful, 2, node_of(rate), 1.5) is not None
    assert following_rate(*stateful, 2, node_of(rate), 2.5) is None
    short = replace(node_of(rate), memory_bytes=1000 + 5 * 9 * GRAPH.parameter_bytes)
    assert following_rate(*stateful, 2, short, 1.5) is None, "all of the state is there beside its part"
    assert following_rate(now, planned(3, "ps", servers=1), 2, node_of(GRAPH.parameter_bytes), 0.5) is not None
    assert following_rate(planned(2, "ps", splits={"A": 2}), then, 2, node_of(GRAPH.parameter_bytes), 0.5) is None


@pytest.mark.parametrize(
    ("before", "after", "is_whole"), [("ring", "ring", False), ("ring", "ps", True), ("ps", "ps", True)]
)
def test_a_newcomer_builds_the_whole_model_where_it_cannot_go_on_with_what_it_follows_with(before, after, is_whole):
    now, then = planned(2, before), planned(3, after)
    found = ev.PlannedAside(stayers=(0, 1), newcomers=(2,), members=(0, 1, 2), known=then)
    assert to_follow_with(now, found, None) == {"follows": False, "whole": None}
    told = to_follow_with(now, found, 2)
    assert (told["follows"], told["whole"] is not None) == (True, is_whole)
    if is_whole:
        plan = codec.decode(Plan, told["whole"]["plan"])
        assert (plan.world_size, plan.chunks, plan.threads) == (1, now.plan.chunks, then.plan.threads[2:])
        schedule = RankSchedule.from_document(told["whole"]["schedule"])
        assert [task.name for task in schedule.tasks] == ["UPDATE b0"]


def test_a_newcomer_may_follow_one_that_trains_alone_unless_gradients_are_sparse():
    node = node_of(GRAPH.parameter_bytes)
    kept = replace(profile_of(GRAPH), optimizer_bytes=2 * GRAPH.parameter_bytes)
    now, then = replace(planned(1), profiles={1: kept}), planned(2)
    assert following_rate(now, then, 1, node, 1.3) == GRAPH.parameter_bytes / 2
    assert following_rate(now, then, 1, node, 1.2) is None, "it would fall behind: who trains alone waits for no link"
    unkept = replace(now, plan=planned(1, keeps_snapshots=False).plan)
    assert following_rate(unkept, then, 1, node, 1.3) is None
    assert following_rate(now, planned(2, keeps_snapshots=False), 1, node, 1.3) is None
    sparse = replace(GRAPH, parameters=tuple(replace(each, sparse_dims=1) for each in GRAPH.parameters))
    assert following_rate(replace(now, graph=sparse), then, 1, node, 1.3) is None


def test_one_that_trains_alone_gives_its_gradients_in_the_buckets_of_the_plan_that_follows(monkeypatch):
    monkeypatch.setattr(following, "following_rate", lambda *_: inf)
    job = Job(JobSettings(workers=1, strategy="ring", steps=100, checkpoint_every=100), ready=CHUNKED)
    job.until_training()
    (*_, lend) = let_several_come(job, 1)
    assert (lend.members, lend.message["members"]) == ((0,), [1, 0])
    then = [codec.decode(Plan, each.message["plan"]) for each in job.told if orders([each])[0] == "1 warm"]
    told = [codec.decode(Reduction, each) for each in lend.message["reductions"]]
    assert told == [replace(each, members=(0,)) for each in then[0].reductions]
    assert {each.route for each in told} == {"ring"}
    follow_and_train(job, 1, 0, 0)
