"""Nodes that come and go by faults: which are there at first, and what cannot happen to them."""

import pytest

from nfold.core.options.host_range import read_range
from nfold.core.text.cluster_file import parse_cluster
from nfold.errors import PlanError
from nfold.launch.emulation.attendance import check_attendance, founders, refuse_attendance
from nfold.launch.emulation.faults import parse_fault

CLUSTER = parse_cluster('[[node]]\nname = "n"\ncount = 4\nuplink = "1 Gbit/s"\n', "c.toml")
NAMES = tuple(node.name for node in CLUSTER.nodes)


def faults(*texts):
    return [parse_fault(text, CLUSTER) for text in texts]


@pytest.mark.parametrize(
    ("texts", "hosts", "first"),
    [
        ((), "1:4", NAMES),
        ((), "1:2", ("n-0", "n-1")),
        (("join n-1@5s", "slow n-0 0.5@1s"), "1:4", ("n-0", "n-2", "n-3")),
        (("join n-1@5s", "kill n-1@3s"), "1:4", NAMES),
        (("join n-1@5s", "leave n-1@9s"), "2:3", ("n-0", "n-2", "n-3")),
    ],
)
def test_who_is_there_at_first(texts, hosts, first):
    assert founders(NAMES, faults(*texts), read_range(hosts)) == first


@pytest.mark.parametrize(
    ("texts", "hosts", "told"),
    [
        ((), "1:8", "--nodes 1:8: the cluster has 4 nodes, and each has one rank. Use --nodes 1:4, or add nodes"),
        ((), "6:8", "Use --nodes 4:4"),
        (tuple(f"join n-{number}@5s" for number in range(4)), "1:4", "come by a fault. Let fewer join later."),
        (("join n-1@5s", "join n-0@5s"), "3:4", "2 nodes would be there at the start, since n-0, n-1 come by a fault"),
        (("kill n-1@3s", "leave n-1@5s"), "1:4", "'leave n-1@5s': n-1 is not among the nodes that take part by then"),
        (("leave n-3@3s",), "1:3", "n-3 is not among the nodes that take part by then; these are: n-0, n-1, n-2."),
        (("leave n-1@3s", "join n-1@5s", "join n-1@6s"), "1:4", "'join n-1@6s': n-1 is among the nodes"),
        (("join n-3@3s",), "1:3", "the run has all the 3 nodes by then that --nodes 1:3 allows"),
    ],
)
def test_what_cannot_happen(texts, hosts, told):
    with pytest.raises(PlanError) as caught:
        check_attendance(NAMES, faults(*texts), read_range(hosts))
    assert told in str(caught.value)


def test_who_was_killed_or_has_left_may_come_back():
    comings = ("kill n-1@3s", "join n-1@5s", "leave n-2@6s", "join n-2@7s", "join n-3@1s")
    check_attendance(NAMES, faults(*comings), read_range("1:4"))


def test_nobody_comes_or_goes_where_the_number_of_nodes_is_fixed():
    refuse_attendance(faults("kill n-1@3s", "slow n-1 0.5@3s"), 4)
    with pytest.raises(PlanError, match=r"'leave n-1@3s': nodes come and go only in a run .* Add --nodes 1:4 to nfold"):
        refuse_attendance(faults("leave n-1@3s"), 4)
