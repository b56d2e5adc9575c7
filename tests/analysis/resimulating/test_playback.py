"""Plans that are played again with measurements of other numbers of threads than they have."""

from dataclasses import replace

import pytest
from grids import chain, channel, facts, profile

from nfold.analysis.resimulating.asynchronous_playback import drift_back, drifts_without
from nfold.analysis.resimulating.changed_questions import with_nodes
from nfold.analysis.resimulating.playback import play_back
from nfold.analysis.resimulating.without_each_cause import EVEN_LOAD
from nfold.core.cluster import Cluster, Node
from nfold.planning.choosing.search import plan

GRAPH = chain(100, 100)


@pytest.fixture
def unlike():
    """A question of which a run's folder keeps the first rank's profile: the second rank has two threads."""
    nodes = tuple(
        Node(
            name=name,
            cores=cores,
            speed=speed,
            memory_bytes=1 << 40,
            local=channel(),
            uplink=channel(),
            downlink=channel(),
        )
        for name, cores, speed in (("one core", 1.0, 1.0), ("two slow ones", 2.0, 0.25))
    )
    profiles = {count: replace(profile(GRAPH, 1e-2 / count), num_threads=count) for count in (1, 2)}
    return facts(GRAPH, 2, cluster=Cluster(nodes=nodes), nodes=("one core", "two slow ones"), profiles=profiles)


@pytest.mark.parametrize(("strategy", "play"), [("ring", play_back), ("ps-async", drift_back)])
def test_threads_without_a_profile_compute_as_the_fewest_that_have_one(unlike, strategy, play):
    made = plan(unlike, strategy)
    assert made.threads == (1, 2)
    kept = replace(unlike, profiles={1: unlike.profiles[1]})
    assert play(made, kept).step_s > play(made, unlike).step_s
    assert (
        play(made, kept).step_s == play(made, replace(unlike, profiles=dict.fromkeys((1, 2), kept.profiles[1]))).step_s
    )


def test_a_typical_worker_is_one_of_all_workers_however_many_share_its_node():
    """Three workers on a fast node, and two on slow ones: most are fast, though most nodes are slow."""
    link = channel()
    nodes = tuple(
        Node(name=name, cores=4.0, speed=speed, memory_bytes=1 << 40, local=link, uplink=link, downlink=link)
        for name, speed in (("fast", 1.0), ("slow", 0.5), ("as slow", 0.5))
    )
    names = ("fast", "fast", "fast", "slow", "as slow")
    question = facts(GRAPH, 5, cluster=Cluster(nodes=nodes), nodes=names, profiles={1: profile(GRAPH, 1e-2)})
    made = plan(question, "ps-async")
    even_s = drift_back(made, with_nodes(question, lambda node: replace(node, speed=1.0))).step_s
    assert drifts_without(made, question, 1.0, [EVEN_LOAD])[EVEN_LOAD] == even_s
