"""What a page says, and that it says no more than it was told: names are text, figures are the run's."""

import html
import json
import re
from dataclasses import replace

import pytest

from nfold.core.graph import ModelGraph, Operator
from nfold.core.placement import Placement
from nfold.core.trace import Span, StepTrace
from nfold.view.html import ScalingCurve, run_page
from nfold.view.html.document import prose
from nfold.view.html.grid_chart import grid_rows
from nfold.view.html.meters import node_meters
from nfold.view.html.run_charts import loss_chart, node_parts, running_means
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
        scaling=(),
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
    """64 ranks, 300 operators in 64 chunks, 8 traced steps of 8000 spans each, 100 000 training steps."""
    ranks, nodes = 64, tuple(f"node-{rank}" for rank in range(64))
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
    owners = {f"layer{k}.block.convolution": tuple((c + k) % ranks for c in range(64)) for k in range(300)}
    large = replace(
        facts,
        plan=replace(
            facts.plan, nodes=nodes, placement=Placement(num_chunks=64, world_size=ranks, owners=owners), workers=ranks
        ),
        cluster=replace(facts.cluster, nodes=tuple(replace(facts.cluster.nodes[0], name=name) for name in nodes)),
        trace=replace(facts.trace, steps=steps),
        history=[{"step": k, "epoch": 1, "loss": 1 / (k + 1), "metrics": {}} for k in range(100_000)],
    )

    page = run_page(large)

    assert len(page.encode()) < MOST_BYTES
    assert "are left out" in words(page)


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
    parts = node_parts(facts.trace, facts.plan.nodes)

    assert parts.keys() == {"n0", "n1"}
    for each in parts.values():
        assert sum(each.values()) == pytest.approx(0.06)
    assert parts["n0"]["waiting for a peer"] == pytest.approx(0.02)
    assert parts["n1"]["waiting for a peer"] == 0.0


def test_links_are_measured_against_what_they_can(facts):
    meters = {node.node: node.meters for node in node_meters(facts.trace, facts.cluster, facts.plan.nodes)}

    memory, up, down = meters["n0"]
    assert (memory.words, memory.share) == ("256 MiB of 1.00 GiB", 0.25)
    assert (up.what, up.share) == ("uplink, mean", pytest.approx(0.96))
    assert (down.what, down.share) == ("downlink, mean", pytest.approx(0.5))


def test_without_samples_the_payload_stands_in(facts):
    trace = replace(facts.trace, samples=())
    meters = {node.node: node.meters for node in node_meters(trace, facts.cluster, facts.plan.nodes)}

    assert [meter.what for meter in meters["n0"]] == ["memory, peak", "uplink, mean"]
    assert meters["n0"][1].share == pytest.approx(600_000 / 0.06 / 12.5e6)


def test_few_operators_have_a_row_each():
    rows = grid_rows(["a", "loss"], {"a": (0, 1), "loss": (0, 1)}, {"a": "Linear", "loss": "loss"})

    assert [(row.label, row.owners) for row in rows] == [("a Linear", (0, 1)), ("loss", (0, 1))]


def test_many_operators_share_rows_where_owners_are_equal():
    owners = {"a": (0,), "b": (0,), "c": (1,), "d": (0,)}

    rows = grid_rows(list(owners), owners, {}, most=3)

    assert [(row.label, row.owners) for row in rows] == [("a to b (2)", (0,)), ("c", (1,)), ("d", (0,))]


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


def test_scaling_says_what_was_measured_and_what_was_predicted(facts):
    curves = (
        ScalingCurve(label="ring", origin="measured", workers=(1, 2), speedup=(1.0, 1.7)),
        ScalingCurve(label="ring", origin="predicted", workers=(1, 1000), speedup=(1.0, 210.0)),
    )
    text = words(run_page(replace(facts, scaling=curves)))

    assert "Measured (dots): at best 1.70x, ring with 2 workers." in text
    assert "Predicted (dashes): at best 210x, ring with 1,000 workers." in text
