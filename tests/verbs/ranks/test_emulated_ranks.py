"""Ranks in an emulated cluster: what the coordinator is told of what is done to them. The box itself is a stand-in."""

import contextlib
import queue
import time
from types import SimpleNamespace

import pytest

from nfold.core.text.cluster_file import parse_cluster
from nfold.errors import ClusterError
from nfold.launch.emulation.faults import parse_fault
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.verbs.options.option_checks import Options
from nfold.verbs.ranks.emulated_ranks import EmulatedRanks, emulated_ranks

WAIT_S = 10.0


def test_the_coordinator_is_told_whom_a_fault_kills_before_it_does(tmp_path, monkeypatch):
    (tmp_path / "c.toml").write_text('[[node]]\nname = "n"\ncount = 3\nuplink = "1 Gbit/s"\n')
    events = queue.SimpleQueue()
    box = SimpleNamespace(
        notes=(), kill=lambda node: events.put(f"killed {node}"), slow=lambda node, factor: events.put(f"slowed {node}")
    )
    monkeypatch.setattr("nfold.verbs.ranks.emulated_ranks.emulated", lambda cluster: contextlib.nullcontext(box))
    faults = ["slow n-0 0.5@0s", "kill n-1@1ms"]
    options = Options(workers=3, emulate=tmp_path / "c.toml", fault=faults)
    with emulated_ranks(options, lambda text: None, events) as ranks:
        assert ranks is not None
        ranks.take(cmd.TrainingBegins())
        assert [events.get(timeout=WAIT_S) for _ in range(3)] == [
            "slowed n-0",
            ev.KillAnnounced((1,), "kill n-1@1ms"),
            "killed n-1",
        ]


@pytest.fixture
def three(tmp_path):
    """Ranks on two of three nodes, which may come and go; and what the coordinator is told."""
    (tmp_path / "c.toml").write_text('[[node]]\nname = "n"\ncount = 3\nuplink = "1 Gbit/s"\n')
    options = Options(emulate=tmp_path / "c.toml", nodes="1:3", fault=["join n-2@1s"])
    events = queue.SimpleQueue()
    box = SimpleNamespace(
        cluster=options.emulated,
        address=lambda node: f"10.77.0.{node[-1]}",
        delay_s=lambda there, here: 0.002,
        enter=lambda node, command: [node, *command],
    )
    return EmulatedRanks(box, options.rank_nodes, options.faults, lambda text: None, events), events


def fault(text):
    cluster = parse_cluster('[[node]]\nname = "n"\ncount = 3\nuplink = "1 Gbit/s"\n', "c.toml")
    return parse_fault(text, cluster)


def test_a_node_that_joins_gets_the_member_that_is_started_next(three):
    ranks, events = three
    with pytest.raises(ClusterError, match=r"member 2 has no node: each node .* come when a --fault lets them join"):
        ranks.place(2, ["run"])
    ranks.warn(fault("join n-2@1s"))
    assert events.get_nowait().node.name == "n-2"
    delays = "10.77.0.0=0.002,10.77.0.1=0.002"
    assert ranks.place(2, ["run"]) == ["n-2", "run", "--host", "10.77.0.2", "--delays", delays]


def test_the_member_that_came_last_leaves_its_node(three):
    ranks, events = three
    ranks.warn(fault("leave n-1@1s"))
    ranks.warn(fault("join n-1@2s"))
    ranks.place(2, ["run"])
    ranks.warn(fault("leave n-1@3s"))
    first, ready, second = [events.get_nowait() for _ in range(3)]
    assert (first.member, second.member) == (1, 2)
    assert (first.why, ready.why) == ('--fault "leave n-1@1s"', '--fault "join n-1@2s"')
    assert 0 <= time.time() - ready.launched_at < 60
