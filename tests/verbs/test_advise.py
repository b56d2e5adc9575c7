"""What advice measures, and what is refused before anything starts."""

import pytest

from nfold.core.cluster import Cluster, Node
from nfold.core.text.cluster_file import LOCAL
from nfold.errors import PlanError
from nfold.verbs.advise import advise, probing, read_sizes

CLUSTER = Cluster(
    nodes=tuple(Node(name=f"n{index}", cores=1.0, memory_bytes=1 << 30, local=LOCAL) for index in range(5))
)


@pytest.fixture
def hosts(tmp_path):
    (tmp_path / "hosts.txt").write_text("a slots=2\nb\nc\n")
    return f"ssh:{tmp_path / 'hosts.txt'}"


@pytest.mark.parametrize(("text", "sizes"), [("1:64", (1, 64)), ("64", (1, 64)), (8, (1, 8)), (" 3 : 3 ", (3, 3))])
def test_sizes_are_read(text, sizes):
    assert read_sizes(text) == sizes


@pytest.mark.parametrize("text", ["", "4:2", "0:3", "1:", "a:b", "1:2000", "-1:3", 2.5])
def test_sizes_without_sense_are_refused(text):
    with pytest.raises(PlanError, match=r"--nodes .*: it must be the fewest and the most nodes to look at, as in 1:64"):
        read_sizes(text)


@pytest.mark.parametrize(("probe", "most", "workers"), [(None, 16, 5), (None, 3, 3), (2, 16, 2)])
def test_an_emulated_cluster_is_measured_as_far_as_it_is_asked_about(probe, most, workers):
    options = probing({"emulate": CLUSTER, "steps": 7}, probe, most)
    assert (options.workers, options.nodes, options.steps) == (workers, None, 7)
    assert options.rank_nodes == tuple(f"n{index}" for index in range(workers))


@pytest.mark.parametrize(("probe", "most", "workers"), [(None, 16, 3), (None, 2, 2), (1, 16, 1)])
def test_listed_hosts_are_measured_with_a_worker_on_each(hosts, probe, most, workers):
    options = probing({"on": hosts}, probe, most)
    assert (options.workers, options.nodes, options.num_hosts) == (workers, workers, workers)


@pytest.mark.parametrize("wishes", [{"on": "local"}, {"on": "slurm:short"}, {"listen": "0.0.0.0:7000"}])
def test_of_others_two_are_asked_for_unless_more_are_wanted(wishes):
    assert [probing(wishes, probe, 16).nodes for probe in (None, 4)] == [2, 4]
    assert probing(wishes, 4, 1).nodes == 1


def test_more_than_there_are_cannot_be_measured(hosts):
    with pytest.raises(PlanError, match="--probe 9: more than the 5 nodes that can be measured"):
        probing({"emulate": CLUSTER}, 9, 16)
    with pytest.raises(PlanError, match="--probe 4: more than the 3 nodes"):
        probing({"on": hosts}, 4, 16)


@pytest.mark.parametrize(
    ("wishes", "said"),
    [
        ({}, r"none are given. Add --on KIND\[:WHERE\], --listen HOST:PORT or --emulate cluster.toml"),
        ({"on": "here"}, "none are given"),
        ({"emulate": CLUSTER, "probe": 0}, "--probe 0: it must be a whole number of nodes"),
        ({"emulate": CLUSTER, "probe": 1.5}, "--probe 1.5: it must be a whole number of nodes"),
        ({"emulate": CLUSTER, "price_per_hour": -1.0}, "--price-per-hour -1.0: it must be a number of more than 0"),
        ({"emulate": CLUSTER, "price_per_hour": "cheap"}, "--price-per-hour cheap: it must be a number"),
        ({"emulate": CLUSTER, "within": "soon"}, "--within soon: it must be a time"),
        ({"emulate": CLUSTER, "nodes": "2:1"}, "--nodes 2:1"),
    ],
)
def test_nonsense_is_refused_before_anything_is_measured(wishes, said):
    with pytest.raises(PlanError, match=said):
        advise("no such file.py", **wishes)


def test_what_runs_alone_understand_is_no_keyword():
    with pytest.raises(TypeError, match="advise"):
        advise("no such file.py", strategy="ring")
