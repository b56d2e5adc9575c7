"""How many nodes are worth having, of machines and programs that are made up."""

from dataclasses import replace

import pytest
from grids import chain, channel, facts, model, parameter, profile

from nfold.core.cluster import Cluster, Node
from nfold.planning.choosing.node_counts import Wanted, advise_sizes, sizes_between
from nfold.planning.choosing.search import plan

GRAPH = chain(1000, 1000)
ONE = model({"All": ("input", "target")}, (parameter("weight", 100_000, "All"),))
"""Cannot be cut but by the batch."""
MIB = 1 << 20
FAST, SLOW = 1e9, 1e5


def node(name, link=FAST, **fields):
    side = channel(link, 1e-6)
    given = {"cores": 1.0, "memory_bytes": 1 << 40, "local": channel(), "uplink": side, "downlink": side}
    return Node(name=name, **{**given, **fields})


def nodes(count, link=FAST, **fields):
    return [node(f"n{index}", link, **fields) for index in range(count)]


def question(machines, graph=GRAPH, **fields):
    cluster = Cluster(nodes=tuple(machines))
    return facts(graph, len(machines), cluster=cluster, nodes=tuple(each.name for each in machines), **fields)


def advice(asked, most=6, **fields):
    return advise_sizes(asked, Wanted(sizes=sizes_between(1, most), total_steps=1000, **fields))


@pytest.mark.parametrize(
    ("least", "most", "sizes"),
    [
        (1, 1, (1,)),
        (3, 5, (3, 4, 5)),
        (1, 12, (1, 2, 3, 4, 5, 6, 7, 8, 12)),
        (7, 64, (7, 8, 12, 16, 24, 32, 48, 64)),
        (10, 20, (10, 12, 16, 20)),
    ],
)
def test_all_small_sizes_and_ever_fewer_large_ones_are_looked_at(least, most, sizes):
    assert sizes_between(least, most) == sizes


def test_a_size_is_forecast_as_its_plan_is_predicted():
    asked = question(nodes(3), batch_size=48)
    found = advice(asked, most=3)
    assert found.measured == ("n0", "n1", "n2")
    for size in found.sizes:
        chosen = plan(replace(asked, nodes=asked.nodes[: size.nodes], workers=size.nodes))
        assert size.forecast is not None
        step_s = chosen.predicted.step_s
        assert size.forecast.step_s == step_s
        assert size.forecast.run_s == 1000 * step_s
        assert size.forecast.samples_per_s == 48 / step_s
    one, _, three = (size.forecast for size in found.sizes)
    assert (one.speedup, one.architecture, one.idle) == (1.0, "single", ())
    assert three.speedup == one.step_s / three.step_s > 2.5


def test_with_fast_links_more_nodes_help_and_with_slow_ones_they_stop():
    heavy = chain(20_000, 20_000)
    fast, slow = (advice(question(nodes(3, link), heavy, batch_size=48), most=4) for link in (FAST, 1.5e6))
    assert fast.stop_at == fast.quickest == 4
    assert slow.stop_at == 3
    steps_s = {size.nodes: size.forecast.step_s for size in slow.sizes}
    assert steps_s[3] < 0.95 * steps_s[2]
    assert min(steps_s.values()) > 0.95 * steps_s[3]


def test_more_nodes_than_were_measured_are_like_these_in_their_order():
    machines = [node("quick", speed=2.0), node("slow")]
    found = advice(question(machines, batch_size=48), most=4)
    assert [size.num_measured for size in found.sizes] == [1, 2, 2, 2]
    four = [node("quick", speed=2.0), node("slow"), node("other", speed=2.0), node("last")]
    assert found.size(4).forecast.step_s == plan(question(four, batch_size=48)).predicted.step_s


def test_a_node_that_makes_no_step_faster_is_named():
    machines = [node("a"), node("b"), node("attic", 1e6), node("d"), node("e")]
    found = advice(question(machines, ONE, batch_size=40), most=5)
    assert [size.forecast.idle for size in found.sizes] == [(), (), ("attic",), ("attic",), ("attic",)]
    assert found.stop_at == 5


def test_a_batch_that_cannot_be_cut_further_is_told_where_more_nodes_stop_helping():
    found = advice(question(nodes(2), ONE, batch_size=48, chunks=2), most=4)
    assert (found.size(2).note, found.size(2).forecast.idle) == ("", ())
    for size in (found.size(3), found.size(4)):
        assert f"{size.nodes} workers cannot share 2 chunks" in size.note
        assert "n1" in size.forecast.idle
    assert found.stop_at == 2


def test_the_programs_own_number_of_chunks_is_kept():
    found = advice(question(nodes(2), batch_size=48, chunks=6), most=4)
    assert {size.forecast.chunks for size in found.sizes} == {6}


def test_sizes_without_room_are_told_with_the_reason_and_larger_ones_can_have_it():
    graph = chain(4 * MIB, 4 * MIB, 4 * MIB)
    costly = profile(graph, base_bytes=50 * MIB, optimizer_bytes=48 * MIB)
    asked = question(nodes(3, memory_bytes=150 * MIB), graph, profiles={1: costly})
    found = advice(asked, most=3)
    assert found.size(1).forecast is None
    assert found.size(1).note.startswith("single: 1 rank needs 211 MiB on n0, which has 150 MiB")
    assert "--" not in found.size(1).note, "what else would be possible is another question"
    assert found.size(3).forecast is not None
    assert found.size(3).forecast.speedup is None
    assert found.stop_at == 3


def test_where_nothing_can_run_there_is_no_best_size():
    asked = question(nodes(2, memory_bytes=1000), profiles={1: profile(GRAPH, base_bytes=MIB)})
    found = advice(asked, most=2)
    assert (found.stop_at, found.quickest, found.cheapest) == (None, None, None)


def test_one_node_alone_says_that_no_link_is_known():
    lonely = Node(name="n0", cores=1.0, memory_bytes=1 << 40, local=channel())
    found = advice(question([lonely]), most=2)
    assert found.size(1).forecast is not None
    assert found.size(2).forecast is None
    assert "no uplink" in found.size(2).note


def test_the_cheapest_size_is_that_of_the_prices_times_the_run():
    machines = [node("a", price_per_hour=1.0), node("b", price_per_hour=3.0)]
    found = advice(question(machines, batch_size=48), most=2)
    one, two = (size.forecast for size in found.sizes)
    assert one.cost == pytest.approx(1.0 * one.run_s / 3600)
    assert two.cost == pytest.approx(4.0 * two.run_s / 3600)
    assert (found.cheapest, found.quickest) == (1, 2)


def test_one_price_for_all_stands_above_their_own_and_without_any_nothing_is_cheapest():
    asked = question([node("a", price_per_hour=9.0), node("b")], batch_size=48)
    found = advice(asked, most=2, price_per_hour=2.0)
    assert [size.forecast.cost / size.forecast.run_s * 3600 for size in found.sizes] == pytest.approx([2.0, 4.0])
    free = advice(question(nodes(2), batch_size=48), most=2)
    assert (free.cheapest, free.size(2).forecast.cost) == (None, None)


@pytest.mark.exhaustive
def test_a_time_limit_needs_the_fewest_nodes_that_keep_it():
    asked = question(nodes(3), batch_size=48)
    unlimited = advice(asked, most=3)
    runs = [size.forecast.run_s for size in unlimited.sizes]
    assert advice(asked, most=3, within_s=(runs[0] + runs[1]) / 2).in_time == 2
    assert advice(asked, most=3, within_s=runs[2] / 2).in_time is None
    assert unlimited.in_time is None
