"""The coordinator event by event: what it orders when, and how a job ends. No clock, no sockets, no processes."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pretended import GRAPH, a_plan, cluster, profile_of

from nfold.core import codec
from nfold.core.cluster import Channel
from nfold.core.graph import ModelGraph
from nfold.core.plan import Plan
from nfold.core.profile import Pace, Profile
from nfold.core.trace import RankUsage, ReductionParts, Span, StepParts, SystemSample
from nfold.errors import PlanError, ProgramError, WorkerLost
from nfold.runtime import events as ev
from nfold.runtime.coordinator import POSTMORTEM_S, Coordinator
from nfold.runtime.progress import FIRST_WINDOW, WINDOW_S
from nfold.runtime.slowness import NUM_STEPS
from nfold.runtime.spool import Arrived
from nfold.transport.probe import ProbedPair

FOUND = ProbedPair(
    latency_s=0.25, there_bytes_per_s=1e6, back_bytes_per_s=1e6, cpu_s_per_byte=0.0, cpu_s_per_message=0.0
)
LINK = Channel(latency_s=0.25, bandwidth_bytes_per_s=1e6, origin="measured")
READY = {
    **{"num_samples": 100, "has_test": False, "batch_size": 25, "epochs": 2, "chunks": None, "weights": 7},
    **{"autocast": None, "has_scheduler": False, "clip_norm": None, "most_threads": 4},
}
"""Four steps an epoch, eight in all."""


PACE = codec.encode(Pace(mean_s=sum(profile_of(GRAPH).whole_s(13)), deviation_s=0.0))
"""Of half a batch: what was profiled, so nobody slows anybody down."""


def known(workers: int = 2) -> ev.Known:
    return ev.Known(graph=GRAPH, profiles={1: profile_of(GRAPH)}, cluster=cluster(), plan=a_plan(workers))


def file(name: str) -> Arrived:
    """What a rank has sent."""
    return Arrived(Path(name), 1)


@dataclass
class Job:
    """A coordinator with ranks that say what the test tells them to."""

    settings: ev.JobSettings = field(default_factory=lambda: ev.JobSettings(workers=2, strategy="ring"))
    known: ev.Known | None = None
    checkpoint: bytes = b""
    first_step: int = 0
    ready: dict[str, Any] = field(default_factory=lambda: dict(READY))

    def __post_init__(self) -> None:
        self.coordinator = Coordinator(
            self.settings, cores=4, known=self.known, checkpoint=self.checkpoint, first_step=self.first_step
        )
        self.ranks = range(self.settings.world_size)
        self.told: list[ev.Command] = []

    def start(self) -> list[ev.Command]:
        return self._keep(self.coordinator.start({rank: (f"host-{rank}", 100 + rank) for rank in self.ranks}))

    def handle(self, event: ev.Event) -> list[ev.Command]:
        return self._keep(self.coordinator.handle(event))

    def _keep(self, commands: list[ev.Command]) -> list[ev.Command]:
        self.told += commands
        return commands

    def say(self, rank: int, what: str, sent: Arrived | None = None, **message: Any) -> list[ev.Command]:
        """A message as it comes off a wire: through JSON."""
        return self.handle(ev.Received(rank, json.loads(json.dumps({"is": what, **message})), sent))

    def all_say(self, what: str, ranks: Any = None, **message: Any) -> list[ev.Command]:
        """Return what only the last one's message brought; nothing may come before."""
        *early, last = self.ranks if ranks is None else ranks
        for rank in early:
            assert self.say(rank, what, **message) == []
        return self.say(last, what, **message)

    def fail(self, rank: int, text: str = "ValueError: boom", **message: Any) -> list[ev.Command]:
        given = {"kind": "ValueError", "doing": "load", "step": None, "is_echo": False, "peer": None}
        return self.say(rank, "failed", text=text, traceback="the traceback", **{**given, **message})

    def steps(self, rank: int, *numbers: int, step_s: float = 1.0, **report: Any) -> list[ev.Command]:
        reports = [self._report(rank, number, step_s, report) for number in numbers]
        return self.say(rank, "steps", steps=reports, samples=[])

    def _report(self, rank: int, step: int, step_s: float, report: dict[str, Any]) -> dict[str, Any]:
        parts = StepParts(
            step=step, rank=rank, step_s=step_s, input_s=0.0, forward_s=0.0, backward_s=0.0, update_s=0.0,
            communication_s=0.0, other_s=0.0, sent_bytes=0, samples=13,
        )  # fmt: skip
        given = {"losses": [[rank, 0.5]], "spans": [], "reductions": [], "begin_s": float(rank)}
        return {"step": step, "parts": parts.to_row(), **given, **report}

    def all_step(self, *numbers: int, step_s: float = 1.0) -> list[ev.Command]:
        return [command for rank in self.workers for command in self.steps(rank, *numbers, step_s=step_s)]

    def finish(self, rank: int, sent: Arrived | None = None) -> list[ev.Command]:
        usage = RankUsage(rank=rank, node="box", role="worker", peak_rss_bytes=1, cpu_s=1.0, wall_s=1.0)
        return self.say(rank, "finished", sent, usage=codec.encode(usage), staleness={})

    def profiled(self) -> list[ev.Command]:
        profile = profile_of(GRAPH)
        given = {
            "graph": codec.encode(GRAPH),
            "profiles": {count: codec.encode(profile) for count in (4, 2, 1)},
            "node": codec.encode(cluster().nodes[0]),
        }
        return self.say(0, "profiled", **given)

    def wire(self) -> list[ev.Command]:
        for rank in self.ranks[:-1]:
            assert self.say(rank, "listening", address=["10.0.0.1", 5000 + rank]) == []
        self.say(self.ranks[-1], "listening", address=["10.0.0.1", 5000 + self.ranks[-1]])
        return self.all_say("connected")

    def until_planned(self) -> list[ev.Command]:
        """Play the start up to the plan; return the commands that make ranks build, or leave."""
        self.start()
        self.all_say("ready", **self.ready)
        if self.known is not None:
            return self.wire()
        self.profiled()
        planned = self.wire()
        if len(self.ranks) == 1:
            return planned
        self.say(1, "probed", found=None)
        planned = self.say(0, "probed", found=codec.encode(FOUND))
        workers = range(self.settings.workers)
        return self.all_say("paced", workers, pace=PACE) if len(workers) > 1 else planned

    def until_training(self) -> list[ev.Command]:
        """Play the start; return the first orders to train."""
        self.until_planned()
        self.workers = range(self.planned.plan.world_size)
        return self.all_say("built", self.workers, kept={})

    @property
    def planned(self) -> ev.Planned:
        return next(command for command in self.told if isinstance(command, ev.Planned))


def orders(commands: list[ev.Command]) -> list[str]:
    """`RANKS do [step]` of each order, other commands by their names."""
    texts = []
    for command in commands:
        if isinstance(command, ev.Order):
            ranks = "".join(map(str, command.ranks))
            texts.append(" ".join([ranks, command.message["do"], *([str(command.message["step"])]
                if "step" in command.message else [])]))  # fmt: skip
        else:
            texts.append(type(command).__name__)
    return texts


def message(commands: list[ev.Command], do: str) -> dict[str, Any]:
    return next(each.message for each in commands if isinstance(each, ev.Order) and each.message["do"] == do)


def failure(commands: list[ev.Command]) -> BaseException:
    (failed,) = commands
    assert isinstance(failed, ev.Failed)
    return failed.error


# The whole path


def test_a_job_of_two_ranks_from_start_to_end():
    job = Job()
    assert orders(job.start()) == ["01 load"]
    assert orders(job.all_say("ready", **READY)) == ["0 profile"]
    assert orders(job.profiled()) == ["01 listen"]
    assert job.say(1, "listening", address=["b", 2]) == []
    assert orders(job.say(0, "listening", address=["a", 1])) == ["01 connect"]
    assert orders(job.all_say("connected")) == ["0 probe", "1 probe"]
    assert job.say(0, "probed", found=codec.encode(FOUND)) == []
    assert orders(job.say(1, "probed", found=None)) == ["0 pace", "1 pace"]
    assert job.say(1, "paced", pace=PACE) == []
    assert orders(job.say(0, "paced", pace=PACE)) == ["Planned", "01 build"]
    job.workers = range(2)
    assert orders(job.all_say("built", kept={})) == ["01 until 4", "01 checkpoint"]
    assert orders(job.all_step(0, 1)) == ["StepDone", "StepDone"]
    assert orders(job.all_step(2, 3)) == ["StepDone", "StepDone", "01 until 6"]
    assert job.say(1, "checkpoint") == []
    assert job.say(0, "checkpoint", file("state")) == [ev.KeepCheckpoint(4, file("state"))]
    assert orders(job.all_step(4, 5)) == ["StepDone", "StepDone", "01 until 8", "01 checkpoint"]
    assert orders(job.all_step(6, 7)) == ["StepDone", "StepDone", "01 finish"]
    job.say(0, "checkpoint", file("end"))
    assert job.say(1, "checkpoint") == [ev.KeepCheckpoint(8, file("end"))]
    assert job.finish(1) == []
    (finished,) = job.finish(0, file("model"))
    assert isinstance(finished, ev.Finished)
    assert (finished.model, finished.interrupted) == (file("model"), False)
    assert [usage.rank for usage in finished.usage] == [0, 1]
    assert job.handle(ev.Left(0, "exited with code 0")) == [], "it is over"


def test_one_rank_is_wired_but_not_probed():
    job = Job(ev.JobSettings(strategy="single"))
    job.start()
    assert orders(job.all_say("ready", **READY)) == ["0 profile"]
    assert orders(job.profiled()) == ["0 listen"]
    assert orders(job.wire()) == ["Planned", "0 build"]


def test_ranks_are_told_what_they_need():
    job = Job(ev.JobSettings(workers=2, strategy="ring", seed=3, chunks=4, device="cpu"), ready=READY | {"chunks": 4})
    job.until_planned()
    load = message(job.told, "load")
    assert (load["threads"], load["device"], load["overrides"]) == (2, "cpu", {"seed": 3, "chunks": 4})
    profile = message(job.told, "profile")
    assert (profile["threads"], profile["own_threads"], profile["chunk_sizes"]) == ([4, 2, 1], 2, [7, 13, 25])
    assert message(job.told, "connect")["addresses"] == [["10.0.0.1", 5000], ["10.0.0.1", 5001]]
    probes = [each.message for each in job.told if isinstance(each, ev.Order) and each.message["do"] == "probe"]
    assert [(probe["peer"], probe["measures"]) for probe in probes] == [(1, True), (0, False)]
    build = message(job.told, "build")
    assert codec.decode(Plan, build["plan"]) == job.planned.plan
    assert codec.decode(ModelGraph, build["graph"]) == GRAPH
    assert list(build["operator_seconds"]) == ["A"]
    assert build["total_steps"] == 8


@pytest.mark.parametrize(("most", "threads", "own"), [(8, [4, 2, 1], 2), (3, [3, 2, 1], 2), (1, [1], 1)])
def test_nothing_is_measured_with_more_threads_than_the_user_allows(most, threads, own):
    job = Job(ev.JobSettings(workers=2, strategy="ring"))
    job.start()
    job.say(0, "ready", **READY | {"most_threads": 8})
    profile = message(job.say(1, "ready", **READY | {"most_threads": most}), "profile")
    assert (profile["threads"], profile["own_threads"]) == (threads, own)


def test_the_plan_rests_on_what_was_measured():
    job = Job()
    job.until_planned()
    assert job.planned.known.cluster.nodes[0].local == LINK
    assert job.planned.known.plan == job.planned.plan
    assert job.planned.known.profiles == dict.fromkeys((4, 2, 1), profile_of(GRAPH))
    assert (job.planned.total_steps, job.planned.steps_per_epoch, job.planned.first_step) == (8, 4, 0)
    assert isinstance(job.planned.known.profiles[1], Profile)


def test_all_orders_can_be_written_as_json():
    job = Job()
    job.until_training()
    assert all(json.dumps(each.message) for each in job.told if isinstance(each, ev.Order))


def test_a_plan_alone_ends_without_training():
    job = Job(ev.JobSettings(workers=2, strategy="ring", plan_only=True))
    assert orders(job.until_planned()) == ["Planned", "01 finish"]
    assert job.say(0, "finished", usage=None) == []
    assert job.handle(ev.Left(0, "exited with code 0")) == [], "it was done, so it may go before the other"
    assert job.say(1, "finished", usage=None) == [ev.Finished()]


def test_ranks_that_the_plan_does_not_need_leave_before_the_others_build():
    job = Job(ev.JobSettings(workers=3, strategy="auto"), ready=READY | {"num_samples": 100})
    commands = job.until_planned()
    assert orders(commands) == ["12 finish"], "a millisecond of computing is not worth a quarter second of latency"
    assert job.say(2, "finished", usage=None) == []
    assert job.handle(ev.Left(2, "exited with code 0")) == []
    assert orders(job.say(1, "finished", usage=None)) == ["Planned", "0 build"]
    assert job.handle(ev.Left(1, "exited with code 0")) == []
    job.workers = range(1)
    assert orders(job.say(0, "built", kept={})) == ["0 until 4", "0 checkpoint"]


# What is refused


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"weights": 8}, "ranks 0 and 1 built different programs: first weights (a checksum) are 7 and 8. Everything"),
        ({"num_samples": 99}, "ranks 0 and 1 built different programs: samples of train_data() are 100 and 99. Every"),
    ],
)
def test_ranks_that_see_different_programs(change, text):
    job = Job()
    job.start()
    job.say(0, "ready", **READY)
    error = failure(job.say(1, "ready", **READY | change))
    assert isinstance(error, ProgramError)
    assert str(error).startswith(text)


def test_a_batch_larger_than_the_data():
    job = Job()
    job.start()
    error = failure(job.all_say("ready", **READY | {"batch_size": 101}))
    assert isinstance(error, ProgramError)
    assert str(error) == ("batch_size is 101, but train_data() has only 100 samples. Use a batch size of at most 100.")


@pytest.mark.parametrize(
    ("settings", "chunks", "text"),
    [
        (ev.JobSettings(workers=26, strategy="ring"), None, "a batch of 25 samples cannot be cut into 26 chunks"),
        (
            ev.JobSettings(workers=2, strategy="ring", chunks=26),
            26,
            "a batch of 25 samples cannot be cut into 26 chunks",
        ),
        (ev.JobSettings(workers=3, strategy="ring"), 2, "3 workers cannot share 2 chunks"),
    ],
)
def test_a_batch_that_cannot_be_cut_is_refused_before_anything_is_measured(settings, chunks, text):
    job = Job(settings)
    job.start()
    error = failure(job.all_say("ready", **READY | {"chunks": chunks}))
    assert isinstance(error, PlanError)
    assert text in str(error)


def test_wishes_that_make_no_sense_are_refused_before_ranks_are_wired():
    job = Job(ev.JobSettings(workers=2, strategy="rong"))
    job.start()
    job.all_say("ready", **READY)
    error = failure(job.profiled())
    assert isinstance(error, PlanError)
    assert "rong" in str(error)


# Training


def test_reductions_come_with_their_step_rank_by_rank_and_samples_at_once():
    job = Job()
    job.until_training()
    rows = [ReductionParts(step=0, rank=r, reduction="b0", queue_s=0.1, duration_s=1.0, sent_bytes=8) for r in (0, 1)]
    sample = SystemSample(
        rank=1, node="box", at_s=1.0, span_s=1.0, compute_cpu_s=0.5, communication_cpu_s=0.25, throttled_s=0.0,
        steal_s=0.0, neighbours_cpu_s=0.0, rss_bytes=1, sent_bytes=2, received_bytes=3, disk_bytes=4,
    )  # fmt: skip
    job.steps(1, 0, reductions=[rows[1].to_row()])
    (sampled,) = job.say(1, "steps", steps=[], samples=[sample.to_row()])
    assert sampled == ev.Sampled((sample,))
    (done,) = job.steps(0, 0, reductions=[rows[0].to_row()])
    assert done.reductions == tuple(rows)


def test_losses_are_added_in_the_order_of_chunks_and_spans_join_into_a_trace():
    job = Job()
    job.until_training()
    span = Span(rank=1, kind="F", name="F0.1", start_s=0.0, end_s=1.0)
    job.steps(1, 0, losses=[[1, 0.25]], spans=[codec.encode(span)], step_s=2.0)
    (done,) = job.steps(0, 0, losses=[[0, 0.5]], step_s=1.0)
    assert isinstance(done, ev.StepDone)
    assert (done.step, done.epoch, done.loss) == (0, 0, 0.75)
    assert [part.rank for part in done.parts] == [0, 1]
    assert done.trace is not None
    assert (done.trace.step_s, done.trace.begin_s, done.trace.spans) == ((1.0, 2.0), (0.0, 1.0), (span,))
    (later,) = job.all_step(1)
    assert later.trace is None


def test_a_step_is_done_when_all_ranks_have_reported_it_and_in_order():
    job = Job()
    job.until_training()
    assert job.steps(0, 0, 1, 2) == []
    done = job.steps(1, 0, 1)
    assert [each.step for each in done if isinstance(each, ev.StepDone)] == [0, 1]


@pytest.mark.parametrize(("step_s", "window"), [(1.0, 2), (0.1, 3), (0.01, 30), (0.0, 300_000)])
def test_ranks_run_ahead_for_about_a_third_of_a_second(step_s, window):
    job = Job(ev.JobSettings(workers=2, strategy="ring", steps=10**6), ready=READY | {"num_samples": 25 * 10**6})
    assert orders(job.until_training()) == [f"01 until {FIRST_WINDOW}"]
    granted = [each for each in job.all_step(0, 1, step_s=step_s) if isinstance(each, ev.Order)]
    assert [order.message["step"] for order in granted] == ([2 + window] if 2 + window > FIRST_WINDOW else [])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.sampled_from([0.01, 0.1, 1.0])), max_size=40))
def test_ranks_never_run_further_ahead_than_they_were_granted(reports):
    job = Job(ev.JobSettings(workers=2, strategy="ring", steps=60), ready=READY | {"num_samples": 25 * 7})
    job.until_training()
    reported, last_s, done = [0, 0], 0.0, 0
    for rank, step_s in reports:
        granted = max(each.message["step"] for each in job.told if orders([each])[0].startswith("01 until"))
        if reported[rank] == granted:
            continue
        steps = [each for each in job.steps(rank, reported[rank], step_s=step_s) if isinstance(each, ev.StepDone)]
        reported[rank] += 1
        for each in steps:
            done, last_s = each.step + 1, max(part.step_s for part in each.parts)
        window = max(2, round(WINDOW_S / last_s)) if last_s else FIRST_WINDOW
        latest = max(each.message["step"] for each in job.told if orders([each])[0].startswith("01 until"))
        assert latest <= max(granted, done + window)
        assert latest > done or done == 60
    assert done == min(reported)


def test_test_data_are_evaluated_and_state_is_kept_at_each_end_of_an_epoch():
    job = Job(ready=READY | {"has_test": True})
    assert orders(job.until_training()) == ["01 until 4", "01 evaluate", "01 checkpoint"]
    assert [each.message.get("tag") for each in job.told[-3:]] == [None, 1, 2]
    job.all_step(0, 1, 2, 3)
    assert job.say(0, "evaluated", sums={"loss": [3.0, 10], "accuracy": [9.0, 10], "broken": [float("nan"), 10]}) == []
    assert job.say(0, "checkpoint", file("x")) == []
    (evaluated,) = job.say(1, "evaluated", sums={"loss": [1.0, 10], "accuracy": [5.0, 10], "broken": [0.0, 10]})
    assert evaluated == ev.Evaluated(4, 0, {"loss": 0.2, "accuracy": 0.7})


def test_nothing_is_evaluated_where_that_is_not_wanted():
    job = Job(ev.JobSettings(workers=2, strategy="ring", evaluate=False), ready=READY | {"has_test": True})
    assert orders(job.until_training()) == ["01 until 4", "01 checkpoint"]


def test_a_checkpoint_is_kept_only_when_all_ranks_have_given_their_part():
    job = Job(ev.JobSettings(workers=2, strategy="ring", checkpoint_every=1))
    job.until_training()
    assert job.say(0, "checkpoint", file("one")) == []
    assert job.say(0, "checkpoint", file("two")) == []
    assert job.say(1, "checkpoint") == [ev.KeepCheckpoint(1, file("one"))]
    assert job.say(1, "checkpoint") == [ev.KeepCheckpoint(2, file("two"))]


@pytest.mark.parametrize(
    ("every", "expected"),
    [(3, [3, 6, 7]), (None, [4, 7]), (0, []), (100, [7])],
)
def test_checkpoints_come_when_they_are_due_and_at_the_end(every, expected):
    job = Job(ev.JobSettings(workers=1, strategy="single", steps=7, checkpoint_every=every))
    commands, step, found = job.until_training(), 0, []
    while not any("finish" in text for text in orders(commands)):
        stop = 0
        for command in commands:
            if isinstance(command, ev.Order) and command.message["do"] == "until":
                stop = command.message["step"]
            if isinstance(command, ev.Order) and command.message["do"] == "checkpoint":
                found.append(stop)
        commands = job.all_step(step, step_s=0.01)
        step += 1
    assert found == expected
    assert step == 7


def test_in_lockstep_a_step_is_played_only_when_it_is_asked_for():
    job = Job(ev.JobSettings(workers=2, strategy="ring", lockstep=True))
    assert job.until_training() == []
    assert orders(job.handle(ev.Continue())) == ["01 until 1"]
    assert orders(job.all_step(0)) == ["StepDone"]
    assert orders(job.handle(ev.Continue())) == ["01 until 2"]


# Stopping and going on


def test_an_interrupt_before_training_ends_the_job_at_once():
    job = Job()
    job.start()
    assert isinstance(failure(job.handle(ev.Interrupted())), KeyboardInterrupt)


def test_an_interrupt_lets_the_granted_steps_end_and_keeps_a_checkpoint():
    job = Job(ev.JobSettings(workers=2, strategy="ring", steps=100), ready=READY | {"num_samples": 10_000})
    assert orders(job.until_training()) == ["01 until 4"]
    assert job.handle(ev.Interrupted()) == []
    assert orders(job.all_step(0, 1)) == ["StepDone", "StepDone"]
    assert orders(job.all_step(2, 3)) == ["StepDone", "StepDone", "01 checkpoint", "01 finish"]
    job.say(0, "checkpoint", file("kept"))
    assert job.say(1, "checkpoint") == [ev.KeepCheckpoint(4, file("kept"))]
    job.finish(0, file("model"))
    (finished,) = job.finish(1)
    assert finished.interrupted


def test_who_presses_ctrl_c_sees_at_once_that_it_was_heard():
    job = Job()
    job.until_training()
    (noted,) = job.handle(ev.Interrupted(by_key=True))
    assert noted == ev.Noted("stopping after the step under way; press Ctrl-C again to stop now")
    assert orders(job.all_step(0)) == ["StepDone"]


def test_an_interrupt_between_granted_steps_ends_at_once():
    job = Job(ev.JobSettings(workers=2, strategy="ring", lockstep=True))
    job.until_training()
    job.handle(ev.Continue())
    job.all_step(0)
    assert orders(job.handle(ev.Interrupted())) == ["01 checkpoint", "01 finish"]


def test_without_checkpoints_an_interrupt_keeps_none():
    job = Job(ev.JobSettings(workers=2, strategy="ring", lockstep=True, checkpoint_every=0))
    job.until_training()
    assert orders(job.handle(ev.Interrupted())) == ["01 finish"]


def test_an_interrupt_waits_for_what_was_ordered():
    job = Job()
    job.until_training()
    job.handle(ev.Interrupted())
    assert "01 finish" not in orders(job.all_step(0, 1, 2, 3)), "the checkpoint of step 4 is still to come"
    job.say(0, "checkpoint", file("x"))
    assert orders(job.say(1, "checkpoint")) == ["KeepCheckpoint", "01 checkpoint", "01 finish"]


def test_a_rank_that_asks_for_a_part_of_the_checkpoint_is_sent_it():
    job = Job(known=known(), checkpoint=b"header", first_step=5)
    job.until_planned()
    assert job.say(1, "wants", start=100, stop=300) == [ev.SendState(1, 100, 300)]
    job.workers = range(2)
    assert orders(job.all_say("built", kept={})) == ["01 until 8", "01 checkpoint"], "which answers no order"


def test_a_job_that_goes_on_wires_its_ranks_and_measures_nothing_again():
    job = Job(known=known(), checkpoint=b"state", first_step=5)
    assert orders(job.until_planned()) == ["Planned", "01 build"]
    assert orders(job.told[:-2]) == ["01 load", "01 listen", "01 connect"]
    build = job.told[-1]
    assert isinstance(build, ev.Order)
    assert build.blob == b"state"
    assert codec.decode(Plan, build.message["plan"]) == known().plan
    assert job.planned.first_step == 5
    job.workers = range(2)
    assert orders(job.all_say("built", kept={})) == ["01 until 8", "01 checkpoint"]
    (done, *_) = job.all_step(5)
    assert (done.step, done.epoch) == (5, 1)


@pytest.mark.parametrize("same_ranks", [False, True])
def test_a_job_that_goes_on_with_another_batch_size_is_refused(same_ranks):
    job = Job(settings_begun(), known=known() if same_ranks else None, first_step=5)
    job.start()
    error = failure(job.all_say("ready", **READY | {"batch_size": 20}))
    assert isinstance(error, ProgramError)
    assert "batch size of 25, and the program has a batch size of 20 now" in str(error)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"num_samples": 99}, "begun with 100 samples in train_data(), and the program has 99 samples in train_data()"),
        ({"autocast": "bfloat16"}, "begun with autocast=None, and the program has autocast='bfloat16' now"),
        ({"has_scheduler": True}, "begun with no scheduler, and the program has a scheduler now"),
        ({"clip_norm": 0.5}, "begun with no clip_norm, and the program has clip_norm=0.5 now"),
    ],
)
def test_a_job_that_goes_on_with_another_recipe_is_refused(change, text):
    recipe = ev.Recipe(num_samples=100, autocast=None, has_scheduler=False, clip_norm=None)
    job = Job(settings_begun(recipe), known=known(), first_step=5)
    job.start()
    error = failure(job.all_say("ready", **READY | change))
    assert isinstance(error, ProgramError)
    assert text in str(error)


def test_a_job_of_an_older_version_that_goes_on_with_other_data_is_refused():
    job = Job(settings_begun(), first_step=5)
    job.start()
    error = failure(job.all_say("ready", **READY | {"num_samples": 101}))
    assert isinstance(error, ProgramError)
    assert "begun with 4 steps an epoch, and the program has 5 steps an epoch now" in str(error)


def test_a_job_of_an_older_version_goes_on_with_what_it_did_not_write_down():
    job = Job(settings_begun(), known=known(), first_step=5)
    job.start()
    assert orders(job.all_say("ready", **READY | {"num_samples": 99, "clip_norm": 0.5})) == ["01 listen"]


@pytest.mark.parametrize(("scheduled", "until"), [(False, "now. "), (True, "now, until the schedule sets them. ")])
def test_hyper_parameters_of_the_checkpoint_that_the_program_has_otherwise_are_told(scheduled, until):
    job = Job(known=known(), first_step=5, ready=READY | {"has_scheduler": scheduled})
    job.until_planned()
    job.say(0, "built", kept={"lr": (0.05, 0.5)})
    commands = job.say(1, "built", kept={"betas": ((0.9, 0.99), (0.8, 0.99))})
    assert orders(commands)[0] == "Noted"
    assert commands[0].text == (
        "note: the optimizer goes on with the checkpoint's betas (0.9, 0.99) (not (0.8, 0.99)), lr 0.05 (not 0.5), "
        f"whatever the program says {until}Begin a new run to change them."
    )


def settings_begun(recipe: ev.Recipe | None = None) -> ev.JobSettings:
    return ev.JobSettings(workers=2, strategy="ring", begun=ev.Begun(batch_size=25, steps_per_epoch=4, recipe=recipe))


def test_a_job_that_is_complete_only_finishes():
    job = Job(known=known(), first_step=8)
    assert orders(job.until_training()) == ["01 finish"]


# Failing


def phases() -> dict[str, Any]:
    """Jobs right after each order."""

    def trained(job: Job) -> None:
        job.until_training()
        job.all_step(0, 1, 2, 3)

    def finishing(job: Job) -> None:
        trained(job)
        job.all_step(4, 5, 6, 7)

    def profiling(job: Job) -> None:
        job.start()
        job.all_say("ready", **READY)

    def listening(job: Job) -> None:
        profiling(job)
        job.profiled()

    return {
        "load": Job.start,
        "profile": profiling,
        "listen": listening,
        "probe": lambda job: (listening(job), job.wire()),
        "build": Job.until_planned,
        "train": Job.until_training,
        "checkpoint": trained,
        "finish": finishing,
    }


@pytest.mark.parametrize("phase", list(phases()))
def test_a_rank_that_falls_silent_is_told_and_then_given_up(phase):
    job = Job()
    phases()[phase](job)
    limit_s = 600 if phase == "load" else 60
    told = {now: job.handle(ev.Tick(float(now), {0: float(now), 1: 0.0})) for now in range(limit_s + 1)}
    said = {now: commands for now, commands in told.items() if commands}
    assert said == {
        10: [
            ev.Noted(
                "rank 1 (on host-1, pid 101) has not answered for 10 s: its process is stopped, or its machine hangs "
                f"or cannot be reached. After {limit_s} s the job is given up."
            )
        ],
        limit_s: [ev.SetTimer(POSTMORTEM_S)],
    }
    assert job.handle(ev.Tick(limit_s + 1.0, {0: 0.0, 1: 0.0})) == [], "the verdict is near: nobody else is accused"
    error = failure(job.handle(ev.TimedOut()))
    assert isinstance(error, WorkerLost)
    assert str(error).startswith(f"rank 1 (on host-1, pid 101) has not answered for {limit_s} s ")
    assert str(error).endswith(
        "1 other rank stopped because of it. Perhaps its process is stopped, or its machine hangs or cannot be reached."
    )


def test_a_long_step_of_a_rank_that_shows_that_it_lives_is_no_failure():
    job = Job()
    job.until_training()
    assert [job.handle(ev.Tick(float(now), {0: now - 2.0, 1: now - 1.0})) for now in range(10_000)] == [[]] * 10_000
    assert orders(job.all_step(0)) == ["StepDone"]


def test_a_rank_that_was_silent_and_answers_again_is_told():
    job = Job()
    job.until_training()
    for now in range(30):
        job.handle(ev.Tick(float(now), {0: float(now), 1: 0.0}))
    assert job.handle(ev.Tick(30.0, {0: 30.0, 1: 29.5})) == [ev.Noted("rank 1 (on host-1, pid 101) answers again")]
    assert orders(job.all_step(0)) == ["StepDone"]


def hear_nothing(job: Job, seconds: float) -> None:
    """Let both ranks say that they have not heard each other for that long."""
    for rank in (0, 1):
        job.say(rank, "alive", silent_s=[[1 - rank, seconds]] if seconds else [])


def test_ranks_that_live_and_do_not_hear_each_other_are_told_and_then_given_up():
    job = Job()
    job.until_training()
    said = {}
    for now in range(61):
        hear_nothing(job, float(now))
        if commands := job.handle(ev.Tick(float(now), {0: float(now), 1: float(now)})):
            said[now] = commands
    assert said == {
        10: [
            ev.Noted(
                "rank 1 (on host-1, pid 101) and rank 0 have heard nothing from each other for 10 s: the network "
                "between them is cut. After 60 s the job is given up."
            )
        ],
        60: [ev.SetTimer(POSTMORTEM_S)],
    }
    (failed,) = job.handle(ev.TimedOut())
    assert isinstance(failed.error, WorkerLost)
    assert str(failed.error) == (
        "rank 1 (on host-1, pid 101) and rank 0 have heard nothing from each other for 60 s in the first steps. Every "
        "rank still runs: the network between them is cut. 1 other rank stopped because of it."
    )
    assert not failed.is_death, "what ranks printed last has nothing to do with it"


def test_a_network_that_carries_again_is_told():
    job = Job()
    job.until_training()
    hear_nothing(job, 12.0)
    job.handle(ev.Tick(12.0, {0: 12.0, 1: 12.0}))
    hear_nothing(job, 0.0)
    assert job.handle(ev.Tick(14.0, {0: 14.0, 1: 14.0})) == [
        ev.Noted("rank 1 (on host-1, pid 101) and rank 0 hear each other again")
    ]
    assert orders(job.all_step(0)) == ["StepDone"]


def test_a_cut_that_grows_to_the_coordinator_is_not_told_as_healed():
    job = Job()
    job.until_training()
    hear_nothing(job, 12.0)
    (note,) = job.handle(ev.Tick(12.0, {0: 12.0, 1: 12.0}))
    assert "have heard nothing from each other" in note.text
    assert job.handle(ev.Tick(16.0, {0: 16.0, 1: 12.0})) == []
    assert job.handle(ev.Tick(19.0, {0: 19.0, 1: 12.0})) == []


def test_a_rank_that_nobody_hears_is_told_of_once_as_silent():
    job = Job()
    job.until_training()
    for now in (0.0, 5.0):
        assert job.handle(ev.Tick(now, {0: now, 1: 0.0})) == []
    hear_nothing(job, 10.0)
    (note,) = job.handle(ev.Tick(10.0, {0: 10.0, 1: 0.0}))
    assert "has not answered for 10 s" in note.text
    assert job.handle(ev.Tick(11.0, {0: 11.0, 1: 0.0})) == []


def test_a_rank_that_has_finished_is_not_waited_for():
    job = Job()
    phases()["finish"](job)
    job.finish(1)
    assert [job.handle(ev.Tick(float(now), {0: float(now), 1: 0.0})) for now in range(100)] == [[]] * 100


@pytest.mark.parametrize("phase", list(phases()))
def test_a_failure_is_named_once_all_have_spoken(phase):
    job = Job()
    phases()[phase](job)
    step = 2 if phase == "train" else None
    assert job.fail(1, step=step, doing=phase) == [ev.SetTimer(POSTMORTEM_S)]
    assert job.coordinator.handle(ev.Continue()) == [], "nothing else is decided any more"
    (failed,) = job.fail(0, "rank 1 is lost", is_echo=True)
    assert isinstance(failed.error, WorkerLost)
    assert str(failed.error).startswith("rank 1 (on host-1, pid 101) failed ")
    assert ("at step 3" in str(failed.error)) == (phase == "train")
    assert "ValueError: boom" in str(failed.error)
    assert "1 other rank stopped because of it." in str(failed.error)
    assert failed.details.count("the traceback") == 2
    assert job.handle(ev.TimedOut()) == [], "a timer that comes late finds nothing to do"


@pytest.mark.parametrize("phase", list(phases()))
def test_a_death_is_named_with_the_place_of_the_rank(phase):
    job = Job()
    phases()[phase](job)
    assert job.handle(ev.Left(1, "was killed by signal 9 (SIGKILL)")) == [ev.SetTimer(POSTMORTEM_S)]
    error = failure(job.handle(ev.TimedOut()))
    assert isinstance(error, WorkerLost)
    assert str(error).startswith("rank 1 (on host-1, pid 101) was killed by signal 9 (SIGKILL)")


def test_a_failure_of_the_only_rank_is_told_at_once():
    job = Job(ev.JobSettings(strategy="single"))
    job.start()
    assert isinstance(failure(job.fail(0)), WorkerLost)


def test_a_rank_that_leaves_after_it_has_finished_is_no_loss():
    job = Job(ev.JobSettings(workers=2, strategy="ring", steps=1, checkpoint_every=0))
    job.until_training()
    job.all_step(0)
    assert job.finish(1) == []
    assert job.handle(ev.Left(1, "exited with code 0")) == []
    assert isinstance(job.finish(0, file("model"))[0], ev.Finished)


def test_a_rank_that_is_lost_while_another_has_finished_is_a_loss():
    job = Job(ev.JobSettings(workers=2, strategy="ring", steps=1, checkpoint_every=0))
    job.until_training()
    job.all_step(0)
    job.finish(1)
    error = failure(job.handle(ev.Left(0, "was killed by signal 9 (SIGKILL)")))
    assert str(error).startswith("rank 0 (on host-0, pid 100) was killed by signal 9")


def test_slow_reductions_have_the_links_probed_before_any_further_step():
    job = Job(ev.JobSettings(workers=2, strategy="ring", steps=100))
    job.until_training()

    def play(step: int) -> list[str]:
        parts = [ReductionParts(step=step, rank=rank, reduction="b0", queue_s=0.0, duration_s=900.0, sent_bytes=8)
                 for rank in (0, 1)]  # fmt: skip
        return [text for part in parts for text in orders(job.steps(part.rank, step, reductions=[part.to_row()]))]

    told, step = play(0), 0
    while "0 probe" not in told:
        assert step < NUM_STEPS
        told, step = play(step + 1), step + 1
    assert step == NUM_STEPS - 1
    granted = max(each.message["step"] for each in job.told if isinstance(each, ev.Order) and "step" in each.message)
    for late in range(step + 1, granted):
        assert not any(" until " in text for text in play(late))
    assert job.say(1, "probed", found=None) == []
    assert orders(job.say(0, "probed", found=codec.encode(FOUND))) == ["Noted", f"01 until {granted + 2}"]
