"""Another plan for other links: when it pays, and how a run goes over to it."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from coordinated import READY, Job, file, known, orders
from pretended import a_plan, cluster

from nfold.core.cluster import Cluster
from nfold.core.job import JobSettings
from nfold.core.members import SpeedShift
from nfold.core.plan import Asynchrony, Plan
from nfold.errors import PlanError
from nfold.runtime.checkpoint.state_file import StateHeader
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.replanning import Replanning, plan_of
from nfold.runtime.measuring.shifting_speeds import ShiftingSpeeds

ALONE = a_plan(1, "single")
CHANGED = cmd.LinksChanged(cluster(), 5)


def taking(plan: Plan, step_s: float) -> Plan:
    return replace(plan, predicted=replace(plan.predicted, step_s=step_s))


@dataclass
class Planner:
    """A planning that plans what a test says."""

    other: Plan | PlanError
    before_s: float = 1.0

    def plan(self, now: Any, ready: Any, strategy: str | None = None) -> Plan:
        assert (now.plan, ready["chunks"]) == (None, a_plan(2).chunks), "chunks stay: the result depends on them"
        if isinstance(self.other, PlanError):
            raise self.other
        return self.other

    def predicted_s(self, now: Any, chosen: Plan, ready: Any) -> float:
        return self.before_s


def replanning(planner: Planner, *, plan: Plan | None = None, **given: Any) -> Any:
    rests_on = replace(known(), plan=plan or a_plan(2))
    settings = {"price_s": 1.0, "shares_price_s": 0.1, "is_wanted": True, "speeds": ShiftingSpeeds()} | given
    return Replanning(planner, rests_on, READY, **settings)  # type: ignore[arg-type]


def test_a_plan_that_wins_what_it_costs_follows():
    watch = replanning(Planner(taking(ALONE, 0.5)), price_s=1.0)
    (noted,) = watch.take([CHANGED], 7)
    assert noted.text == (
        "planned again for these links: single with 500 ms a step follows ring with 1000; "
        "it wins 4 s in the 7 steps left"
    )
    assert plan_of(watch.next) == taking(ALONE, 0.5)
    assert watch.take([CHANGED], 7) == [], "one change of plan at a time"


@pytest.mark.parametrize(
    "changes",
    [
        {"num_left": 5},
        {"price_s": 1.2},
        {"step_s": 0.91, "num_left": 1000},
        {"is_wanted": False},
        {"other": PlanError("too slow")},
        {"other": taking(a_plan(2), 0.5)},
        {"news": [cmd.Noted("nothing of links")]},
        {"plan": replace(a_plan(2), asynchrony=Asynchrony(bound=None))},
    ],
    ids=["few steps", "dear", "as fast", "no checkpoints", "no plan", "the same plan", "no change", "asynchronous"],
)
def test_else_the_run_keeps_its_plan(changes):
    other = changes.get("other", taking(ALONE, changes.get("step_s", 0.5)))
    watch = replanning(
        Planner(other),
        price_s=changes.get("price_s", 1.0),
        is_wanted=changes.get("is_wanted", True),
        plan=changes.get("plan"),
    )
    assert watch.take(changes.get("news", [CHANGED]), changes.get("num_left", 7)) == []
    assert watch.next is None


def dealt(*counts: int) -> Plan:
    """The plan of now with so many chunks for each rank."""
    owners = tuple(rank for rank, count in enumerate(counts) for _ in range(count))
    chosen = a_plan(2)
    placement = replace(chosen.placement, num_chunks=len(owners), owners=dict.fromkeys(chosen.placement.owners, owners))
    return replace(chosen, placement=placement)


def test_other_shares_of_the_same_plan_follow_for_less():
    """They are predicted with the same errors, and ranks keep their models."""
    shares = taking(dealt(3, 1), 0.94)
    watch = replanning(Planner(shares), plan=dealt(2, 2), price_s=100.0, shares_price_s=0.1)
    assert watch.take([CHANGED], 4) == [], "four steps win less than three times the price"
    (noted,) = watch.take([CHANGED], 6)
    assert noted.text.startswith("planned again for these links: ring with 940 ms a step follows ring with 1000")
    assert replanning(Planner(taking(dealt(3, 1), 0.96)), plan=dealt(2, 2)).take([CHANGED], 10**6) == []


class Speeds(ShiftingSpeeds):
    """Speeds of which a test says how they change."""

    def __init__(self, *shifts: SpeedShift) -> None:
        super().__init__()
        self.shifts = shifts

    def look(self, done: cmd.StepDone) -> tuple[SpeedShift, ...]:
        return self.shifts

    def gauged(self, rank: int, bit_s: float) -> tuple[SpeedShift, ...]:
        return self.shifts if (rank, bit_s) == (1, 1e-6) else ()

    def in_cluster(self, cluster: Cluster) -> Cluster:
        return replace(cluster, nodes=tuple(replace(node, speed=0.25) for node in cluster.nodes))


SLOW = SpeedShift(node="box", times_slower=3.9)
STEP = cmd.StepDone(3, 0, 0.5, (), None)


@pytest.mark.parametrize("is_gauged", [False, True])
def test_another_plan_follows_for_speeds_that_have_changed(is_gauged):
    watch = replanning(Planner(taking(ALONE, 0.5)), speeds=Speeds(SLOW))
    said = ev.Received(1, {"is": "gauged", "bit_s": 1e-6})
    (noted,) = watch.hear(said, 7) if is_gauged else watch.take([STEP], 7)
    assert noted.text.startswith("planned again for these speeds: single with 500 ms a step follows ring with 1000")
    assert watch.next.cluster.nodes[0].speed == watch.known.cluster.nodes[0].speed == 0.25
    assert watch.shifts == (SLOW,)


def test_speeds_that_no_plan_wins_from_are_told_and_kept():
    watch = replanning(Planner(taking(ALONE, 0.95)), speeds=Speeds(SLOW))
    (noted,) = watch.take([STEP], 7)
    assert noted.text == (
        "box computes 3.9 times slower than at the start: no other plan wins what changing to it would cost"
    )
    assert (watch.next, watch.known.cluster.nodes[0].speed) == (None, 0.25)
    assert plan_of(watch.known) == a_plan(2), "whoever comes is planned with what is known by then"


def test_who_is_as_fast_as_was_planned_is_told_only_where_a_plan_follows():
    late = replace(SLOW, is_waited_for=True)
    watch = replanning(Planner(taking(ALONE, 0.95)), speeds=Speeds(late))
    assert (watch.take([STEP], 7), watch.shifts) == ([], ())
    watch = replanning(Planner(taking(ALONE, 0.5)), speeds=Speeds(late))
    assert (len(watch.take([STEP], 7)), watch.shifts) == (1, (late,))


def test_links_and_speeds_are_known_together():
    watch = replanning(Planner(taking(ALONE, 0.95)), speeds=Speeds(SLOW))
    links = replace(cluster(), nodes=tuple(replace(node, site="there") for node in cluster().nodes))
    watch.take([cmd.LinksChanged(links, 5)], 7)
    assert [(node.site, node.speed) for node in watch.known.cluster.nodes] == [("there", 0.25)] * len(links.nodes)


@pytest.mark.parametrize("plan", [a_plan(2), replace(a_plan(2), asynchrony=Asynchrony(bound=None))])
def test_nobody_watches_speeds_where_no_plan_can_follow(plan):
    watch = replanning(
        Planner(taking(ALONE, 0.5)), speeds=Speeds(SLOW), plan=plan, is_wanted=plan.asynchrony is not None
    )
    assert watch.take([STEP], 7) == watch.hear(ev.Received(1, {"is": "gauged", "bit_s": 1e-6}), 7) == []


@pytest.fixture
def going_over(monkeypatch):
    """A job of two ranks that is about to go on with one; after the step under way."""

    def take(self, news, num_left):
        if self.next is None and self._is_wanted and any(isinstance(each, cmd.StepDone) for each in news):
            self.next = replace(self.known, plan=ALONE)
            return [cmd.Noted("another plan")]
        return []

    monkeypatch.setattr(Replanning, "take", take)
    job = Job(JobSettings(workers=2, strategy="ring"), ready=READY | {"chunks": 2})
    assert orders(job.until_training()) == ["01 until 4", "01 checkpoint"]
    assert orders(job.steps(0, 0)) == []
    assert orders(job.steps(1, 0)) == ["StepDone", "Noted"]
    return job


def test_all_stop_at_one_step_and_the_next_generation_begins_there(going_over):
    job = going_over
    assert orders(job.all_step(1, 2, 3)) == ["StepDone"] * 3
    assert job.say(1, "checkpoint", has_file=False) == []
    assert orders(job.say(0, "checkpoint", file("epoch"), has_file=True)) == ["KeepCheckpoint", "01 holdings"]
    assert orders(job.hold(0, 1)) == ["Replanned", "1 abandon", "1 finish"]
    connect, build = job.say(1, "finished")
    assert (orders([connect]), job.say(0, "connected")) == (["0 connect"], [])
    assert (build.members, build.message["do"]) == ((0,), "build")
    assert StateHeader(build.blob).facts["step"] == 4
    assert orders(job.say(0, "built", kept={"lr": [1, 2]}, notes=[], seconds=1.0)) == ["0 until 8", "0 checkpoint"]
    job.workers = range(1)
    assert [command.step for command in job.all_step(4, 5, 6, 7) if isinstance(command, cmd.StepDone)] == [4, 5, 6, 7]


def test_what_the_user_wants_between_two_generations_is_done_by_the_next(going_over):
    job = going_over
    job.all_step(1, 2, 3)
    job.say(1, "checkpoint", has_file=False)
    job.say(0, "checkpoint", file("epoch"), has_file=True)
    assert job.handle(ev.Interrupted(by_manager=True)) == []
    job.hold(0, 1)
    job.say(1, "abandoned")
    job.say(1, "finished")
    assert job.handle(ev.TimeUp(3.0)) == []
    job.say(0, "connected")
    assert orders(job.say(0, "built", kept={}, notes=[], seconds=1.0)) == ["0 checkpoint", "0 deliver"]


def test_a_run_that_is_stopped_does_not_go_over(going_over):
    job = going_over
    job.handle(ev.Interrupted())
    job.all_step(1, 2, 3)
    job.say(1, "checkpoint", has_file=False)
    told = job.say(0, "checkpoint", file("epoch"), has_file=True)
    assert orders(told) == ["KeepCheckpoint", "01 checkpoint", "01 deliver"]


def test_ranks_that_may_go_on_for_long_are_held(monkeypatch):
    """No checkpoint is due: all stop after the step that the first of them has begun."""
    monkeypatch.setattr(Replanning, "take", lambda self, news, num_left: setattr(self, "next", self.known) or [])
    job = Job(JobSettings(workers=2, strategy="ring", checkpoint_every=100), ready=READY | {"chunks": 2})
    assert orders(job.until_training()) == ["01 until 4"]
    assert orders(job.steps(0, 0)) == ["01 hold"]
    assert job.say(0, "holding", step=2) == []
    assert orders(job.say(1, "holding", step=1)) == ["01 until 2"]
    told = [*job.steps(1, 0), *job.all_step(1)]
    assert orders(told) == ["StepDone", "StepDone", "01 holdings"]


def test_a_program_that_no_checkpoint_brings_back_keeps_its_plan(going_over):
    job = going_over
    job.all_step(1, 2, 3)
    job.say(1, "checkpoint", has_file=False, unkept="")
    told = job.say(0, "checkpoint", file("epoch"), has_file=True, unkept="it has a secret")
    assert orders(told) == ["Unkept", "01 until 6"]
    assert orders(job.all_step(4, 5))[-1] == "01 until 8"
    assert orders(job.all_step(6, 7))[-1] == "01 deliver"
