"""The coordinator event by event: what it orders when, and what it refuses. No clock, no sockets, no processes."""

import json
import math
from dataclasses import replace
from statistics import median

import pytest
from coordinated import FOUND, LINK, PACE, READY, Job, failure, file, known, message, orders
from hypothesis import given, settings
from hypothesis import strategies as st
from pretended import GRAPH, cluster, profile_of
from slow_steps import granted_by, play_slowly, until_probed

from nfold.core import codec
from nfold.core.cluster import Channel, Cluster
from nfold.core.graph import ModelGraph
from nfold.core.job import Grant, JobSettings
from nfold.core.outputs import ModuleOutput
from nfold.core.plan import Plan
from nfold.core.profile import Profile
from nfold.core.schedule import RankSchedule
from nfold.core.trace import ReductionParts, Span, SystemSample
from nfold.errors import ClusterError, PlanError, ProgramError
from nfold.planning.scheduling.rank_schedules import rank_schedules
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.progress import FIRST_WINDOW, WINDOW_S
from nfold.runtime.measuring.slowness import NUM_STEPS

FAST = {"there_bytes_per_s": 1e8, "back_bytes_per_s": 1e8}

# The whole path


def test_a_job_of_two_ranks_from_start_to_end():
    job = Job()
    assert orders(job.start()) == ["0 load", "1 load"]
    assert orders(job.all_say("ready", **READY)) == ["0 profile"]
    assert orders(job.profiled()) == ["Prepared", "01 listen"]
    assert job.say(1, "listening", address=["b", 2]) == []
    assert orders(job.say(0, "listening", address=["a", 1])) == ["01 connect"]
    assert orders(job.all_say("connected")) == ["Prepared", "0 probe", "1 probe"]
    assert job.say(0, "probed", found=codec.encode(FOUND)) == []
    assert orders(job.say(1, "probed", found=None)) == ["Prepared", "0 pace", "1 pace"]
    assert job.say(1, "paced", pace=PACE) == []
    assert orders(job.say(0, "paced", pace=PACE)) == ["Planned", "0 build", "1 build"]
    job.workers = range(2)
    assert orders(job.all_say("built", kept={}, notes=[], seconds=1.0)) == ["01 until 4", "01 checkpoint"]
    assert orders(job.all_step(0, 1)) == ["StepDone", "StepDone"]
    assert orders(job.all_step(2, 3)) == ["StepDone", "StepDone", "01 until 6"]
    assert job.say(1, "checkpoint") == []
    assert job.say(0, "checkpoint", file("state")) == [cmd.KeepCheckpoint(4, file("state"))]
    assert orders(job.all_step(4, 5)) == ["StepDone", "StepDone", "01 until 8", "01 checkpoint"]
    assert orders(job.all_step(6, 7)) == ["StepDone", "StepDone", "01 deliver"]
    job.say(0, "checkpoint", file("end"))
    assert job.say(1, "checkpoint") == [cmd.KeepCheckpoint(8, file("end"))]
    assert job.finish(1) == []
    (finished,) = job.finish(0, file("model"))
    assert isinstance(finished, cmd.Finished)
    assert (finished.model, finished.interrupted) == (file("model"), False)
    assert [usage.rank for usage in finished.usage] == [0, 1]
    assert job.handle(ev.Left(0, "exited with code 0")) == [], "it is over"


def test_hosts_that_are_taken_back_before_anything_is_kept_are_refused():
    grant = Grant(by="Slurm partition short", seconds=1e-9)
    job = Job(JobSettings(workers=2, strategy="ring", grant=grant))

    (failed,) = job.until_planned()

    assert isinstance(failed.error, PlanError)
    assert "Slurm partition short takes its hosts back after 1e-09 s, and about 0 of the 8 steps fit" in str(
        failed.error
    )


def listening(*told):
    """A job of two ranks that listen, each at an address and seen from one; return what follows."""
    job = Job()
    job.start()
    job.all_say("ready", **READY)
    job.profiled()
    for rank, (address, seen) in enumerate(told):
        commands = job.say(rank, "listening", address=[address, 1], seen=seen)
    return commands


def test_a_rank_behind_an_address_translation_comes_last_and_dials_all_others():
    connect = message(listening(("192.168.1.5", "10.0.0.9"), ("10.0.0.2", "10.0.0.2")), "connect")

    assert connect["addresses"] == [[1, "10.0.0.2", 1], [0, "192.168.1.5", 1]]


def test_ranks_behind_different_address_translations_are_refused():
    (failed,) = listening(("192.168.1.5", "10.0.0.9"), ("192.168.1.5", "10.0.0.8"))

    assert isinstance(failed.error, ClusterError)
    assert "behind different address translations (NAT), so neither reaches the other" in str(failed.error)


def test_a_fault_that_kills_a_rank_is_no_news_until_the_rank_is_gone():
    job = Job(JobSettings(strategy="single"))
    job.start()
    assert job.handle(ev.KillAnnounced((0,), "kill n@3s")) == []
    gone = job.handle(ev.Left(0, "was killed by signal 9 (SIGKILL)"))
    assert str(failure(gone)).endswith('That was asked for: --fault "kill n@3s".')


def test_one_rank_is_wired_but_not_probed():
    job = Job(JobSettings(strategy="single"))
    job.start()
    assert orders(job.all_say("ready", **READY)) == ["0 profile"]
    assert orders(job.profiled()) == ["Prepared", "0 listen"]
    assert orders(job.wire()) == ["Prepared", "Planned", "0 build"]


def test_ranks_are_told_what_they_need():
    job = Job(JobSettings(workers=2, strategy="ring", seed=3, chunks=4, device="cpu"), ready=READY | {"chunks": 4})
    job.until_planned()
    load = message(job.told, "load")
    assert (load["threads"], load["device"], load["overrides"]) == (2, "cpu", {"seed": 3, "chunks": 4})
    profile = message(job.told, "profile")
    assert (profile["threads"], profile["own_threads"], profile["chunk_sizes"]) == ([4, 2, 1], 2, [7, 13, 25])
    meeting = message(job.told, "connect")
    assert meeting["addresses"] == [[0, "10.0.0.1", 5000], [1, "10.0.0.1", 5001]]
    assert (meeting["generation"], meeting["members"]) == (0, [0, 1])
    probes = [each.message for each in job.told if isinstance(each, cmd.Send) and each.message["do"] == "probe"]
    assert [(probe["peer"], probe["measures"]) for probe in probes] == [(1, True), (0, False)]
    build = message(job.told, "build")
    assert codec.decode(Plan, build["plan"]) == job.planned.plan
    assert codec.decode(ModelGraph, build["graph"]) == GRAPH
    builds = [each.message for each in job.told if isinstance(each, cmd.Send) and each.message["do"] == "build"]
    parts = [each["schedule"] for each in builds]
    expected = rank_schedules(job.planned.plan, GRAPH, job.planned.known.profiles)
    assert tuple(map(RankSchedule.from_document, json.loads(json.dumps(parts)))) == expected, "each gets its own"
    assert build["total_steps"] == 8


@pytest.mark.parametrize(("most", "threads", "own"), [(8, [4, 2, 1], 2), (3, [3, 2, 1], 2), (1, [1], 1)])
def test_nothing_is_measured_with_more_threads_than_the_user_allows(most, threads, own):
    job = Job(JobSettings(workers=2, strategy="ring"))
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
    assert (job.planned.total_steps, job.planned.epochs.latest, job.planned.first_step) == (8, 4, 0)
    assert isinstance(job.planned.known.profiles[1], Profile)


def test_all_orders_can_be_written_as_json():
    job = Job()
    job.until_training()
    assert all(json.dumps(each.message) for each in job.told if isinstance(each, cmd.Send))


def test_a_plan_alone_ends_without_training():
    job = Job(JobSettings(workers=2, strategy="ring", plan_only=True))
    assert orders(job.until_planned()) == ["Measured", "Planned", "01 finish"]
    assert job.say(0, "finished", usage=None) == []
    assert job.handle(ev.Left(0, "exited with code 0")) == [cmd.LetGo(0)], "it was done, so it may go before the other"
    assert job.say(1, "finished", usage=None) == [cmd.Finished()]


def test_what_others_plan_for_is_measured_and_not_planned():
    settings = JobSettings(workers=2, strategy="ring", chunks=4, plan_only=True, measures_for=(8,))
    job = Job(settings, ready=READY | {"chunks": 4})
    said = job.until_planned()
    assert orders(said) == ["Measured", "01 finish"]
    assert (said[0].question.chunks, said[0].question.workers, said[0].run_steps.total_steps) == (4, 2, 8)
    assert said[0].question.cluster.nodes[0].local == LINK
    assert job.say(0, "finished", usage=None) == []
    assert job.say(1, "finished", usage=None) == [cmd.Finished()]


def test_chunks_of_more_workers_are_measured_where_those_are_planned_for():
    def sizes(measures_for):
        job = Job(JobSettings(workers=2, strategy="ring", plan_only=True, measures_for=measures_for))
        job.until_planned()
        return message(job.told, "profile")["chunk_sizes"]

    assert set(sizes((2,))) < set(sizes((12,)))
    assert min(sizes((12,))) < min(sizes((2,)))


def slow(times):
    return {**PACE, "mean_s": PACE["mean_s"] * times}


def test_all_compute_at_once_with_as_many_samples_as_a_chunk_has():
    job = Job(settings=JobSettings(workers=4, strategy="auto"), ready={**READY, "batch_size": 4})
    job.until_planned()
    paced = [each for each in job.told if isinstance(each, cmd.Send) and each.message["do"] == "pace"]
    assert [each.message["chunk_size"] for each in paced] == [2, 2, 2, 2]


def job_that_paces():
    job = Job()
    job.start()
    job.all_say("ready", **READY)
    job.profiled()
    job.wire()
    job.say(1, "probed", found=None)
    assert orders(job.say(0, "probed", found=codec.encode(FOUND)))[-2:] == ["0 pace", "1 pace"]
    return job


def test_all_compute_again_while_one_seems_to_be_held_up():
    job = job_that_paces()
    job.say(0, "paced", pace=PACE)
    assert orders(job.say(1, "paced", pace=slow(1.5))) == ["0 pace", "1 pace"]
    job.say(0, "paced", pace=slow(1.01))
    assert orders(job.say(1, "paced", pace=slow(1.02)))[0] == "Planned"
    assert [node.speed for node in job.planned.known.cluster.nodes] == [pytest.approx(1 / 1.01, rel=0.02)]


def test_a_node_that_is_slow_again_is_slow():
    job = job_that_paces()
    for times, following in ((1.5, "0 pace"), (1.45, "Planned")):
        job.say(0, "paced", pace=PACE)
        assert orders(job.say(1, "paced", pace=slow(times)))[0] == following


def test_ranks_that_the_plan_does_not_need_leave_before_the_others_build():
    job = Job(JobSettings(workers=3, strategy="auto"), ready=READY | {"num_samples": 100})
    commands = job.until_planned()
    assert orders(commands) == ["12 finish"], "a millisecond of computing is not worth a quarter second of latency"
    assert job.say(2, "finished", usage=None) == []
    assert job.handle(ev.Left(2, "exited with code 0")) == [cmd.LetGo(2)]
    assert orders(job.say(1, "finished", usage=None)) == ["Planned", "0 build"]
    assert job.handle(ev.Left(1, "exited with code 0")) == [cmd.LetGo(1)]
    job.workers = range(1)
    assert orders(job.say(0, "built", kept={}, notes=[], seconds=1.0)) == ["0 until 4", "0 checkpoint"]


def test_what_ranks_note_of_trials_is_told_once():
    job = Job(known=known())
    job.until_planned()
    assert job.say(0, "built", kept={}, notes=["a", "b"], seconds=1.0) == []
    commands = job.say(1, "built", kept={}, notes=["b"], seconds=1.0)
    assert commands[:2] == [cmd.Noted("note: a"), cmd.Noted("note: b")]
    assert job.steps(0, 0, notes=["c"]) == [cmd.Noted("note: c")]
    assert orders(job.steps(1, 0, notes=["c"])) == ["StepDone"]


# What is refused


def first_pass(samples, projection):
    output = ModuleOutput(module="a (Linear)", norm=2.0, projection=projection)
    return {"samples": samples, "outputs": [codec.encode(output)], "gradients": []}


def other_loss(norm):
    """A first pass of equal outputs whose loss has another gradient."""
    gradient = codec.encode(ModuleOutput(module="loss, differentiated by output 0", norm=norm, projection=0.0))
    return READY["first_pass"] | {"gradients": [gradient]}


def test_ranks_whose_losses_have_one_value_and_other_gradients():
    for apart, is_other in ((1e-4, False), (0.3, True)):
        job = Job()
        job.start()
        job.say(0, "ready", **READY | {"first_pass": other_loss(1.0)})
        said = job.say(1, "ready", **READY | {"first_pass": other_loss(1.0 + apart)})
        assert isinstance(said[-1], cmd.Failed) == is_other
        if is_other:
            assert "programs: the output of the loss, differentiated by output 0 differs first, by 23 %" in str(
                failure(said)
            )


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"has_test": True}, "ranks 0 and 1 built different programs: only that of rank 1 has test_data. All hosts"),
        ({"metrics": ["test_loss", "f1"]}, "ranks 0 and 1 built different programs: they evaluate test_loss and f1, t"),
        (
            {"stepping": READY["stepping"] | {"optimizer": "AdamW"}},
            "ranks 0 and 1 built different programs: Program(optimizer=...) gives SGD and AdamW. All hosts need the",
        ),
        (
            {"stepping": READY["stepping"] | {"scheduler": "StepLR"}},
            "ranks 0 and 1 built different programs: Program(scheduler=...) gives none and StepLR. All hosts need the",
        ),
        (
            {"stepping": READY["stepping"] | {"groups": [{"lr": 0.2}]}},
            "ranks 0 and 1 built different programs: the optimizer's lr is 0.1 and 0.2. All hosts need the same",
        ),
        (
            {"weights": {"a.bias": 1, "a.weight": 8}},
            "ranks 0 and 1 built different programs: a.weight, of module a, has first values of checksums 7 and 8. Ev",
        ),
        (
            {"weights": {"a.bias": 1, "a.weight": 7, "b": 2}},
            "ranks 0 and 1 built different programs: only the model of rank 1 has b. Everything random in model()",
        ),
        ({"num_samples": 99}, "ranks 0 and 1 built different programs: samples of train_data() are 100 and 99. Every"),
        (
            {"items": {"0": 3, "50": 6, "99": 1}},
            "ranks 0 and 1 hold different data: item 50 of train_data() has the checksums 5 and 6. Give all ranks the",
        ),
        (
            {"first_pass": first_pass(samples=4, projection=1.0)},
            "ranks 0 and 1 compute different things from equal weights, samples and seeds: the output of the a (Linear",
        ),
        (
            {"first_pass": first_pass(samples=5, projection=1.0)},
            "ranks 0 and 1 hold different data: a batch of two samples of train_data() has the checksums 4 and 5. Give",
        ),
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
        (JobSettings(workers=26, strategy="ring"), None, "a batch of 25 samples cannot be cut into 26 chunks"),
        (
            JobSettings(workers=2, strategy="ring", chunks=26),
            26,
            "a batch of 25 samples cannot be cut into 26 chunks",
        ),
        (JobSettings(workers=3, strategy="ring"), 2, "3 workers cannot share 2 chunks"),
        (JobSettings(workers=3, strategy="pipeline", chunks=26), 26, "cannot be cut into 26 chunks"),
    ],
)
def test_a_batch_that_cannot_be_cut_is_refused_before_anything_is_measured(settings, chunks, text):
    job = Job(settings)
    job.start()
    error = failure(job.all_say("ready", **READY | {"chunks": chunks}))
    assert isinstance(error, PlanError)
    assert text in str(error)


def test_wishes_that_make_no_sense_are_refused_before_ranks_are_wired():
    job = Job(JobSettings(workers=2, strategy="rong"))
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
    (sampled,) = job.say(1, "steps", steps=[], samples=[sample.to_row()], under_way=None)
    assert sampled == cmd.Sampled((sample,))
    (done,) = job.steps(0, 0, reductions=[rows[0].to_row()])
    assert done.reductions == tuple(rows)


def test_losses_are_added_in_the_order_of_chunks_and_spans_join_into_a_trace():
    job = Job()
    job.until_training()
    span = Span(rank=1, kind="F", name="F0.1", start_s=0.0, end_s=1.0)
    job.steps(1, 0, losses=[[1, 0.25]], spans=[codec.encode(span)], step_s=2.0)
    (done,) = job.steps(0, 0, losses=[[0, 0.5]], step_s=1.0)
    assert isinstance(done, cmd.StepDone)
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
    assert [each.step for each in done if isinstance(each, cmd.StepDone)] == [0, 1]


@pytest.mark.parametrize(("step_s", "window"), [(1.0, 2), (0.1, 3), (0.01, 30), (0.0, 300_000)])
def test_ranks_run_ahead_for_about_a_third_of_a_second(step_s, window):
    job = Job(JobSettings(workers=2, strategy="ring", steps=10**6), ready=READY | {"num_samples": 25 * 10**6})
    assert orders(job.until_training()) == [f"01 until {FIRST_WINDOW}"]
    granted = [each for each in job.all_step(0, 1, step_s=step_s) if isinstance(each, cmd.Send)]
    assert [order.message["step"] for order in granted] == ([2 + window] if 2 + window > FIRST_WINDOW else [])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.sampled_from([0.01, 0.1, 1.0])), max_size=40))
def test_ranks_never_run_further_ahead_than_they_were_granted(reports):
    job = Job(JobSettings(workers=2, strategy="ring", steps=60), ready=READY | {"num_samples": 25 * 7})
    job.until_training()
    reported, steps_s, done = [0, 0], list[float](), 0
    for rank, step_s in reports:
        granted = max(each.message["step"] for each in job.told if orders([each])[0].startswith("01 until"))
        if reported[rank] == granted:
            continue
        steps = [each for each in job.steps(rank, reported[rank], step_s=step_s) if isinstance(each, cmd.StepDone)]
        reported[rank] += 1
        for each in steps:
            done, steps_s = each.step + 1, [*steps_s, max(part.step_s for part in each.parts)]
        window = max(2, round(WINDOW_S / median(steps_s[-8:]))) if steps_s else FIRST_WINDOW
        latest = max(each.message["step"] for each in job.told if orders([each])[0].startswith("01 until"))
        assert latest <= max(granted, done + window)
        assert latest > done or done == 60
    assert done == min(reported)


def test_test_data_are_evaluated_and_state_is_kept_at_each_end_of_an_epoch():
    job = Job(ready=READY | {"has_test": True})
    assert orders(job.until_training()) == ["01 until 4", "01 checkpoint", "01 evaluate"]  # learnt first
    assert [each.message.get("tag") for each in job.told[-3:]] == [None, 1, 2]
    job.all_step(0, 1, 2, 3)
    assert job.say(0, "evaluated", sums={"loss": [3.0, 10], "accuracy": [9.0, 10], "broken": [float("nan"), 10]}) == []
    assert job.say(0, "checkpoint", file("x")) == []
    (evaluated,) = job.say(1, "evaluated", sums={"loss": [1.0, 10], "accuracy": [5.0, 10], "broken": [0.0, 10]})
    broken = pytest.approx(math.nan, nan_ok=True)
    assert evaluated == cmd.Evaluated(4, 0, {"loss": 0.2, "accuracy": 0.7, "broken": broken})


def test_metrics_without_test_data_are_told_of_once():
    job = Job(ready=READY | {"has_metrics": True})
    assert orders(job.until_training()) == ["01 until 4", "01 checkpoint"]
    (planned,) = (each for each in job.told if isinstance(each, cmd.Planned))
    assert planned.foretold == ("metrics are of test data, and the program has none: give Program(test_data=...)",)


@pytest.mark.parametrize("plan_only", [True, False])
@pytest.mark.parametrize("steps", [None, 7])
def test_a_schedule_shorter_than_the_run_is_refused_before_anything_is_measured(plan_only, steps):
    job = Job(JobSettings(workers=2, strategy="ring", steps=steps, plan_only=plan_only))
    job.start()
    error = failure(job.all_say("ready", **READY | {"schedule_end": {"steps": 6, "error": "ValueError: over"}}))
    assert isinstance(error, ProgramError)
    assert f"lasts 6 steps, and the run has {steps or 8} " in str(error)


def test_a_run_that_goes_on_is_refused_where_its_schedule_ends():
    job = Job(JobSettings(workers=2, strategy="ring", steps=9), checkpoint=b"x", first_step=6)
    job.start()
    error = failure(job.all_say("ready", **READY | {"schedule_end": {"steps": 6, "error": "ValueError: over"}}))
    assert "6 of them done" in str(error)
    assert "--steps 6" not in str(error)


def test_nothing_is_evaluated_where_that_is_not_wanted():
    job = Job(JobSettings(workers=2, strategy="ring", evaluate=False), ready=READY | {"has_test": True})
    assert orders(job.until_training()) == ["01 until 4", "01 checkpoint"]


def test_a_checkpoint_is_kept_only_when_all_ranks_have_given_their_part():
    job = Job(JobSettings(workers=2, strategy="ring", checkpoint_every=1))
    job.until_training()
    assert job.say(0, "checkpoint", file("one")) == []
    assert job.say(0, "checkpoint", file("two")) == []
    assert job.say(1, "checkpoint") == [cmd.KeepCheckpoint(1, file("one"))]
    assert job.say(1, "checkpoint") == [cmd.KeepCheckpoint(2, file("two"))]


@pytest.mark.parametrize(
    ("every", "expected"),
    [(3, [3, 6, 7]), (None, [4, 7]), (0, []), (100, [7])],
)
def test_checkpoints_come_when_they_are_due_and_at_the_end(every, expected):
    job = Job(JobSettings(workers=1, strategy="single", steps=7, checkpoint_every=every))
    commands, step, found = job.until_training(), 0, []
    while not any("deliver" in text for text in orders(commands)):
        stop = 0
        for command in commands:
            if isinstance(command, cmd.Send) and command.message["do"] == "until":
                stop = command.message["step"]
            if isinstance(command, cmd.Send) and command.message["do"] == "checkpoint":
                found.append(stop)
        commands = job.all_step(step, step_s=0.01)
        step += 1
    assert found == expected
    assert step == 7


def test_in_lockstep_a_step_is_played_only_when_it_is_asked_for():
    job = Job(JobSettings(workers=2, strategy="ring", lockstep=True))
    assert job.until_training() == []
    assert orders(job.handle(ev.Continue())) == ["01 until 1"]
    assert orders(job.all_step(0)) == ["StepDone", "Settled"]
    assert orders(job.handle(ev.Continue())) == ["01 until 2"]


def test_in_lockstep_a_step_is_handed_out_when_all_that_is_due_after_it_is_done():
    settings = JobSettings(workers=2, strategy="ring", lockstep=True)
    job = Job(settings, ready={**READY, "has_test": True})
    job.until_training()
    for step in range(4):
        told = [*job.handle(ev.Continue()), *job.all_step(step)]
    assert orders(told) == ["01 until 4", "01 checkpoint", "01 evaluate", "StepDone"]
    job.say(0, "checkpoint", file("x"))
    assert orders(job.say(1, "checkpoint")) == ["KeepCheckpoint"]
    job.say(0, "evaluated", sums={"test_loss": [1.0, 2]})
    assert orders(job.say(1, "evaluated", sums={})) == ["Evaluated", "Settled"]


def test_in_lockstep_ranks_wait_for_the_caller_after_the_last_step_too():
    job = Job(JobSettings(workers=2, strategy="ring", lockstep=True, steps=1, checkpoint_every=0))
    job.until_training()
    job.handle(ev.Continue())
    assert orders(job.all_step(0)) == ["StepDone", "Settled"]
    assert orders(job.handle(ev.CheckpointWanted())) == ["01 checkpoint"]
    job.say(0, "checkpoint", file("x"))
    assert orders(job.say(1, "checkpoint")) == ["KeepCheckpoint"]
    assert orders(job.handle(ev.Continue())) == ["01 deliver"]


def test_slow_reductions_have_the_links_probed_before_any_further_step():
    job = Job(JobSettings(workers=2, strategy="ring", steps=100))
    job.until_training()
    step, granted = until_probed(job), granted_by(job)
    assert step == NUM_STEPS - 1
    for late in range(step + 1, granted):
        assert not any(" until " in text for text in play_slowly(job, late))
    assert job.say(1, "probed", found=None) == []
    assert orders(job.say(0, "probed", found=codec.encode(FOUND))) == ["Noted", "01 limit", f"01 until {granted + 2}"]


@pytest.mark.parametrize(("kbit", "is_refused"), [(1, True), (10_000, False)])
def test_links_declared_too_slow_for_a_first_step_are_refused_before_ranks_are_wired(kbit, is_refused):
    slow = Channel(latency_s=0.0, bandwidth_bytes_per_s=kbit * 125, origin="declared")
    node = replace(cluster().nodes[0], uplink=slow, downlink=slow)
    nodes = tuple(replace(node, name=name) for name in ("n0", "n1"))
    settings = JobSettings(
        workers=2, strategy="ring", cluster=Cluster(nodes=nodes), nodes=("n0", "n1"), first_step_limit_s=0.2
    )
    job = Job(settings)
    job.start()
    job.all_say("ready", **READY)
    commands = job.profiled()
    if not is_refused:
        assert orders(commands) == ["Prepared", "01 listen"]
        return
    error = failure(commands)
    assert isinstance(error, PlanError)
    assert "longer than the 0.2 s allowed: ring sends" in str(error)
    assert "n0's downlink moves 0.001 Mbit/s" in str(error)


@pytest.mark.parametrize(
    ("num_nodes", "latency_s", "told"),
    [(8, 0.0, ""), (9, 0.0, "7 of its 8 peers"), (8, 0.005, "4 of its 7 peers"), (5, 0.1, "2 of its 4 peers")],
)
def test_of_more_nodes_than_can_all_be_probed_in_time_it_is_told_how_many_are(num_nodes, latency_s, told):
    names = tuple(f"n{index}" for index in range(num_nodes))
    nodes = tuple(replace(cluster().nodes[0], name=name, uplink=LINK, downlink=LINK) for name in names)
    job = Job(JobSettings(workers=num_nodes, strategy="ring", cluster=Cluster(nodes=nodes), nodes=names))
    job.start()
    job.all_say("ready", **READY)
    job.profiled()
    commands, rounds = job.wire(), 0
    notes = []
    while orders := [each for each in commands if isinstance(each, cmd.Send) and each.message["do"] == "probe"]:
        notes += [each.text for each in commands if isinstance(each, cmd.Noted)]
        rounds += 1
        for order in orders:
            found = codec.encode(replace(FOUND, latency_s=latency_s, **FAST)) if order.message["measures"] else None
            commands = job.say(order.members[0], "probed", found=found)
    assert rounds == (int(told[0]) if told else num_nodes - 1)
    if not told:
        assert notes == []
    else:
        (note,) = notes
        assert note.startswith(f"note: each node's link is probed with {told}, which takes 3 s at most")
