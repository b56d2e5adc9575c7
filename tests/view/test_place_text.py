"""A residency plan as people see it: table, picture, page."""

import xml.etree.ElementTree as ET

import pytest

from nfold.core.residency import Holding, NodeShare, Residency, ResidencyPlan, RunCost, Transfer, TriedMethod
from nfold.view.html import place_page, place_svg
from nfold.view.place_text import place_text


def cost(run_s, move_s=0.0):
    return RunCost(move_s=move_s, first_epoch_s=60.0, epoch_s=50.0, compute_s=40.0, sync_s=10.0, run_s=run_s)


def share(name, held, holds, **others):
    known = {"is_member": holds > 0, "share": holds / 1000, "computes_s": holds / 10.0}
    sent = {"sends_bytes": max(0, held - holds) * 1e6, "receives_bytes": max(0, holds - held) * 1e6}
    return NodeShare(node=name, held=held, holds=holds, **{**known, **sent, **others})


@pytest.fixture
def plan():
    return ResidencyPlan(
        method="auto",
        moving="before training",
        epochs=10,
        batch_size=64,
        traffic="ring",
        before=Residency(
            holdings=(Holding(node="pi<1>", num_samples=900), Holding(node="desk", num_samples=100)), sample_bytes=1e6
        ),
        nodes=(share("pi<1>", 900, 0), share("desk", 100, 1000), share("idle", 0, 0)),
        transfers=(
            Transfer(source="pi<1>", target="desk", num_samples=900, num_bytes=9e8, takes_s=180.0, saves_s=7560.0),
        ),
        cost=cost(600.0, move_s=180.0),
        unmoved=cost(7560.0),
        tried=(TriedMethod(method="nothing", cost=cost(7560.0)), TriedMethod(method="ilp", note="no time")),
        sentences=("Moving 858 MiB pays.", "pi<1>'s link of 2 Mbit/s costs more than it brings."),
    )


def test_the_table_says_what_each_node_does(plan):
    text = place_text(plan)
    assert "1000 samples (954 MiB) on 3 nodes, 10 epochs, batch 64, ring; predicted:" in text
    rows = {line.split("|")[1].strip(): line for line in text.splitlines() if line.count("|") > 4}
    assert "data, no gradients" in rows["pi<1>"]
    assert "858 MiB" in rows["pi<1>"]
    assert "| 100 % |" in rows["desk"]
    assert "100 s" in rows["desk"]
    assert "idle" in rows["idle"].split("|")[-2]
    assert [cell.strip() for cell in rows["this plan"].split("|")[2:-1]] == [
        "3.00 min",
        "60.0 s",
        "50.0 s",
        "10.0 s",
        "10.0 min",
    ]
    assert "2.10 h" in rows["nothing (as it is)"]
    assert rows["ilp: no time"].count("-") >= 5
    assert text.endswith("Moving 858 MiB pays.\npi<1>'s link of 2 Mbit/s costs more than it brings.")


def test_the_picture_is_drawn_to_scale(plan):
    root = ET.fromstring(place_svg(plan))
    bars = [float(bar.get("width")) for bar in root.iter("{http://www.w3.org/2000/svg}rect")][2:]
    assert bars == pytest.approx([432.0, 0.0, 48.0, 480.0, 0.0, 0.0])
    words = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"pi<1>", "900 to 0", "data, no gradients", "100 to 1000", "an epoch computes 100 s"} <= set(words)


def test_the_page_has_it_all_and_lets_no_name_become_a_tag(plan):
    page = place_page(plan)
    assert "pi<1>" not in page
    assert "Moving 858 MiB pays." in page
    assert "<svg " in page
    assert '<td class="number">2.10 h</td>' in page
    assert "no time" in page
    assert "<script>" not in page
