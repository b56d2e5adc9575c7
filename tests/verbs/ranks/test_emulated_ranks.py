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


def test_samples_that_are_not_there_at_first_are_told(tmp_path, monkeypatch):
    nodes = "".join(f'[[node]]\nname = "{name}"\nsamples = 7\nuplink = "1 Gbit/s"\n' for name in "ab")
    (tmp_path / "c.toml").write_text(nodes)
    box = SimpleNamespace(notes=())
    monkeypatch.setattr("nfold.verbs.ranks.emulated_ranks.emulated", lambda cluster: contextlib.nullcontext(box))
    said = []
    for nodes, steps in (("1:1", None), ("1:2", None), ("1:1", 9)):
        options = Options(emulate=tmp_path / "c.toml", nodes=nodes, place="auto", steps=steps)
        with emulated_ranks(options, said.append, queue.SimpleQueue()):
            pass
    absent = "note: not there at first: b (7 samples). "
    assert [text.removeprefix(absent) for text in said] == [
        "What the run does not count yet counts once its node has joined, by a fault or by nfold scale; beside a "
        "scheduler, or averages that count epochs, such a node does not join",
        "With --steps, a node does not join whose samples the run does not count yet",
    ]


@pytest.fixture
def said():
    """Lines for the user."""
    return []


@pytest.fixture
def three(tmp_path, said):
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
    return EmulatedRanks(box, options.rank_nodes, options.faults, said.append, events, options.hosts), events


def fault(text):
    cluster = parse_cluster('[[node]]\nname = "n"\ncount = 3\nuplink = "1 Gbit/s"\n', "c.toml")
    return parse_fault(text, cluster)


def test_a_node_that_joins_gets_the_member_that_is_started_next(three):
    ranks, events = three
    with pytest.raises(
        ClusterError, match=r"member 2 has no node: each node .* when a --fault or nfold scale lets them join"
    ):
        ranks.place(2, ["run"])
    ranks.warn(fault("join n-2@1s"))
    assert events.get_nowait().node.name == "n-2"
    delays = "10.77.0.0=0.002,10.77.0.1=0.002"
    assert ranks.place(2, ["run"]) == ["n-2", "run", "--host", "10.77.0.2", "--delays", delays]


def test_the_member_that_came_last_leaves_its_node(three):
    ranks, events = three
    ranks.warn(fault("leave n-1@1s"))
    ranks.left(1)
    ranks.warn(fault("join n-1@2s"))
    ranks.place(2, ["run"])
    ranks.warn(fault("leave n-1@3s"))
    first, ready, second = [events.get_nowait() for _ in range(3)]
    assert (first.member, second.member) == (1, 2)
    assert (first.why, ready.why) == ('--fault "leave n-1@1s"', '--fault "join n-1@2s"')
    assert 0 <= time.time() - ready.launched_at < 60


def test_another_terminal_lets_nodes_come_and_leave(three, said):
    ranks, events = three
    assert ranks.answer("+1") == "n-2 to take part as soon as possible"
    assert events.get_nowait().node.name == "n-2"
    assert ranks.answer("2") == "refused: n-2 joined only just now. Ask again in a moment"
    ranks.warn(fault("join n-2@1s"))
    assert said == ["note: --fault 'join n-2@1s': n-2 takes part already"]
    ranks.place(2, ["run"])
    assert ranks.answer("+1").startswith("refused: 4 hosts would be outside of --nodes 1:3")
    assert ranks.answer("1") == "n-2, n-1 to leave after the step under way"
    assert [events.get_nowait() for _ in range(2)] == [
        ev.ReleaseWanted(member, "given back by nfold scale") for member in (2, 1)
    ]
    assert (
        ranks.answer("3") == "refused: 0 nodes of the emulated cluster could come now. Ask again once others have left"
    )
    ranks.left(1)
    assert ranks.answer("2") == "n-1 to take part as soon as possible"
    assert not ranks.warn(fault("leave n-2@9s"))
    assert said[1:] == ["note: --fault 'leave n-2@9s': n-2 does not take part by now, so it does not leave"]


def test_a_node_that_was_killed_may_join_before_that_is_noticed(three, said):
    ranks, events = three
    assert ranks.warn(fault("kill n-1@1s"))
    assert ranks.warn(fault("join n-1@2s"))
    assert events.get_nowait() == ev.KillAnnounced((1,), "kill n-1@1s")
    assert (events.get_nowait().node.name, said) == ("n-1", [])
