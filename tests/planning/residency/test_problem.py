"""Questions that no plan can answer are refused with names and numbers."""

from dataclasses import replace

import numpy as np
import pytest
from scattered import boxes, cluster, demand

from nfold.errors import ClusterError
from nfold.planning.residency.best_place import place
from nfold.planning.residency.model.problem import Handling, check, problem_of


def asked(*nodes, **others):
    return problem_of(cluster(*nodes), demand(), **{"rates": {}, **others})


def test_what_nodes_say_becomes_samples():
    problem = asked(("a", 100, 5, 8, {"num_pinned": 7, "storage_bytes": 150_500}), ("b", 0, 2, 16))
    found = problem.boxes
    assert (found.held.tolist(), found.least.tolist(), found.most.tolist()) == ([100, 0], [7, 0], [150, np.inf])
    assert (found.rate.tolist(), found.up.tolist()) == ([5, 2], [1000, 2000])


def test_a_link_is_no_faster_than_the_processor_at_its_end():
    slow = Handling(send_s=0.01, take_s=0.02, read_s=0.03)
    problem = asked(("a", 100, 5, 8), ("b", 0, 2, 8), handling={"b": slow})
    assert (problem.boxes.up.tolist(), problem.boxes.down.tolist()) == ([1000, 100], [1000, 50])


@pytest.mark.parametrize("method", ["equal", "overlap"])
def test_what_has_come_takes_longer_in_each_epoch(method):
    nodes = ("a", 200, 5, 8e6), ("b", 0, 5, 8e6)
    alike, slower = (place(asked(*nodes, handling={"b": Handling(read_s=s)}), method) for s in (0.0, 0.1))
    assert [node.holds for node in slower.nodes] == [node.holds for node in alike.nodes] == [100, 100]
    assert alike.cost.epoch_s == pytest.approx(20)
    assert slower.cost.epoch_s == pytest.approx(30)
    assert slower.nodes[1].computes_s == pytest.approx(30)


def test_a_node_without_a_rate_of_its_own_has_the_programs():
    assert asked(("a", 100, None, 8), ("b", 0, 2, 8), rates={"a": 30.0, "b": 9.0}).boxes.rate.tolist() == [30, 2]


@pytest.mark.parametrize(
    ("nodes", "others", "said"),
    [
        (
            [("a", 10, 1, 8), ("b", 100, 1, 8, {"num_pinned": 3})],
            {"excluded": ["b"]},
            "b is excluded and pins 3 samples: they can neither leave nor be trained on",
        ),
        (
            [("a", 900, 1, 8), ("b", 100, 1, 8, {"storage_bytes": 200_000})],
            {"excluded": ["a"]},
            r"have storage for 200 samples \(195 KiB\), and there are 1000 \(977 KiB\)",
        ),
        (
            [("a", 10**8, 10, 8, {"num_pinned": 10**8}), ("b", 0, 90, 8)],
            {},
            r"a pins 100000000 samples and trains on 10 in a second: an epoch takes 116 days, and .* without that",
        ),
        ([("a", 10, 1, 8)], {"excluded": ["a"]}, "all nodes are excluded"),
        ([("a", 10, 1, 8)], {"excluded": ["c"]}, "no node is called 'c'"),
        ([("a", 0, 1, 8)], {}, "no node holds samples"),
        ([("a", None, 1, 8)], {}, "no node holds samples"),
        ([("a", 10, None, 8)], {}, "nobody knows how fast a trains. Add samples_per_s"),
        ([("a", 10, 1, 8, {"sample_bytes": None})], {}, "a holds samples and does not say how large they are"),
        (
            [("a", 10, 1, 8), ("b", 30, 1, 8, {"sample_bytes": 2000})],
            {},
            "samples of a have 1000 bytes and those of b 2000: .* Give all nodes the mean, 1750 bytes",
        ),
        ([("a", 10, 1, 8, {"num_pinned": 11})], {}, "a pins 11 samples and holds 10"),
        ([("a", 10, 1, 8, {"storage_bytes": 9000})], {}, "a holds 10 samples, and its storage has room for 9"),
    ],
)
def test_what_cannot_be_is_refused(nodes, others, said):
    with pytest.raises(ClusterError, match=said):
        asked(*nodes, **others)


@pytest.mark.parametrize("rate", [0.0, float("nan")])
def test_a_link_of_no_bandwidth_is_refused(rate):
    problem = asked(("a", 10, 1, 8), ("b", 10, 1, 8))
    shut = boxes(held=[10, 10], rate=[1, 1], up=[1, 1], down=[1, rate])
    with pytest.raises(ClusterError, match="b has a link of no bandwidth: nothing can leave it or reach it"):
        check(replace(problem, boxes=shut))
