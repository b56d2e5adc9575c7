"""Advice as people read it."""

from dataclasses import replace

import pytest

from nfold.core import codec
from nfold.core.findings.node_advice import Advice, Bottleneck, Forecast, Size
from nfold.view import Look
from nfold.view.advice_text import advice_sentences, advice_text

COMPUTING = Bottleneck(kind="computing", share=0.95)
FULL = Bottleneck(kind="link", node="n2", side="uplink", share=0.97)


def size(nodes, step_s, bottleneck=COMPUTING, *, cost=None, idle=(), note="", num_measured=3):
    forecast = Forecast(
        architecture="single" if nodes == 1 else f"ring x{nodes}",
        chunks=nodes,
        idle=idle,
        step_s=step_s,
        run_s=10_000 * step_s,
        samples_per_s=64 / step_s,
        speedup=0.4 / step_s,
        cost=cost,
        bottleneck=bottleneck,
    )
    return Size(nodes=nodes, num_measured=min(nodes, num_measured), forecast=forecast, note=note)


ADVICE = Advice(
    measured=("n0", "n1", "n2"),
    batch_size=64,
    total_steps=10_000,
    sizes=(
        size(1, 0.4, cost=0.11),
        size(2, 0.21, cost=0.12),
        size(3, 0.15, cost=0.125),
        size(4, 0.147, FULL, cost=0.163),
    ),
    stop_at=3,
    quickest=4,
    cheapest=1,
)


def test_advice_survives_its_json_form():
    full = replace(ADVICE, within_s=60.0, in_time=2)
    assert codec.loads(Advice, codec.dumps(full)) == full


def test_the_table_has_a_row_for_each_size_and_marks_what_was_not_measured():
    lines = advice_text(ADVICE).splitlines()
    assert "10000 steps with batches of 64, a worker on each node; measured: n0, n1, n2." in lines[0]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    assert cells[0] == ["nodes", "best", "step", "run", "samples/s", "speed-up", "cost", "held up by"]
    assert cells[1] == ["1", "single", "400 ms", "1:06:40", "160", "1.00x", "0.11", "computing"]
    assert cells[-1] == ["4*", "ring x4", "147 ms", "24:30", "435", "2.72x", "0.163", "n2's uplink, 97 % busy"]
    assert "* with more nodes like those that were measured" in advice_text(ADVICE)


def test_without_prices_there_is_no_column_of_costs_and_no_cheapest():
    free = tuple(replace(each, forecast=replace(each.forecast, cost=None)) for each in ADVICE.sizes[:3])
    text = advice_text(replace(ADVICE, sizes=free, cheapest=None, quickest=3))
    assert "cost" not in text
    assert "Cheapest" not in text
    assert "*" not in text


def test_it_says_where_to_stop_and_why():
    stop, quickest, cheapest = advice_sentences(ADVICE)
    assert stop == ("Stop at 3 nodes: 4 save 2 % of a step. With 4, the uplink of n2 is full: 97 % busy in each step.")
    assert quickest == "Quickest: 4 nodes (ring x4), 24:30, which costs 0.163."
    assert cheapest == "Cheapest: 1 node (single), 1:06:40, which costs 0.11."


def test_of_numbers_that_are_about_as_quick_the_fewest_are_not_called_the_quickest():
    told = advice_sentences(replace(ADVICE, quickest=3, within_s=600.0))
    assert told[1].startswith("About as quick as any: 3 nodes (ring x3), 25:00")
    assert told[3].endswith("the quickest takes 24:30.")


@pytest.mark.parametrize(
    ("following", "told"),
    [
        (
            size(4, 0.18, Bottleneck(kind="links", node="n0", side="uplink", share=0.8)),
            "4 take 20 % longer. With 4, links",
        ),
        (size(4, 0.15, Bottleneck(kind="messages", share=0.6)), "4 save nothing. With 4, 60 % of a step is waiting"),
        (size(4, 0.148), "With 4, computing is 95 % of a step: smaller parts"),
        (size(4, 0.148, Bottleneck(kind="computing", node="n1", share=0.9)), "is 90 % of a step, on n1: smaller"),
        (size(4, 0.15, idle=("n2",)), "4 save nothing. With 4, n2 has nothing to compute, since a step would"),
        (
            size(4, 0.3, idle=("n2", "n3"), note="only 2 of 4 workers train."),
            "4 take 100 % longer. With 4, only 2 of 4 workers train.",
        ),
        (Size(nodes=4, num_measured=3, note="No room."), "Stop at 3 nodes: nothing can run on 4. No room."),
    ],
)
def test_each_reason_has_its_words(following, told):
    assert told in advice_sentences(replace(ADVICE, sizes=(*ADVICE.sizes[:3], following), quickest=3))[0]


def test_while_more_nodes_help_nobody_is_told_to_stop():
    told = advice_sentences(replace(ADVICE, stop_at=4))[0]
    assert told == "More nodes help up to 4, the most that were asked about."


def test_a_time_limit_is_answered():
    assert "Within 40:00: at least 2 nodes (ring x2), 35:00, which costs 0.12." in advice_sentences(
        replace(ADVICE, within_s=2400.0, in_time=2)
    )
    assert advice_sentences(replace(ADVICE, within_s=600.0))[3] == (
        "No number of nodes that was asked about is done within 10:00: the quickest takes 24:30."
    )


def test_nodes_that_have_nothing_to_compute_are_to_be_left_out():
    sizes = (*ADVICE.sizes[:3], size(4, 0.1, idle=("n2",)))
    told = advice_sentences(replace(ADVICE, sizes=sizes, stop_at=4))
    assert told[1] == "Of the 4, n2 has nothing to compute: leave it out."
    assert "computing; 1 idle" in advice_text(replace(ADVICE, sizes=sizes))


def test_where_nothing_can_run_the_reason_is_told():
    sizes = (Size(nodes=1, num_measured=1, note="It needs 3 GiB."),)
    nothing = replace(ADVICE, sizes=sizes, stop_at=None, quickest=None, cheapest=None)
    assert advice_sentences(nothing) == ["The program can run on none of these numbers of nodes. It needs 3 GiB."]
    assert "It needs 3 GiB." in advice_text(nothing, look=Look(width=80))
