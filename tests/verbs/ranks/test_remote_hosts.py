"""Which rank lives on which host."""

from dataclasses import replace

import pytest

from nfold.hosts.host_agent import HostAgent
from nfold.hosts.host_facts import facts_of_this_host
from nfold.verbs.ranks.remote_hosts import cluster_of, homes_of_ranks

FACTS = replace(facts_of_this_host("python"), cores=4.0, memory_bytes=1 << 30)


def agents(*names):
    return [HostAgent(place, name, FACTS, None) for place, name in enumerate(names)]


@pytest.mark.parametrize(
    ("slots", "ranks", "homes"),
    [
        ([1, 1], 2, "ab"),
        ([3, 1], 4, "abaa"),
        ([2, 2], 3, "aba"),
        ([1, 1], 5, "ababa"),
    ],
)
def test_ranks_are_spread_before_slots_are_filled(slots, ranks, homes):
    assert [home.name for home in homes_of_ranks(agents("a", "b"), slots, ranks)] == list(homes)


def test_a_cluster_is_what_its_agents_tell():
    cluster = cluster_of(agents("a", "b"))

    assert [(node.name, node.cores, node.memory_bytes) for node in cluster.nodes] == [
        ("a", 4.0, 1 << 30),
        ("b", 4.0, 1 << 30),
    ]
    assert not cluster.is_emulated
