"""What may be asked of a run, from Python too, where any type may be given."""

from dataclasses import replace

import numpy
import pytest

from nfold.core.cluster import Channel, Cluster, Node
from nfold.errors import PlanError
from nfold.runtime.coordinator.placing.emulated_parts import parts_of
from nfold.verbs.options.option_checks import Options
from nfold.verbs.train import plan


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"steps": 2.5}, "steps is 2.5: it must be a whole number"),
        ({"workers": 2.0}, "workers is 2.0: it must be a whole number"),
        ({"workers": "2"}, "workers is '2': it must be a whole number"),
        ({"workers": True}, "workers is True: it must be a whole number"),
        ({"workers": 0}, "workers is 0: it must be at least 1"),
        ({"port": "80"}, "port is '80': it must be a whole number"),
        ({"servers": None}, "servers is None: it must be a whole number"),
        ({"servers": -1}, "servers is -1: it must be at least 0"),
        ({"strategy": "ssp", "staleness": 1.5}, "staleness is 1.5: it must be a whole number"),
        ({"seed": "7"}, "--seed 7: it must be a whole number from -2^63 to 2^64 - 1"),
        ({"first_step_within": "300"}, "first_step_within is '300': it must be a number of seconds"),
        ({"first_step_within": float("nan")}, "first_step_within is nan: it must be a number of seconds"),
        ({"out": 5}, "out is 5: it must be the path of a folder"),
        (
            {"place": "best"},
            "unknown --place 'best'. Use one of: auto, nothing, equal, ilp, greedy, lp, waterfill, overlap",
        ),
        ({"place": "auto", "servers": 1, "strategy": "ps"}, "--place lets ranks train on what lives on their nodes"),
        ({"emulate": 5}, "emulate is 5: it must be a cluster, or the path of its file"),
        (
            {"fault": "kill n2@30s"},
            "fault is 'kill n2@30s': it must be a list of such texts, as in fault=['kill n2@30s']",
        ),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_with_its_value(wrong, said):
    with pytest.raises(PlanError) as refused:
        Options(**wrong)
    assert str(refused.value).startswith(said)


def test_there_is_a_worker_on_each_node_unless_the_strategy_is_for_one():
    link = Channel(latency_s=0.0, bandwidth_bytes_per_s=1e9, origin="declared")
    nodes = (Node(name=name, cores=1.0, memory_bytes=1 << 30, local=link, uplink=link, downlink=link) for name in "abc")
    cluster = Cluster(nodes=tuple(nodes))
    assert Options(emulate=cluster, strategy="ring").workers == 3
    assert Options(emulate=cluster, strategy="ps", servers=1).workers == 2
    assert Options(emulate=cluster, strategy="single").workers == 1


def holding(*samples):
    link = Channel(latency_s=0.0, bandwidth_bytes_per_s=1e9, origin="declared")
    kept = {"cores": 1.0, "memory_bytes": 1 << 30, "local": link, "uplink": link, "downlink": link}
    return Cluster(
        nodes=tuple(Node(name=name, num_samples=held, **kept) for name, held in zip("ab", samples, strict=True))
    )


def test_samples_that_nobody_would_train_on_are_refused():
    with pytest.raises(PlanError) as refused:
        Options(emulate=holding(5, 6), workers=1, place="auto")
    assert str(refused.value).startswith("--place auto: b holds samples and has no rank. Leave -n out")


def test_emulated_nodes_that_hold_samples_may_come_later():
    later = Options(emulate=holding(5, 6), nodes="1:2", fault=["join a@5s"], place="auto")
    assert parts_of(later.settings()) == [{"first": 5, "count": 6, "total": 11, "pinned": 0}]
    with pytest.raises(PlanError, match="--steps 9: a holds samples and joins later, which makes epochs longer"):
        replace(later, steps=9)
    with pytest.raises(PlanError, match="Leave out --nodes, or use --place auto"):
        Options(emulate=holding(5, 6), nodes="1:2", place="nothing")


def test_emulated_nodes_whose_samples_a_run_does_not_know_do_not_begin_it():
    options = Options(emulate=holding(5, 6), nodes="1:2", strangers=("a",), place="auto")
    assert (options.rank_nodes, options.workers) == (("b",), 1)
    with pytest.raises(PlanError, match="1 node would be there at the start, since a come later: the run does"):
        Options(emulate=holding(5, 6), nodes="2:2", strangers=("a",), place="auto")


def test_what_lives_on_nodes_without_samples_the_program_may_say():
    settings = Options(emulate=holding(None, None), place="auto").settings()
    assert parts_of(settings) == [None, None]
    settings = Options(emulate=holding(5, None), place="auto").settings()
    assert [part["count"] for part in parts_of(settings)] == [5, 0]


def test_whole_numbers_of_other_types_become_pythons_own():
    given = {name: numpy.int64(4) for name in ("workers", "steps", "chunks", "seed", "checkpoint_every")}
    options = Options(**given, first_step_within=numpy.float32(2.5))
    assert {name: type(getattr(options, name)) for name in given} == dict.fromkeys(given, int)
    assert options == Options(**dict.fromkeys(given, 4), first_step_within=2.5)


def test_a_plan_names_the_whole_fault_too():
    with pytest.raises(PlanError, match="fault is 'kill n2@30s'"):
        plan("no such file.py", fault="kill n2@30s")


def test_hosts_that_come_and_go():
    options = Options(on="local", nodes="2:8", strategy="ring")
    assert (options.workers, options.num_hosts, options.num_asked) == (2, 2, 8)
    assert options.typed_hosts == "--on local --nodes 2:8"
    settings = options.settings()
    assert (str(settings.hosts), settings.default_chunks) == ("2:8", 8)
    assert Options(on="local", nodes="3").num_hosts == 3


def test_emulated_nodes_that_come_and_go(tmp_path):
    (tmp_path / "c.toml").write_text('[[node]]\nname = "n"\ncount = 4\n')
    options = Options(emulate=tmp_path / "c.toml", nodes="1:4", fault=["join n-1@5s", "kill n-0@3s"])
    assert (options.workers, options.rank_nodes) == (3, ("n-0", "n-2", "n-3"))
    assert options.member_nodes == ("n-0", "n-2", "n-3", "n-1")
    settings = options.settings()
    assert [node.name for node in settings.cluster.nodes] == ["n-0", "n-2", "n-3"]
    assert (settings.nodes, settings.default_chunks, str(settings.hosts)) == (options.rank_nodes, 4, "1:4")


def test_hosts_that_come_and_go_hold_for_a_while():
    asked = {"on": "local", "nodes": "2:8"}
    times = [Options(**asked, hold_for=given).hold_s for given in (None, "30m", 5, "0", 0)]
    assert times == [600.0, 1800.0, 5.0, 0.0, 0.0]
    assert Options(on="local", nodes=2).hold_s == 0.0
    assert "--hold-for 30m" in Options(**asked, hold_for="30m").typed_hosts


def test_a_run_whose_hosts_held_begins_with_all_that_are_back():
    back = replace(Options(on="local", nodes="2:8"), nodes=5, workers=5)
    assert (back.num_hosts, back.num_asked, str(back.hosts)) == (5, 8, "2:8")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"nodes": "2:1"}, "--nodes 2:1: it must be a number of hosts, or the fewest that may train and then the most"),
        ({"nodes": "0:1"}, "--nodes 0:1: it must be"),
        ({"nodes": "many"}, "nodes is 'many': it must be a whole number, or two"),
        ({"nodes": "2:8", "place": "nothing"}, "with --place nothing all samples stay where they are, and so must"),
        ({"nodes": "2:8", "place": "auto", "chunks": 8}, "with --place each host that trains has one chunk of a batch"),
        (
            {"nodes": "1:3", "strategy": "pipeline"},
            "cuts the model, which takes two hosts. Use --nodes 2:3, or leave out",
        ),
        ({"nodes": "2:8", "protect": 0}, "--protect 0: it must be auto, off, or the most steps"),
        ({"nodes": "2:8", "checkpoint_every": 0}, "Leave out --checkpoint-every 0"),
        ({"nodes": "2:8", "workers": 4}, "each host has one rank, a worker. Leave out -n"),
        ({"nodes": "2:8", "servers": 1}, "Leave out -n and --servers"),
        ({"nodes": "1:8", "strategy": "single"}, "--strategy single trains on one host"),
        ({"nodes": "2:8", "hold_for": "soon"}, "--hold-for soon: it must be a time"),
        ({"nodes": "2", "hold_for": "5m"}, "--hold-for 5m is for hosts that come and go: --on or --listen"),
        ({"nodes": "2:8", "chunks": 4}, "a batch has 4 chunks, .* Use --nodes 2:4"),
    ],
)
def test_hosts_that_cannot_come_and_go(given, told):
    with pytest.raises(PlanError, match=told):
        Options(on="local", **given)


@pytest.mark.parametrize(
    ("wishes", "waits_s"),
    [
        ({"on": "local", "nodes": "2:4"}, 600.0),
        ({"on": "slurm", "nodes": "2:4", "hosts_within": "5m"}, 300.0),
        ({"on": "slurm", "nodes": "2:4", "gang": True}, 0.0),
        ({"listen": "0.0.0.0:7000", "nodes": "2:4"}, 600.0),
        ({"on": "local", "nodes": 4}, 0.0),
    ],
)
def test_those_who_are_left_wait_where_others_can_come(wishes, waits_s):
    assert Options(**wishes).settings().waits_s == waits_s


def test_a_command_that_says_how_many_workers_asks_for_hosts_that_stay():
    options = Options(on="local", nodes="2:8", hold_for="30m")
    assert options.typed_hosts_that_stay == "--on local"


def test_a_model_that_is_cut_needs_no_chunk_for_each_host():
    assert Options(on="local", nodes="2:4", strategy="pipeline", chunks=1).chunks == 1
