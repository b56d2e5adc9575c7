"""How far a run is, from what its command hears."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from nfold.core import codec
from nfold.core.member_event import MemberEvent
from nfold.core.run_state import RankState, RunEvent, RunState
from nfold.runtime.control import commands as cmd
from nfold.verbs.jobs.run_figures import MOST_EVENTS, RunFigures


def test_a_run_goes_from_phase_to_phase(happenings):
    figures, phases = RunFigures(), []
    for happening in (cmd.Noted("hello"), cmd.RanksStarted(), happenings.planned(), cmd.TrainingBegins()):
        figures.take(happening, at=1.0)
        phases.append(figures.state(at=2.0).phase)
    assert phases == ["starting", "planning", "building", "training"]


def test_a_state_says_how_far_and_how_fast_and_what_each_rank_does(happenings):
    figures = RunFigures()
    figures.take(happenings.planned(), at=1.0)
    for happening in (happenings.step_done(0), happenings.sampled(1), happenings.step_done(10, loss=0.25)):
        figures.take(happening, at=2.0)
    figures.take(cmd.Evaluated(step=11, epoch=1, metrics={"accuracy": 0.5, "f1": float("nan")}), at=2.0)
    state = figures.state(at=3.0)
    assert (state.step, state.total_steps, state.epoch, state.num_epochs) == (11, 40, 2, 4)
    assert (state.loss, state.metrics) == (0.25, {"accuracy": 0.5, "f1": None})
    assert state.samples_per_s == pytest.approx(160)
    assert state.left_s == pytest.approx(2.9)
    assert state.parts is not None
    assert state.parts.exposed_communication_s == pytest.approx(0.03)
    first, second = state.ranks
    assert first == RankState(
        rank=0, node="n1", role="worker", compute_share=first.compute_share,
        communication_share=first.communication_share, input_share=first.input_share,
    )  # fmt: skip
    assert (first.compute_share, first.communication_share) == (pytest.approx(0.6), pytest.approx(0.3))
    assert (second.compute_cores, second.throttled_share, second.sent_bytes_per_s) == (0.5, 0.05, 1000)
    assert [(link.node, link.uplink_bytes_per_s) for link in state.links] == [("n1", 12.5e6), ("n2", 12.5e6)]
    assert codec.loads(RunState, codec.dumps(state)) == state, "NaN has no JSON form"


def test_a_run_that_goes_on_begins_where_it_stopped(happenings):
    figures = RunFigures()
    figures.take(happenings.planned(first_step=20), at=1.0)
    state = figures.state(at=1.0)
    assert (state.step, state.epoch, state.samples_per_s) == (20, 2, None)


def test_another_plan_is_judged_by_its_own_steps(happenings):
    figures = RunFigures()
    figures.take(happenings.planned(), at=1.0)
    figures.take(happenings.step_done(0), at=1.0)
    figures.take(happenings.sampled(0), at=1.0)
    known = SimpleNamespace(cluster=happenings.cluster)
    figures.take(cmd.Replanned(known=known, plan=replace(happenings.plan, strategy="ps"), next_step=1), at=2.0)
    state = figures.state(at=2.0)
    assert (state.strategy, state.step, state.samples_per_s) == ("ps", 1, None)
    assert state.ranks[0].rss_bytes is None


def test_the_last_changes_are_kept(happenings):
    figures = RunFigures()
    figures.take(happenings.planned(), at=1.0)
    figures.take(cmd.LinksChanged(cluster=happenings.cluster, next_step=7), at=2.0)
    for index in range(MOST_EVENTS - 1):
        figures.note(f"note: {index}", at=3.0)
    events = figures.state(at=4.0).events
    assert events[0] == RunEvent(at=2.0, text="the links have changed, from step 8 on")
    assert len(events) == MOST_EVENTS
    assert events[-1].text == f"note: {MOST_EVENTS - 2}"


def test_changes_of_who_trains_are_kept_with_the_state(happenings):
    figures = RunFigures()
    figures.take(happenings.planned(), at=1.0)
    event = MemberEvent(at=1.0, kind="join", who="pi-3", step=3, ranks=3, pause_s=0.1)
    figures.take(event, at=2.0)
    assert figures.state(at=3.0).ledger == (event,)
