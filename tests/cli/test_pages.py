"""Pages and traces that commands leave behind."""

import json
import shutil
import sys
from dataclasses import replace

import pytest

from nfold.core import codec
from nfold.core.cluster import Channel, Cluster
from nfold.core.plan import Asynchrony
from nfold.verbs.results.conclusion import ComparedRun, concluded
from nfold.verbs.results.scaling_forecast import predicted_points, scaling
from nfold.verbs.run_folder.folder import RunFolder
from nfold.verbs.train import train

LINK = Channel(latency_s=1e-3, bandwidth_bytes_per_s=12.5e6, origin="declared")


@pytest.fixture(scope="module")
def trained(module_shell):
    """One short run for all tests; each gets a copy."""
    path = list(sys.path)
    try:
        done = train(
            module_shell.folder / "steady.py", workers=2, strategy="ring", steps=6, debug=True,
            out=module_shell.folder / "run",
        )  # fmt: skip
    finally:
        sys.path[:] = path
        sys.modules.pop("numbers_of_this_program", None)
    return done.folder


@pytest.fixture
def run(trained, nfold, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def test_a_run_leaves_a_page_that_can_be_written_again(trained, run, nfold):
    page = (run / "report.html").read_text().replace(str(trained), "run")
    environment = json.loads((run / "environment.json").read_text())
    assert environment["versions"].keys() >= {"python", "nfold", "torch"}
    assert json.loads((run / "report.json").read_text())["verdict"]["text"][:30] in page
    (run / "report.html").unlink()

    result = nfold("report", "run")

    assert (result.code, result.out) == (0, "page: run/report.html\n")
    assert (run / "report.html").read_text() == page


def test_report_and_trace_tell_the_same_time_of_writing(trained):
    kept = {name: json.loads((trained / name).read_text())["ledger"] for name in ("report.json", "trace.json")}
    assert kept["trace.json"]["writing"] == kept["report.json"]["writing"] > 0


def test_the_curves_of_a_page_are_computed_once(nfold, monkeypatch):
    computed = []

    def count(*asked):
        computed.append(asked)
        return scaling(*asked)

    monkeypatch.setattr("nfold.verbs.results.pages.scaling", count)
    assert nfold("train", "steady.py", "--steps", "2", "--debug").code == 0
    assert len(computed) == 1


def test_a_run_of_an_older_version_has_a_page_too(run, nfold):
    (run / "environment.json").unlink()

    assert nfold("report", "run").code == 0


def test_a_trace_can_be_exported(run, nfold, tmp_path):
    result = nfold("report", "run", "--chrome", "trace.json")

    assert "trace: trace.json" in result.out
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert {event["pid"] for event in slices} == {0, 1}
    assert {"forward", "backward", "send", "receive", "update"} <= {event["cat"] for event in slices}
    sends = [event for event in slices if event["cat"] == "send"]
    assert len([event for event in events if event["ph"] == "s"]) == len(sends) > 0
    assert len([event for event in events if event["ph"] == "f"]) == len(sends)


def test_a_run_without_traced_steps_has_nothing_to_export(run, nfold, tmp_path, monkeypatch):
    whole = RunFolder.trace
    monkeypatch.setattr(RunFolder, "trace", lambda folder: replace(whole(folder), steps=()))
    result = nfold("report", "run", "--chrome", "trace.json")

    assert result.code == 2
    assert "was traced task by task" in result.message
    assert not (tmp_path / "trace.json").exists()


def test_what_was_written_is_one_object_for_programs(run, nfold, tmp_path):
    assert nfold("report", "run", "--json").document() == {"page": "run/report.html", "chrome": None}
    written = nfold("report", "run", "--chrome", "trace.json", "--json").document()
    assert written == {"page": "run/report.html", "chrome": "trace.json"}


def test_a_trace_that_cannot_be_written_is_explained(run, nfold):
    result = nfold("report", "run", "--chrome", "no/such/folder.json")

    assert result.code == 2
    assert "Use another --chrome" in result.message


def test_a_folder_without_a_run_is_explained(nfold, tmp_path):
    (tmp_path / "empty").mkdir()

    nfold("report", "empty").check_explained("holds no run")
    nfold("report", "nowhere").check_explained("there is no run folder nowhere")
    nfold("compare", "empty").check_explained("holds no run")


def test_runs_that_have_ended_can_be_compared(run, nfold, tmp_path):
    shutil.copytree(run, tmp_path / "other")

    result = nfold("compare", "run", "other", "--out", "both", "--json")

    runs = result.document()["runs"]
    assert [each["name"] for each in runs] == ["ring x2", "ring x2"]
    assert [each["time_to_loss_s"] is not None for each in runs] == [True, True]
    assert (tmp_path / "both" / "compare.html").is_file()
    assert json.loads((tmp_path / "both" / "compare.json").read_text()) == result.document()


@pytest.mark.parametrize("no_color", ["", "1"])
def test_a_terminal_gets_escape_codes_unless_it_wants_none(run, nfold, tmp_path, monkeypatch, no_color):
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    result = nfold("compare", "run", "--out", "alone")

    assert result.code == 0, result.err
    assert ("\x1b" in result.out) == (not no_color)


def test_an_epoch_costs_what_its_nodes_cost_each_paid_once(run, nfold, tmp_path):
    dear = shutil.copytree(run, tmp_path / "dear")
    cluster = json.loads((dear / "cluster.json").read_text())
    for node in cluster["nodes"]:
        node["price_per_hour"] = 0.5
    (dear / "cluster.json").write_text(json.dumps(cluster))

    free, paid = nfold("compare", "run", "dear", "--json").document()["runs"]

    assert free["cost_per_epoch"] is None
    assert paid["cost_per_epoch"] == pytest.approx(0.5 * paid["epoch_s"] / 3600), "two ranks on one node"


def test_a_script_among_runs_is_refused(run, nfold):
    nfold("compare", "run", "steady.py").check_explained("steady.py is no folder of a run")


def test_a_comparison_says_who_wins_and_leaves_a_page(nfold, tmp_path):
    result = nfold(
        "compare", "steady.py", "-n", "2", "--strategies", "ring,ps", "--servers", "0,1", "--steps", "4", "--debug",
        "--out", "several",
    )  # fmt: skip

    assert result.code == 0, result.err
    assert "On these links: " in result.out
    assert "page: several/compare.html" in result.out
    document = json.loads((tmp_path / "several" / "compare.json").read_text())
    assert [run["name"] for run in document["runs"]] == ["single", "ring x2", "ps x2", "ps x2 +1"]
    assert [run["cost_per_epoch"] for run in document["runs"]] == [None] * 4
    assert all(run["epoch_s"] > 0 for run in document["runs"])
    assert document["winners"][0]["workers"] == 2
    assert document["predicted"] == [], "one machine: nothing is known of a network"


@pytest.mark.exhaustive
def test_a_run_that_is_refused_is_left_out_of_a_comparison_and_the_others_stay(nfold, tmp_path):
    sweep = ("compare", "steady.py:elaborate", "-n", "2", "--steps", "4", "--debug")
    result = nfold(*sweep, "--strategies", "ps-async,ring", "--out", "some")

    assert result.code == 0, result.err
    document = json.loads((tmp_path / "some" / "compare.json").read_text())
    assert [run["name"] for run in document["runs"]] == ["single", "ring x2"]
    (left,) = document["left_out"]
    assert left["name"] == "ps-async x2"
    assert "clip" in left["why"]
    assert f"Without ps-async x2: {left['why'][:20]}" in result.out
    assert "Without ps-async x2: " in (tmp_path / "some" / "compare.html").read_text()
    assert not (tmp_path / "some" / "ps-async-2").exists()

    alone = nfold(*sweep, "--strategies", "ps-async", "--out", "none")
    assert alone.code == 2, "there is nothing to compare"
    assert "clip" in alone.err


def test_more_nodes_are_predicted_where_links_are_known(run):
    known = RunFolder.open(run).known()
    nodes = tuple(replace(node, uplink=LINK, downlink=LINK) for node in known.cluster.nodes)
    linked = replace(known, cluster=Cluster(nodes=nodes))

    same_batch = predicted_points(linked, known.plan, least=3)
    grown = predicted_points(linked, known.plan, grow_batch=True, most=64)

    assert [point.workers for point in same_batch] == [4, 8, 16]
    assert {point.batch_size for point in same_batch} == {16}
    assert [point.workers for point in grown] == [1, 2, 4, 8, 16, 32, 64]
    assert [point.batch_size for point in grown] == [8 * point.workers for point in grown]
    assert predicted_points(known, known.plan) == ()


def test_where_another_takes_over_beyond_the_measured_sizes_a_number_is_said(run, tmp_path):
    """The other run is made to be of servers and slower than the ring of two; of far nodes many wait for its rounds."""
    other = shutil.copytree(run, tmp_path / "other")
    link = replace(LINK, latency_s=0.05)
    entries = []
    for path, strategy, samples_per_s in ((run, "ring", 900.0), (other, "ps", 800.0)):
        folder = RunFolder.open(path)
        known = folder.known()
        nodes = tuple(replace(node, uplink=link, downlink=link) for node in known.cluster.nodes)
        folder.save(Cluster(nodes=nodes))
        codec.save(replace(known.plan, strategy=strategy), path / "plan.json")
        folder.save(replace(folder.report(), strategy=strategy, samples_per_s=samples_per_s))
        entries.append(ComparedRun(folder=folder))

    (taken,) = concluded(entries).takeovers

    assert (taken.winner, taken.loser, taken.origin) == ("ps", "ring", "predicted")
    assert (taken.last_workers, taken.workers) == (2, 3), "measured with 2, and predicted with 4 at first"


def test_every_strategy_has_a_curve_where_links_are_known_and_a_reason_where_not(run, monkeypatch):
    monkeypatch.setattr("nfold.verbs.results.scaling_forecast._SIZES", (1, 4, 16))
    folder = RunFolder.open(run)
    known, report = folder.known(), folder.report()
    nodes = tuple(replace(node, uplink=LINK, downlink=LINK) for node in known.cluster.nodes)
    linked = replace(known, cluster=Cluster(nodes=nodes))

    def labels(plan, of=linked):
        return [(curve.label.split(",")[0], curve.origin) for curve in scaling(of, plan, report).curves]

    predicted = [("ring", "predicted"), ("ps", "predicted")]
    assert labels(known.plan) == [("ring", "measured"), ("ring", "predicted")]
    assert labels(replace(known.plan, strategy="pipeline")) == [("pipeline", "measured"), *predicted]
    assert labels(replace(known.plan, strategy="ssp", asynchrony=Asynchrony(bound=1))) == predicted
    assert scaling(linked, known.plan, report).curves[1].workers == (1, 4, 16)
    assert scaling(known, known.plan, report).note.startswith("No curve: no link between ")
    uncut = replace(linked, graph=replace(linked.graph, indivisible="it counts"))
    assert scaling(uncut, known.plan, report).note == "No curve, because workers cannot share a batch here: it counts."


def test_asynchronous_runs_do_not_compete_by_their_steps(run, nfold, tmp_path):
    """The plan of the other run is made to say that it was asynchronous."""
    other = shutil.copytree(run, tmp_path / "other")
    plan = json.loads((other / "plan.json").read_text())
    plan["asynchrony"] = {"bound": None, "staleness_aware": False}
    (other / "plan.json").write_text(json.dumps(plan))

    winners = nfold("compare", "run", "other", "--json").document()["winners"]

    assert [(winner["architecture"], winner["second"]) for winner in winners] == [("ring", "")]


@pytest.mark.parametrize("name", ["model.safetensors", "trace.json", "report.html"])
def test_a_trace_takes_the_place_of_no_file_of_the_run(run, nfold, name):
    before = (run / name).read_bytes()

    nfold("report", "run", "--chrome", f"run/../run/{name}").check_explained("is a file of the run itself", "another")

    assert (run / name).read_bytes() == before
