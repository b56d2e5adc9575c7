"""What a page says, and that it says no more than it was told: names are text, figures are the run's."""

import html
import json
import re
from dataclasses import replace

import pytest

from nfold.core.cluster import UNLIMITED_BYTES
from nfold.core.graph import ModelGraph, Operator
from nfold.core.placement import Placement
from nfold.core.trace import Span, StepTrace
from nfold.view.html import Scaling, ScalingCurve, run_page
from nfold.view.html.document import prose
from nfold.view.html.grid_chart import grid_chart, grid_rows
from nfold.view.html.meters import node_meters
from nfold.view.html.run_charts import loss_chart, node_parts, nodes_chart, running_means, server_parts
from nfold.view.html.timeline_chart import timeline_chart

HOSTILE = "</script><script>document.title='broken in'</script><img src=x onerror=alert(1)>\"'&\u2028"
MOST_BYTES = 2_000_000


def charts(page: str) -> dict[str, dict]:
    found = re.findall(r'<script type="application/json" class="chart-data">(.*?)</script>', page, re.DOTALL)
    return {chart["key"]: chart for chart in map(json.loads, found)}


def words(page: str) -> str:
    """What a reader sees."""
    body = re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())


def test_the_verdict_comes_first(facts):
    text = words(run_page(facts))

    assert text.index(facts.report.verdict.text) < text.index("Where the run's time went") < text.index("Timeline")
    for gain in facts.report.verdict.gains:
        assert gain.change in text
        assert gain.command in text


def test_a_metric_that_is_no_number_is_shown_as_that(facts):
    report = replace(facts.report, metrics={"f1": None, "test_loss": None})
    line = {"step": 60, "epoch": 1, "loss": 0.5, "metrics": dict(report.metrics)}
    text = words(run_page(replace(facts, report=report, history=[*facts.history, line])))
    assert re.search(r"\bf1 nan\b|\bnan f1\b", text)


def test_gains_of_an_asynchronous_run_are_in_steps_a_second(facts):
    assert "faster if you type" in words(run_page(facts))
    drifted = replace(facts, report=replace(facts.report, staleness={"1": 3}))
    assert "steps/s if you type" in words(run_page(drifted))
    fresh = replace(facts, report=replace(facts.report, staleness={"0": 3}))
    assert "faster if you type" in words(run_page(fresh)), "no gradient was old"


def test_what_the_ranks_machines_did_is_shown(facts, server):
    loads = server.loads
    page = run_page(replace(facts, report=replace(facts.report, loads=loads)))
    section = page[page.index('<section id="system">') :].partition("</section>")[0]
    for text in ("0 on here", "0.81", "0.12", "35 %", "300 MiB", "408 Mbit/s", "96 Mbit/s"):
        assert text in section
    assert 'id="system"' not in run_page(replace(facts, report=replace(facts.report, loads=())))


def test_memory_that_nobody_limits_is_said_to_be_so(facts):
    nodes = tuple(replace(node, memory_bytes=UNLIMITED_BYTES) for node in facts.cluster.nodes)
    page = run_page(replace(facts, cluster=replace(facts.cluster, nodes=nodes)))
    assert "memory not limited" in page
    assert ", not limited" in page
    assert "e+09" not in page


def test_the_ledger_adds_up(facts):
    text = words(run_page(facts))

    assert "training 1:00" not in text
    assert "training 60.0 s 86 %" in text
    assert "the whole run 70.0 s 100 %" in text


def test_every_chart_that_the_run_has_is_there(facts):
    page = run_page(facts)

    assert charts(page).keys() == {"timeline", "nodes", "grid", "scaling", "loss", "staleness"}
    for key in charts(page):
        assert f'id="chart-{key}"' in page


def test_charts_of_what_was_not_measured_are_left_out(facts):
    bare = replace(
        facts,
        trace=replace(facts.trace, steps=(), staleness={}),
        history=[],
        scaling=Scaling(),
        report=replace(facts.report, ledger={}, causes=(), next_command="", final_loss=None, metrics={}),
        environment=None,
    )
    assert charts(run_page(bare)).keys() == {"nodes", "grid"}


def test_the_page_needs_nothing_else(facts):
    page = run_page(facts)
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', page)[1]

    assert html.unescape(policy).startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy.split("style-src")[0]
    outside = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"""\s(src|href)=(?!"data:)""", outside)
    assert "Copyright (c) Anaconda" in page, "the library's licence comes with it"


def test_hostile_names_stay_text(hostile):
    page = run_page(hostile(HOSTILE))

    assert page.count("<script") == page.count("</script>") == 3 + len(charts(page))
    assert "<img" not in page
    assert " ".join(HOSTILE.split()) in words(page)
    assert any(HOSTILE in name for name in charts(page)["nodes"]["data"]["names"])


@pytest.mark.long
def test_a_page_of_a_large_run_stays_small(facts):
    """100 ranks and nodes, 500 operators in 130 chunks, 8 traced steps of 8000 spans each, 100 000 training steps."""
    ranks, nodes = 100, tuple(f"node-{rank}" for rank in range(100))
    spans = tuple(
        Span(
            rank=k % ranks, kind="SEND", name=f"reduce bucket{k} to {k % 7}", start_s=k * 1e-5, end_s=k * 1e-5 + 1e-4,
            peer=(k + 1) % ranks, payload_bytes=k,
        )
        for k in range(8_000)
    )  # fmt: skip
    steps = tuple(
        StepTrace(step=k, origin="measured", step_s=(1.0,) * ranks, spans=spans, begin_s=(float(k),) * ranks)
        for k in range(8)
    )
    owners = {f"layer{k}.block.convolution": tuple((c + k) % ranks for c in range(130)) for k in range(500)}
    large = replace(
        facts,
        plan=replace(
            facts.plan, nodes=nodes, placement=Placement(num_chunks=130, world_size=ranks, owners=owners), workers=ranks
        ),
        cluster=replace(facts.cluster, nodes=tuple(replace(facts.cluster.nodes[0], name=name) for name in nodes)),
        trace=replace(facts.trace, steps=steps),
        history=[{"step": k, "epoch": 1, "loss": 1 / (k + 1), "metrics": {}} for k in range(100_000)],
    )

    page = run_page(large)

    assert len(page.encode()) < MOST_BYTES
    text = words(page)
    for left_out in (
        "Ranks 16 to 99 are left out.", "The last 100 rows are left out. Of 3 chunks one is drawn.",
        "36 more nodes are left out; trace.json has them.", "36 more nodes; cluster.json has them.",
    ):  # fmt: skip
        assert left_out in text
    assert charts(page).keys() >= {"timeline", "nodes", "grid", "scaling", "loss"}


def test_what_stands_between_backticks_is_code_and_still_escaped():
    assert prose("use `--strategy <ps>` & wait") == "use <code>--strategy &lt;ps&gt;</code> &amp; wait"
    assert prose("an odd ` backtick <b>") == "an odd ` backtick &lt;b&gt;"


def test_advice_that_the_verdict_gives_already_is_not_repeated(facts):
    verdict = replace(facts.report.verdict, text="Server: rank 2. Spread the sums.", advice="Spread the sums.")

    assert words(run_page(replace(facts, report=replace(facts.report, verdict=verdict)))).count("Spread the sums.") == 1


# Parts


def test_the_timeline_has_a_row_a_lane(facts):
    data = timeline_chart(facts.trace.steps, facts.plan.nodes).data

    assert [row["label"] for row in data["rows"]] == ["rank 0", "send", "receive", "rank 1", "send", "receive"]
    bars = [bar for activity in data["activities"] for bar in zip(activity["what"], activity["row"], strict=True)]
    assert ("rank 1: F0.1", -3.6) in bars
    assert ("rank 1: reduce b0 to 0", -4.6) in bars


def test_node_parts_add_up_to_the_step(facts):
    parts = node_parts(facts.trace, facts.plan.nodes, {})

    assert parts.keys() == {"n0", "n1"}
    for each in parts.values():
        assert sum(each.values()) == pytest.approx(0.06)
    assert parts["n0"]["waiting for a peer"] == pytest.approx(0.02)
    assert parts["n1"]["waiting for a peer"] == 0.0


def test_what_a_bound_holds_workers_back_is_shown_as_waiting_for_a_peer(facts):
    trace, nodes = replace(facts.trace, is_asynchronous=True), facts.plan.nodes
    alone, held = node_parts(trace, nodes, {}), node_parts(trace, nodes, {0: 0.01, 1: 9.0})

    assert [each["waiting for a peer"] for each in alone.values()] == [0.0, 0.0], "nobody is compared with another"
    assert held["n0"]["waiting for a peer"] == pytest.approx(0.01)
    assert held["n0"]["communication"] == pytest.approx(alone["n0"]["communication"] - 0.01)
    assert held["n1"]["waiting for a peer"] == pytest.approx(alone["n1"]["communication"])
    assert held["n1"]["communication"] == 0.0, "more than it waited in all it was not held"


def test_dedicated_servers_have_bars_of_their_own(facts):
    serving = [
        replace(
            parts, rank=2, step_s=0.06, forward_s=0.0, backward_s=0.0, update_s=0.01, communication_s=0.03, samples=0
        )
        for parts in facts.trace.parts
        if parts.rank == 0
    ]
    usage = (*facts.trace.usage, replace(facts.trace.usage[0], rank=2, node="n1", role="server"))
    trace = replace(facts.trace, parts=(*facts.trace.parts, *serving), usage=usage)
    nodes = (*facts.plan.nodes, "n1")

    assert server_parts(trace, nodes) == {
        "n1, server": {
            "serving": pytest.approx(0.02), "update": pytest.approx(0.01), "waiting for messages": pytest.approx(0.03)
        }
    }  # fmt: skip
    chart = nodes_chart(trace, nodes, {})
    assert chart.data["names"] == ["n0", "n1", "n1, server"]
    assert {part["what"]: part["values"][2] for part in chart.data["parts"]}["serving"] == pytest.approx(20.0)
    assert "bars of their own" in chart.caption
    assert node_parts(trace, nodes, {}) == node_parts(facts.trace, facts.plan.nodes, {})


def test_too_many_servers_leave_workers_their_bars(facts):
    parts = [replace(row, rank=rank) for rank in range(90) for row in facts.trace.parts if row.rank == 0]
    usage = tuple(
        replace(facts.trace.usage[0], rank=rank, role="server" if rank >= 30 else "worker") for rank in range(90)
    )
    chart = nodes_chart(replace(facts.trace, parts=tuple(parts), usage=usage), [f"n{rank}" for rank in range(90)], {})

    assert chart.data["names"] == [*(f"n{rank}" for rank in range(20)), *(f"n{rank}, server" for rank in range(30, 50))]
    assert "50 more bars would not fit." in chart.caption


def test_links_are_measured_against_what_they_can(facts):
    meters = {
        node.node: node.meters for node in node_meters(facts.trace, facts.cluster, facts.plan.nodes, facts.plan.nodes)
    }

    memory, up, down = meters["n0"]
    assert (memory.words, memory.share) == ("256 MiB of 1.00 GiB", 0.25)
    assert (up.what, up.share) == ("uplink, mean", pytest.approx(0.96))
    assert (down.what, down.share) == ("downlink, mean", pytest.approx(0.5))


def test_without_samples_the_payload_stands_in(facts):
    trace = replace(facts.trace, samples=())
    meters = {node.node: node.meters for node in node_meters(trace, facts.cluster, facts.plan.nodes, facts.plan.nodes)}

    assert [meter.what for meter in meters["n0"]] == ["memory, peak", "uplink, mean"]
    assert meters["n0"][1].share == pytest.approx(600_000 / 0.06 / 12.5e6)


def test_few_operators_have_a_row_each():
    rows = grid_rows(["a", "loss"], {"a": (0, 1), "loss": (0, 1)}, {"a": "Linear", "loss": "loss"})

    assert [(row.label, row.owners) for row in rows] == [("a Linear", (0, 1)), ("loss", (0, 1))]


def test_many_operators_share_rows_where_owners_are_equal():
    owners = {"a": (0,), "b": (0,), "c": (1,), "d": (0,)}

    rows = grid_rows(list(owners), owners, {}, most=3)

    assert [(row.label, row.owners) for row in rows] == [("a to b (2)", (0,)), ("c", (1,)), ("d", (0,))]


def test_of_too_many_chunks_every_few_are_drawn(facts):
    owners = {operator.name: tuple(chunk // 64 for chunk in range(256)) for operator in facts.graph.operators}
    chart = grid_chart(Placement(num_chunks=256, world_size=4, owners=owners), facts.graph)

    assert chart.data["chunks"] == list(range(0, 256, 4))
    assert chart.data["owners"][0] == [chunk // 64 for chunk in chart.data["chunks"]]
    assert "Of 4 chunks one is drawn." in chart.caption
    assert [words for words, _ in chart.legend] == ["rank 0", "rank 1", "rank 2", "rank 3"]


def test_operators_that_the_graph_does_not_name_are_drawn_too(facts):
    graph = ModelGraph(operators=(Operator(name="a", kind="relu", inputs=(), outputs=(), parameters=()),),
                       tensors=(), parameters=(), capture="fx")  # fmt: skip
    placement = Placement(num_chunks=1, world_size=1, owners={"b": (0,), "a": (0,)})
    one = replace(facts, graph=graph, plan=replace(facts.plan, placement=placement))

    assert charts(run_page(one))["grid"]["data"]["labels"] == ["a relu", "b"]


def test_running_means():
    assert running_means([1.0, 2.0, 3.0, 4.0], 2) == [1.0, 1.5, 2.5, 3.5]


def test_a_long_loss_is_thinned_but_keeps_its_ends():
    history = [{"step": k + 1, "epoch": 1, "loss": 5.0, "metrics": {}} for k in range(9_999)]

    curve = loss_chart(history).data["curves"][0]

    assert len(curve["x"]) <= 2000
    assert curve["x"][0] == 1
    assert set(curve["y"]) == {5.0}


def test_changes_of_who_trains_are_marked_and_listed(facts, events):
    page = run_page(facts)
    chart = charts(page)["loss"]["data"]
    assert chart["marks"] == {"x": [9.5, 40.5, 49.5], "what": [event.told for event in events]}
    text = words(page)
    assert "3 upright lines: where hosts came or went, as the table says." in text
    assert " 10 n1 has joined 2 80.0 ms 2.50 s 3.00 MiB 0 640 joined by hand " in text
    assert " 41 n2 is lost 2 700 ms - 0 B 128 - was killed by signal 9 (SIGKILL) " in text
    assert " 50 another plan follows 2 300 ms - 0 B 0 - links have changed " in text
    assert "Hosts that came and went" not in words(run_page(replace(facts, report=replace(facts.report, events=()))))


def test_of_many_changes_the_last_are_listed_and_some_are_marked(facts, events):
    page = run_page(replace(facts, report=replace(facts.report, events=events * 50)))
    assert "The last 100; events.jsonl has the 50 earlier ones too." in words(page)
    assert len(charts(page)["loss"]["data"]["marks"]["x"]) <= 100


def test_scaling_says_what_was_measured_and_what_was_predicted(facts):
    curves = (
        ScalingCurve(label="ring", origin="measured", workers=(1, 2), speedup=(1.0, 1.7)),
        ScalingCurve(label="ring", origin="predicted", workers=(1, 1000), speedup=(1.0, 210.0)),
    )
    text = words(run_page(replace(facts, scaling=Scaling(curves=curves, note="How it was not."))))

    assert "Measured (dots): at best 1.70x, ring with 2 workers." in text
    assert "Predicted (dashes): at best 210x, ring with 1,000 workers. How it was not." in text


def test_where_nothing_can_be_said_of_more_nodes_the_page_says_why(facts):
    page = run_page(replace(facts, scaling=Scaling(note="No curve: no link is known.")))

    assert "scaling" not in charts(page)
    assert "Scaling No curve: no link is known." in words(page)
