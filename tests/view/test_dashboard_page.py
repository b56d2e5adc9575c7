"""What the page of a run that goes on says, and that names stay text."""

import html
import json
import re

import pytest

from nfold.core.member_event import MemberEvent
from nfold.core.report import TimeParts
from nfold.core.run_state import LinkState, RankState, RunEvent, RunState
from nfold.view.html import LiveFacts, dashboard_page, dashboard_parts
from nfold.view.html.loss_curve import loss_curve

HOSTILE = "</script><script>document.title='broken in'</script><img src=x onerror=alert(1)>\"'&"
PARTS = TimeParts(compute_s=0.03, exposed_communication_s=0.01, peer_wait_s=0, input_s=0, update_s=0, other_s=0)


def state(name="n1", **more):
    given = {
        "at": 100.0, "phase": "training", "strategy": "ring", "workers": 2, "step": 30, "total_steps": 40, "epoch": 3,
        "num_epochs": 4, "kept_step": 20, "loss": 0.5, "metrics": {"accuracy": None}, "samples_per_s": 160.0,
        "left_s": 74.0, "parts": PARTS, "events": (RunEvent(at=1.0, text="first"), RunEvent(at=2.0, text="second")),
        "ranks": tuple(RankState(rank=rank, node=name, role="worker", rss_bytes=300 << 20) for rank in range(2)),
        "links": (LinkState(node=name, uplink_bytes_per_s=12.5e6, downlink_bytes_per_s=25e6, origin="measured"),),
    }  # fmt: skip
    return RunState(**given | more)


def seen(state, **more):
    """What a reader sees, by place."""
    parts = json.loads(dashboard_parts(LiveFacts(name="run-1", folder="/runs/run-1", state=state, now=101.0, **more)))
    return {place: " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split()) for place, text in parts.items()}


def test_a_run_that_trains_is_seen_whole():
    parts = seen(state(), trained=[(1, 3.0), (2, 1.0)], tested=[(2, 2.0)], log=["[0] hello", "bye"])
    assert parts["head"] == (
        "run-1 /runs/run-1 training ring with 2 workers step 30 of 40 (75 %), epoch 3 of 4, 1:14 left"
    )
    assert parts["figures"] == "loss 0.50 accuracy nan throughput 160 samples/s checkpoint 20 steps"
    assert parts["loss"] == "Loss training loss test loss 3.00 2.00 1.00 1 step 2"
    assert parts["time"].startswith("Where the time goes compute 30.0 ms 75 % exposed communication 10.0 ms 25 %")
    assert re.fullmatch(r"What happened \S+ second \S+ first", parts["events"]), "the newest first"
    assert parts["ranks"].startswith("Ranks rank node compute messages cores memory sends receives 0 n1 - - - 300 MiB")
    assert parts["links"] == "Links node uplink downlink known by n1 100 Mbit/s 200 Mbit/s measured"
    assert parts["log"] == "Log [0] hello bye"


def test_hosts_that_came_and_went_are_listed_with_what_they_cost(events):
    listed = seen(state(ledger=events))["ledger"]
    assert listed.index("n2 is lost 2 700 ms") < listed.index("n1 has joined 2 80.0 ms 2.50 s"), "the newest first"


def test_what_is_not_known_yet_has_no_place():
    parts = seen(RunState(at=100.0, phase="starting"))
    assert parts.pop("head") == "run-1 /runs/run-1 starting"
    assert set(parts.values()) == {""}


@pytest.mark.parametrize(
    ("phase", "at", "is_told"), [("training", 20.0, True), ("done", 20.0, False), ("training", 95.0, False)]
)
def test_a_silent_run_is_told_with_its_age(phase, at, is_told):
    assert ("Last heard 1:21 ago." in seen(state(phase=phase, at=at))["head"]) == is_told


def test_of_many_ranks_the_first_are_shown():
    many = tuple(RankState(rank=rank, node="n", role="worker") for rank in range(70))
    assert "6 more ranks: nfold top --json has all." in seen(state(ranks=many))["ranks"]


def test_no_name_can_break_in():
    hostile = state(
        HOSTILE, strategy=HOSTILE, metrics={HOSTILE: 1.0}, events=(RunEvent(at=1.0, text=HOSTILE),),
        ledger=(MemberEvent(at=1.0, kind=HOSTILE, who=HOSTILE, step=1, ranks=1, pause_s=0.0, reason=HOSTILE),),
    )  # fmt: skip
    facts = LiveFacts(name=HOSTILE, folder=HOSTILE, state=hostile, now=1.0, log=[HOSTILE])
    for text in json.loads(dashboard_parts(facts)).values():
        assert "<script" not in text
        assert "<img" not in text
    assert seen(hostile, log=[HOSTILE])["log"] == f"Log {HOSTILE}"
    assert "<img" not in dashboard_page(HOSTILE)


def test_the_page_fetches_nothing_but_its_parts_and_runs_nothing_but_its_script():
    page = dashboard_page("run-1")
    (policy,) = re.findall('Content-Security-Policy" content="([^"]*)"', page)
    assert html.unescape(policy).startswith("default-src 'none'; script-src 'sha256-")
    assert html.unescape(policy).endswith("; connect-src 'self'")
    assert len(page) < 20_000


def test_a_curve_fills_its_square():
    curve = loss_curve([(10, 3.0), (20, 2.0), (30, 1.0)], [(30, 2.0)])
    assert [line.points for line in curve.lines] == ["0.0,0.0 500.0,500.0 1000.0,1000.0", "1000.0,500.0"]
    assert (curve.first_step, curve.last_step, curve.low, curve.middle, curve.high) == (10, 30, 1.0, 2.0, 3.0)


def test_a_level_curve_lies_in_the_middle_and_a_single_point_is_none():
    assert loss_curve([(1, 0.0), (2, 0.0)], []).lines[0].points == "0.0,500.0 1000.0,500.0"
    assert loss_curve([(1, 0.5)], []) is None


def test_of_many_points_several_become_one():
    curve = loss_curve([(step, float(step % 2)) for step in range(1, 1201)], [])
    points = curve.lines[0].points.split()
    assert len(points) == 600
    assert (curve.first_step, curve.last_step, curve.caption) == (
        2,
        1200,
        "Training loss: each point is the mean of 2.",
    )
