"""What holds up a step that is planned."""

from dataclasses import replace

import pytest
from grids import chain, channel, facts

from nfold.core.cluster import Cluster, Node
from nfold.planning.choosing.bottleneck import bottleneck_of
from nfold.planning.choosing.search import plan


def question(links, *, latency_s=1e-6, speeds=(1.0, 1.0, 1.0), weights=10_000, **fields):
    machines = tuple(
        Node(
            name=f"n{index}",
            cores=1.0,
            memory_bytes=1 << 40,
            speed=speed,
            local=channel(),
            uplink=channel(up, latency_s),
            downlink=channel(down, latency_s),
        )
        for index, ((up, down), speed) in enumerate(zip(links, speeds, strict=True))
    )
    names = tuple(node.name for node in machines)
    given = {"batch_size": 30, "cluster": Cluster(nodes=machines), "nodes": names, **fields}
    return facts(chain(weights, weights), 3, **given)


def bottleneck(asked, strategy="ring"):
    return bottleneck_of(asked, plan(asked, strategy))


def test_with_fast_links_it_is_computing():
    found = bottleneck(question([(1e9, 1e9)] * 3))
    assert (found.kind, found.node) == ("computing", "")
    assert found.share > 0.9


def test_a_slow_node_is_named():
    found = bottleneck(question([(1e9, 1e9)] * 3, speeds=(1.0, 1.0, 0.6), chunks=3))
    assert (found.kind, found.node) == ("computing", "n2")


@pytest.mark.parametrize(("links", "side"), [((2e5, 1e8), "uplink"), ((1e8, 2e5), "downlink")])
def test_one_slow_link_is_named_with_its_side(links, side):
    found = bottleneck(question([(1e8, 1e8), links, (1e8, 1e8)]))
    assert (found.kind, found.node, found.side) == ("link", "n1", side)
    assert 0.7 < found.share <= 1.0


def test_links_that_are_all_slow_are_told_together():
    found = bottleneck(question([(2e5, 2e5)] * 3))
    assert (found.kind, found.side) == ("links", "uplink")


def test_many_small_messages_are_no_full_link():
    found = bottleneck(question([(1e9, 1e9)] * 3, latency_s=0.05, weights=100))
    assert found.kind == "messages"
    assert found.share > 0.5


def test_a_rank_alone_computes():
    asked = question([(2e5, 2e5)] * 3)
    assert bottleneck(replace(asked, workers=1, nodes=asked.nodes[:1]), "single").kind == "computing"
