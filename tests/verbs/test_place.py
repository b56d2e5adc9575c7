"""What `place` makes of a cluster file, of flags and of a measured program."""

from dataclasses import replace

import pytest
from grids import chain, facts, profile

from nfold.core.profile import ChunkTiming, Timing
from nfold.core.text.cluster_file import parse_cluster
from nfold.errors import PlanError, RunError
from nfold.planning.choosing.early_checks import RunSteps
from nfold.planning.residency.model.program_rates import program_rates
from nfold.runtime.control import commands as cmd
from nfold.verbs import place as place_verb
from nfold.verbs.place import place, write_picture
from nfold.verbs.results.summary import RunOutcome

MIB = 1 << 20
NO_TIME = Timing(median_s=0.0, spread_s=0.0, repeats=3)
SAYING = """
[[node]]
name = "a"
samples = 3000
sample_bytes = 1000
samples_per_s = 10
uplink = "8 Mbit/s"

[[node]]
name = "b"
samples_per_s = 40
uplink = "8 Mbit/s"
"""
SILENT = SAYING.replace("samples_per_s = 10", "cores = 0.5").replace("samples_per_s = 40", "cores = 2\nspeed = 2.0")
GRAPH = chain(2 * MIB, 2 * MIB, 2 * MIB)


def nodes(text=SAYING):
    return parse_cluster(text, "cluster.toml")


@pytest.fixture
def measured(monkeypatch):
    """Let a program be measured like this, whatever it is."""
    found = facts(GRAPH, 1, profiles={1: profile(GRAPH)})
    outcome = RunOutcome(measured=cmd.Measured(found, RunSteps(num_samples=320, batch_size=32, total_steps=10)))
    monkeypatch.setattr(place_verb, "measure_alone", lambda *_: outcome)
    monkeypatch.setattr(place_verb, "find_source", lambda program: program)
    return found


def test_a_file_alone_is_enough():
    plan = place(nodes())
    assert [node.holds for node in plan.nodes] == [600, 2400]
    assert (plan.epochs, plan.batch_size, plan.traffic) == (10, 128, "ring")
    assert plan.cost.sync_s == 0


def test_flags_say_what_travels():
    plan = place(nodes(), epochs=2, batch=100, gradient="1 MB", traffic="server", method="waterfill")
    steps = 30
    assert plan.cost.sync_s == pytest.approx(steps * 2 * 1.0), "a gradient to the server and back, 1 s each"
    assert (plan.epochs, plan.batch_size) == (2, 100)


def test_a_node_without_work_is_left_out():
    assert place(nodes(), without=["a"]).members == ("b",)


def test_a_program_says_how_fast_nodes_are_and_what_gradients_weigh(measured):
    plan = place(nodes(SILENT), program="train.py", method="waterfill")
    assert plan.batch_size == measured.batch_size
    assert [node.holds for node in plan.nodes] == [600, 2400], "half a core against one of speed 2"
    steps = -(-3000 // measured.batch_size)
    rates = program_rates(measured, nodes(SILENT))
    assert rates.gradient_bytes == GRAPH.parameter_bytes
    assert plan.cost.sync_s >= steps * GRAPH.parameter_bytes / 1e6, "two of two halves, at 1 MB/s"


def test_nobody_trains_faster_than_it_reads(measured):
    slow = {threads: replace(each, load_s_per_sample=1.0, load_wait=0.9) for threads, each in measured.profiles.items()}
    rates = program_rates(replace(measured, profiles=slow), nodes(SILENT))
    assert rates.samples_per_s["a"] <= 1.0, "half a core, for which reading and computing are one after the other"


def test_what_a_step_takes_however_few_its_samples_are_is_none_of_theirs(measured):
    count = measured.batch_size
    whole = tuple(
        ChunkTiming(chunk_size=size, forward=Timing(median_s=0.4 + size, spread_s=0, repeats=3), backward=NO_TIME)
        for size in (1, count)
    )
    profiles = {
        threads: replace(each, whole=whole, load_s_per_sample=0.0) for threads, each in measured.profiles.items()
    }
    slow = replace(nodes(SILENT), nodes=tuple(replace(each, step_cpu_s=0.1) for each in nodes(SILENT).nodes))
    found, update_s = program_rates(replace(measured, profiles=profiles), slow), measured.profiles[1].update.median_s
    assert found.samples_per_s == pytest.approx({"a": 1.0, "b": 2.0})
    assert found.update_s == pytest.approx({"a": 0.4 + update_s + 0.2, "b": (0.4 + update_s) / 2 + 0.1})


def test_what_a_file_says_of_a_node_goes_before_the_program(measured):
    plan = place(nodes(), program="train.py", method="waterfill")
    assert [node.computes_s for node in plan.nodes] == pytest.approx([60, 60])


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        (
            {"method": "best"},
            "--method best: it must be one of auto, nothing, equal, ilp, greedy, lp, waterfill, overlap, joint",
        ),
        ({"traffic": "radio"}, "--traffic radio: it must be one of ring, server, pipeline"),
        ({"epochs": 0}, "--epochs 0: it must be a whole number of at least 1"),
        ({"batch": 1.5}, "--batch 1.5: it must be a whole number"),
        ({"batch_up_to": 64}, "--batch-up-to 64: less than the batch of 128"),
        ({"time_limit": "soon"}, "--time-limit soon: it must be a time"),
        ({"traffic": "pipeline"}, "--traffic pipeline needs --activations"),
        ({"activations": "1 kB"}, "--traffic pipeline needs --activations"),
    ],
)
def test_nonsense_is_refused(keywords, said):
    with pytest.raises(PlanError, match=said):
        place(nodes(), **keywords)


def test_pictures_are_of_the_kind_that_their_name_says(tmp_path):
    plan = place(nodes())
    write_picture(plan, tmp_path / "plan.svg")
    write_picture(plan, tmp_path / "plan.html")
    assert (tmp_path / "plan.svg").read_text().startswith("<svg ")
    assert (tmp_path / "plan.html").read_text().startswith("<!doctype html>")
    with pytest.raises(PlanError, match=r"plan.png: its name must end in .html or .svg"):
        write_picture(plan, tmp_path / "plan.png")
    with pytest.raises(PlanError, match=r"there is no folder .*nowhere that can be written to\. Use another one"):
        write_picture(plan, tmp_path / "nowhere" / "plan.svg")


def test_a_picture_that_cannot_be_written_is_told_and_leaves_nothing(tmp_path):
    (tmp_path / "plan.svg").mkdir()
    with pytest.raises(RunError, match=r"cannot write the picture .*: Is a directory"):
        write_picture(place(nodes()), tmp_path / "plan.svg")
    assert [path.name for path in tmp_path.iterdir()] == ["plan.svg"]
